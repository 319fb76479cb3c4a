"""Which parameter is what: roles by layer type, not by name or number of axes.

    layer                                        weight                  bias
    Linear, Bilinear, ConvNd                     rows, axis 0            plain
    ConvTransposeNd, Hugging Face's Conv1D       rows, axis 1            plain
    MultiheadAttention's projections             rows, axis 0            plain
    the last of these in order of registration,
      if Linear or a 1x1 convolution             columns                 plain
    RNN with ReLU                                rows, axis 0            plain
    anything else (norms, embeddings, LSTMs, own parameters)   plain

A weight that torch computes of others passes its role on to them:

    weight_norm, direction v      rows, the axis that has norms of its own: its scale has no effect
    weight_norm, gain g           rows where these are the filters of the layer, else plain
    spectral_norm, pruning        the role of the layer's weight
    any other parametrization     plain

By g and v scaled SGD moves g v / |v| as it would move the weight itself, to first order in the rate; with
unit norms the step is the same. LSTMs, GRUs and RNNs with tanh have no rescaling: their gates fix all scales.

Only a trace of the model could tell which map really is last, or that there are several heads: name
them in ``overrides``. A tied parameter is listed once; where its uses disagree it is plain, unless an
override of one of them says otherwise.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple, cast, get_args

from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList, type_before_parametrizations

from symoptim.errors import OptionError, with_article
from symoptim.geometry.filters import Axes, filter_axes
from symoptim.modules import require_module

Geometry = Literal["rows", "columns", "plain"]
GEOMETRIES: tuple[Geometry, ...] = get_args(Geometry)

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d
TransposedConvolution = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d
WithFilters = nn.Linear | nn.Bilinear | Convolution | TransposedConvolution
ATTENTION_PROJECTIONS = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")


class Role(NamedTuple):
    """What a parameter is to an update: its geometry, the axis that counts its outputs, and why."""

    geometry: Geometry
    axis: int = 0
    reason: str = ""


class Routed(NamedTuple):
    """A parameter with all its names (several when it is tied) and its role."""

    names: tuple[str, ...]
    parameter: nn.Parameter
    role: Role


def axes_of(geometry: Geometry, axis: int, dimensions: int) -> Axes:
    """Axes the filters of a parameter extend over; ``axis`` counts outputs, the other one inputs.

    >>> axes_of("rows", 0, 2), axes_of("columns", 0, 2), axes_of("rows", 1, 4)
    ((-1,), (-2,), (-4, -2, -1))
    """
    return filter_axes(dimensions, 1 - axis if geometry == "columns" else axis)


def route(
    model: nn.Module,
    overrides: Mapping[str, Geometry | Role] | None = None,
    found: Mapping[str, Role] | None = None,
) -> list[Routed]:
    """Give every parameter of ``model`` its role, each parameter exactly once.

    Args:
        model: the network; lazy modules must have seen an input.
        overrides: role by name of a module (for the weights under it) or of a parameter, or by a pattern of
            such names (``"*.lora_B.*"``); the longest matching name wins, then the longest pattern.
        found: roles by name of a parameter that are known better than by the type of its layer.

    Returns:
        All parameters in the model's order.

    Raises:
        OptionError: it is no model, has no parameters, or an override names nothing.
    """
    model = require_module(model)
    if not isinstance(overrides, Mapping | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(
            "overrides= says for names of modules or parameters what geometry they have, such as "
            f"{{'head': 'columns'}}; got {overrides!r}: give a dictionary"
        )
    overrides, found = overrides or {}, found or {}
    uses = [(name, parameter, found.get(name, role)) for name, parameter, role in _uses(model)]
    _require_known(overrides, model)
    if not uses:
        raise OptionError(f"{type(model).__name__} has no parameters to optimize")
    by_parameter: dict[int, list[tuple[str, nn.Parameter, Role]]] = {}
    for use in uses:
        by_parameter.setdefault(id(use[1]), []).append(use)
    return [_routed(same, overrides) for same in by_parameter.values()]


def _routed(uses: list[tuple[str, nn.Parameter, Role]], overrides: Mapping[str, Geometry | Role]) -> Routed:
    """One parameter with all its uses: what the user says of any of them, else what they agree on."""
    parameter = uses[0][1]
    asked = [_override(name, parameter, role, overrides) for name, _, role in uses]
    roles = [role for role in asked if role] or [role for _, _, role in uses]
    agreed = all(role[:2] == roles[0][:2] for role in roles)
    role = roles[0] if agreed else Role("plain", 0, "tied, and its uses disagree")
    return Routed(tuple(name for name, _, _ in uses), parameter, role)


def routed_in(part: nn.Module, routed: list[Routed]) -> list[Routed]:
    """Parameters of a part of a model, with the roles they have in the whole.

    Args:
        part: has parameters of the model, or others of the same names.
        routed: all parameters of the model.

    Returns:
        Those of the part, in its order.

    Raises:
        OptionError: it has one that is not in the model, or none at all.
    """
    named = list(part.named_parameters())
    by_identity = {id(one.parameter): one for one in routed}
    by_name = {name: one for one in routed for name in one.names}
    shared = any(id(parameter) in by_identity for _, parameter in named)
    found: list[Routed] = []
    for name, parameter in named:
        same = by_identity.get(id(parameter)) if shared else by_name.get(name)
        if same is None or same.parameter.shape != parameter.shape:
            raise OptionError(
                f"parameter '{name}' of shape {tuple(parameter.shape)} is not in the model: only= takes a "
                "part of it, with parameters that are the model's own or have their names and shapes"
            )
        found.append(same._replace(parameter=parameter))
    if not found:
        raise OptionError(f"only= is {with_article(type(part).__name__)} without parameters")
    return found


def _uses(model: nn.Module) -> Iterator[tuple[str, nn.Parameter, Role]]:
    """Every place a parameter is registered, with the role its own layer gives it."""
    last = _last_filters(model)
    for prefix, module in _named_modules(model):
        for name, parameter in module.named_parameters(prefix, recurse=False, remove_duplicate=False):
            if isinstance(parameter, nn.parameter.UninitializedParameter):
                raise OptionError(
                    f"parameter '{name}' is not initialized yet: run the lazy model on one input first"
                )
            yield name, parameter, _role_of(model, name, module, last)


def _named_modules(model: nn.Module) -> Iterable[tuple[str, nn.Module]]:
    # torch leaves it untyped
    return cast("Iterable[tuple[str, nn.Module]]", model.named_modules(remove_duplicate=False))


def embeddings_of(model: nn.Module) -> set[int]:
    """Identities of the tables of embeddings of a model."""
    kinds = nn.Embedding | nn.EmbeddingBag
    return {id(module.weight) for module in model.modules() if isinstance(module, kinds)}


def _last_filters(model: nn.Module) -> nn.Module | None:
    """The layer with filters that was registered last."""
    last = None
    for module in model.modules():
        if isinstance(module, WithFilters) or _is_conv1d(module):
            last = module
    return last


def _is_conv1d(module: nn.Module) -> bool:
    """Whether it is the linear map of Hugging Face's GPT-2, with a weight (inputs, outputs)."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2:
        return False
    named = any(kind.__name__ == "Conv1D" for kind in type(module).__mro__)
    return named and weight.shape[1] == getattr(module, "nf", None)


def _role_of(model: nn.Module, full_name: str, module: nn.Module, last: nn.Module | None) -> Role:
    """Role of a parameter that ``module`` owns, which may be one that torch computes a weight of."""
    prefix, _, name = full_name.rpartition(".")
    if isinstance(module, ParametrizationList):
        path, _, tensor = prefix.rpartition(".")
        layer = model.get_submodule(path.rpartition(".")[0])
        kind = type(module[0]).__name__ if len(module) == 1 else "several"
        if kind == "_WeightNorm":
            gain, direction = module.get_parameter("original0"), module.get_parameter("original1")
            return _normed_role(gain, direction, name == "original0", _role(layer, tensor, layer is last))
        if kind != "_SpectralNorm":
            return Role("plain", 0, f"parametrized by {kind}")
        return _before(_role(layer, tensor, layer is last), "spectral_norm")
    tensor, _, part = name.rpartition("_")
    own = dict(module.named_parameters(recurse=False))
    if tensor in own or not isinstance(getattr(module, tensor, None), Tensor):
        return _role(module, name, module is last)
    role = _role(module, tensor, module is last)
    if part == "orig":
        return _before(
            role, "pruning" if f"{tensor}_mask" in dict(module.named_buffers()) else "spectral_norm"
        )
    if part in ("g", "v") and f"{tensor}_g" in own and f"{tensor}_v" in own:
        return _normed_role(own[f"{tensor}_g"], own[f"{tensor}_v"], part == "g", role)
    return _role(module, name, module is last)


def _before(role: Role, what: str) -> Role:
    return role._replace(reason=f"{role.reason}, before {what}")


def _normed_role(gain: Tensor, direction: Tensor, is_gain: bool, role: Role) -> Role:
    """Role of the gain or the direction of ``weight_norm``, from that of the weight they make."""
    shapes = [
        [1] * axis + [size] + [1] * (direction.ndim - axis - 1) for axis, size in enumerate(direction.shape)
    ]
    axis = shapes.index(list(gain.shape)) if list(gain.shape) in shapes else -1
    if direction.ndim < 2 or axis not in (0, 1):
        return Role("plain", 0, "weight_norm, one norm for many filters")
    if not is_gain:
        return Role("rows", axis, "weight_norm direction")
    if role[:2] != ("rows", axis):
        return Role("plain", 0, "weight_norm gain, not of hidden filters")
    return Role("rows", axis, "weight_norm gain")


def _role(module: nn.Module, name: str, is_last: bool) -> Role:
    """Role of the tensor ``name`` of a layer."""
    if isinstance(module, nn.MultiheadAttention) and name in ATTENTION_PROJECTIONS:
        return Role("rows", 0, "attention projection")
    if isinstance(module, nn.RNNBase | nn.RNNCellBase) and name.startswith("weight"):
        return _recurrent_role(module, name)
    if name == "weight" and _is_conv1d(module):
        return Role("rows", 1, "Conv1D filters")
    if name != "weight" or not isinstance(module, WithFilters):
        return Role("plain", 0, "bias" if name == "bias" else f"{type(module).__name__} {name}")
    transposed = isinstance(module, TransposedConvolution)
    if transposed and module.groups > 1:
        return Role("plain", 0, "grouped transposed convolution: no axis counts its filters")
    axis, kind = 1 if transposed else 0, type_before_parametrizations(module).__name__
    if is_last and _is_pointwise(module):
        return Role("columns", axis, f"last {kind} registered")
    return Role("rows", axis, f"{kind} filters")


def _recurrent_role(module: nn.RNNBase | nn.RNNCellBase, name: str) -> Role:
    """Recurrent weights have filters that rescale only where no gate or tanh fixes scales."""
    kind = type(module).__name__
    if getattr(module, "nonlinearity", None) == "relu":
        return Role("rows", 0, f"{kind} {name}, with ReLU")
    return Role("plain", 0, f"{kind} {name}: gates or tanh fix its scale")


def _is_pointwise(module: nn.Module) -> bool:
    """A linear map on features: Linear, or an ungrouped convolution with a kernel of one pixel."""
    if isinstance(module, Convolution | TransposedConvolution):
        return module.groups == 1 and all(size == 1 for size in module.kernel_size)
    return isinstance(module, nn.Linear)


def _override(
    name: str, parameter: Tensor, role: Role, overrides: Mapping[str, Geometry | Role]
) -> Role | None:
    """The user's role for a use of a parameter, if any; a module's override leaves 1-D parameters alone."""
    around = _around(name)
    chosen = next((prefix for prefix in around if prefix in overrides), None)
    if chosen is None:
        chosen = max((key for key in overrides if _matches(key, around)), key=len, default=None)
    if chosen is None or (chosen != name and parameter.ndim < 2):
        return None
    wanted = overrides[chosen]
    axis = 0 if wanted == "plain" else role.axis  # all plain parameters are in one group
    return wanted if isinstance(wanted, Role) else Role(wanted, axis, f"override '{chosen}'")


def names_any(overrides: Iterable[str], names: Iterable[str]) -> bool:
    """Whether an override names a parameter of these names, or a module it is in.

    >>> names_any(["body"], ["body.0.weight"]), names_any(["body"], ["body2.weight"]), names_any([""], ["a"])
    (True, False, True)
    >>> names_any(["*.lora_B"], ["query.lora_B.weight"]), names_any(["*.lora_B"], ["query.lora_A.weight"])
    (True, False)
    """
    return any(key in around or _matches(key, around) for around in map(_around, names) for key in overrides)


def _around(name: str) -> list[str]:
    """A name, and those of all modules it is in, the model's own (empty) last."""
    return [name, *(name[:i] for i in range(len(name) - 1, 0, -1) if name[i] == "."), ""]


def _matches(pattern: str, names: Iterable[str]) -> bool:
    return any(name and fnmatchcase(name, pattern) for name in names)


def _require_known(overrides: Mapping[str, Geometry | Role], model: nn.Module) -> None:
    """Refuse an override that would silently do nothing, or ask for a geometry there is not."""
    names = [name for name, _ in _named_modules(model)]
    parameters = list(model.named_parameters(remove_duplicate=False))
    names += [name for name, _ in parameters]
    for name, wanted in overrides.items():
        if name not in names and not _matches(name, names):
            near = difflib.get_close_matches(name, names, n=3)
            few = ", ".join(filter(None, names[:9]))
            hint = f"did you mean {', '.join(near)}?" if near else f"it has {few}"
            part = name.strip("*.")
            if any(part in one for one in names):
                hint = f"a part of names is written as '*{part}*'"
            raise OptionError(f"override '{name}' names no module or parameter of the model; {hint}")
        role = wanted if isinstance(wanted, Role) else Role(wanted)
        require_geometry(role.geometry)
        if role.axis not in (0, 1):
            raise OptionError(f"override '{name}' has axis {role.axis}; it must be 0 or 1")
        if role.geometry != "plain" and not any(p.ndim > 1 and names_any([name], [n]) for n, p in parameters):
            raise OptionError(
                f"override '{name}' names nothing that has filters: no weight of two axes or more"
            )


def require_geometry(geometry: object) -> None:
    """Refuse a geometry there is not.

    >>> require_geometry("row")
    Traceback (most recent call last):
    symoptim.errors.OptionError: unknown geometry 'row'; choose one of rows, columns, plain
    """
    if geometry not in GEOMETRIES:
        raise OptionError(f"unknown geometry {geometry!r}; choose one of {', '.join(GEOMETRIES)}")
