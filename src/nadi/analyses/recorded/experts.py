"""Imbalance of experts by layer: how much more the busiest has to do than the mean.

Three kinds of a recording tell it: matrix products in the modules of experts, the rows of grouped
products on each rank, and the split sizes of all-to-alls.
"""

import re

import numpy as np
import polars as pl

from nadi.analyses.recorded.events import RankEvents, events_of
from nadi.errors import InputError, UsageError, checked
from nadi.files.remedies import with_option
from nadi.graph.operand_shapes import stated_shapes
from nadi.trace.arrays import Bools, Ints
from nadi.trace.trace import Job

_MODULE = r"^nn\.Module: "
_MIXTURE = r"^nn\.Module: \w*(MoE|Moe|Mixture|Experts)\w*$"
_PRODUCT = r"^aten::(mm|addmm|bmm|baddbmm)$"
_GROUPED = r"(?i)grouped_(mm|gemm)|moe_forward|fused_(moe|experts)"
_STEP = r"^ProfilerStep#"
_SHAPES = re.compile(r"\[(\d+),(\d+)(?:,\d+)*\]")
_SPLIT = r'"In split size"\s*:\s*"?\[([0-9, ]+)\]'
_COUNTS = {
    "source": pl.String, "layer": pl.String, "part": pl.String, "size": pl.Int64,
    "time_ns": pl.Int64,
}  # fmt: skip


_BY = ("layer", "expert")


@checked
def expert_imbalance(job: Job, by: str = "layer") -> pl.DataFrame:
    """Compare the work of experts, or of ranks with experts, in each layer.

    Parameters
    ----------
    by
        ``layer``: a row per layer, with its largest part; ``expert``: a row per layer and part.

    Returns
    -------
    polars.DataFrame
        ``source`` (experts: products in the modules of experts; ranks: rows of grouped products;
        all-to-all: elements sent to each rank), ``layer`` (the module, or the number of the call in
        its step), ``parts`` (how many experts or ranks), ``calls``, ``largest`` (which has most),
        ``size`` and ``mean_size`` (rows or elements of the largest, and the mean),
        ``ratio`` of both, ``time_ns`` (mean of the parts), ``cost_ns``: what the largest takes
        longer than the mean, for which parts that work at once wait. The highest cost first.
        By expert ``part``, ``calls``, ``size``, ``share`` of the layer's in percent, ``ratio`` to
        the mean of the layer, ``time_ns``; the largest part of each layer first. O(nodes log
        nodes).

    Raises
    ------
    InputError
        If the recording tells of no experts.
    UsageError
        If ``by`` is neither.
    """
    if by not in _BY:
        raise UsageError("experts", f"by is {by!r}", f"by is one of {', '.join(_BY)}")
    parts = [found for trace in job.traces for found in _of_rank(events_of(trace))]
    counts = pl.concat([pl.DataFrame(schema=_COUNTS), *parts])
    by_part = counts.group_by("source", "layer", "part", maintain_order=True).agg(
        pl.sum("size", "time_ns"), calls=pl.len().cast(pl.Int64)
    )
    layer = ("source", "layer")
    alike = (pl.len().over(layer) > 1) & (pl.max("size").over(layer) > 0)
    if not (by_part := by_part.filter(alike)).height:
        raise InputError(
            "", "it tells of no experts: no products in modules of experts, no grouped products on "
            "several ranks, no all-to-all with split sizes",
            with_option(job.traces[0], "record_shapes=True and with_modules=True"),
        )  # fmt: skip
    return _of_parts(by_part) if by == "expert" else _of_layers(by_part)


def _of_parts(by_part: pl.DataFrame) -> pl.DataFrame:
    layer = ("source", "layer")
    return (
        by_part.select(
            *layer, "part", "calls", "size",
            share=100 * pl.col("size") / pl.sum("size").over(layer),
            ratio=pl.col("size") / pl.mean("size").over(layer), time_ns="time_ns",
        )
        .sort(*layer, "size", "part", descending=[False, False, True, False])
    )  # fmt: skip


def _of_layers(by_part: pl.DataFrame) -> pl.DataFrame:
    most = pl.col("size").arg_max()
    table = (
        by_part.group_by("source", "layer", maintain_order=True)
        .agg(
            parts=pl.len().cast(pl.Int64), calls=pl.sum("calls"),
            largest=pl.col("part").get(most), most=pl.max("size"),
            mean_size=pl.mean("size"), mean_ns=pl.mean("time_ns"),
            longest=pl.col("time_ns").get(most),
        )
    )  # fmt: skip
    ratio = pl.col("most") / pl.col("mean_size")
    # parts of an all-to-all end together: all of it is as long as its largest part
    is_split = pl.col("source") == "all-to-all"
    cost = pl.when(is_split).then(pl.col("mean_ns") * (1 - 1 / ratio)).otherwise(
        # equal shares differ by chance
        pl.when(ratio > 1).then(pl.max_horizontal(pl.col("longest") - pl.col("mean_ns"), 0))
        .otherwise(0)
    )  # fmt: skip
    return table.select(
        "source", "layer", "parts", "calls", "largest", size="most", mean_size="mean_size",
        ratio=ratio, time_ns="mean_ns", cost_ns=cost,
    ).sort("cost_ns", "source", "layer", descending=[True, False, False])  # fmt: skip


def _of_rank(events: RankEvents) -> list[pl.DataFrame]:
    """Return what each part of each layer has to do, from the recording of a rank."""
    shapes = stated_shapes(events.trace).unique("node", keep="first")
    names = events.table["name"].cast(pl.String)
    rows = {
        kind: np.flatnonzero(names.str.contains(pattern).to_numpy() & events.is_of("operator"))
        for kind, pattern in (("product", _PRODUCT), ("grouped", _GROUPED))
    }
    text = dict(shapes.select("node", "text").iter_rows())
    return [
        _in_modules(events, names, rows["product"], text),
        _grouped(events, names, rows["grouped"], text),
        _splits(events, names),
    ]


def _rows_of(text: str) -> int:
    """Return the rows of the first matrix whose shape is stated, of two sides or more; else -1."""
    found = _SHAPES.search(text)
    return int(found[1]) if found else -1


def _work(events: RankEvents, rows: Ints) -> Ints:
    """Return the time of what each operator launches, or its own if it launches nothing; ns."""
    wanted = np.zeros(events.table.height, dtype=np.bool_)
    wanted[rows] = True
    work = events.work[events.launcher[events.work] >= 0]
    around = events.around(events.launcher[work], wanted)
    time = np.zeros(events.table.height, dtype=np.int64)
    duration = events.column("duration")
    np.add.at(time, around[around >= 0], duration[work[around >= 0]])
    return np.where(time[rows] > 0, time[rows], duration[rows])


def _in_modules(
    events: RankEvents, names: pl.Series, rows: Ints, text: dict[int, str]
) -> pl.DataFrame:
    """Return the rows of products in modules of experts: alike modules in a mixture."""
    is_module = names.str.contains(_MODULE).to_numpy()
    is_mixture = names.str.contains(_MIXTURE).to_numpy()
    rows = rows[[_rows_of(text.get(int(row), "")) > 0 for row in rows]] if rows.size else rows
    if not is_mixture.any() or not rows.size:
        return pl.DataFrame(schema=_COUNTS)
    expert = events.around(rows, is_module)
    mixture = np.full(rows.size, -1, dtype=np.int64)
    for _ in range(len(rows)):
        inside = (expert >= 0) & (mixture < 0)
        if not inside.any():
            break
        above = np.full(rows.size, -1, dtype=np.int64)
        above[inside] = events.around(events.parent[expert[inside]], is_module)
        found = inside & (above >= 0) & is_mixture[above]
        mixture[found] = above[found]
        expert = np.where(inside & ~found, above, expert)
    kept = mixture >= 0
    rows, expert, mixture = rows[kept], expert[kept], mixture[kept]
    told = [names.gather(at).str.replace(_MODULE, "") for at in (mixture, expert)]
    table = pl.DataFrame({
        "layer": told[0], "part": told[1],
        "size": np.array([_tokens(names[int(row)], text[int(row)]) for row in rows], dtype=int),
        "time_ns": _work(events, rows),
    })  # fmt: skip
    kind = pl.col("part").str.replace(r"_\d+$", "")
    alike = table.filter(pl.col("part").n_unique().over("layer", kind) > 1)
    return alike.select(source=pl.lit("experts"), layer="layer", part="part", size="size",
                        time_ns="time_ns").cast(_COUNTS)  # type: ignore[arg-type]  # fmt: skip


def _tokens(name: str, text: str) -> int:
    """Return the rows of a product: of the first matrix, or the rows of all of its batch."""
    shape = _SHAPES.search(text)
    sides = [int(side) for side in re.findall(r"\d+", shape[0])] if shape else [0]
    return sides[0] * sides[1] if "bmm" in name and len(sides) > 2 else sides[0]


def _numbers_in_step(events: RankEvents, names: pl.Series, rows: Ints) -> tuple[Ints, Bools]:
    """Return the number of each event in its step, and which are in a step if there are any."""
    is_step = names.str.contains(_STEP).to_numpy()
    around = events.around(rows, is_step)
    inside = around >= 0 if (around >= 0).any() else np.ones(rows.size, dtype=np.bool_)
    order = np.lexsort((events.column("start")[rows], around))
    first = np.append(True, np.diff(around[order]) != 0)[: rows.size]
    begin = np.maximum.accumulate(np.where(first, np.arange(rows.size), 0))
    number = np.empty(rows.size, dtype=np.int64)
    number[order] = np.arange(rows.size) - begin
    return number, inside


def _grouped(
    events: RankEvents, names: pl.Series, rows: Ints, text: dict[int, str]
) -> pl.DataFrame:
    """Return the rows of grouped products of a rank."""
    rows = rows[[_rows_of(text.get(int(row), "")) >= 0 for row in rows]] if rows.size else rows
    number, inside = _numbers_in_step(events, names, rows)
    rows, number = rows[inside], number[inside]
    layers = [f"{names[int(row)]} {at}" for row, at in zip(rows, number, strict=True)]
    tokens = [_rows_of(text[int(row)]) for row in rows]
    return pl.DataFrame({
        "source": ["ranks"] * rows.size, "layer": layers,
        "part": [f"rank {events.rank}"] * rows.size, "size": tokens,
        "time_ns": _work(events, rows).tolist(),
    }, schema=_COUNTS)  # fmt: skip


def _splits(events: RankEvents, names: pl.Series) -> pl.DataFrame:
    """Return what all-to-alls with split sizes send to each rank."""
    attributes = events.trace.attributes
    rows = attributes.rows_named("args")
    chosen = np.zeros(len(attributes), dtype=np.bool_)
    talks = np.append(events.trace.nodes["comm_type"] == "all_to_all", False)
    chosen[rows] = talks[attributes.node[rows]]
    stated = attributes.filtered(chosen).table().select(
        "node", split=pl.col("value").str.extract(_SPLIT)
    ).drop_nulls().unique("node", keep="first", maintain_order=True)  # fmt: skip
    # the host's record of a collective states the same as the device's
    on_device = np.isin(stated["node"].to_numpy(), events.work)
    stated = stated.filter(pl.Series(on_device)) if on_device.any() else stated
    found = stated["node"].to_numpy()
    number, inside = _numbers_in_step(events, names, found)
    found, number = found[inside], number[inside]
    duration = events.trace.column("duration")
    lines = []
    for node, at, split in zip(
        found, number, stated["split"].filter(pl.Series(inside)), strict=True
    ):
        lines += [
            ("all-to-all", f"all-to-all {at}", f"rank {to}", int(size), int(duration[node]))
            for to, size in enumerate(split.split(","))
        ]
    return pl.DataFrame(lines, schema=_COUNTS, orient="row")
