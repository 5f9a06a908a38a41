"""What each of PyTorch's operators does: its class, its FLOPs, its arithmetic, its traffic.

Shapes are all that is looked at, so these rules serve fake tensors and real ones. FLOPs count a
multiply-add as two. The backward of a convolution is counted group by group: the two products
have the size of the forward one each (``FlopCounterMode`` of torch 2.13 multiplies the gradient
of the weight by the number of groups). Attention's fused backward computes the scores once more:
five products where the forward has two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any

from cotenant.profiles.graph.ir import OpKind

__all__ = ["cost_of", "kind_of", "matrix_flops", "passes_over", "scalar_cost"]

_BY_KIND: dict[OpKind, str] = {
    "matmul": "mm addmm bmm baddbmm addbmm mv addmv dot linear matmul _scaled_mm _int_mm",
    "convolution": """convolution _convolution convolution_overrideable cudnn_convolution mkldnn_convolution
        convolution_backward cudnn_convolution_transpose _slow_conv2d_forward thnn_conv2d conv2d
        _conv_depthwise2d conv_depthwise3d slow_conv3d""",
    "attention": """_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward
        _scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward
        _scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward
        _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward
        _flash_attention_forward _flash_attention_backward
        _efficient_attention_forward _efficient_attention_backward""",
    "recurrent": """mkldnn_rnn_layer mkldnn_rnn_layer_backward _cudnn_rnn _cudnn_rnn_backward
        _thnn_fused_lstm_cell _thnn_fused_lstm_cell_backward_impl _thnn_fused_gru_cell
        _thnn_fused_gru_cell_backward""",
    "embedding": """embedding embedding_dense_backward embedding_backward _embedding_bag
        _embedding_bag_backward _embedding_bag_dense_backward _embedding_bag_forward_only
        _embedding_bag_per_sample_weights_backward embedding_sparse_backward embedding_renorm""",
    "normalisation": """native_batch_norm native_batch_norm_backward cudnn_batch_norm
        cudnn_batch_norm_backward _native_batch_norm_legit _native_batch_norm_legit_functional
        _native_batch_norm_legit_no_training _batch_norm_with_update _batch_norm_no_update
        batch_norm_backward native_layer_norm native_layer_norm_backward native_group_norm
        native_group_norm_backward _fused_rms_norm _fused_rms_norm_backward rms_norm
        linalg_vector_norm norm _weight_norm_interface _weight_norm_interface_backward renorm""",
    "activation": """relu threshold threshold_backward relu6 hardtanh hardtanh_backward leaky_relu
        leaky_relu_backward gelu gelu_backward silu silu_backward mish mish_backward hardswish
        hardswish_backward hardsigmoid hardsigmoid_backward sigmoid sigmoid_backward tanh tanh_backward elu
        elu_backward softplus softplus_backward log_sigmoid_forward log_sigmoid_backward glu glu_backward
        prelu _prelu_kernel _prelu_kernel_backward rrelu_with_noise""",
    "softmax": """_softmax _softmax_backward_data _log_softmax _log_softmax_backward_data
        _safe_softmax softmax log_softmax _masked_softmax""",
    "pooling": """max_pool2d_with_indices max_pool2d_with_indices_backward max_pool2d max_pool3d_with_indices
        max_pool3d_with_indices_backward avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward
        _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d
        _adaptive_avg_pool3d_backward adaptive_max_pool2d adaptive_max_pool2d_backward mkldnn_max_pool2d
        upsample_nearest2d upsample_nearest2d_backward upsample_bilinear2d upsample_bilinear2d_backward
        upsample_nearest1d upsample_nearest1d_backward upsample_bicubic2d upsample_bicubic2d_backward""",
    "dropout": "native_dropout native_dropout_backward dropout bernoulli _fused_dropout",
    "loss": """nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward mse_loss
        mse_loss_backward binary_cross_entropy binary_cross_entropy_backward
        binary_cross_entropy_with_logits smooth_l1_loss smooth_l1_loss_backward huber_loss
        huber_loss_backward _ctc_loss _ctc_loss_backward soft_margin_loss soft_margin_loss_backward""",
    "reduction": """sum mean amax amin max min argmax argmin prod var std var_mean std_mean logsumexp
        cumsum cumprod any all topk sort median mode count_nonzero aminmax nansum argsort""",
    "index": """index index_select gather scatter scatter_add index_put _unsafe_index _unsafe_index_put
        index_add index_copy index_fill masked_fill masked_select masked_scatter nonzero take take_along_dim
        slice_backward select_backward select_scatter slice_scatter scatter_reduce unfold_backward where
        tril triu roll flip diagonal_backward diagonal_scatter index_reduce searchsorted bucketize
        value_selecting_reduction_backward nonzero_static unique_dim _unique2 _local_scalar_dense""",
    "copy": """clone copy _to_copy cat stack contiguous repeat constant_pad_nd reflection_pad2d
        reflection_pad2d_backward reflection_pad1d reflection_pad1d_backward replication_pad2d
        replication_pad2d_backward _reshape_copy pixel_shuffle pixel_unshuffle im2col col2im
        native_channel_shuffle channel_shuffle expand_copy permute_copy lift_fresh_copy new_tensor
        repeat_interleave resize unsafe_split unsafe_split_with_sizes split_with_sizes_copy""",
    "create": """empty empty_like empty_strided new_empty new_empty_strided zeros zeros_like new_zeros ones
        ones_like new_ones full full_like new_full arange linspace eye rand rand_like randn randn_like
        randint randint_like randperm normal uniform scalar_tensor fill zero tensor lift_fresh lift
        normal_functional random exponential log_normal tril_indices triu_indices""",
    "elementwise": """add sub rsub mul div neg abs sqrt rsqrt exp expm1 log log1p log2 log10 pow square sin
        cos tan asin acos atan atan2 sinh cosh erf erfc erfinv reciprocal sign sgn floor ceil round trunc
        frac clamp clamp_min clamp_max maximum minimum fmax fmin eq ne lt le gt ge logical_and logical_or
        logical_not logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor isnan isinf isfinite addcmul
        addcdiv lerp remainder fmod floor_divide true_divide polar complex _conj view_as_real_copy
        nan_to_num heaviside logaddexp xlogy sinc cross deg2rad special_expit __and__ __or__ __lshift__
        __rshift__ bitwise_left_shift bitwise_right_shift _foreach_mul _foreach_add _foreach_div
        hypot exp2 logit digamma lgamma conj_physical angle isin dist cdist _cdist_forward
        _cdist_backward _euclidean_dist _fft_r2c _fft_c2r _fft_c2c""",
}
_KIND: dict[str, OpKind] = {name: kind for kind, names in _BY_KIND.items() for name in names.split()}

_COSTLY = frozenset(
    """gelu gelu_backward silu silu_backward sigmoid tanh mish mish_backward elu softplus softplus_backward exp
    expm1 log log1p pow sin cos erf sqrt rsqrt atan atan2 log2 erfc erfinv hardswish hardswish_backward
    """.split()  # noqa: SIM905
)
_PER_ELEMENT: Mapping[str, int] = {"normalisation": 8, "softmax": 5, "dropout": 2, "loss": 2}
_NO_WORK = frozenset(("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize"))
_GATHERS = frozenset(
    """embedding _embedding_bag _embedding_bag_forward_only index index_select gather _unsafe_index take
    masked_select""".split()  # noqa: SIM905
)


def kind_of(name: str) -> OpKind:
    """The class of an operator by its base name (``addmm``, ``add_``); ``other`` if not known.

    >>> kind_of("addmm"), kind_of("relu_"), kind_of("my_kernel")
    ('matmul', 'activation', 'other')
    """
    return _KIND.get(name) or _KIND.get(name.rstrip("_")) or "other"


def _product(a: Sequence[int], b: Sequence[int]) -> int:
    # (..., n, k) times (..., k, m)
    return 2 * prod(a) * (b[-1] if len(b) > 1 else 1)


def _convolution(out: Sequence[int], weight: Sequence[int], x: Sequence[int], transposed: bool) -> int:
    # Each element of the output (of the input, if transposed) meets one filter of one group.
    return 2 * prod(x if transposed else out) * prod(weight[1:])


def _convolution_backward(args: Sequence[Any]) -> int:
    grad, x, weight = (tuple(arg.shape) for arg in args[:3])
    one = _convolution(grad, weight, x, bool(args[7]))
    return one * (bool(args[10][0]) + bool(args[10][1]))


def _attention(q: Sequence[int], k: Sequence[int], v: Sequence[int]) -> int:
    scores = prod(q[:-1]) * k[-2]
    return 2 * scores * (q[-1] + v[-1])


def _attention_backward(q: Sequence[int], k: Sequence[int], v: Sequence[int]) -> int:
    # Scores again; gradients of scores and values; gradients of queries and keys.
    scores = prod(q[:-1]) * k[-2]
    return 2 * scores * (3 * q[-1] + 2 * v[-1])


def _attention_of(name: str, args: Sequence[Any]) -> int:
    if name.endswith("backward"):
        return _attention_backward(*(tuple(arg.shape) for arg in args[1:4]))
    return _attention(*(tuple(arg.shape) for arg in args[:3]))


def _recurrent(name: str, args: Sequence[Any]) -> int:
    # Both weight matrices meet every step of every sequence: (steps, batch, features).
    backward = "backward" in name
    if "cell" in name:
        # Gates only; their products are separate operators.
        return 0
    weights = args[1:3] if name.startswith("mkldnn") else [w for w in args[1] if len(w.shape) > 1]
    x = args[0]
    return int(2 * prod(x.shape[:2]) * sum(prod(w.shape) for w in weights) * (2 if backward else 1))


def matrix_flops(name: str, args: Sequence[Any], out: Any) -> int:
    """Matrix work of one call, by the operator's base name and its arguments' shapes.

    Parameters
    ----------
    name : str
        Base name: ``convolution``, ``addmm``.
    args : sequence
        Positional arguments of the call; tensors need a ``shape``.
    out : object
        What it returned.
    """
    kind = kind_of(name)
    if kind == "attention":
        return _attention_of(name, args)
    if kind == "recurrent":
        return _recurrent(name, args)
    if name == "convolution_backward":
        return _convolution_backward(args)
    if kind == "convolution":
        transposed = bool(args[6]) if name in {"convolution", "_convolution"} else False
        return _convolution(out.shape, args[1].shape, args[0].shape, transposed)
    rule = _PRODUCTS.get(name.rstrip("_"))
    return int(rule(args)) if rule else 0


_PRODUCTS: dict[str, Callable[[Sequence[Any]], int]] = {
    **dict.fromkeys(
        ("mm", "bmm", "mv", "dot", "matmul", "_scaled_mm", "_int_mm"),
        lambda args: _product(args[0].shape, args[1].shape),
    ),
    **dict.fromkeys(
        ("addmm", "baddbmm", "addbmm", "addmv"), lambda args: _product(args[1].shape, args[2].shape)
    ),
    "linear": lambda args: 2 * prod(args[0].shape) * args[1].shape[0],
}


def scalar_cost(name: str, kind: OpKind, read: int, written: int, window: int = 1) -> int:
    """Operations beside matrix work: one an element, more where a formula is longer.

    Parameters
    ----------
    name, kind : str
    read, written : int
        Elements of the largest input, and of all outputs.
    window : int
        Elements that a pooling looks at for each output.
    """
    if kind in {"matmul", "convolution", "attention", "recurrent", "view"} or name in _NO_WORK:
        return 0
    if kind in {"copy", "index", "embedding", "create"}:
        return 0 if "backward" not in name else max(read, written)
    if kind == "pooling":
        return max(read, written * window)
    per = 8 if name.rstrip("_") in _COSTLY else _PER_ELEMENT.get(kind, 1)
    return per * max(read, written)


def passes_over(name: str) -> tuple[int, int]:
    """How often the operator reads its inputs, and whether it writes: ``(reads, writes)``.

    Batch normalisation reads once for the statistics and once to apply them; the two products
    of a convolution's backward are counted as two reads; an allocation touches nothing.
    """
    base = name.rstrip("_")
    if base in _NO_WORK:
        return 0, 0
    if "batch_norm" in base or base == "convolution_backward":
        return 2, 1
    if base in {"fill", "zero", "bernoulli", "normal", "uniform", "random", "exponential"}:
        return 0, 1
    return 1, 1


def cost_of(name: str, read: Iterable[int], written: Iterable[int], moved_by_index: int = 0) -> int:
    """Bytes moved by one call.

    Parameters
    ----------
    name : str
        Base name.
    read, written : iterable of int
        Bytes of each distinct input and output.
    moved_by_index : int
        For a look-up, the bytes of the indices: of the table only the rows that are asked for
        are read, as many as are written.
    """
    reads, writes = passes_over(name)
    out = sum(written) * writes
    if name.rstrip("_") in _GATHERS:
        return 2 * out + moved_by_index
    return sum(read) * reads + out
