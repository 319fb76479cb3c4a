"""Which parameter is what: roles by layer type, not by name or number of axes.

    layer                                        weight                  bias
    Linear, Bilinear, ConvNd                     rows, axis 0            plain
    ConvTransposeNd                              rows, axis 1            plain
    MultiheadAttention's projections             rows, axis 0            plain
    the last of these in order of registration,
      if Linear or a 1x1 convolution             columns                 plain
    anything else (norms, embeddings, RNNs, own parameters)   plain

Only a trace of the model could tell which map really is last, or that there are several heads: name
them in ``overrides``. A tied parameter is listed once; where its uses disagree it is plain, unless an
override of one of them says otherwise.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, cast, get_args

from torch import Tensor, nn

from symoptim.errors import OptionError
from symoptim.geometry.filters import Axes, filter_axes

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
        overrides: role by name of a module (for the weights under it) or of a parameter; the longest
            matching name wins.
        found: roles by name of a parameter that are known better than by the type of its layer.

    Returns:
        All parameters in the model's order.

    Raises:
        OptionError: an override names nothing, or the model has no parameters.
    """
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


def _uses(model: nn.Module) -> Iterator[tuple[str, nn.Parameter, Role]]:
    """Every place a parameter is registered, with the role its own layer gives it."""
    last = _last_filters(model)
    for prefix, module in _named_modules(model):
        for name, parameter in module.named_parameters(prefix, recurse=False, remove_duplicate=False):
            if isinstance(parameter, nn.parameter.UninitializedParameter):
                raise OptionError(
                    f"parameter '{name}' is not initialized yet: run the lazy model on one input first"
                )
            yield name, parameter, _role(module, name.rpartition(".")[2], module is last)


def _named_modules(model: nn.Module) -> Iterable[tuple[str, nn.Module]]:
    # torch leaves it untyped
    return cast("Iterable[tuple[str, nn.Module]]", model.named_modules(remove_duplicate=False))


def _last_filters(model: nn.Module) -> nn.Module | None:
    """The layer with filters that was registered last."""
    last = None
    for module in model.modules():
        if isinstance(module, WithFilters):
            last = module
    return last


def _role(module: nn.Module, name: str, is_last: bool) -> Role:
    """Role of the parameter ``name`` that ``module`` itself owns."""
    if isinstance(module, nn.MultiheadAttention) and name in ATTENTION_PROJECTIONS:
        return Role("rows", 0, "attention projection")
    if name != "weight" or not isinstance(module, WithFilters):
        return Role("plain", 0, "bias" if name == "bias" else f"{type(module).__name__} {name}")
    transposed = isinstance(module, TransposedConvolution)
    if transposed and module.groups > 1:
        return Role("plain", 0, "grouped transposed convolution: no axis counts its filters")
    axis = 1 if transposed else 0
    if is_last and _is_pointwise(module):
        return Role("columns", axis, f"last {type(module).__name__} registered")
    return Role("rows", axis, f"{type(module).__name__} filters")


def _is_pointwise(module: nn.Module) -> bool:
    """A linear map on features: Linear, or an ungrouped convolution with a kernel of one pixel."""
    if isinstance(module, Convolution | TransposedConvolution):
        return module.groups == 1 and all(size == 1 for size in module.kernel_size)
    return isinstance(module, nn.Linear)


def _override(
    name: str, parameter: Tensor, role: Role, overrides: Mapping[str, Geometry | Role]
) -> Role | None:
    """The user's role for a use of a parameter, if any; a module's override leaves 1-D parameters alone."""
    prefixes = [name, *(name[:i] for i in range(len(name) - 1, 0, -1) if name[i] == "."), ""]
    chosen = next((prefix for prefix in prefixes if prefix in overrides), None)
    if chosen is None or (chosen != name and parameter.ndim < 2):
        return None
    wanted = overrides[chosen]
    return wanted if isinstance(wanted, Role) else Role(wanted, role.axis, f"override '{chosen}'")


def _require_known(overrides: Mapping[str, Geometry | Role], model: nn.Module) -> None:
    """Refuse an override that would silently do nothing, or ask for a geometry there is not."""
    names = [name for name, _ in _named_modules(model)]
    parameters = list(model.named_parameters(remove_duplicate=False))
    names += [name for name, _ in parameters]
    for name, wanted in overrides.items():
        if name not in names:
            near = difflib.get_close_matches(name, names, n=3)
            few = ", ".join(filter(None, names[:9]))
            hint = f"did you mean {', '.join(near)}?" if near else f"it has {few}"
            raise OptionError(f"override '{name}' names no module or parameter of the model; {hint}")
        role = wanted if isinstance(wanted, Role) else Role(wanted)
        require_geometry(role.geometry)
        if role.axis not in (0, 1):
            raise OptionError(f"override '{name}' has axis {role.axis}; it must be 0 or 1")
        if role.geometry != "plain" and not any(
            p.ndim > 1 for n, p in parameters if f"{n}.".startswith(f"{name}." if name else "")
        ):
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
