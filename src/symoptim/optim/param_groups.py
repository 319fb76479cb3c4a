"""``param_groups``: every parameter of a model in the group its layer calls for, as a printable list."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from torch import Tensor, fx, nn
from torch.export.unflatten import InterpreterModule
from torch.utils._pytree import tree_map_only

from symoptim.errors import GeometryWarning, OptionError, SymmetryError, warn_user, with_article
from symoptim.modules import require_module, unwrapped
from symoptim.optim.unit_rows import gauge_weights
from symoptim.optim.validation import Group, completed, is_zero, labeled
from symoptim.routing import GEOMETRIES, Geometry, Role, Routed, embeddings_of, names_any, route, routed_in
from symoptim.symmetry.calls import prepared
from symoptim.symmetry.discover import discover
from symoptim.symmetry.roles import roles_from
from symoptim.symmetry.spec import SymmetrySpec


class ParameterGroups(list[Group]):
    """Parameter groups for any optimizer; ``print`` shows what went where."""

    def __init__(
        self, routed: list[Routed], model: nn.Module | None = None, spec: SymmetrySpec | None = None
    ) -> None:
        """Collect routed parameters into one group per geometry and axis, in the model's order.

        Args:
            routed: parameters with their roles.
            model: whose they are, if its symmetries are known.
            spec: these symmetries.
        """
        self.routed, self.model, self.spec = routed, model, spec
        kinds = sorted({r.role[:2] for r in routed}, key=lambda kind: (GEOMETRIES.index(kind[0]), kind[1]))
        super().__init__(_group(routed, geometry, axis) for geometry, axis in kinds)

    def __str__(self) -> str:
        """Return a table of all parameters: name, shape, geometry, axis and the reason."""
        known = {id(routed.parameter): routed for routed in self.routed}
        order = {key: place for place, key in enumerate(known)}
        listed = [(name, p, group) for group in self for name, p in labeled(completed(group))]
        listed.sort(key=lambda entry: order.get(id(entry[1]), len(order)))
        rows = [_row(name, p, group, known.get(id(p))) for name, p, group in listed]
        return _table([("parameter", "shape", "geometry", "axis", "because"), *rows])


def _row(name: str, parameter: Tensor, group: Group, routed: Routed | None) -> tuple[str, ...]:
    """Line of the table for one parameter, which may be one that was not routed but added by hand."""
    geometry, axis = group.get("geometry", "rows"), group.get("axis", 0)
    return (
        " = ".join(routed.names) if routed else name,
        "x".join(map(str, parameter.shape)) or "scalar",
        geometry,
        "" if geometry == "plain" else str(axis),
        routed.role.reason if routed else "added by hand",
    )


def _table(rows: list[tuple[str, ...]]) -> str:
    """Columns of equal width, a rule under the first row."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def param_groups(
    model: nn.Module,
    *,
    example_inputs: tuple[object, ...] | None = None,
    keywords: Mapping[str, object] | None = None,
    spec: SymmetrySpec | None = None,
    inputs: object = None,
    vouch: Sequence[str] = (),
    overrides: Mapping[str, Geometry | Role] | None = None,
    only: nn.Module | None = None,
) -> ParameterGroups:
    """Sort the parameters of ``model`` into groups by layer type, or by its symmetries.

    Filters of hidden linear and convolution layers become ``rows`` (``axis`` 1 for transposed
    convolutions), the last linear map or 1x1 convolution ``columns``, everything else (biases, norms,
    embeddings, LSTMs and home-made parameters) ``plain`` (:mod:`symoptim.routing` has the table). Every
    parameter is in exactly one group, frozen ones included. Where most of the weights stay plain, so that
    an update by filters would not be one, it warns.

    *Last* means registered last in the model, which need not be the last one used; where it is not, and
    where there are several heads, say so in ``overrides``, or give ``example_inputs``: then the symmetries
    of the model are found and certified, weights whose outputs rescale become ``rows``, those of which only
    inputs do ``columns``, home-made matrices included, and the rest is ``plain``.
    *Tied weights* appear once, under all their names; where their uses ask for different geometries
    (an embedding tied to the output map, say) they are plain, unless an override of one name decides.

    *A stage of a pipeline* has no classifier, unless it is the last one, and its layers cannot say so: give
    the whole network, and the stage as ``only``. The same goes for any part of a network that is trained on
    its own.

    Args:
        model: the network; compiled or wrapped for data parallelism or not.
        example_inputs: positional arguments of a call; ``()`` if there are none.
        keywords: its other arguments.
        spec: symmetries of the model that are known, instead of finding them; they are certified again if
            there are ``example_inputs``, or calls that they were found by. Of those that were read from JSON
            it is not known how much an eps is felt: give them ``example_inputs`` and ``keywords``, on which
            :class:`symoptim.UnitNormSGD` measures it.
        inputs: more calls, and
        vouch: modules that take no other paths, as :func:`symoptim.discover` has them.
        overrides: geometry by name of a module (for all weights under it with two axes or more) or of a
            single parameter, or of a pattern of such names (``"*.lora_B.*"``), or a :class:`symoptim.Role` to
            give the axis too; the longest name wins, then the longest pattern.
        only: a part of the network: groups have its parameters alone, with the roles they have in the
            whole. They are the network's own, or others of the same names (a copy from which layers were
            taken away, say, whether or not the network itself has any memory).

    A weight that is zero as a whole (LoRA's second factor, a head or a residual branch that starts at zero)
    has no scale and would never learn: it is ``plain``, unless an override names it. So make the groups
    before trained weights are loaded: those of a saved optimizer were made of the weights at the start. To
    groups made after (of adapters that PEFT has loaded) the saved state does not fit, and the error says
    which ``overrides`` make the groups that were saved. Where only some filters of a weight are zero they
    stay zero, and optimizers warn.

    Make groups of the model as it will be trained: parameters that are put into it later, with another layer
    or by an assignment of weights, are in no group, and no optimizer says that it does not train them.

    Returns:
        Groups for :class:`symoptim.ScaledSGD`, :class:`symoptim.UnitNormSGD`, :func:`symoptim.invariant`
        or any optimizer of torch; print them to see what went where.

    Raises:
        OptionError: it is no model, has no parameters, an override names nothing in it, or the part has
            parameters that are not in it.
        SymmetryError: what was found on the example inputs did not pass its certificate.
        TraceError: the model cannot be traced.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2, bias=False))
    >>> print(param_groups(model))
    parameter  shape  geometry  axis  because
    --------------------------------------------------------
    0.weight   8x4    rows      0     Linear filters
    0.bias     8      plain           bias
    2.weight   2x8    columns   0     last Linear registered
    >>> import torch
    >>> print(param_groups(model, example_inputs=(torch.rand(5, 4),)))
    parameter  shape  geometry  axis  because
    ---------------------------------------------------------
    0.weight   8x4    rows      0     its outputs rescale
    0.bias     8      plain           bias
    2.weight   2x8    columns   0     only its inputs rescale
    """
    if not isinstance(model, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(
            "param_groups needs the model itself, for its layers say what parameters are; got "
            f"{with_article(type(model).__name__)}: give the nn.Module"
        )
    model, overrides = require_module(model), overrides or {}
    spec = _certified(model, spec, example_inputs, keywords, inputs, vouch)
    routed = route(model, overrides, None if spec is None else roles_from(spec, model, route(model)))
    if only is None and spec is None:
        _warn_of_hidden_classifier(model, routed)
    _warn_of_frozen(model, routed)
    _warn_of_plain(model, routed, overrides, spec is not None)
    routed = _without_zeros(routed, overrides)
    if spec is not None:
        routed = _with_gauge(routed, model, spec)
    if only is not None:
        return ParameterGroups(routed_in(require_module(only), routed))
    return ParameterGroups(routed) if spec is None else ParameterGroups(routed, model, spec)


def _certified(
    model: nn.Module,
    spec: SymmetrySpec | None,
    example_inputs: tuple[object, ...] | None,
    keywords: Mapping[str, object] | None,
    inputs: object,
    vouch: Sequence[str],
) -> SymmetrySpec | None:
    """Symmetries that are given or found, and tried; None without an example."""
    if spec is None and example_inputs is None:
        if keywords is not None or inputs is not None or vouch:
            raise OptionError(
                "keywords=, inputs= and vouch= are for finding symmetries: give example_inputs= too, () if "
                "the call has no positional arguments"
            )
        return None
    if spec is None:
        assert example_inputs is not None
        spec = discover(model, example_inputs, keywords, inputs=inputs, vouch=vouch)
    elif inputs is not None or vouch:
        raise OptionError("inputs= and vouch= are for finding symmetries, and spec= has them: leave them out")
    elif example_inputs is not None:
        spec = _with_example(spec, (example_inputs, prepared(unwrapped(model), example_inputs, keywords)))
    if example_inputs is None:
        if not spec.examples:
            spec.require_model(model)
            return spec
        example_inputs, keywords = spec.examples[0]
    certificate = spec.certify(model, example_inputs, keywords)
    if not certificate.holds:
        failed = f"did not pass their test ({certificate})"
        if certificate.reason:
            failed = f"could not be tested: {certificate.reason}"
        raise SymmetryError(
            f"the symmetries that were found {failed}. To go by layer type instead, leave "
            "example_inputs= out; symoptim.discover and certify say more"
        )
    return spec


def _with_example(spec: SymmetrySpec, call: tuple[tuple[object, ...], dict[str, object]]) -> SymmetrySpec:
    """The same symmetries; whoever acts with them measures on a copy of that call what an eps does."""
    copied = tree_map_only(Tensor, lambda tensor: tensor.detach().clone(), call)
    return replace(spec, examples=(copied,))


def _without_zeros(routed: list[Routed], overrides: Mapping[str, Geometry | Role]) -> list[Routed]:
    """Weights that are entirely zero become plain, for they have no scale; not those the user has named."""
    return [
        one._replace(role=Role("plain", 0, "zero at the start"))
        if one.role.geometry != "plain" and is_zero(one.parameter) and not names_any(overrides, one.names)
        else one
        for one in routed
    ]


def _with_gauge(routed: list[Routed], model: nn.Module, spec: SymmetrySpec) -> list[Routed]:
    """Reasons that say which rows cannot be given unit norm by a rescaling."""
    rows: dict[Tensor, int] = {one.parameter: one.role.axis for one in routed if one.role.geometry == "rows"}
    gauge = {parameter for parameter, _ in gauge_weights(model, spec, rows)}
    return [
        one._replace(role=one.role._replace(reason=f"{one.role.reason}, not each row by itself"))
        if one.parameter in rows and one.parameter.requires_grad and one.parameter not in gauge
        else one
        for one in routed
    ]


def _group(routed: list[Routed], geometry: Geometry, axis: int) -> Group:
    members = [r for r in routed if r.role[:2] == (geometry, axis)]
    return {
        "params": [r.parameter for r in members],
        "param_names": [r.names[0] for r in members],
        "geometry": geometry,
        "axis": axis,
    }


MOST = 0.5
"""Share of plain entries above which it warns. Of 245 Hugging Face classes with default settings 49 have
more: 48 with experts in tensors of three axes, one with quantized layers of its own."""
HIDDEN_ENDS = re.compile(r"Norm|ReLU|ELU|GELU|SiLU|Swish|Mish|hswish|Softplus|MaxPool", re.IGNORECASE)
"""Class names of what stands behind hidden layers; behind a classifier are softmax, sigmoid, tanh, means."""
NO_ENDS = nn.Dropout | nn.Identity | nn.Flatten | nn.Unflatten
"""What may stand behind either."""


def _warn_of_frozen(model: nn.Module, routed: list[Routed]) -> None:
    """Say so if nothing will be trained, because no parameter requires gradients."""
    if not any(one.parameter.requires_grad for one in routed):
        warn_user(
            f"no parameter of {type(model).__name__} requires gradients, so that steps change nothing until "
            "some do: call requires_grad_() of what is to be trained",
            GeometryWarning,
        )


def _warn_of_plain(model: nn.Module, routed: list[Routed], overrides: Iterable[str], traced: bool) -> None:
    """Say so if an update by filters has little to do: most entries of trained weights are plain.

    Embeddings are plain by design, and what the user has chosen is not in doubt: neither is counted.

    Args:
        model: the network.
        routed: all its parameters.
        overrides: names of those that the user has chosen roles for.
        traced: whether roles are from the model's symmetries.
    """
    trained = [one for one in routed if one.parameter.requires_grad] or routed
    matrices = [one for one in trained if one.parameter.ndim > 1]
    in_doubt = [one for one in matrices if not names_any(overrides, one.names)]
    tables = embeddings_of(model)
    weights = [one for one in in_doubt if id(one.parameter) not in tables]
    left = [one for one in weights if one.role.geometry == "plain"]
    entries, plain = (sum(one.parameter.numel() for one in some) for some in (weights, left))
    # Embeddings alone are in doubt too, unless the user has chosen what all other weights are.
    are_in_doubt = bool(weights) or 0 < len(in_doubt) == len(matrices)
    nothing = are_in_doubt and all(one.role.geometry == "plain" for one in matrices)
    if nothing or plain > MOST * entries:
        share = f"{plain / entries:.0%} of the entries of" if entries else "all"
        effect = ", so that an update by filters is that of plain SGD" if nothing else ""
        warn_user(
            f"{share} weights with two axes or more are 'plain'{effect}{_largest(left)}: "
            f"{_way_out(model, traced)}",
            GeometryWarning,
        )


def _largest(left: list[Routed]) -> str:
    """The largest plain weights, with the reason."""
    few = sorted(left, key=lambda one: -one.parameter.numel())[:3]
    named = ", ".join(f"{one.names[0]} ({one.role.reason})" for one in few)
    return f"; the largest are {named}" if few else ""


def _way_out(model: nn.Module, traced: bool) -> str:
    if traced:
        return (
            "no rescaling of their filters was found (print(symoptim.discover(...)) says why); name them in "
            "overrides= if they are to be scaled nevertheless"
        )
    if any(isinstance(module, InterpreterModule) for module in model.modules()):
        return (
            "this is a traced model, which has no layers. Give the model it was traced from, and this one as "
            "only=: param_groups(whole, only=stage)"
        )
    return (
        "by the type of their layer nothing more is known. Give example_inputs=, then the symmetries of the "
        "model say what they are, or name them in overrides="
    )


def _warn_of_hidden_classifier(model: nn.Module, routed: list[Routed]) -> None:
    """Say so if what was registered last looks like a hidden layer, as in a stage of a pipeline."""
    for one in routed:
        if one.role.geometry == "columns" and one.role.reason.startswith("last "):
            why = _looks_hidden(model, one)
            if why:
                module = one.names[0].rpartition(".")[0]
                warn_user(
                    f"'{one.names[0]}' was registered last and is taken for the classifier ('columns'), but "
                    f"{why}. If this is a part of a network, such as a stage of a pipeline, take roles from "
                    "the whole: param_groups(whole, only=stage). Else set its role: "
                    f"overrides={{'{module}': 'columns'}}, or 'rows'",
                    GeometryWarning,
                )


def _looks_hidden(model: nn.Module, one: Routed) -> str:
    """Why a last linear map is likely none of the outputs, if it is."""
    path = one.names[0].rpartition(".")[0]
    parent = model.get_submodule(path.rpartition(".")[0])
    if isinstance(parent, nn.Sequential) and path:
        place = [name for name, _ in parent.named_children()].index(path.rpartition(".")[2])
        behind = [module for module in list(parent)[place + 1 :] if not isinstance(module, NO_ENDS)]
        if behind and HIDDEN_ENDS.search(type(behind[-1]).__name__):
            return f"{type(behind[-1]).__name__} comes last, which follows hidden layers"
    shape = one.parameter.shape
    if any(isinstance(module, fx.GraphModule) for module in model.modules()) and shape[0] == shape[1]:
        return "it is square, and the model was split or traced"
    others = _same_in_other_blocks(model, one)
    if others:
        return f"'{others[0]}' is the same layer of another block"
    is_hidden = isinstance(parent, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer)
    return f"it is part of a {type(parent).__name__}, which is a hidden layer" if is_hidden else ""


def _same_in_other_blocks(model: nn.Module, one: Routed) -> list[str]:
    """Weights at the same place of other blocks: ``layers.0.mlp.2.weight`` for ``layers.5.mlp.2.weight``."""
    name = one.names[0]
    layer = (
        name.partition(".parametrizations.")[0] if ".parametrizations." in name else name.rpartition(".")[0]
    )
    blocks = layer.rpartition(".")[0]
    places = "".join(r"\d+\." if part.isdigit() else re.escape(f"{part}.") for part in blocks.split("."))
    pattern = re.compile(places + re.escape(name[len(blocks) + 1 :]))
    return [
        other
        for other, parameter in model.named_parameters()
        if blocks and other != name and pattern.fullmatch(other) and parameter.shape == one.parameter.shape
    ]
