"""Optimizers whose steps do not depend on how a network happens to be scaled."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from symoptim import models as models
    from symoptim.applications.align import align as align
    from symoptim.applications.canonicalize import canonicalize_ as canonicalize_
    from symoptim.applications.conserved import ConservedQuantities as ConservedQuantities
    from symoptim.applications.equalize import equalize_ as equalize_
    from symoptim.metric.gauge import Geometric as Geometric
    from symoptim.metric.gauge import OwnRow as OwnRow
    from symoptim.metric.gauge import PathNorm as PathNorm
    from symoptim.metric.gauge import Pooled as Pooled
    from symoptim.models.balance import balance_ as balance_
    from symoptim.optim.clip import clip_invariant_norm_ as clip_invariant_norm_
    from symoptim.optim.full_metric_sgd import FullMetricSGD as FullMetricSGD
    from symoptim.optim.invariant import invariant as invariant
    from symoptim.optim.param_groups import param_groups as param_groups
    from symoptim.optim.sgd import ScaledSGD as ScaledSGD
    from symoptim.optim.sgd import UnitNormSGD as UnitNormSGD
    from symoptim.routing import Role as Role
    from symoptim.schedules.bold_driver import BoldDriver as BoldDriver
    from symoptim.symmetry.discover import discover as discover
    from symoptim.symmetry.spec import SymmetrySpec as SymmetrySpec

__version__ = "0.1.0"
__all__ = [
    "BoldDriver",
    "ConservedQuantities",
    "FullMetricSGD",
    "Geometric",
    "OwnRow",
    "PathNorm",
    "Pooled",
    "Role",
    "ScaledSGD",
    "SymmetrySpec",
    "UnitNormSGD",
    "align",
    "balance_",
    "canonicalize_",
    "clip_invariant_norm_",
    "discover",
    "equalize_",
    "invariant",
    "models",
    "param_groups",
]

# Names are looked up when they are first used, so that reading records and writing reports needs no torch.
_HOMES = {
    "BoldDriver": "symoptim.schedules.bold_driver",
    "ConservedQuantities": "symoptim.applications.conserved",
    "FullMetricSGD": "symoptim.optim.full_metric_sgd",
    "Geometric": "symoptim.metric.gauge",
    "OwnRow": "symoptim.metric.gauge",
    "PathNorm": "symoptim.metric.gauge",
    "Pooled": "symoptim.metric.gauge",
    "Role": "symoptim.routing",
    "ScaledSGD": "symoptim.optim.sgd",
    "SymmetrySpec": "symoptim.symmetry.spec",
    "UnitNormSGD": "symoptim.optim.sgd",
    "align": "symoptim.applications.align",
    "balance_": "symoptim.models.balance",
    "canonicalize_": "symoptim.applications.canonicalize",
    "clip_invariant_norm_": "symoptim.optim.clip",
    "discover": "symoptim.symmetry.discover",
    "equalize_": "symoptim.applications.equalize",
    "invariant": "symoptim.optim.invariant",
    "param_groups": "symoptim.optim.param_groups",
}


def __getattr__(name: str) -> object:
    if name == "models":
        return import_module("symoptim.models")
    if name not in _HOMES:
        raise AttributeError(f"module 'symoptim' has no attribute '{name}'")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
