"""Operations that do the same whatever the values: they hand none to Python, and refuse none."""

from symoptim.symmetry.rules.moving import PARTS, WHOLE
from symoptim.symmetry.rules.pointwise import COPIES, SHAPE_ONLY, ZEROS

_OTHERS = (
    "_adaptive_avg_pool2d max_pool2d_with_indices getitem view _unsafe_view reshape cat stack fill "
    "constant_pad_nd full full_like new_full scalar_tensor arange empty ones add sub rsub mul neg abs "
    "div true_divide maximum minimum pow square sqrt rsqrt reciprocal where masked_fill tril triu copy "
    "relu leaky_relu relu6 prelu clamp clamp_min clamp_max hardtanh hardswish hardsigmoid glu gelu silu "
    "sigmoid tanh exp log elu selu softplus mish sin cos erf log1p expm1 dropout native_dropout softmax "
    "_softmax _safe_softmax log_softmax _log_softmax logsumexp scaled_dot_product_attention mm bmm "
    "matmul mv dot addmm baddbmm linear convolution conv1d conv2d conv3d layer_norm native_layer_norm "
    "rms_norm group_norm native_group_norm native_batch_norm _native_batch_norm_legit "
    "_native_batch_norm_legit_functional _native_batch_norm_legit_no_training sum mean amax amin max "
    "min var std var_mean std_mean linalg_vector_norm cumsum argmax argmin all any gt lt ge le eq ne "
    "logical_not logical_and logical_or bitwise_and bitwise_or bitwise_not isnan isinf isfinite"
).split()
_POOLS = [f"{kind}_pool{axes}d" for kind in ("avg", "max", "adaptive_avg") for axes in (1, 2, 3)]
KEEPING = frozenset((*COPIES, *WHOLE, *PARTS, "getitem", "view", "_unsafe_view", "reshape"))
"""Those whose results have no numbers but the ones that they take."""
BLIND = frozenset((*KEEPING, *SHAPE_ONLY, *ZEROS, *_POOLS, *_OTHERS)) - {"repeat_interleave"}
"""All of them; ``repeat_interleave`` may be told by a tensor how often."""
LOOKUPS = frozenset(("embedding", "index", "_unsafe_index", "index_select", "gather"))
"""Operations that refuse places beyond the end of a table, and nothing else."""
