"""How fast operators compute and move data, per shape, against what the device could."""

from __future__ import annotations

from math import prod

import msgspec
import numpy as np
import polars as pl

from nadi.analyses.hta.recorded_fields import trace_name
from nadi.analyses.recorded.events import RankEvents, per_rank
from nadi.errors import InputError
from nadi.trace.arrays import Ints
from nadi.trace.dtypes import ITEMSIZE
from nadi.trace.work import OPERATORS, Operands, Work, work_of

__all__ = ["operator_rates"]

_SCHEMA = {
    "class": pl.String, "operator": pl.String, "shape": pl.String, "type": pl.String,
    "row": pl.Int64, "flops": pl.Int64, "size_bytes": pl.Int64,
}  # fmt: skip

_LONGEST_SIDE = 1 << 62
_CLASSES = {
    "gemm": "matrix multiplication", "attention": "attention", "conv": "convolution",
    "norm": "normalization",
}  # fmt: skip
_INNER = frozenset({
    "aten::_convolution", "aten::cudnn_convolution", "aten::miopen_convolution",
    "aten::mkldnn_convolution", "aten::_flash_attention_forward",
    "aten::_efficient_attention_forward", "aten::_flash_attention_backward",
    "aten::_efficient_attention_backward",
})  # of an operator that is timed with what it calls  # fmt: skip
_TIMED = [
    name for name, (op_class, rule) in OPERATORS.items()
    if rule and op_class in _CLASSES and name not in _INNER
]  # fmt: skip


class _Args(msgspec.Struct):
    dims: list[object] = msgspec.field(default_factory=list, name="Input Dims")
    types: list[str] = msgspec.field(default_factory=list, name="Input type")
    values: list[str] = msgspec.field(default_factory=list, name="Concrete Inputs")


_decoder = msgspec.json.Decoder(_Args)


@per_rank("arguments", "launches")
def operator_rates(
    events: RankEvents, peak_tflops: float = 0.0, peak_tb_per_s: float = 0.0
) -> pl.DataFrame:
    """Measure FLOP/s and B/s of matrix multiplications, attention, convolutions, normalizations.

    Operations and bytes follow from the recorded shapes (:mod:`nadi.trace.work`), with those of
    biases; time is that of all device work which an operator launches.

    Parameters
    ----------
    events
        A job, a trace, or several, recorded with ``record_shapes=True``.
    peak_tflops, peak_tb_per_s
        What the device can do, in 1e12 operations and bytes per second: then the ridge point is
        their ratio, and each shape is bound by the one or the other.

    Returns
    -------
    polars.DataFrame
        A row per operator, shape and type of elements, the most time first: ``class``,
        ``operator``, ``shape`` (M x N x K of multiplications), ``type`` such as BFloat16,
        ``count``, ``sum_ns``, ``mean_ns``, ``flops`` and ``size_bytes`` of one call,
        ``tflop_per_s``, ``tb_per_s``, ``flops_per_byte``; with peaks also ``bound`` (compute or
        memory) and ``roof_percent`` (of the peak that bounds it). O(work * depth).

    Raises
    ------
    InputError
        If no shapes were recorded, or none of these operators launches work.
    """
    calls = _inner(events, _calls(events))
    work = events.work[events.launcher[events.work] >= 0]
    wanted = np.zeros(events.table.height, dtype=np.bool_)
    wanted[calls["row"].to_numpy()] = True
    around = events.around(events.launcher[work], wanted)
    time = np.zeros(events.table.height, dtype=np.int64)
    np.add.at(time, around[around >= 0], events.column("duration")[work[around >= 0]])
    timed = calls.with_columns(time=pl.Series(time[calls["row"].to_numpy()])).filter(
        pl.col("time") > 0
    )
    table = (
        timed.group_by("class", "operator", "shape", "type", "flops", "size_bytes")
        .agg(count=pl.len().cast(pl.Int64), sum_ns=pl.sum("time"), mean_ns=pl.mean("time"))
        .sort("sum_ns", "operator", "shape", descending=[True, False, False])
        .select(
            "class", "operator", "shape", "type", "count", "sum_ns", "mean_ns", "flops",
            "size_bytes",
            tflop_per_s=pl.col("flops") / pl.col("mean_ns") / 1e3,
            tb_per_s=pl.col("size_bytes") / pl.col("mean_ns") / 1e3,
            flops_per_byte=pl.col("flops") / pl.col("size_bytes"),
        )
    )  # fmt: skip
    has_roof = peak_tflops > 0 and peak_tb_per_s > 0
    return _against_roof(table, peak_tflops, peak_tb_per_s) if has_roof else table


def _against_roof(table: pl.DataFrame, flops: float, rate: float) -> pl.DataFrame:
    is_compute = pl.col("flops_per_byte") >= flops / rate
    reached = pl.when(is_compute).then(pl.col("tflop_per_s") / flops)
    return table.with_columns(
        bound=pl.when(is_compute).then(pl.lit("compute")).otherwise(pl.lit("memory")),
        roof_percent=100 * reached.otherwise(pl.col("tb_per_s") / rate),
    )


def _inner(events: RankEvents, calls: pl.DataFrame) -> pl.DataFrame:
    """Leave out calls with a call of the same operator in them, which automatic casts make."""
    rows = calls["row"].to_numpy()
    is_call = np.zeros(events.table.height, dtype=np.bool_)
    is_call[rows] = True
    outer = events.around(events.parent[rows], is_call)
    position = np.full(events.table.height, -1, dtype=np.int64)
    position[rows] = np.arange(rows.size)
    names = calls["operator"].to_numpy()
    nested = np.flatnonzero(outer >= 0)
    around = position[outer[nested]]
    repeated = around[names[around] == names[nested]]
    return calls.filter(~pl.Series(np.isin(np.arange(rows.size), repeated)))


def _calls(events: RankEvents) -> pl.DataFrame:
    """Return the calls of known operators whose work follows from their inputs."""
    names = events.table["name"].cast(pl.String)
    is_known = names.is_in(_TIMED).to_numpy() & events.is_of("operator")
    rows = np.flatnonzero(is_known)
    place = np.full(events.trace.nodes.height, -1, dtype=np.int64)
    place[rows if events.node is None else events.node[rows]] = rows
    attributes = events.trace.attributes
    found = []
    known: dict[tuple[str, str], tuple[Work, str]] = {}
    chosen: Ints = attributes.rows_named("args")
    owner = attributes.node[chosen]
    chosen = chosen[(owner >= 0) & (place[owner] >= 0)]
    for attribute in chosen.tolist():
        row = int(place[attributes.node[attribute]])
        try:
            args = _decoder.decode(attributes.span(attribute))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # shapes of lists of tensors, or another tool's
        if not args.dims:
            continue
        shapes = _shapes(args.dims)
        key = names[row], f"{shapes}{args.types}{args.values}"
        if key not in known:
            operands = _operands(shapes, args)
            done = work_of(key[0], operands)
            known[key] = done, _text(key[0], operands, done) if done.flops >= 0 else ""
        done, text = known[key]
        if done.flops >= 0 and done.bytes > 0:
            kind = next((one for one in args.types if "Scalar" not in one), "")
            kind = kind.removeprefix("c10::")
            op_class = _CLASSES[OPERATORS[key[0]][0]]
            flops = done.flops + done.extra
            found.append((op_class, key[0], text, kind, row, flops, done.bytes))
    if not found:
        raise InputError(
            trace_name(events.trace), "no shapes of the operators that are known are recorded",
            "record with record_shapes=True",
        )  # fmt: skip
    return pl.DataFrame(found, schema=_SCHEMA, orient="row")


def _operands(shapes: list[list[int]], args: _Args) -> Operands:
    """Return operands as the profiler states them: inputs alone."""
    items = [ITEMSIZE.get(one, 0) for one in args.types]
    items += [0] * (len(shapes) - len(items))
    sizes = [prod(one) * item if one else 0 for one, item in zip(shapes, items, strict=False)]
    return Operands(shapes, sizes, items, args.values)


def _text(name: str, operands: Operands, done: Work) -> str:
    """Return the shape of a call as text."""
    first = 1 if "backward" in name else 0  # after the gradient
    op_class = OPERATORS[name][0]
    if op_class == "norm":
        return "x".join(map(str, operands.inputs[0]))
    if op_class == "conv":
        image, weight = operands.inputs[first : first + 2]
        sides = (image, weight, operands.integers(3 + first))
        texts = ["x".join(map(str, one)) for one in sides]
        return f"{texts[0]} * {texts[1]} / {texts[2]}"
    batch, m, n, k = done.shape
    if op_class == "attention":
        samples = operands.inputs[first][0]
        masked = " causal" if done.flops < done.uncut else ""
        return f"{samples} x {batch // samples} heads, {m} x {n}, {k}{masked}"
    return f"{batch} x ({m} x {n} x {k})" if "bmm" in name else f"{m} x {n} x {k}"


def _shapes(dims: list[object]) -> list[list[int]]:
    """Return shapes; empty for lists of tensors, and for sides that no tensor has."""
    return [list(one) if isinstance(one, list) and all(map(_is_side, one)) else [] for one in dims]


def _is_side(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < _LONGEST_SIDE
