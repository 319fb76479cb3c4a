"""Optimizers whose steps do not depend on how a network happens to be scaled."""

from symoptim import models as models
from symoptim.models.balance import balance_ as balance_
from symoptim.optim.groups import param_groups as param_groups
from symoptim.optim.invariant import invariant as invariant
from symoptim.optim.sgd import ScaledSGD as ScaledSGD
from symoptim.optim.sgd import UnitNormSGD as UnitNormSGD
from symoptim.routing import Role as Role
from symoptim.schedules.bold_driver import BoldDriver as BoldDriver

__version__ = "0.1.0"
__all__ = [
    "BoldDriver",
    "Role",
    "ScaledSGD",
    "UnitNormSGD",
    "balance_",
    "invariant",
    "models",
    "param_groups",
]
