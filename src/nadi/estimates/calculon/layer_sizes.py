"""Operations and bytes of each layer of a block, for many ways to split it.

Arrays have shape (layers, ways). A way is what the sizes of a block depend on: one row of the
distinct values of a few fields of executions.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nadi.estimates.calculon.rules import Kind, Layer, When
from nadi.estimates.described_columns import as_floats
from nadi.estimates.estimated_model import ModelDescription
from nadi.estimates.execution import ELEMENT_BYTES, Executions
from nadi.trace.arrays import Bools, Floats, Ints
from nadi.trace.rows import number_rows

MERGED_KINDS = (Kind.GATHER_LINEAR, Kind.LINEAR_SCATTER)
_LINEAR = (Kind.LINEAR, *MERGED_KINDS)


class LayerSizes(NamedTuple):
    """Float64, shape (layers, ways); bytes, and floating point operations."""

    forward_flops: Floats
    activation_flops: Floats  # of the gradient of the activation
    weight_flops: Floats  # of the gradient of the weights
    forward_bytes: Floats  # that go between memory and the processor
    activation_bytes: Floats
    weight_bytes: Floats
    outputs: Floats  # bytes of its output
    weights: Floats  # bytes of its weights
    kept: Floats  # bytes of its activation
    gradient: Floats  # bytes of its activation's gradient


class Dimensions(NamedTuple):
    """What the sizes of layers are made of: numbers, or float64 of shape (ways,)."""

    by_name: dict[str, Floats]
    element: Floats  # bytes of an element
    split: Floats  # degree of tensor parallelism
    sequence_split: Bools  # whether sequences are split between the layers that tensors split
    fused: Bools  # whether the activation function is part of the layer before it


class _One(NamedTuple):
    """The sizes of one layer."""

    flops: tuple[Floats | float, Floats | float, Floats | float]
    inputs: Floats | float
    outputs: Floats | float
    weights: Floats | float = 0.0
    kept: Floats | float | None = None  # bytes; None: the inputs
    gradient: Floats | float | None = None  # bytes; None: the outputs
    forward_bytes: Floats | float | None = None  # None: inputs, outputs and weights
    backward_bytes: Floats | float | None = None  # None: weights, activation and its gradient


def dimensions_of(model: ModelDescription, ways: Executions) -> Dimensions:
    """Give the dimensions of a block's tensors on one processor."""
    split = ways.tensor_par.astype(float)
    microbatch = ways.microbatch_size.astype(float)
    tokens = microbatch * model.seq_size
    whole = tokens * model.hidden
    sequence_split = ways.is_named("tensor_par_comm_type", "rs_ag")
    query = model.attn_size * model.attn_heads / split
    shares_key = ways.is_named("attention_type", "multiquery")
    heads = microbatch * model.attn_heads / split
    inner = model.feedforward / split
    by_name: dict[str, Floats] = {
        "two": np.array([2.0]),
        "three": np.array([3.0]),
        "hidden": as_floats(model.hidden),
        "sequence": as_floats(model.seq_size),
        "head": as_floats(model.attn_size),
        "tokens": tokens,
        "whole": whole,
        "local": np.where(sequence_split, whole / split, whole),
        "query": query,
        "key": np.where(shares_key, as_floats(model.attn_size), query),
        "query_key_value": 3 * query,
        "heads": heads,
        "query_elements": heads * model.seq_size * model.attn_size,
        "scores": heads * model.seq_size * model.seq_size,
        "inner": inner,
        "inner_elements": tokens * inner,
    }
    return Dimensions(
        by_name, ELEMENT_BYTES[ways.datatype], split, sequence_split, ways.fused_activation == 1
    )


def presence_of(layers: Sequence[Layer], ways: Executions) -> Bools:
    """Tell which layers are part of the block, bool of shape (layers, ways)."""
    merged = ~ways.is_named("tensor_par_overlap", "none") & (ways.tensor_par > 1)
    shares_key = ways.is_named("attention_type", "multiquery")
    there = {
        When.ALWAYS: merged | True,
        When.SEPARATE: ~merged,
        When.MERGED: merged,
        When.MERGED_HEADS: merged & ~shares_key,
        When.MERGED_QUERY: merged & shares_key,
        When.OWN_KEY: ~merged | shares_key,
    }
    num = max(merged.size, shares_key.size)
    return np.array([np.broadcast_to(there[layer.when], num) for layer in layers])


def weights_of(layers: Sequence[Layer], dimensions: Dimensions, num: int) -> Floats:
    """Give the weights of each layer, in elements: shape (layers, ways)."""
    return np.array([
        np.broadcast_to(np.asarray(_one(layer, dimensions).weights, float), num)
        for layer in layers
    ])  # fmt: skip


def layer_sizes(layers: Sequence[Layer], dimensions: Dimensions, present: Bools) -> LayerSizes:
    """Work out the operations and bytes of all layers, 0 for those that are not there."""
    element = dimensions.element
    columns: list[list[Floats | float]] = [[] for _ in LayerSizes._fields]
    for layer in layers:
        one = _one(layer, dimensions)
        weights = one.weights * element
        kept = one.inputs * element if one.kept is None else one.kept
        gradient = one.outputs * element if one.gradient is None else one.gradient
        backward = weights + kept + gradient
        forward = (one.inputs + one.outputs + one.weights) * element
        has_weights = layer.kind in _LINEAR or layer.kind is Kind.NORM
        values = (
            *one.flops,
            forward if one.forward_bytes is None else one.forward_bytes,
            backward if one.backward_bytes is None else one.backward_bytes,
            backward if has_weights else 0.0,
            one.outputs * element, weights, kept, gradient,
        )  # fmt: skip
        for column, value in zip(columns, values, strict=True):
            column.append(value)
    num = present.shape[1]
    return LayerSizes(*(
        np.array([np.broadcast_to(np.asarray(value, float), num) for value in column]) * present
        for column in columns
    ))  # fmt: skip


def _one(layer: Layer, dimensions: Dimensions) -> _One:
    sizes = [dimensions.by_name[name] for name in layer.sizes]
    return _SIZES[layer.kind](dimensions, *sizes)


def _linear(_: Dimensions, rows: Floats, columns: Floats, inner: Floats) -> _One:
    flops = 2 * rows * columns * inner
    return _One((flops, flops, flops), rows * inner, rows * columns, columns * inner)


def _gather_linear(dims: Dimensions, rows: Floats, columns: Floats, inner: Floats) -> _One:
    """Size a product that gathers its input; without splits it keeps no gradient of its own."""
    one = _linear(dims, rows, columns, inner)
    whole = one.inputs * dims.element
    return one._replace(
        kept=np.where(dims.sequence_split, whole / dims.split, whole),
        gradient=np.where(dims.sequence_split, one.outputs * dims.element, 0.0),
    )


def _linear_scatter(dims: Dimensions, rows: Floats, columns: Floats, inner: Floats) -> _One:
    """Size a product that scatters its output, whose gradient counts twice."""
    one = _linear(dims, rows, columns, inner)
    twice = 2 * one.outputs * dims.element
    return one._replace(
        kept=np.where(dims.sequence_split, one.inputs * dims.element, 0.0),
        gradient=np.where(dims.sequence_split, twice / dims.split, twice),
    )


def _product(
    _: Dimensions, batch: Floats, rows: Floats, columns: Floats, inner: Floats, first: Floats
) -> _One:
    flops = 2 * batch * rows * columns * inner
    inputs = first + batch * columns * inner
    return _One((flops, 2 * flops, 0.0), inputs, batch * rows * columns)


def _norm(_: Dimensions, size: Floats, width: Floats) -> _One:
    return _One((9 * size, 14 * size, 7 * size), size, size, 2 * width)


def _softmax(dims: Dimensions, size: Floats) -> _One:
    moved = 2 * size * dims.element
    return _One((5 * size, 8 * size, 0.0), size, size, backward_bytes=moved)


def _activation(dims: Dimensions, size: Floats) -> _One:
    stored = np.where(dims.fused, 0.0, size * dims.element)
    moved = 2 * size * dims.element
    return _One((8 * size, 13 * size, 0.0), size, size, 0.0, stored, stored, moved, moved)


def _dropout(dims: Dimensions, size: Floats) -> _One:
    moved = (2 * dims.element + 1) * size
    return _One((size, size, 0.0), size, size, 0.0, size, size, moved, moved)


def _add(_: Dimensions, size: Floats) -> _One:
    return _One((size, 2 * size, 0.0), 2 * size, size)


def _fork(dims: Dimensions, size: Floats, uses: Floats) -> _One:
    return _One(
        (0.0, uses * size, 0.0), size, 0.0,
        forward_bytes=0.0, backward_bytes=(uses + 1) * size * dims.element,
    )  # fmt: skip


def _gather(dims: Dimensions, size: Floats) -> _One:
    """Size a gather: forward it copies or gathers, backward it reduces."""
    there = dims.split > 1
    reduced = np.where(there, (dims.split - 1) / dims.split * size, 0.0)
    moved = np.where(there, 2 * size * dims.element, 0.0)
    split = size * dims.element / dims.split
    return _One(
        (0.0, reduced, 0.0), 0.0, 0.0, 0.0,
        kept=np.where(there & dims.sequence_split, split, 0.0),
        gradient=np.where(there, np.where(dims.sequence_split, split, size * dims.element), 0.0),
        forward_bytes=np.where(dims.sequence_split, moved, 0.0),
        backward_bytes=moved,
    )  # fmt: skip


def _scatter(dims: Dimensions, size: Floats) -> _One:
    """Size a scatter: forward it reduces, backward it copies or gathers."""
    one = _gather(dims, size)
    return one._replace(
        flops=(one.flops[1], 0.0, 0.0),
        kept=one.gradient,
        gradient=one.kept,
        forward_bytes=one.backward_bytes,
        backward_bytes=one.forward_bytes,
    )


_SIZES: dict[Kind, Callable[..., _One]] = {
    Kind.LINEAR: _linear,
    Kind.PRODUCT: _product,
    Kind.NORM: _norm,
    Kind.SOFTMAX: _softmax,
    Kind.ACTIVATION: _activation,
    Kind.DROPOUT: _dropout,
    Kind.ADD: _add,
    Kind.FORK: _fork,
    Kind.GATHER: _gather,
    Kind.SCATTER: _scatter,
    Kind.GATHER_LINEAR: _gather_linear,
    Kind.LINEAR_SCATTER: _linear_scatter,
}


def matrix_engine(layers: Sequence[Layer]) -> Bools:
    """Tell which layers the matrix engine computes, bool of shape (layers,)."""
    return np.array([layer.kind in (*_LINEAR, Kind.PRODUCT) for layer in layers])


def distinct(executions: Executions, fields: Sequence[str]) -> tuple[Ints, Executions]:
    """Give the distinct values of some fields of executions.

    - Returns number, ways: Of each execution its way: int64, shape (executions,) or (1,); the ways,
      whose other fields are those of an execution with these values. O(executions log executions).
    """
    number, first = distinct_rows(executions, fields, ())
    return number, executions.part(first)


def distinct_rows(
    executions: Executions, fields: Sequence[str], columns: Sequence[npt.NDArray[Any]]
) -> tuple[Ints, Ints]:
    """Give the distinct values of some fields of executions, and of other columns of them.

    - Returns number, first: Of each execution its way: int64, shape (executions,) or (1,); of each
      way the row of an execution with these values: int64, shape (ways,). O(executions log
      executions).
    """
    varying = [getattr(executions, name) for name in fields]
    varying += [column.astype(np.float64).view(np.int64) for column in columns]
    varying = [column for column in varying if column.size > 1]
    if not varying:
        return np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    return number_rows(varying)
