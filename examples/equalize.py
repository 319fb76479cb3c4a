"""Round the weights of a depthwise network to 8 and 4 bits, one step size per tensor, balanced in three ways.

python examples/equalize.py              four seeds, under a minute on one core
python examples/equalize.py --quick      one seed, shorter training

Trained on 8x8 digits with batch normalization, which is folded into the convolutions; then the weights are
left as they are, or balanced pair by pair (cross-layer equalization of data-free quantization,
arXiv:1906.04721, which has to be told the pairs), or by ``symoptim.equalize_``, which is told nothing. "x5"
is the same network after a random rescaling by factors of up to 5 that changes none of its outputs.
"""

import argparse
import copy
import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

import symoptim
from symoptim.ensemble import Split
from symoptim.paper.data.digits import load_digits

WIDTHS = (16, 24, 32, 32, 48)
BITS = (8, 4)


def convolution(inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution, batch normalization, ReLU."""
    layer = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU())


def network() -> nn.Sequential:
    """A small MobileNet: convolutions of single channels, then across channels."""
    layers = [convolution(1, WIDTHS[0], 3)]
    for number, (inputs, outputs) in enumerate(itertools.pairwise(WIDTHS)):
        layers.append(convolution(inputs, inputs, 3, stride=2 if number == 1 else 1, groups=inputs))
        layers.append(convolution(inputs, outputs, 1))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTHS[-1], 10))


def images(pixels: Tensor) -> Tensor:
    """Rows of pixels as images of one channel."""
    return pixels.unflatten(1, (1, 8, 8))


def train(model: nn.Module, data: Split, *, epochs: int, seed: int) -> None:
    """Adam, with a rate that falls to zero."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        for index in torch.randperm(len(data.train_labels), generator=generator).split(50):
            optimizer.zero_grad()
            scores = model(images(data.train_images[index]))
            nn.functional.cross_entropy(scores, data.train_labels[index]).backward()
            optimizer.step()
        schedule.step()


def folded(model: nn.Sequential) -> nn.Sequential:
    """The same network for evaluation, with normalization inside its convolutions."""
    model.eval()
    layers: list[nn.Module] = []
    for part in model:
        layers += (
            [fuse_conv_bn_eval(part[0], part[1]), nn.ReLU()] if isinstance(part, nn.Sequential) else [part]
        )
    return nn.Sequential(*layers).requires_grad_(False)


def equalize_pairs_(model: nn.Sequential, sweeps: int = 40) -> None:
    """Cross-layer equalization: channels between two layers get the same largest weight on both sides."""
    layers = [layer for layer in model if isinstance(layer, nn.Conv2d | nn.Linear)]
    for _ in range(sweeps):
        for first, second in itertools.pairwise(layers):
            depthwise = isinstance(second, nn.Conv2d) and second.groups > 1
            after = second.weight if depthwise else second.weight.transpose(0, 1)  # a view, channels first
            sizes = [weight.abs().flatten(1).amax(dim=1).clamp(min=1e-8) for weight in (first.weight, after)]
            scale = (sizes[1] / sizes[0]).sqrt()
            first.weight.mul_(scale.reshape(-1, *[1] * (first.weight.dim() - 1)))
            first.bias.mul_(scale)
            after.div_(scale.reshape(-1, *[1] * (after.dim() - 1)))


def rounded(model: nn.Module, bits: int) -> nn.Module:
    """A copy with the weights of every layer on a grid of one step size; biases stay."""
    model = copy.deepcopy(model)
    for weight in (parameter for parameter in model.parameters() if parameter.dim() > 1):
        step = weight.abs().max() / (2 ** (bits - 1) - 1)
        weight.copy_((weight / step).round() * step)
    return model


def measure(model: nn.Module, data: Split) -> list[float]:
    """For all numbers of bits, change of the scores relative to their size, and accuracy on the test set."""
    x, figures = images(data.test_images), list[float]()
    plain = model(x)
    for bits in BITS:
        scores = rounded(model, bits)(x)
        figures.append(float((scores - plain).norm() / plain.norm()))
        figures.append(float((scores.argmax(dim=1) == data.test_labels).double().mean()))
    return figures


def compared(data: Split, *, epochs: int, seed: int, power: float) -> dict[str, list[float]]:
    """Train one network, and measure it balanced in every way, from both scalings."""
    torch.manual_seed(seed)
    model = network()
    train(model, data, epochs=epochs, seed=seed)
    with torch.no_grad():
        model = folded(model)
        spec = symoptim.discover(model, (images(data.test_images[:2]),))
        rescaled = spec.rescale_(copy.deepcopy(model), spec.random(seed=seed, spread=math.log(5)))
        ways: dict[str, Callable[[nn.Module], object]] = {
            "as it is": lambda model: model,
            "pair by pair": equalize_pairs_,
            "equalize_": lambda model: symoptim.equalize_(model, spec, power=power),
        }
        found: dict[str, list[float]] = {}
        for scaling, start in (("", model), ("x5, ", rescaled)):
            for way, balance in ways.items():
                balanced = copy.deepcopy(start)
                balance(balanced)
                found[scaling + way] = measure(balanced, data)
        scores = model(images(data.test_images))
    accuracy = float((scores.argmax(dim=1) == data.test_labels).double().mean())
    return {"not rounded": [0.0, accuracy] * len(BITS), **found}


def show(results: Sequence[dict[str, list[float]]]) -> None:
    """Print means over seeds."""
    print(
        f"{'mean of ' + str(len(results)) + ' seeds':20}"
        + "".join(f"  int{bits} error accuracy" for bits in BITS)
    )
    for way in results[0]:
        means = torch.tensor([result[way] for result in results]).mean(dim=0).reshape(-1, 2)
        print(f"{way:20}" + "".join(f"  {float(error):10.4f} {float(hits):8.3f}" for error, hits in means))


def main() -> None:
    """Train, balance, round, and show the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one seed and shorter training")
    parser.add_argument("--seeds", type=int, default=4, help="number of networks (default 4)")
    parser.add_argument("--power", type=float, default=8.0, help="p of equalize_ (default 8)")
    options = parser.parse_args()
    data = load_digits()
    epochs, seeds = (4, 1) if options.quick else (15, options.seeds)
    show([compared(data, epochs=epochs, seed=seed, power=options.power) for seed in range(seeds)])


if __name__ == "__main__":
    main()
