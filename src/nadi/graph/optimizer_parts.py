"""Which module's parameters the operators of an optimizer's step work on."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from nadi.graph.event_graph import EventGraph
from nadi.trace.arrays import Bools, Ints
from nadi.trace.rows import nearest

BY_GRADIENTS = "attributed by the gradients that its operators use"
_UNKNOWN = "not attributed: the trace does not state which tensors it uses (a host trace does)"


@dataclass(frozen=True)
class OptimizerParts:
    """The modules of an optimizer's operators."""

    # int64, shape (ops,): the module whose parameters an outermost operator in an optimizer's step
    # works on; of several modules, the innermost one around them; -1 for everything else
    module: Ints
    how: str  # what they were derived from, or why they are unknown; empty without an optimizer


def optimizer_parts(
    graph: EventGraph, steps: Bools, gradients: Ints, parent: Ints
) -> OptimizerParts:
    """Attribute the operators of optimizers to modules, by the gradients that they use.

    The host trace states the storage of each tensor. A gradient's storage lives from its
    accumulation to the optimizer's step. If the step does the same for each parameter, one
    parameter after the other, all operators between belong to it too.

    - ``graph``: The job.
    - ``steps``: bool, shape (ops,): the steps of optimizers.
    - ``gradients``: int64, shape (ops,): the module of each operation that accumulates a gradient,
      or -1.
    - ``parent``: int64, shape (modules,): the module around each, or -1.
    """
    found = np.full(graph.num_ops, -1, dtype=np.int64)
    if not steps.any():
        return OptimizerParts(found, "")
    if not (gradients >= 0).any():
        return OptimizerParts(found, _UNKNOWN)  # and tables of operands take time
    every = np.arange(graph.num_ops)
    step = nearest(every, graph.op_parent, steps)
    outer = _outermost_operators(graph, steps)
    made = nearest(every, graph.op_parent, gradients >= 0)
    uses = pl.concat([
        _uses(graph, number, made, outer, step) for number in range(len(graph.job.traces))
    ])  # fmt: skip
    if not uses.height:
        return OptimizerParts(found, _UNKNOWN)
    uses = uses.with_columns(module=gradients[uses["made"].to_numpy()])
    for op, modules in uses.group_by("op").agg(pl.col("module").unique()).iter_rows():
        found[op] = _around_all(modules, parent)
    _fill_sections(graph, outer, step, uses, found)
    return OptimizerParts(found, BY_GRADIENTS)


def _outermost_operators(graph: EventGraph, steps: Bools) -> Ints:
    """Return the outermost operator in an optimizer's step around each operation, or -1.

    int64, shape (ops,).
    """
    is_operator = (graph.gather("category") == "operator").to_numpy() & ~steps
    around = nearest(graph.op_parent, graph.op_parent, is_operator | steps)
    is_outermost = is_operator & (around >= 0) & steps[around]
    return nearest(np.arange(graph.num_ops), graph.op_parent, is_outermost)


def _uses(graph: EventGraph, number: int, made: Ints, outer: Ints, step: Ints) -> pl.DataFrame:
    """Return which operators of a rank's optimizer use which gradients.

    ``op``, ``storage``, and ``made``: the operation that accumulated the gradient. Storages are
    named by their address, which is reused later: a gradient counts for the steps of optimizers
    that follow it before another gradient is accumulated.
    A sparse gradient has none and counts by itself: what else its accumulation writes is free at
    once, and used again by the optimizer.
    """
    trace = graph.job.traces[number]
    mine = graph.ops_of_trace(number)
    moment = graph.time[2 * np.where(step >= 0, step, np.arange(graph.num_ops))]
    begins = np.sort(graph.time[2 * np.unique(step[mine][step[mine] >= 0])])
    accumulated = np.sort(moment[np.unique(made[mine][made[mine] >= 0])])
    before = np.searchsorted(accumulated, begins, side="right")
    begins = begins[np.diff(before, prepend=0) > 0]
    operands = trace.operands.filter(pl.col("tensor") >= 0)
    op = graph.ops_of_rows(number)[operands["node"].to_numpy()]
    tensors = trace.tensors[operands["tensor"]]
    storage = tensors["storage_id"].to_numpy()
    storage = np.where(storage > 0, storage, -1 - tensors["tensor_id"].to_numpy())
    is_output = operands["is_output"].to_numpy()
    writes = (op >= 0) & is_output & (made[op] >= 0)
    is_sparse = np.zeros(graph.num_ops, dtype=np.bool_)
    is_sparse[made[op[writes & (storage < 0)]]] = True
    writes &= (storage < 0) | ~is_sparse[made[op]]
    reads = (op >= 0) & ~is_output & (outer[op] >= 0)

    next_step = np.searchsorted(begins, moment[op[writes]], side="left")
    own_step = np.searchsorted(begins, moment[op[reads]], side="right") - 1
    gradients = pl.DataFrame({
        "storage": storage[writes], "period": next_step, "made": made[op[writes]],
    })  # fmt: skip
    used = pl.DataFrame({"storage": storage[reads], "period": own_step, "op": outer[op[reads]]})
    found = used.join(
        gradients.unique(["storage", "period"], keep="last", maintain_order=True),
        on=["storage", "period"],
    )
    return found.select("op", "storage", "made").unique(maintain_order=True)


def _around_all(modules: list[int], parent: Ints) -> int:
    """Return the innermost module around all of some modules, or -1."""
    paths = []
    for module in modules:
        path = [module]
        while path[-1] >= 0:
            path.append(int(parent[path[-1]]))
        paths.append(path[::-1])
    common = -1
    for level in zip(*paths, strict=False):
        if len(set(level)) > 1:
            break
        common = level[0]
    return common


def _fill_sections(
    graph: EventGraph, outer: Ints, step: Ints, uses: pl.DataFrame, found: Ints
) -> None:
    """Attribute operators between those that use gradients, in steps that repeat by parameter."""
    operators = np.flatnonzero(outer == np.arange(graph.num_ops))
    operators = operators[np.argsort(graph.time[2 * operators], kind="stable")]
    code = graph.names(operators).rank("dense").to_numpy()
    place = np.empty(graph.num_ops, dtype=np.int64)
    place[operators] = np.arange(operators.size)
    first = uses.with_columns(step=step[uses["op"].to_numpy()], place=place[uses["op"].to_numpy()])
    first = first.group_by("step", "storage").agg(pl.col("place").min())
    for (one,), each in first.group_by("step", maintain_order=True):
        mine = np.flatnonzero(step[operators] == one)
        ops, names = operators[mine], code[mine]
        length = _section_length(names, np.searchsorted(mine, np.sort(each["place"].to_numpy())))
        if not length:
            continue
        sections = ops.reshape(-1, length)
        of_section = found[sections].max(axis=1, keepdims=True)
        if ((found[sections] >= 0) & (found[sections] != of_section)).any():
            continue
        found[sections] = of_section
        inner = np.flatnonzero((step == one) & (found < 0))
        begin, end = graph.time[2 * inner], graph.time[2 * inner + 1]
        number = np.searchsorted(graph.time[2 * sections[:, 0]], begin, side="right") - 1
        following = np.append(graph.time[2 * sections[1:, 0]], graph.time[2 * ops[-1] + 1])
        between = (number >= 0) & (end <= following[number])
        found[inner[between]] = of_section[number[between], 0]


def _section_length(names: Ints, first: Ints) -> int:
    """Return after how many operators an optimizer's step does the same for the next parameter.

    - ``names``: int64: a number for the name of each operator of the step, in order.
    - ``first``: int64, ascending: where the gradient of each known parameter is first used.
      Parameters that belong to no module are not known.
    - Returns: 0 if the step does not repeat.
    """
    apart = int(np.gcd.reduce(np.diff(first)))
    if not apart or names.size % apart:
        return 0
    # with parameters that are not known between them, two known ones are several sections apart
    all_known = names.size == apart * first.size
    for length in [apart] if all_known else range(1, apart + 1):
        if apart % length == 0 and (names.reshape(-1, length) == names[:length]).all():
            return length
    return 0
