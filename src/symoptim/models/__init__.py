"""The paper's networks."""

from symoptim.models.pairwise import PairwiseNetwork as PairwiseNetwork
from symoptim.models.pairwise import arch1 as arch1
from symoptim.models.pairwise import arch2 as arch2
