"""What may be wrong with roles that layer types give, or that leave nothing to an update by filters."""

import re
from collections.abc import Iterable

from torch import fx, nn
from torch.export.unflatten import InterpreterModule

from symoptim.errors import GeometryWarning, warn_user
from symoptim.routing import Routed, embeddings_of, names_any

MOST = 0.5
"""Share of plain entries above which it warns. Of 245 Hugging Face classes with default settings 49 have
more: 48 with experts in tensors of three axes, one with quantized layers of its own."""
HIDDEN_ENDS = re.compile(r"Norm|ReLU|ELU|GELU|SiLU|Swish|Mish|hswish|Softplus|MaxPool", re.IGNORECASE)
"""Class names of what stands behind hidden layers; behind a classifier are softmax, sigmoid, tanh, means."""
NO_ENDS = nn.Dropout | nn.Identity | nn.Flatten | nn.Unflatten
"""What may stand behind either."""


def warn_of_frozen(model: nn.Module, routed: list[Routed]) -> None:
    """Say so if nothing will be trained, because no parameter requires gradients."""
    if not any(one.parameter.requires_grad for one in routed):
        warn_user(
            f"no parameter of {type(model).__name__} requires gradients, so that steps change nothing until "
            "some do: call requires_grad_() of what is to be trained",
            GeometryWarning,
        )


def warn_of_plain(model: nn.Module, routed: list[Routed], overrides: Iterable[str], traced: bool) -> None:
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


def warn_of_hidden_classifier(model: nn.Module, routed: list[Routed]) -> None:
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
