"""The multiplications and additions of torch's operations, by their shapes: one count, whatever the version of torch.

torch.utils.flop_counter counts other operations in each release (none of a recurrent layer, of an encoder's layer in evaluation
or of a matrix and a vector; attention on a CPU from 2.15 on), recomputed scores of attention as work, and the gradient of a
grouped convolution's weight once for each group. Here each multiplication and each addition counts one, element-wise operations
count nothing, and what a kernel computes again isn't the model's work.

An operation is known by its name without a namespace; its arguments are those of torch's schema, in order.
"""

import math
import re

COUNTER = "torchmatrix 1"
"""Who counted: raised when a count changes, since counts of two counters are not compared."""


def is_product(name):
    """Check whether an operation multiplies and adds up, so that the type of its operands matters."""
    return bool(_PRODUCT.fullmatch(name))


def count(name, namespace, given, result):
    """Return the FLOPs of an operation; None for one that may multiply and add up and has no formula for these arguments."""
    formula = _FORMULAS.get(name)
    if formula is None:
        return None if namespace not in _NAMESPACES or is_product(name) or _OTHERS.fullmatch(name) else 0
    try:
        return formula(given, result) * (4 if _is_complex(given) and not name.startswith("_fft") else 1)
    except Exception:  # of any class: nested tensors and arguments by name have other shapes
        return None


_NAMESPACES = ("aten", "prim", "prims", "torchvision", "c10d", "_c10d_functional", "c10d_functional", "fsdp", "profiler")
"""Those whose operations are known by their names; another's may do anything."""
_PRODUCT = re.compile(
    r"_*(mm|addmm|bmm|baddbmm|addbmm|mv|addmv|dot|vdot|matmul|linear|bilinear|trilinear|int_mm|scaled_mm|addmm_activation"
    r"|grouped_mm|scaled_grouped_mm"
    r"|\w*convolution\w*|conv\w*\dd|scaled_dot_product\w*|\w*attention\w*|\w*rnn\w*|\w*lstm\w*|\w*gru\w*|weight_int\w+_mm"
    r"|transformer_encoder_layer_fwd)"
)
_OTHERS = re.compile(
    r"\w*mm|\w*conv\w*\dd\w*|(mkldnn|fbgemm)_linear\w*|_?linalg_(?!vector_norm|check|diagonal|cross)\w+|cholesky\w*|triangular_solve"
    r"|lu_\w+|geqrf|or[mg]qr|_cdist\w*|_fft_\w+"
)
"""The names of operations that multiply and add up beside products."""


def _is_complex(given):
    """Check for complex numbers, whose product and sum are four of real ones each."""
    return any(getattr(argument, "is_complex", bool)() for argument in given if hasattr(argument, "shape"))


def _elements(tensor):
    return math.prod(tensor.shape)


def _product(place):
    """Return the formula of a product whose left matrix (or vector) is the argument at `place`, and the right the next one."""

    def flops(given, _result):
        left, right = given[place], given[place + 1]
        return 2 * _elements(left) * (right.shape[-1] if len(right.shape) > 1 else 1)

    return flops


def _linear(given, _result):
    return 2 * _elements(given[0]) * math.prod(given[1].shape[:-1])


def _matmul(given, result):
    return 2 * _elements(result) * given[0].shape[-1]


def _packed(given, result):
    """4 or 8 bits, whose packed weights have another shape."""
    return 2 * _elements(given[0]) * result.shape[-1]


def _grouped(given, result):
    """Of rows in groups, each with a matrix of its own; or, for the gradient of these, of columns in groups."""
    left, right = given[0], given[1]
    if len(left.shape) == 2 and len(right.shape) == 2:  # [M, tokens], [tokens, N]
        return 2 * _elements(left) * right.shape[-1]
    return 2 * _elements(result) * left.shape[-1]


def _trilinear(given, _result):
    """Two multiplications and an addition for each element of the three that are spread over one another."""
    shapes = []
    for tensor, spread in zip(given[:3], given[3:6]):
        shape = list(tensor.shape)
        for dim in sorted(spread):
            shape.insert(dim, 1)
        shapes.append(shape)
    return 3 * math.prod(map(max, zip(*shapes)))


def _convolution(given, result, is_transposed=None):
    """2 for each weight of an output's window; `transposed` is the seventh argument of those that can be."""
    inputs, weight = given[0], given[1]
    if is_transposed is None:
        is_transposed = len(given) > 6 and given[6] is True
    place = inputs if is_transposed else result
    return 2 * _elements(place) * _elements(weight) // weight.shape[0]


def _transposed(given, result):
    return _convolution(given, result, True)


def _convolution_backward(given, _result):
    """As much as forward for each gradient that is asked for, of the inputs and of the weight."""
    gradient, inputs, weight, mask = *given[:3], given[10]
    place = inputs if given[7] else gradient
    return (mask[0] + mask[1]) * 2 * _elements(place) * _elements(weight) // weight.shape[0]


def _attention(given, _result):
    """Scores and their product with the values, of queries [..., H, Q, E], keys [..., K, E] and values [..., K, V]."""
    queries, keys, values = given[:3]
    return 2 * math.prod(queries.shape[:-1]) * keys.shape[-2] * (queries.shape[-1] + values.shape[-1])


def _attention_backward(given, _result):
    """Twice the forward pass; that some kernels compute the scores again is no work of the model."""
    return 2 * _attention(given[1:4], None)


def _steps(inputs):
    """Return for how many steps the weights of a recurrent layer are used: [T, B, I], or packed, [steps, I]."""
    return math.prod(inputs.shape[:-1])


def _recurrent(times):
    """Return the formula of all layers of a recurrent network, whose second argument is the list of their weights."""

    def flops(given, _result):
        return times * 2 * _steps(given[0]) * sum(_elements(weight) for weight in given[1] if len(weight.shape) > 1)

    return flops


def _recurrent_layer(times):
    """oneDNN's layer, whose weights come one by one."""

    def flops(given, _result):
        return times * 2 * _steps(given[0]) * (_elements(given[1]) + _elements(given[2]))

    return flops


def _heads(inputs, width):
    """Return the FLOPs of the scores and their product with the values, in all heads, of inputs [B, S, E]."""
    return 4 * inputs.shape[0] * inputs.shape[1] ** 2 * width


def _encoder_layer(given, _result):
    inputs, width = given[0], given[1]
    products = sum(_elements(given[place]) for place in (3, 5, 14, 16))
    return 2 * _steps(inputs) * products + _heads(inputs, width)


def _multi_head(given, _result):
    inputs, width = given[0], given[3]
    return 2 * _steps(inputs) * (_elements(given[5]) + _elements(given[7])) + _heads(inputs, width)


def _fourier(per_element, is_to_real=False):
    """Return the formula of a transform by the convention of FFTW's authors: 5 N log2 N for complex numbers, half for real ones
    (Frigo and Johnson, "The Design and Implementation of FFTW3", 2005, section V).
    """

    def flops(given, result):
        tensor = result if is_to_real else given[0]
        return per_element * _elements(tensor) * math.log2(math.prod(tensor.shape[dim] for dim in given[1]))

    return flops


def _triangular(given, _result):
    """Each of the columns takes N² / 2 multiplications and as many additions (LAPACK Working Note 41, appendix C)."""
    return _elements(given[1]) * given[0].shape[-1]


def _nothing(_given, _result):
    return 0


_FORMULAS = {
    **dict.fromkeys(("mm", "bmm", "mv", "dot", "vdot", "_int_mm", "_scaled_mm"), _product(0)),
    **dict.fromkeys(("addmm", "baddbmm", "addbmm", "addmv", "_addmm_activation"), _product(1)),
    "linear": _linear,
    "matmul": _matmul,
    **dict.fromkeys(("_weight_int4pack_mm", "_weight_int4pack_mm_for_cpu", "_weight_int8pack_mm"), _packed),
    **dict.fromkeys(("_grouped_mm", "_scaled_grouped_mm", "grouped_mm_fallback"), _grouped),
    "_trilinear": _trilinear,
    **dict.fromkeys(
        ("convolution", "_convolution", "convolution_overrideable", "cudnn_convolution", "miopen_convolution",
         "mkldnn_convolution", "miopen_depthwise_convolution", "_conv_depthwise2d", "conv_depthwise3d",
         "_slow_conv2d_forward", "slow_conv3d_forward",
         "cudnn_convolution_relu", "cudnn_convolution_add_relu"),
        _convolution,
    ),
    **dict.fromkeys(("cudnn_convolution_transpose", "miopen_convolution_transpose"), _transposed),
    **dict.fromkeys(("convolution_backward", "convolution_backward_overrideable"), _convolution_backward),
    **dict.fromkeys(
        ("_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_for_cpu",
         "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
         "_scaled_dot_product_fused_attention_overrideable", "_scaled_dot_product_attention_math"),
        _attention,
    ),
    **dict.fromkeys(
        ("_scaled_dot_product_flash_attention_backward", "_scaled_dot_product_flash_attention_for_cpu_backward",
         "_scaled_dot_product_efficient_attention_backward", "_scaled_dot_product_cudnn_attention_backward",
         "_scaled_dot_product_fused_attention_overrideable_backward"),
        _attention_backward,
    ),
    **dict.fromkeys(("_cudnn_rnn", "miopen_rnn"), _recurrent(1)),
    **dict.fromkeys(("_cudnn_rnn_backward", "miopen_rnn_backward"), _recurrent(2)),
    "mkldnn_rnn_layer": _recurrent_layer(1),
    "mkldnn_rnn_layer_backward": _recurrent_layer(2),
    "_transformer_encoder_layer_fwd": _encoder_layer,
    "_native_multi_head_attention": _multi_head,
    "linalg_solve_triangular": _triangular,
    "_fft_c2c": _fourier(5),
    "_fft_r2c": _fourier(2.5),
    "_fft_c2r": _fourier(2.5, is_to_real=True),
    **dict.fromkeys(
        ("_thnn_fused_lstm_cell", "_thnn_fused_lstm_cell_backward", "_thnn_fused_lstm_cell_backward_impl",
         "_thnn_fused_gru_cell", "_thnn_fused_gru_cell_backward", "_thnn_differentiable_lstm_cell_backward",
         "_thnn_differentiable_gru_cell_backward",
         "_use_cudnn_rnn_flatten_weight", "_cudnn_rnn_flatten_weight"),
        _nothing,
    ),
}  # fmt: skip
"""By name. The gates of a recurrent cell are element-wise; what makes them are products of their own."""
