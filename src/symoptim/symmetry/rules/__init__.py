"""Rules for operations, a file per family; importing this registers them all."""

from symoptim.symmetry.rules import arithmetic as arithmetic
from symoptim.symmetry.rules import batch_norm as batch_norm
from symoptim.symmetry.rules import contractions as contractions
from symoptim.symmetry.rules import indexing as indexing
from symoptim.symmetry.rules import moving as moving
from symoptim.symmetry.rules import normalizations as normalizations
from symoptim.symmetry.rules import pointwise as pointwise
from symoptim.symmetry.rules import pooling as pooling
from symoptim.symmetry.rules import products as products
from symoptim.symmetry.rules import reductions as reductions
from symoptim.symmetry.rules.registry import RULES as RULES
