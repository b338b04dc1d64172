"""What a layer of a network costs: operations and bytes, forward and backward, and what it keeps.

FLOPs count a multiplication and an addition as two; biases are added within products and count
none. Those of norms, softmax and GeLU per element are the ones that Calculon (Isaev et al., SC'23)
counts. Bytes are those that an operation reads and writes if nothing stays in a cache.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from nadi.models.networks.layer_kinds import (
    Activation,
    Add,
    Attention,
    ClassToken,
    Concat,
    Conv,
    EmbeddingBag,
    Feature,
    Image,
    Inputs,
    Interaction,
    LayerKind,
    Linear,
    Loss,
    Modulate,
    Multiply,
    Norm,
    Pool,
    Positions,
    RoiAlign,
    Tokens,
    Upsample,
    spread_over,
)
from nadi.trace.work import Work, attention, gemm

_F32, _INDEX = 4, 8
# FLOPs per element: forward, gradient of the input, gradient of the weights
_NORMS = {"batch": (9, 14, 7), "group": (9, 14, 7), "layer": (9, 14, 7), "rms": (4, 8, 3)}
_ACTIVATIONS = {
    "relu": (1, 1), "gelu": (8, 13), "silu": (8, 13), "sigmoid": (8, 13), "geglu": (9, 15),
    "swiglu": (9, 15),
}  # fmt: skip
_LOSSES = {"cross_entropy": (5, 2), "squares": (3, 2)}
_SAMPLES = 16  # pixels that RoIAlign reads for each it gives: four points, four neighbors each


class StepSize(NamedTuple):
    """What the work of a layer depends on beside its shape."""

    samples: int  # of a rank
    # itemsize, gradient_itemsize: bytes of an element of weights and activations, and of a weight's
    # gradient
    itemsize: int
    gradient_itemsize: int
    dtype: str  # of weights and activations


class LayerWork(NamedTuple):
    """The work of a layer on one rank."""

    # forward, input_gradient, weight_gradient: None where there is none
    forward: Work | None = None
    input_gradient: Work | None = None
    weight_gradient: Work | None = None
    # keeps_inputs, keeps_output: which of its inputs stay in memory until its backward, and whether
    # what it gives does
    keeps_inputs: tuple[int, ...] = ()
    keeps_output: bool = False
    keeps: int = 0  # bytes of something else that does


_Maker = Callable[[Any, Inputs, Feature, StepSize], LayerWork]
_MAKERS: dict[type[LayerKind], _Maker] = {}


def work_of_layer(kind: LayerKind, inputs: Inputs, output: Feature, size: StepSize) -> LayerWork:
    """Return the work of a layer; views have none."""
    if kind.is_view:
        return LayerWork()
    return _MAKERS[type(kind)](kind, inputs, output, size)


def _of(*kinds: type[LayerKind]) -> Callable[[_Maker], _Maker]:
    def add(maker: _Maker) -> _Maker:
        _MAKERS.update(dict.fromkeys(kinds, maker))
        return maker

    return add


def _product(
    op_class: str, shape: tuple[int, int, int, int], elements: int, size: StepSize,
    written: int = 0,
) -> Work:  # fmt: skip
    """Return the work of a product of ``(batch, m, n, k)``.

    ``elements`` are read and written in the type of activations, ``written`` bytes in another.
    """
    return gemm(shape, elements * size.itemsize + written, size.dtype, op_class)


def _small(op_class: str, flops: int, elements: int, size: StepSize) -> Work:
    """Return work that is bound by memory, which reads and writes so many elements."""
    return Work(op_class, flops, elements * size.itemsize, dtype=size.dtype)


@_of(Conv)
def _conv(kind: Conv, inputs: Inputs, output: Feature, size: StepSize) -> LayerWork:
    """Return the products of a convolution, as ones of unfolded images."""
    given, made = (size.samples * one.elements for one in (inputs[0], output))
    weight = kind.tensors(inputs)[0]
    # a transposed convolution is the gradient of one that goes from its output to its input
    pixels, channels = (inputs[0], output) if kind.transposed else (output, inputs[0])
    places = size.samples * pixels.elements // pixels.shape[0]
    window = channels.shape[0] // kind.groups * kind.kernel**2
    of_group = pixels.shape[0] // kind.groups
    forward = (kind.groups, places, of_group, window)
    back = (kind.groups, places, window, of_group)
    if kind.transposed:
        forward, back = back, forward
    of_weight = (kind.groups, of_group, window, places)
    moved = given + made + weight
    gradient = weight * size.gradient_itemsize
    found = LayerWork(
        _product("conv", forward, moved, size),
        _product("conv", back, moved, size),
        _product("conv", of_weight, given + made, size, gradient), (0,),
    )  # fmt: skip
    if min(of_group, channels.shape[0] // kind.groups) > 1:
        return found
    # a filter of one channel fills no tile of a matrix: it is bound by memory
    without = [work._replace(shape=()) if isinstance(work, Work) else work for work in found[:3]]
    return found._replace(
        forward=without[0], input_gradient=without[1], weight_gradient=without[2]
    )  # fmt: skip


@_of(Linear)
def _linear(kind: Linear, inputs: Inputs, output: Feature, size: StepSize) -> LayerWork:
    width, out = inputs[0].shape[-1], kind.out
    rows = size.samples * inputs[0].elements // width
    moved = rows * (width + out) + width * out
    return LayerWork(
        _product("gemm", (1, rows, out, width), moved, size),
        _product("gemm", (1, rows, width, out), moved, size),
        _product("gemm", (1, width, out, rows), rows * (width + out), size,
                 width * out * size.gradient_itemsize), (0,),
    )  # fmt: skip


@_of(Norm)
def _norm(kind: Norm, inputs: Inputs, output: Feature, size: StepSize) -> LayerWork:
    elements = size.samples * output.elements
    forward, of_input, of_weight = _NORMS[kind.of]
    weights = _small("norm", of_weight * elements, 2 * elements, size) if kind.affine else None
    return LayerWork(
        _small("norm", forward * elements, 2 * elements, size),
        _small("norm", of_input * elements, 3 * elements, size), weights, (0,),
    )  # fmt: skip


@_of(Activation)
def _activation(kind: Activation, inputs: Inputs, output: Feature, size: StepSize) -> LayerWork:
    given, made = (size.samples * one.elements for one in (inputs[0], output))
    forward, backward = _ACTIVATIONS[kind.of]
    is_relu = kind.of == "relu"  # whose sign tells its gradient
    return LayerWork(
        _small("activation", forward * made, given + made, size),
        _small("activation", backward * made, 2 * given + made, size),
        keeps_inputs=() if is_relu else (0,), keeps_output=is_relu,
    )  # fmt: skip


def _spread_gradient(inputs: Inputs, whole: int, size: StepSize) -> Work | None:
    """Return the sums over all places of the gradients of vectors that were spread."""
    vectors = sum(spread_over(inputs[0], one) for one in inputs[1:])
    return _small("elementwise", vectors * whole, vectors * whole, size) if vectors else None


@_of(Add)
def _add(kind: Add, inputs: Inputs, output: Feature, size: StepSize) -> LayerWork:
    made = size.samples * output.elements
    read = sum(size.samples * one.elements for one in inputs)
    forward = _small("add", (len(inputs) - 1) * made, read + made, size)
    # the gradient of a sum is that of each summand, without any work
    return LayerWork(forward, _spread_gradient(inputs, made, size))


@_of(Multiply)
def _multiply(kind: Multiply, inputs: Inputs, output: Feature, size: StepSize) -> LayerWork:
    made = size.samples * output.elements
    read = sum(size.samples * one.elements for one in inputs)
    factors = len(inputs)
    return LayerWork(
        _small("elementwise", (factors - 1) * made, read + made, size),
        _small("elementwise", factors * (factors - 1) * made, 2 * read + made, size),
        keeps_inputs=tuple(range(factors)),
    )  # fmt: skip


@_of(Modulate)
def _modulate(kind: Modulate, inputs: Inputs, output: Feature, size: StepSize) -> LayerWork:
    made = size.samples * output.elements
    read = sum(size.samples * one.elements for one in inputs)
    return LayerWork(
        _small("elementwise", 2 * made, read + made, size),
        _small("elementwise", 4 * made, 2 * read + made, size), keeps_inputs=(0, 2),
    )  # fmt: skip


@_of(Concat, Tokens, Image)
def _copied(kind: LayerKind, inputs: Inputs, output: Feature, size: StepSize) -> LayerWork:
    copied = 2 * size.samples * output.elements
    work = _small("copy" if isinstance(kind, Concat) else "permute", 0, copied, size)
    return LayerWork(work, work)


@_of(Pool)
def _pool(kind: Pool, inputs: Inputs, output: Feature, size: StepSize) -> LayerWork:
    given, made = (size.samples * one.elements for one in (inputs[0], output))
    flops = made * kind.kernel**2 if kind.kernel else given
    work = _small("elementwise", flops, given + made, size)
    is_max = kind.of == "max"  # which keeps where the largest stood
    return LayerWork(work, work, keeps_inputs=(0,) if is_max else (), keeps=made * _INDEX * is_max)


@_of(Upsample)
def _upsample(kind: Upsample, inputs: Inputs, output: Feature, size: StepSize) -> LayerWork:
    given, made = (size.samples * one.elements for one in (inputs[0], output))
    return LayerWork(
        _small("copy", 0, given + made, size), _small("elementwise", made, given + made, size)
    )


@_of(RoiAlign)
def _roi_align(kind: RoiAlign, inputs: Inputs, output: Feature, size: StepSize) -> LayerWork:
    made = size.samples * output.elements
    work = _small("elementwise", 2 * _SAMPLES * made, (_SAMPLES + 1) * made, size)
    return LayerWork(work, work)


@_of(Attention)
def _attention(kind: Attention, inputs: Inputs, output: Feature, size: StepSize) -> LayerWork:
    """Return a fused core, whose backward forms the scores anew: five products instead of two."""
    queries, width = output.shape
    keys = inputs[-1].shape[0]
    heads = size.samples * output.copies * kind.heads
    shape = (heads, queries, keys, width // kind.heads)
    read = sum(size.samples * one.elements for one in inputs) * size.itemsize
    made = size.samples * output.elements * size.itemsize
    sums = _F32 * heads * queries
    return LayerWork(
        attention(shape, shape[-1], read + made + sums, size.dtype),
        attention(shape, shape[-1], 2 * (read + made) + sums, size.dtype, backward=True),
        keeps_inputs=tuple(range(len(inputs))), keeps_output=True, keeps=sums,
    )  # fmt: skip


@_of(ClassToken)
def _class_token(kind: ClassToken, inputs: Inputs, output: Feature, size: StepSize) -> LayerWork:
    copied = 2 * size.samples * output.elements
    width = inputs[0].shape[-1]
    own = size.samples * output.copies * kind.count * width
    return LayerWork(
        _small("copy", 0, copied, size), _small("copy", 0, copied, size),
        _small("elementwise", own, own, size),
    )  # fmt: skip


@_of(Positions)
def _positions(kind: Positions, inputs: Inputs, output: Feature, size: StepSize) -> LayerWork:
    made = size.samples * output.elements
    summed = _small("elementwise", made, made, size) if kind.trained else None
    forward = _small("add", made, 2 * made + inputs[0].elements, size)
    return LayerWork(forward, None, summed)


@_of(EmbeddingBag)
def _embedding_bag(
    kind: EmbeddingBag, inputs: Inputs, output: Feature, size: StepSize
) -> LayerWork:  # fmt: skip
    """Return the look-ups of tables that each rank has whole, whose gradients are as large."""
    made = size.samples * output.elements
    rows = size.samples * sum(kind.of_tables)
    summed = rows * kind.width - made
    forward = Work("embedding", summed, (rows * kind.width + made) * size.itemsize
                   + rows * _INDEX, dtype=size.dtype)  # fmt: skip
    tables = sum(kind.tensors(inputs)) * size.gradient_itemsize
    gradient = Work("embedding", rows * kind.width, tables + made * size.itemsize, dtype=size.dtype)
    return LayerWork(forward, None, gradient, keeps=rows * _INDEX)


@_of(Interaction)
def _interaction(
    kind: Interaction, inputs: Inputs, output: Feature, size: StepSize
) -> LayerWork:  # fmt: skip
    """Return one product of all pairs for each sample; two of them in the backward."""
    count, width = inputs[1].shape[0] + 1, inputs[1].shape[1]
    made = size.samples * output.elements
    moved = size.samples * 2 * count * width + made
    return LayerWork(
        _product("gemm", (size.samples, count, count, width), moved, size),
        _product("gemm", (2 * size.samples, count, width, count), 2 * moved, size),
        keeps_inputs=(0, 1),
    )  # fmt: skip


@_of(Loss)
def _loss(kind: Loss, inputs: Inputs, output: Feature, size: StepSize) -> LayerWork:
    elements = size.samples * inputs[0].elements
    forward, backward = _LOSSES[kind.of]
    moved = 2 * elements * _F32
    return LayerWork(
        Work("cross_entropy", forward * elements, moved, dtype="float32"),
        Work("cross_entropy", backward * elements, moved, dtype="float32"),
        keeps=elements * _F32,
    )  # fmt: skip
