"""What each ONNX operator does, by its type and its tensors' shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from cotenant.profiles.graph.ir import OpKind

__all__ = ["VIEWS", "onnx_flops", "onnx_kind"]

VIEWS = frozenset(
    "Reshape Flatten Squeeze Unsqueeze Identity Transpose Expand Cast Shape Constant Split".split()  # noqa: SIM905
)
"""Operators that a runtime gives no memory of its own; ``Cast`` and ``Split`` only where types and
memory allow, which the reader checks."""

_BY_KIND: dict[OpKind, str] = {
    "matmul": "MatMul Gemm MatMulInteger QLinearMatMul FusedMatMul",
    "convolution": "Conv ConvTranspose ConvInteger QLinearConv DeformConv",
    "attention": "Attention MultiHeadAttention",
    "recurrent": "LSTM GRU RNN",
    "embedding": "Gather",
    "normalisation": """BatchNormalization LayerNormalization GroupNormalization InstanceNormalization LRN
        RMSNormalization LpNormalization MeanVarianceNormalization SimplifiedLayerNormalization
        SkipLayerNormalization""",
    "activation": """Relu LeakyRelu PRelu Elu Selu Sigmoid HardSigmoid Tanh Softplus Softsign Gelu Mish HardSwish
        ThresholdedRelu Celu Clip Swish""",
    "softmax": "Softmax LogSoftmax Hardmax",
    "pooling": "MaxPool AveragePool GlobalAveragePool GlobalMaxPool LpPool Resize Upsample",
    "dropout": "Dropout",
    "loss": "SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss",
    "reduction": """ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSumExp
        ReduceSumSquare ArgMax ArgMin TopK CumSum""",
    "index": """GatherElements GatherND ScatterElements ScatterND Scatter Slice Where OneHot NonZero Trilu
        Compress ReverseSequence Unique""",
    "copy": "Concat Tile Pad DepthToSpace SpaceToDepth CastLike",
    "create": """ConstantOfShape Range RandomNormal RandomUniform RandomNormalLike RandomUniformLike EyeLike
        Constant Shape Size Multinomial Bernoulli""",
    "elementwise": """Add Sub Mul Div Pow Sqrt Exp Log Neg Abs Reciprocal Erf Sin Cos Tan Asin Acos Atan Sinh Cosh
        Floor Ceil Round Sign Max Min Mean Sum Mod Equal Less LessOrEqual Greater GreaterOrEqual And Or Not Xor
        IsNaN IsInf BitShift Quick QuantizeLinear DequantizeLinear""",
}
_KIND: dict[str, OpKind] = {name: kind for kind, names in _BY_KIND.items() for name in names.split()}

Shape = Sequence[int]


def onnx_kind(op_type: str) -> OpKind:
    """The class of an operator type; ``other`` if not known.

    >>> onnx_kind("Conv"), onnx_kind("Reshape"), onnx_kind("MyOp")
    ('convolution', 'view', 'other')
    """
    return _KIND.get(op_type) or ("view" if op_type in VIEWS else "other")


def onnx_flops(
    op_type: str, inputs: Sequence[Shape], outputs: Sequence[Shape], attributes: Mapping[str, Any]
) -> int:
    """Matrix work of one call; a multiply-add counts two.

    Parameters
    ----------
    op_type : str
    inputs, outputs : sequence of shapes
        In the operator's order; an input that is left out has the shape ``()``.
    attributes : mapping
    """
    if op_type in {"Conv", "ConvInteger"}:
        return 2 * prod(outputs[0]) * prod(inputs[1][1:])
    if op_type == "QLinearConv":
        return 2 * prod(outputs[0]) * prod(inputs[3][1:])
    if op_type == "ConvTranspose":
        return 2 * prod(inputs[0]) * prod(inputs[1][1:])
    if op_type == "Gemm":
        return 2 * prod(outputs[0]) * inputs[0][0 if attributes.get("transA") else 1]
    if op_type in {"MatMul", "MatMulInteger", "FusedMatMul"}:
        return 2 * prod(outputs[0]) * inputs[0][-1]
    if op_type == "QLinearMatMul":
        return 2 * prod(outputs[0]) * inputs[0][-1]
    if op_type in {"LSTM", "GRU", "RNN"}:
        # (steps, batch, features); weights (directions, gates x hidden, features or hidden)
        return 2 * prod(inputs[0][:2]) * (prod(inputs[1]) + prod(inputs[2]))
    if op_type in {"Attention", "MultiHeadAttention"} and len(inputs[0]) == 4:
        q, k, v = inputs[:3]
        return 2 * prod(q[:-1]) * k[-2] * (q[-1] + v[-1])
    return 0
