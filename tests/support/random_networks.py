"""Random small networks, written as lines of code: what the soundness of discovery is tried on.

``OPERATIONS`` says for every operation how a line is written about a value ``x`` of the network; a line
that torch refuses, or whose result is not finite, is left out. A network prints as its own code.
"""

import copy
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody does
from hypothesis import strategies as st
from torch import Tensor, nn

LARGEST = 160  # entries of a value
INPUTS = {"image": (2, 4, 3, 3), "sequence": (2, 3, 4), "features": (3, 4)}


@dataclass(frozen=True)
class Value:
    """A tensor of a network: its name in the code, and its shape."""

    name: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return self.name


class Network(nn.Module):
    """A network that runs lines of code; ``p`` are its parameters, ``s`` and ``v`` buffers (v positive)."""

    def __init__(
        self, lines: Sequence[str], results: Sequence[str], leaves: dict[str, tuple[int, ...]]
    ) -> None:
        super().__init__()
        self.lines, self.results = [*lines, f"result = ({', '.join(results)},)"], results
        self.leaves = leaves
        self.code = compile("\n".join(self.lines), "<network>", "exec")
        for name, shape in leaves.items():
            empty = torch.zeros(shape, dtype=torch.float64)
            if name[0] == "p":
                self.register_parameter(name, nn.Parameter(empty))
            else:
                self.register_buffer(name, empty)
        self.draw(0)

    @torch.no_grad()
    def draw(self, seed: int) -> None:
        """Draw all weights anew."""
        generator = torch.Generator().manual_seed(seed)
        for name, tensor in [*self.named_parameters(), *self.named_buffers()]:
            drawn = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
            tensor.copy_(drawn.square() + 0.5 if name[0] == "v" else drawn)

    def forward(self, x: Tensor, tokens: Tensor) -> tuple[Tensor, ...]:
        names = {"torch": torch, "F": F, "math": math, "x": x, "tokens": tokens}
        names |= {name: getattr(self, name) for name in self.leaves}
        exec(self.code, names)
        return names["result"]

    def __repr__(self) -> str:
        shapes = [f"{name}: {shape}" for name, shape in self.leaves.items()]
        return "\n".join(["", f"# {', '.join(shapes)}", *self.lines])


def arguments_of(kind: str, seed: int) -> tuple[Tensor, Tensor]:
    """Inputs: an image, a sequence or features, and tokens below 5."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(INPUTS[kind], generator=generator, dtype=torch.float64)
    return x, torch.randint(5, (2, 3), generator=generator)


@dataclass
class Writer:
    """Writes the lines of one network, and runs each to know the shape of its result."""

    x: Tensor
    tokens: Tensor
    random: Random = field(default_factory=Random)
    lines: list[str] = field(default_factory=list)
    leaves: dict[str, tuple[int, ...]] = field(default_factory=dict)
    values: list[Value] = field(default_factory=list)
    running: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.running = {"torch": torch, "F": F, "math": math, "x": self.x, "tokens": self.tokens}
        self.values = [Value("x", tuple(self.x.shape))]

    def one_of(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def axis(self, x: Value) -> int:
        return self.random.randrange(-len(x.shape), len(x.shape))

    def any_value(self, *, like: tuple[int, ...] | None = None) -> Value:
        """Some value, rather a late one; of that shape if there is any."""
        fitting = [value for value in self.values if like is None or value.shape == like]
        if not fitting:
            return self.leaf("p", *like or ())
        return self.one_of(fitting[-1], fitting[-1], fitting[-1], self.one_of(*fitting))

    def leaf(self, letter: str, *shape: int) -> Value:
        """A new parameter or buffer."""
        name = f"{letter}{len(self.leaves)}"
        self.leaves[name] = shape
        drawn = torch.randn(shape, generator=torch.Generator().manual_seed(len(self.leaves))).double()
        self.running[name] = drawn.square() + 0.5 if letter == "v" else drawn
        self.values.insert(0, Value(name, shape))
        return self.values[0]

    def weight(self, *shape: int) -> Value:
        """A parameter, new or used before; sometimes one that is cut out, turned or computed."""
        how = self.one_of("new", "new", "new", "again", "turned", "cut", "sum", "zero padded", "buffer")
        if how == "again":
            return self.any_value(like=shape)
        if how == "turned" and len(shape) > 1:
            return self.made(f"{self.leaf('p', shape[1], shape[0], *shape[2:])}.transpose(0, 1)")
        if how == "cut" and shape:
            return self.made(f"{self.leaf('p', shape[0] + 2, *shape[1:])}[1:-1]")
        if how == "sum":
            return self.made(f"{self.leaf('p', *shape)} + {self.leaf('p')}")
        if how == "zero padded" and shape and shape[-1] > 1:
            return self.made(f"F.pad({self.leaf('p', *shape[:-1], shape[-1] - 1)}, (1, 0))")
        return self.leaf("s" if how == "buffer" else "p", *shape)

    def made(self, code: str) -> Value:
        """Write a line that makes a weight: values come after it."""
        self.add(code)
        self.values.insert(0, self.values.pop())
        return self.values[0]

    def add(self, code: str) -> Value:
        """Write a line; raises what torch raises."""
        result = eval(code, dict(self.running))
        results = result if isinstance(result, tuple | list) else [result]
        if not all(
            isinstance(one, Tensor) and 0 < one.numel() <= LARGEST and one.dim() < 5 for one in results
        ):
            raise ValueError("not wanted")
        if not all(bool(one.isfinite().all()) for one in results):
            raise ValueError("not finite")
        names = [f"t{len(self.running) + number}" for number in range(len(results))]
        self.lines.append(f"{', '.join(names)}{',' if isinstance(result, tuple | list) else ''} = {code}")
        self.running |= dict(zip(names, results, strict=True))
        self.values += [Value(name, tuple(one.shape)) for name, one in zip(names, results, strict=True)]
        return self.values[-1]


Line = Callable[[Writer, Value], str]


def each(templates: str) -> list[Line]:
    """Lines that need nothing but ``x``, an axis ``a`` of it, and ``y``, which has its shape."""

    def line(template: str) -> Line:
        return lambda w, x: template.format(x=x, a=w.axis(x), y=w.any_value(like=x.shape))

    return [line(template) for template in templates.split()]


def convolution(w: Writer, x: Value) -> str:
    kind, count = w.one_of("conv", "conv_transpose"), len(x.shape) - 2
    groups, out, kernel = w.one_of(1, 1, 2), w.one_of(2, 4), w.one_of(1, 2)
    shape = (out, x.shape[1] // groups) if kind == "conv" else (x.shape[1], out // groups)
    bias = w.one_of("None", w.weight(out))
    options = f"stride={w.one_of(1, 2)}, padding={w.one_of(0, 1)}, dilation={w.one_of(1, 2)}"
    return f"F.{kind}{count}d({x}, {w.weight(*shape, *[kernel] * count)}, {bias}, groups={groups}, {options})"


def linear(w: Writer, x: Value) -> str:
    out = w.one_of(2, 3, 4)
    return f"F.linear({x}, {w.weight(out, x.shape[-1])}, {w.one_of('None', w.weight(out))})"


def batch_norm(w: Writer, x: Value) -> str:
    c, training = x.shape[1], w.one_of(True, False)
    gain, shift = w.one_of(("None", "None"), (w.weight(c), w.weight(c)), (w.weight(c), "None"))
    stats = f"{w.leaf('s', c)}, {w.leaf('v', c)}"
    return f"F.batch_norm({x}, {stats}, {gain}, {shift}, training={training}, eps=1e-30)"


def normalization(w: Writer, x: Value) -> str:
    c, last = x.shape[1], x.shape[-1]
    gain, shift = w.one_of(("None", "None"), (w.weight(last), w.weight(last)))
    wide, bias = w.one_of(("None", "None"), (w.weight(c), w.weight(c)))
    return w.one_of(
        f"F.layer_norm({x}, ({last},), {gain}, {shift}, eps=1e-30)",
        f"F.rms_norm({x}, ({last},), {gain}, eps=1e-30)",
        f"F.group_norm({x}, {w.one_of(1, 2)}, {wide}, {bias}, eps=1e-30)",
        f"F.instance_norm({x}, weight={wide}, bias={bias}, eps=1e-30)",
        f"F.normalize({x}, dim={w.axis(x)}, eps=1e-30)",
    )


def attention(w: Writer, x: Value) -> str:
    q, k, v = (w.any_value(like=x.shape) for _ in range(3))
    scores = f"{q} @ {k}.transpose(-2, -1)"
    mask = f"torch.ones({x.shape[-2]}, {x.shape[-2]}, dtype=torch.bool).triu(1)"
    return w.one_of(
        f"F.scaled_dot_product_attention({q}, {k}, {v}, is_causal={w.one_of(True, False)})",
        f"({scores}).softmax(-1) @ {v}",
        f"({scores}).masked_fill({mask}, {w.one_of('-math.inf', -1e30, -1e4)}).softmax(-1) @ {v}",
    )


def fill(w: Writer, x: Value) -> str:
    number = w.one_of(0.0, 0, 1.0, -1e9)
    return w.one_of(
        f"torch.where({x} > {w.one_of(0, 1, w.any_value(like=x.shape))}, {x}, {number})",
        f"{x}.masked_fill({w.any_value(like=x.shape)} < 0, {number})",
        f"torch.where(torch.arange({x.shape[-1]}) > 0, {w.any_value(like=x.shape)}, {x})",
        f"F.pad({x}, (1, 0), value={number})",
        f"torch.full({x.shape}, {float(number)}, dtype=torch.float64) + {x}",
    )


def indexed(w: Writer, x: Value) -> str:
    places = f"torch.tensor([0, {x.shape[0] - 1}])"
    y = w.any_value(like=(2, *x.shape[1:]))
    return w.one_of(
        f"{x}[{places}]",
        f"{x}.index_select({w.axis(x)}, torch.tensor([0, 0]))",
        f"{x}.gather({w.axis(x)}, {x}.argsort(-1))",
        f"{x}.index_put(({places},), {y}, accumulate={w.one_of(True, False)})",
        f"{x}.index_add(0, {places}, {y}, alpha={w.one_of(1, 2)})",
        f"{x}.scatter({w.axis(x)}, torch.zeros({x.shape}, dtype=torch.long), {w.any_value(like=x.shape)})",
        f"torch.zeros_like({x}).index_copy(0, {places}, {y})",
        f"{x}.clone().index_fill_(0, {places}, {w.one_of(0, 1)})",
    )


def contraction(w: Writer, x: Value) -> str:
    last, out = x.shape[-1], w.one_of(2, 3)
    return w.one_of(
        f"{x} @ {w.weight(last, out)}",
        f"{x} @ {w.any_value(like=x.shape)}.mT",
        f"torch.einsum('...k,kn->...n', {x}, {w.weight(last, out)})",
        f"torch.addmm({w.weight(out)}, {x}, {w.weight(last, out)}, beta={w.one_of(0, 1, 2)}, alpha=0.5)",
        f"{x} @ {w.weight(last)}",
        f"torch.cdist({x}, {w.any_value(like=x.shape)})",
    )


OPERATIONS: dict[str, list[Line]] = {
    "linear": [linear] * 3,
    "convolution": [convolution] * 2,
    "batch norm": [batch_norm] * 5,
    "normalization": [normalization] * 7,
    "activation": each(
        """
        F.relu({x}) F.relu({x}) F.relu({x}) F.leaky_relu({x}) F.leaky_relu({x},-0.5) {x}.abs() {x}.tanh()
        F.gelu({x}) F.silu({x}) {x}.sign() {x}.neg() F.relu6({x}) {x}.floor() F.glu({x},{a})
        {x}.clamp(min=0) {x}.clamp(0,6) {x}.clamp(min={y}) {x}.square() {x}**3 {x}**0 {x}.abs().sqrt()
        {x}.long().double() {x}.abs()**1.234567 F.softmax({x},{a}) ({x}>0).double() torch.logsumexp({x},{a})
        """
    ),
    "prelu": [lambda w, x: f"F.prelu({x}, {w.weight(x.shape[1])})"],
    "two values": each(
        """
        {x}+{y} {x}+{y} {x}-{y} torch.add({x},{y},alpha=0.5) {x}*{y} {x}/{y} torch.maximum({x},{y})
        torch.addcmul({x},{y},{y}) torch.lerp({x},{y},0.3) torch.hypot({x},{y}) ({x}==0)*{y} {x}*0+{y}
        torch.cat([{x},{y}],{a}) torch.stack([{x},{y}]) torch.cat([{x},torch.zeros_like({x})],{a})
        """
    ),
    "a number": each("{x}*2 {x}+0 {x}+1 1-{x} {x}/3 2/{x} {x}*-1"),
    "broadcast": [
        lambda w, x: f"{x} {w.one_of('+', '+', '-', '*', '/')} {w.weight(x.shape[-1])}",
        lambda w, x: f"{x} {w.one_of('+', '*')} {w.weight(*x.shape[:1], *[1] * (len(x.shape) - 1))}",
        lambda w, x: f"{x} {w.one_of('+', '-', '*', '/')} {w.any_value()}",
        lambda w, x: f"{x} + {w.weight()}",
    ],
    "pool": each(
        """
        F.max_pool1d({x},2,1) F.max_pool2d({x},2,1,padding=1) F.avg_pool1d({x},2) F.avg_pool2d({x},2)
        F.adaptive_avg_pool1d({x},2) F.adaptive_max_pool2d({x},1) F.max_pool1d({x},2,ceil_mode=True)
        F.interpolate({x},scale_factor=2,mode='nearest') F.lp_pool1d({x},2,2) F.pixel_shuffle({x},2)
        F.max_unpool2d(*F.max_pool2d({x},2,1,return_indices=True),2,1)
        """
    ),
    "shape": each(
        """
        {x}.flatten(1) {x}.transpose({a},-1) {x}.flip({a}) {x}.roll(1,{a}) {x}.unsqueeze({a})
        {x}.chunk(2,{a}) {x}.reshape(-1,2) {x}.unbind({a}) {x}.repeat_interleave(2,{a}) {x}.narrow({a},0,2)
        {x}[...,1:] {x}.split(1,{a}) {x}.diagonal(dim1=-2,dim2=-1) {x}.permute(*reversed(range({x}.dim())))
        {x}.mT {x}.expand(2,*{x}.shape) {x}.repeat(2,*[1]*({x}.dim()-1)) {x}.unfold({a},2,1) {x}.tril()
        {x}.squeeze()
        """
    ),
    "reduction": each(
        """
        {x}.sum({a}) {x}.mean({a},keepdim=True) {x}.amax({a}) {x}.var({a}) {x}.std({a},keepdim=True)
        {x}.norm(dim={a}) {x}.norm(1,dim={a}) {x}.norm(math.inf) {x}.sum() {x}.mean((0,-1)) {x}.max({a})[0]
        {x}.cumsum({a}) {x}.sort({a})[0] {x}.topk(2,{a})[0] {x}.prod({a}) {x}.cumprod({a})
        {x}.median({a})[0] {x}.argmax({a}).double() {x}.cummax({a})[0] {x}-{x}.mean({a},keepdim=True)
        torch.std_mean({x},{a})
        """
    ),
    "attention": [attention] * 5,
    "fill": [fill] * 5,
    "index": [indexed] * 8,
    "contraction": [contraction] * 4,
    "tokens": [lambda w, x: f"F.embedding(tokens, {w.weight(5, x.shape[-1])})"],
    "in place": each(
        """
        {x}.clone().add_({y}) {x}.clone().mul_({y}) torch.zeros_like({x}).add_({y})
        {x}.clone().clamp_(min=0) torch.slice_scatter({x},{y}[:1],0,0,1)
        torch.select_scatter({x},{y}[0],0,0) [z:={x}.clone(),z[...,:1].copy_({y}[...,:1])][0]
        [z:={x}.clone(),z[1:].mul_(2).add_({y}[1:])][0] [z:=torch.zeros_like({x}),z[:1].add_({x}[1:])][0]
        """
    ),
    "unknown": each(
        """
        torch.fft.fft({x}).real {x}.sin() torch.matrix_exp({x}@{x}.mT/9) torch.as_strided({x},(2,),(1,))
        {x}.renorm(2,0,1) torch.linalg.svdvals({x})
        """
    ),
}


LAYERS = [linear, linear, convolution, contraction]
WORDS = re.compile(r"\w+")
TRIES = 6  # of a step, until torch takes its line


def write(writer: Writer, lines: Sequence[Line]) -> None:
    """Add one of these lines, the first that torch takes; of the others nothing stays."""
    for _ in range(TRIES):
        before = copy.copy(writer.lines), dict(writer.leaves), list(writer.values), dict(writer.running)
        try:
            writer.add(writer.one_of(*lines)(writer, writer.any_value()))
        except (RuntimeError, ValueError, IndexError, TypeError, AttributeError):
            writer.lines, writer.leaves, writer.values, writer.running = before
        else:
            return


@st.composite
def networks(
    draw: st.DrawFn, names: Sequence[str] = tuple(OPERATIONS), *, most: int = 5
) -> tuple[Network, str]:
    """A network and the kind of its input: a layer whose units may scale, lines of these kinds, a layer.

    A step is a seed: all lines are as likely, and a network that fails shrinks to the steps that matter.
    """
    lines = [line for name in names for line in OPERATIONS[name]]
    lines += LAYERS * (len(lines) // 16 + 1)
    kind = draw(st.sampled_from(sorted(INPUTS)))
    steps = draw(st.lists(st.integers(0, 2**48), min_size=3, max_size=most + 2))
    seed = draw(st.integers(0, 2**48))
    writer = Writer(*arguments_of(kind, 0))
    for number, step in enumerate(steps):
        writer.random = Random(f"{seed} {step}")
        write(writer, LAYERS if number in (0, len(steps) - 1) else lines)
    results = [writer.values[-1].name]
    if writer.one_of(False, False, False, True):
        results.append(writer.any_value().name)
    return Network(*needed(writer, results)), kind


def needed(writer: Writer, results: list[str]) -> tuple[list[str], list[str], dict[str, tuple[int, ...]]]:
    """Lines and leaves that results depend on."""
    names, lines = set(results), list[str]()
    for line in reversed(writer.lines):
        made, code = line.split(" = ", 1)
        if names & set(WORDS.findall(made)):
            lines.insert(0, line)
            names |= set(WORDS.findall(code))
    return lines, results, {name: shape for name, shape in writer.leaves.items() if name in names}
