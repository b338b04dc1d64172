"""Checks of a trace against the requirements of the data model, each with a stable code."""

import numpy as np
import polars as pl

from nadi.errors import check_kind, checked
from nadi.kernels.paths import edges_by_vertex, topological_order
from nadi.trace.arrays import Bools, Ints
from nadi.trace.issues import IssueLog
from nadi.trace.schema import CATEGORIES, GIVEN_DEPS, TABLES
from nadi.trace.trace import Job, Trace

_END_OF_TIME = 2**63 - 1

RULES = {code: rule for table in TABLES for code, rule in table.rules.items()}


@checked
def validate_trace(trace: Trace) -> pl.DataFrame:
    """Check a trace against the rules of the data model.

    Returns
    -------
    polars.DataFrame
        ``schema.ISSUES``, one row per rule of :data:`RULES` that is broken, with the
        number of rows that break it and the first such row; empty for a valid trace.
    """
    check_kind("trace", trace, Trace, "read one with nadi.read")
    log = IssueLog()
    _check_nodes(trace, log)
    _check_deps(trace, log)
    _check_groups(trace, log)
    _check_attributes(trace, log)
    _check_tensors(trace, log)
    _check_operands(trace, log)
    return log.table()


@checked
def validate_job(job: Job) -> pl.DataFrame:
    """Check the matches and clocks of a job; returns issues like :func:`validate_trace`."""
    check_kind("job", job, Job, "read one with nadi.load_job")
    log = IssueLog()
    key = job.matches.select("collective", "rank")
    _report(log, "matches.rank", key.is_duplicated().to_numpy())
    heights = pl.DataFrame(
        {"rank": job.ranks, "height": [trace.nodes.height for trace in job.traces]},
        schema={"rank": pl.Int64, "height": pl.Int64},
    )
    rows = job.matches.join(heights, on="rank", how="left", maintain_order="left")
    inside = (rows["node"] >= 0) & (rows["node"] < rows["height"].fill_null(0))
    _report(log, "matches.node", (~inside).to_numpy())
    _check_clocks(job, log)
    return log.table()


def _check_clocks(job: Job, log: IssueLog) -> None:
    clocks = job.clocks
    ranks = pl.Series(job.ranks, dtype=pl.Int64).implode()
    known = clocks["rank"].is_in(ranks) & clocks["reference"].is_in(ranks)
    _report(log, "clocks.rank", (~known | clocks["rank"].is_duplicated()).to_numpy())
    of_rank = clocks.unique("rank").select(reference="rank", shift_there="shift")
    both = clocks.join(of_rank, on="reference", how="left", maintain_order="left")
    against = both["shift"] - both["shift_there"].fill_null(0)
    outside = (against < both["low"]) | (against > both["high"])
    _report(log, "clocks.shift", outside.to_numpy())


def _report(log: IssueLog, code: str, broken: Bools) -> None:
    rows = np.flatnonzero(broken)
    first = f"; first in row {rows[0]}" if rows.size else ""
    table = code.partition(".")[0]
    log.add(code, "error", rows.size, f"rows of {table} break the rule: {RULES[code]}{first}")


def _check_nodes(trace: Trace, log: IssueLog) -> None:
    start, duration = trace.column("start"), trace.column("duration")
    exclusive, parent = trace.column("exclusive"), trace.column("parent")
    own = np.arange(trace.nodes.height)
    _report(log, "nodes.id", trace.nodes["id"].is_duplicated().to_numpy())
    if (trace.column("event") >= 0).any():
        _report(log, "nodes.order", np.append(False, _out_of_order(trace)))
    too_late = duration > _END_OF_TIME - np.maximum(start, 0)
    _report(log, "nodes.duration", (start >= 0) & ((duration < 0) | too_late))
    _report(log, "nodes.exclusive", (exclusive < -1) | ((exclusive > duration) & (duration >= 0)))
    _report(log, "nodes.parent", (parent < -1) | (parent >= own))
    group = trace.column("group")
    _report(log, "nodes.group", (group < -1) | (group >= trace.groups.height))


def _out_of_order(trace: Trace) -> Bools:
    """Return, for each row but the first, whether it sorts before the row above it."""
    rank = {category: number for number, category in enumerate(CATEGORIES)}
    category = trace.nodes["category"].cast(pl.String).replace_strict(rank, return_dtype=pl.Int64)
    keys = (
        trace.column("start"), -trace.column("duration"), category.to_numpy(),
        trace.column("event"),
    )  # fmt: skip
    wrong = np.zeros(max(trace.nodes.height - 1, 0), dtype=np.bool_)
    equal_so_far = trace.column("start")[1:] >= 0  # rows without a time have no order
    for key in keys:
        wrong |= equal_so_far & (key[1:] < key[:-1])
        equal_so_far &= key[1:] == key[:-1]
    # rows without a time must come before rows with a time
    return wrong | ((trace.column("start")[1:] < 0) & (trace.column("start")[:-1] >= 0))


def _check_deps(trace: Trace, log: IssueLog) -> None:
    src, dst = trace.deps["src"].to_numpy(), trace.deps["dst"].to_numpy()
    height = trace.nodes.height
    outside = (src < 0) | (dst < 0) | (src >= height) | (dst >= height)
    _report(log, "deps.rows", outside)
    given = trace.deps["kind"].is_in(GIVEN_DEPS).to_numpy()
    is_sync = given | trace.deps["kind"].is_in(["sync", "comm"]).to_numpy()
    start = trace.column("start")
    known = np.flatnonzero(~outside & ~is_sync)
    too_late = np.zeros(src.size, dtype=np.bool_)
    too_late[known] = start[src[known]] > start[dst[known]]
    _report(log, "deps.order", too_late)
    key = trace.deps.select("src", "dst", "kind")
    _report(log, "deps.twice", (~key.to_struct().is_first_distinct()).to_numpy())
    in_cycle = np.zeros(height, dtype=np.bool_)
    rows = np.flatnonzero(given & ~outside)
    if (found := cycle_row(height, src[rows], dst[rows])) >= 0:
        in_cycle[found] = True
    _report(log, "nodes.cycle", in_cycle)


def cycle_row(num_nodes: int, src: Ints, dst: Ints) -> int:
    """Return a node on a dependency cycle, or -1. O(nodes + dependencies)."""
    if (src < dst).all():
        return -1
    first, before, _ = edges_by_vertex(src, dst, num_nodes)
    return int(topological_order(first, before, np.empty(num_nodes, dtype=np.int32)))


def _check_attributes(trace: Trace, log: IssueLog) -> None:
    node = trace.attributes.node
    _report(log, "attrs.node", (node < -1) | (node >= trace.nodes.height))
    _report(log, "attrs.order", np.append(False, node[1:] < node[:-1]))


def _check_tensors(trace: Trace, log: IssueLog) -> None:
    tensors = trace.tensors
    num_dims = tensors["shape"].list.len()
    num_strides = tensors["strides"].list.len()
    product = tensors["shape"].list.eval(pl.element().product()).list.first()
    wrong = ((num_dims > 0) & (product != tensors["elements"])).fill_null(False)
    _report(log, "tensors.elements", wrong.to_numpy())
    _report(log, "tensors.strides", ((num_strides > 0) & (num_strides != num_dims)).to_numpy())


def _check_operands(trace: Trace, log: IssueLog) -> None:
    operands = trace.operands
    node, tensor = operands["node"].to_numpy(), operands["tensor"].to_numpy()
    _report(log, "operands.node", (node < 0) | (node >= trace.nodes.height))
    _report(log, "operands.tensor", (tensor < -1) | (tensor >= trace.tensors.height))
    keys = [operands[name].to_numpy() for name in ("node", "is_output", "position", "item")]
    wrong = np.zeros(max(operands.height - 1, 0), dtype=np.bool_)
    equal_so_far = ~wrong
    for key in keys:
        wrong |= equal_so_far & (key[1:] < key[:-1])
        equal_so_far &= key[1:] == key[:-1]
    _report(log, "operands.order", np.append(False, wrong | equal_so_far))
    _report(log, "operands.text", (operands["position"] < 0).to_numpy())


def _check_groups(trace: Trace, log: IssueLog) -> None:
    _report(log, "groups.name", trace.groups["name"].is_duplicated().to_numpy())
    ranks = trace.groups["ranks"].to_list()
    _report(log, "groups.ranks", np.array([r != sorted(r) for r in ranks], dtype=np.bool_))
