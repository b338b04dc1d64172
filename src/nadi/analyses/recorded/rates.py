"""How fast operators compute and move data, per shape, against what the device could."""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import polars as pl

from nadi.analyses.hta.recorded_fields import trace_name
from nadi.analyses.recorded.events import RankEvents, per_rank
from nadi.errors import InputError
from nadi.files.remedies import with_option
from nadi.recordings.serving_steps import serving_step
from nadi.systems.prices.traced_operations import ProfiledArgs, profiled_args
from nadi.trace.arrays import Bools
from nadi.trace.work import OF_CALLS, OPERATORS, Lengths, Operands, Work, work_of

_SCHEMA = {
    "class": pl.String, "operator": pl.String, "shape": pl.String, "type": pl.String,
    "row": pl.Int64, "flops": pl.Int64, "size_bytes": pl.Int64,
}  # fmt: skip

_NUMBERED = r"^(sglang_profiler::\w+?)_\d+$"  # by the place in the program
_CLASSES = {
    "gemm": "matrix multiplication", "attention": "attention", "conv": "convolution",
    "norm": "normalization", "moe": "mixture of experts", "activation": "activation",
    "rope": "rotary embedding", "copy": "copy",
}  # fmt: skip
_INNER = frozenset({
    "aten::_convolution", "aten::cudnn_convolution", "aten::miopen_convolution",
    "aten::mkldnn_convolution", "aten::_flash_attention_forward",
    "aten::_efficient_attention_forward", "aten::_flash_attention_backward",
    "aten::_efficient_attention_backward",
})  # of an operator that is timed with what it calls  # fmt: skip
_TIMED = [
    name for name, (op_class, rule) in (OPERATORS | OF_CALLS).items()
    if rule and op_class in _CLASSES and name not in _INNER
]  # fmt: skip


@per_rank("arguments", "launches")
def operator_rates(
    events: RankEvents, peak_tflops: float = 0.0, peak_tb_per_s: float = 0.0
) -> pl.DataFrame:
    """Measure FLOP/s and B/s of products, attention, experts, convolutions, norms and others.

    Operations and bytes follow from the recorded shapes (:mod:`nadi.trace.work`), with those of
    biases; time is that of all device work which an operator launches, but for that of others in
    the table within it. Attention with a paged cache takes the lengths of sequences from the
    annotation of the serving step, and experts take their sizes from calls within them; what is
    not recorded is said in ``shape``, and then operations and bytes are null.

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
            size_bytes=pl.col("size_bytes").replace(-1, None),
            tflop_per_s=pl.col("flops") / pl.col("mean_ns") / 1e3,
        ).with_columns(
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
        bound=pl.when(is_compute).then(pl.lit("compute")).when(~is_compute).then(pl.lit("memory")),
        roof_percent=100 * reached.otherwise(pl.col("tb_per_s") / rate),
    )


def _inner(events: RankEvents, calls: pl.DataFrame) -> pl.DataFrame:
    """Leave out calls that others within them do: those have at least half of their operations.

    So it is of calls that automatic casts repeat, and of products that libraries wrap.
    """
    rows, flops = calls["row"].to_numpy(), calls["flops"].to_numpy()
    is_call = np.zeros(events.table.height, dtype=np.bool_)
    is_call[rows] = True
    position = np.full(events.table.height, -1, dtype=np.int64)
    position[rows] = np.arange(rows.size)
    outer = events.around(events.parent[rows], is_call)
    nested = np.flatnonzero(outer >= 0)
    within = np.zeros(rows.size, dtype=np.int64)
    np.add.at(within, position[outer[nested]], flops[nested])
    is_done = np.bincount(position[outer[nested]], minlength=rows.size) > 0
    return calls.filter(pl.Series(~is_done | (2 * within < flops)))


def _calls(events: RankEvents) -> pl.DataFrame:
    """Return the calls of known operators, with their work as far as it is known."""
    names = events.table["name"].cast(pl.String)
    base = names.str.replace(_NUMBERED, "$1")
    is_known = base.is_in(_TIMED).to_numpy() & events.is_of("operator")
    of_steps = base.is_in(list(OF_CALLS)).to_numpy() & is_known
    lengths, inner = _lengths(events, of_steps), _inner_calls(events, of_steps)
    found = []
    known: dict[tuple[str, str], tuple[Work, str]] = {}
    for row, args in _arguments(events, is_known):
        operands = args.operands()
        context = lengths.get(row), tuple(inner.get(row, ()))
        key = (
            base[row],
            f"{operands.inputs}{args.types}{args.values}{context if of_steps[row] else ''}",
        )
        if key not in known:
            operands = operands._replace(lengths=context[0], inner=context[1])
            done = work_of(key[0], operands)
            known[key] = done, _text(key[0], operands, done)
        done, text = known[key]
        if text:
            op_class = _CLASSES[(OPERATORS.get(key[0]) or OF_CALLS[key[0]])[0]]
            flops = done.flops + done.extra if done.flops >= 0 else None
            found.append((op_class, names[row], text, args.dtype, row, flops, done.bytes))
    if not found:
        raise InputError(
            trace_name(events.trace), "no shapes of the operators that are known are recorded",
            with_option(events.trace, "record_shapes=True"),
        )  # fmt: skip
    return pl.DataFrame(found, schema=_SCHEMA, orient="row")


def _arguments(events: RankEvents, wanted: Bools) -> Iterator[tuple[int, ProfiledArgs]]:
    """Yield the events that are wanted and have shapes."""
    rows = np.flatnonzero(wanted)
    place = np.full(events.trace.nodes.height, -1, dtype=np.int64)
    place[rows if events.node is None else events.node[rows]] = rows
    for node, args in profiled_args(events.trace, place >= 0):
        yield int(place[node]), args


def _lengths(events: RankEvents, wanted: Bools) -> dict[int, Lengths]:
    """Return the lengths of sequences of the step around each event, where it states them."""
    if not wanted.any():
        return {}
    labels = np.flatnonzero(events.is_of("annotation"))
    names = events.table["name"].gather(labels).cast(pl.String)
    stated = {
        row: step.lengths for row, name in zip(labels.tolist(), names, strict=True)
        if (step := serving_step(name)) is not None and step.lengths is not None
    }  # fmt: skip
    is_step = np.zeros(events.table.height, dtype=np.bool_)
    is_step[list(stated)] = True
    rows = np.flatnonzero(wanted)
    around = events.around(rows, is_step)
    return {row: stated[at] for row, at in zip(rows.tolist(), around.tolist(), strict=True)
            if at >= 0}  # fmt: skip


def _inner_calls(events: RankEvents, wanted: Bools) -> dict[int, list[tuple[str, Operands]]]:
    """Return the operators within each event that is wanted."""
    if not wanted.any():
        return {}
    rows = np.flatnonzero(events.is_of("operator"))
    around = events.around(events.parent[rows], wanted)
    owner = np.full(events.table.height, -1, dtype=np.int64)
    owner[rows] = around
    names, found = events.table["name"], defaultdict[int, list[tuple[str, Operands]]](list)
    for row, args in _arguments(events, owner >= 0):
        found[int(owner[row])].append((str(names[row]), args.operands()))
    return found


def _text(name: str, operands: Operands, done: Work) -> str:
    """Return the shape of a call as text, or what is not known of it; empty if nothing is."""
    if done.missing:
        return f"unknown: {done.missing}"
    if done.flops < 0 or done.bytes <= 0:
        return ""
    first = 1 if "backward" in name else 0  # after the gradient
    op_class = (OPERATORS.get(name) or OF_CALLS[name])[0]
    batch, m, n, k = done.shape or (0,) * 4
    if op_class == "moe":
        return f"{m} tokens, {batch} experts of {n} x {k}"
    if op_class == "conv":
        image, weight = operands.inputs[first : first + 2]
        sides = (image, weight, operands.integers(3 + first))
        texts = ["x".join(map(str, one)) for one in sides]
        return f"{texts[0]} * {texts[1]} / {texts[2]}"
    if name in OF_CALLS:
        return f"{batch} heads, {m} of {n}, {k}"
    if op_class == "attention":
        samples = operands.inputs[first][0]
        masked = " causal" if done.flops < done.uncut else ""
        return f"{samples} x {batch // samples} heads, {m} x {n}, {k}{masked}"
    if op_class != "gemm":
        return "x".join(map(str, operands.inputs[int(op_class == "rope")]))
    return f"{batch} x ({m} x {n} x {k})" if "bmm" in name else f"{m} x {n} x {k}"
