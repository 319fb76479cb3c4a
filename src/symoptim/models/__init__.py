"""The paper's networks, and those of its last experiment."""

from symoptim.models.pairwise import PairwiseNetwork as PairwiseNetwork
from symoptim.models.pairwise import arch1 as arch1
from symoptim.models.pairwise import arch2 as arch2
from symoptim.models.segnet import SegNet as SegNet
from symoptim.models.segnet import SegNetBasic as SegNetBasic
