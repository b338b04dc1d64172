"""What one rank does beyond the other ranks, in sums: why it is late.

Operations grouped by the outermost operator around them, and by the kind of module.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.errors import checked
from nadi.graph.critical_paths import PATH_KINDS, CriticalPath, kind_of_edges
from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.graph.module_tree import backward_nodes, find_modules
from nadi.graph.operand_shapes import shapes_in, with_other_shapes
from nadi.graph.unexplained import WAITS_IN_PYTHON
from nadi.graph.windows import Window
from nadi.trace.arrays import Bools, Ints, Numbers
from nadi.trace.rows import nearest

_DIGITS = "0123456789"


@dataclass(frozen=True, eq=False)
class OperationGroups:
    """What each operation is a part of; arrays of shape (ops,)."""

    # int64: position in ``names`` of the outermost operator that it is a part of: of the forward,
    # where autograd runs it for one; of its launch, where it runs on a device. Elsewhere its own
    # name.
    operator: Ints
    is_call: Bools  # bool: it is such an operator itself, not a part of one
    # int64: position in ``names`` of the kind of module that it belongs to, or -1: the name of the
    # class or annotation without a number at its end
    module: Ints
    is_module: Bools  # bool: it is the call of such a module itself
    communicates: Bools  # bool: it is communication, or waits for it
    names: list[str]  # distinct names, "" first


EXPLAINS = 0.2
"""The share of the time that a rank is late from which on an excess is taken as its cause."""
REASONS = (
    "more operations", "slower operations", "longer functions", "more time between operations",
    "delays", "",
)  # fmt: skip
"""Why a rank can take longer than the others."""

_MORE, _SLOWER, _FUNCTIONS, _BETWEEN, _LATER, _NOTHING = REASONS
_OWN_TIME = (EdgeKind.HOST_OP, EdgeKind.HOST_GAP, EdgeKind.KERNEL, EdgeKind.MEMORY)
_DELAY = PATH_KINDS.index("unexplained")
_GAP = PATH_KINDS.index("host gap")
_WORK = tuple(PATH_KINDS.index(kind) for kind in ("host op", "kernel", "memory"))
_MARK = r"^(ProfilerStep)#\d+$"  # one name in all steps
_LONGER = 2.0  # times as on the others: of functions, whose number is not known
_UNIFORM = 0.8  # of the time lies in operations that are slower by about one factor
_ABOUT = 0.25
_BLOCK = 1 << 20  # edges
_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ExcessPart:
    """What a rank spends on operations of one name, and the median of the other ranks.

    Attributes
    ----------
    name
        The operator, the kind of module, or what encloses a gap; empty for time that nothing
        encloses.
    count, others_count
        How many of them run.
    time_ns, others_ns
        Their time, with that of the operations in them and of their backward.
    """

    name: str
    count: int
    others_count: int
    time_ns: int
    others_ns: int

    @property
    def more_ns(self) -> int:
        """How much more time the rank spends."""
        return self.time_ns - self.others_ns


@dataclass(frozen=True)
class Excess:
    """What a rank does beyond the median of the other ranks, in a window.

    Attributes
    ----------
    reason
        One of ``REASONS``; empty if the rank exceeds the others in nothing.
    kind
        The kind of the time, as in ``PATH_KINDS``; empty without a reason.
    time_ns
        How much more time it spends for this reason, over all operations.
    operators, others_operators
        How many operators the rank and the others run, in all.
    has_other_shapes
        Whether half of it or more is in operators whose operands have other shapes than on any
        other rank.
    factor
        How many times as long each operation takes as on the others, if nearly all take longer by
        one factor; else 0.
    operation
        What has the most of it: an operator with all that is a part of it.
    module
        The kind of module with half of it or more; None if there is none.
    """

    reason: str
    kind: str
    time_ns: int
    operators: int
    others_operators: int
    has_other_shapes: bool
    factor: float
    operation: ExcessPart
    module: ExcessPart | None

    @property
    def is_structural(self) -> bool:
        """Whether the rank has other work than the others.

        It has more operations, or of other shapes, or functions of Python that take twice as long.
        """
        takes_longer = self.operation.time_ns >= _LONGER * self.operation.others_ns
        is_by_functions = self.reason == _FUNCTIONS and takes_longer
        return self.reason == _MORE or self.has_other_shapes or is_by_functions


class _Sums(NamedTuple):
    """Own times and numbers of operations by name; shapes (ranks, kinds, names), (ranks, names)."""

    times: Ints
    counts: Ints
    names: list[str]


@checked
def find_excess(
    graph: EventGraph, window: Window, path: CriticalPath, rank: int, late_ns: int
) -> Excess:
    """Find why a rank takes longer than the others: sums over all that it does.

    A rank's own time, without communication and waits, is compared by name and kind with the
    median of the other ranks. What exceeds it is time of more operations (their number times what
    one takes), of slower ones (the rest), or time between operations. The largest of the
    sums is the reason. Only as much counts as lies on the critical path, unless that is less than
    a fifth of ``late_ns``: the path may lack dependencies. The own time of functions of Python
    that do not wait is work, too. Other time that no operation encloses comes last, as a thread
    may wait in it for something that was not recorded.

    Returns
    -------
    Excess
        O(edges + ops * depth + ranks * names).
    """
    trace = graph.job.ranks.index(rank)
    others = np.arange(len(graph.job.traces)) != trace
    inside = _inside(graph, window)
    sums = _sums(graph, inside, ~graph.communicates)
    usual, counts = np.median(sums.times[others], axis=0), np.median(sums.counts[others], axis=0)
    more, slower = _divided(sums.times[trace], usual, sums.counts[trace], counts)
    on_path = _on_path(path, sums.names, rank)
    functions = np.where(_functions(graph, sums.names), slower[_GAP], 0)
    slower[_GAP] -= functions
    reason, kind, time = _reason(more, slower, functions, on_path, EXPLAINS * late_ns)
    is_operator = (graph.gather("category") == "operator").to_numpy()
    started = inside[0 : 2 * graph.num_ops : 2]
    operators = _per_rank(graph, is_operator & started)
    operation, module = _parts(graph, inside, (trace, others), (reason, kind), sums)
    is_slower = reason == _SLOWER
    return Excess(
        reason=reason, kind=PATH_KINDS[kind] if reason else "", time_ns=int(time),
        operators=int(operators[trace]), others_operators=int(np.median(operators[others])),
        has_other_shapes=is_slower and _of_other_shapes(graph, window, trace, sums, slower[kind]),
        factor=_factor(sums, trace, others) if is_slower else 0.0,
        operation=operation, module=module,
    )  # fmt: skip


def _of_other_shapes(
    graph: EventGraph, window: Window, trace: int, sums: _Sums, slower: _Floats
) -> bool:
    """Say whether half of what is slower has operands of other shapes than on the other ranks."""
    own = shapes_in(graph, window, [trace])
    changed = set(own)
    for number in range(len(graph.job.traces)):
        if number != trace and changed:  # shapes may have to be read, of each rank
            changed &= with_other_shapes(own, shapes_in(graph, window, [number]))
    of_them = np.array([name in changed for name in sums.names], dtype=np.bool_)
    return bool(2 * slower[of_them].sum() >= max(slower.sum(), 1.0))


def _inside(graph: EventGraph, window: Window) -> Bools:
    time = graph.time
    inside: Bools = (time >= window.start(time)) & (time <= window.end(time))
    return inside


def _per_rank(graph: EventGraph, ops: Bools, amount: Ints | None = None) -> Ints:
    found = np.zeros(len(graph.job.traces), dtype=np.int64)
    np.add.at(found, graph.op_trace[ops], 1 if amount is None else amount[ops])
    return found


def _sums(graph: EventGraph, inside: Bools, counted: Bools) -> _Sums:
    """Sum the own time of each rank by kind and name, and count operations by name."""
    which, texts = graph.name_codes()
    marked = pl.Series(texts, dtype=pl.String).str.replace(_MARK, "$1").to_list()
    names = ["", *sorted({*marked} - {""})]
    number = {name: place for place, name in enumerate(names)}
    code = np.array([number[name] for name in marked])[which]
    times = np.zeros((len(graph.job.traces), len(PATH_KINDS), len(names)), dtype=np.int64)
    for op, trace, kind, time in _own_times(graph, inside, counted):
        np.add.at(times, (trace, kind, np.where(op >= 0, code[op], 0)), time)
    counts = np.zeros((len(graph.job.traces), len(names)), dtype=np.int64)
    started = np.flatnonzero(inside[0 : 2 * graph.num_ops : 2] & counted)
    np.add.at(counts, (graph.op_trace[started], code[started]), 1)
    return _Sums(times, counts, names)


def _own_times(
    graph: EventGraph, inside: Bools, counted: Bools
) -> Iterator[tuple[Numbers, Ints, Ints, Ints]]:
    """Yield the operation (or -1), trace, kind and ns of pieces of own time in the window.

    They come in blocks: those of all ranks at once take as much memory as the graph.
    """
    into = graph.destinations
    for low in range(0, graph.num_edges, _BLOCK):
        block = slice(low, low + _BLOCK)
        own = np.isin(graph.edge_kind[block], _OWN_TIME) & inside[into[block]]
        edges = low + np.flatnonzero(own)
        op = graph.edge_op[edges]
        kept = (op < 0) | counted[op]
        edges, op = edges[kept], op[kept]
        trace = graph.op_trace[np.where(op >= 0, op, into[edges] // 2)]
        yield op, trace, kind_of_edges(graph, edges).astype(np.int64), graph.weight[edges]
    # what begins a thread or a stream has no delay, but a time
    entered = np.diff(graph.in_ptr)[: 2 * graph.num_ops] > 0
    late = np.flatnonzero(entered & inside[: 2 * graph.num_ops] & np.repeat(counted, 2))
    late = late[graph.delay[late] > 0]
    late_op = late // 2
    yield late_op, graph.op_trace[late_op], np.full(late.size, _DELAY), graph.delay[late]


def _divided(own: Ints, usual: _Floats, count: Ints, others: _Floats) -> tuple[_Floats, _Floats]:
    """Divide what a rank spends more into that of more operations, and of slower ones.

    Shapes (kinds, names). What is missing on either side takes as long as on the other. Time
    between operations and delays have no number.
    """
    mean = np.where(count > others, own / np.maximum(count, 1), usual / np.maximum(others, 1))
    more = (count - others) * mean
    more[[kind for kind in range(len(PATH_KINDS)) if kind not in _WORK]] = 0
    return more, own - usual - more


def _functions(graph: EventGraph, names: list[str]) -> Bools:
    """Say which names are of functions of Python that do not wait."""
    works = (graph.gather("category") == "python").to_numpy() & ~graph.named(WAITS_IN_PYTHON)
    which, texts = graph.name_codes()
    found: Bools = np.isin(names, [texts[code] for code in np.unique(which[works]).tolist()])
    return found


def _reason(
    more: _Floats, slower: _Floats, functions: _Floats, on_path: Ints, enough: float
) -> tuple[str, int, float]:
    """Return the largest sum that explains enough: its reason, its kind and ns."""
    work = [(_MORE, more), (_SLOWER, slower)]
    of_work = [(reason, kind, part[kind]) for reason, part in work for kind in _WORK]
    of_work.append((_FUNCTIONS, _GAP, functions))
    idle = [(_BETWEEN, _GAP, slower[_GAP]), (_LATER, _DELAY, slower[_DELAY])]

    for parts, limit in ((of_work, on_path), (of_work, None), (idle, on_path)):
        found = _largest(parts, limit)
        if found[2] >= enough and found[2] > 0:
            return found
    found = _largest([*of_work, *idle], None)
    return found if found[2] > 0 else (_NOTHING, 0, 0.0)


def _largest(
    parts: list[tuple[str, int, _Floats]], limit: Ints | None
) -> tuple[str, int, float]:  # fmt: skip
    """Sum each part over names, of each name as much as lies on the path; return the largest."""
    sums = [
        (reason, kind, float((part if limit is None else np.minimum(part, limit[kind])).sum()))
        for reason, kind, part in parts
    ]
    return max(sums, key=lambda one: one[2])


def _on_path(path: CriticalPath, names: list[str], rank: int) -> Ints:
    """Sum the segments of a rank by kind and name; int64 ns, shape (kinds, names)."""
    own = path.segments.filter(pl.col("rank") == rank)
    code = own["name"].str.replace(_MARK, "$1").cast(pl.Enum(names)).to_physical().to_numpy()
    kind = own["kind"].to_physical().to_numpy()
    sums = np.zeros((len(PATH_KINDS), len(names)), dtype=np.int64)
    np.add.at(sums, (kind, code), (own["end"] - own["start"]).to_numpy())
    return sums


def _factor(sums: _Sums, trace: int, others: Bools) -> float:
    """Return by which factor nearly all operations of a rank take longer; 0 if by none."""
    own, usual = sums.times[trace][list(_WORK)], np.median(sums.times[others], axis=0)[list(_WORK)]
    count, typical = sums.counts[trace], np.median(sums.counts[others], axis=0)
    same = (usual > 0) & (own > 0) & (count > 0) & (count == typical)
    if not same.any():
        return 0.0
    ratio, weight = own[same] / usual[same], usual[same]
    order = np.argsort(ratio, kind="stable")
    middle = np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)
    factor = float(ratio[order][middle])
    near = weight[np.abs(ratio / factor - 1) <= _ABOUT].sum()
    return factor if near >= _UNIFORM * weight.sum() and factor > 1 + EXPLAINS / 2 else 0.0


def _parts(
    graph: EventGraph, inside: Bools, sides: tuple[int, Bools], wanted: tuple[str, int],
    sums: _Sums,
) -> tuple[ExcessPart, ExcessPart | None]:  # fmt: skip
    """Return the operator with the most of an excess, and the kind of module with half of it."""
    reason, kind = wanted
    trace, others = sides
    if reason in (_FUNCTIONS, _BETWEEN, _LATER, _NOTHING):
        own, usual = sums.times[trace, kind], np.median(sums.times[others, kind], axis=0)
        excess = own - usual
        if reason in (_FUNCTIONS, _BETWEEN):
            excess[_functions(graph, sums.names) != (reason == _FUNCTIONS)] = -np.inf
        found = int(np.argmax(excess)) if reason else 0
        count, typical = sums.counts[:, found][trace], np.median(sums.counts[others, found])
        return _part(sums.names[found], count, typical, own[found], usual[found]), None
    op, rank, time = map(np.concatenate, zip(*(
        (op[chosen], rank[chosen], time[chosen])
        for op, rank, kinds, time in _own_times(graph, inside, ~graph.communicates)
        for chosen in ((kinds == kind) & (op >= 0),)
    ), strict=True))  # fmt: skip
    groups = group_operations(graph)
    started = inside[0 : 2 * graph.num_ops : 2]

    def largest(code: Ints, calls: Bools, within: Bools) -> ExcessPart:
        spent = np.zeros((len(graph.job.traces), len(groups.names)), dtype=np.int64)
        np.add.at(spent, (rank[within], code[op[within]]), time[within])
        usual = np.median(spent[others], axis=0)
        found = int(np.argmax(spent[trace] - usual))
        ran = _per_rank(graph, calls & started & (code == found))
        return _part(
            groups.names[found], ran[trace], np.median(ran[others]), spent[trace, found],
            usual[found],
        )  # fmt: skip

    has_module = groups.module[op] >= 0
    module = largest(groups.module, groups.is_module, has_module) if has_module.any() else None
    every = np.ones(op.size, dtype=np.bool_)
    total = _per_rank_of(rank, time, len(graph.job.traces))
    more = total[trace] - np.median(total[others])
    if module is None or 2 * module.more_ns < more:
        return largest(groups.operator, groups.is_call, every), None
    within = groups.module[op] == groups.names.index(module.name)
    return largest(groups.operator, groups.is_call, within), module


def _per_rank_of(rank: Ints, time: Ints, num_ranks: int) -> Ints:
    found = np.zeros(num_ranks, dtype=np.int64)
    np.add.at(found, rank, time)
    return found


def _part(name: str, count: int, typical: float, own: int, usual: float) -> ExcessPart:
    return ExcessPart(name, int(count), round(float(typical)), int(own), round(float(usual)))


def group_operations(graph: EventGraph) -> OperationGroups:
    """Group the operations of a job, over all its ranks. O(ops * depth)."""
    which, texts = graph.name_codes()
    names = dict.fromkeys(["", *texts])
    tree = find_modules(graph)
    kinds = [""] * len(tree.paths)
    for op in np.flatnonzero(tree.is_called & (tree.module >= 0)).tolist():
        if not kinds[tree.module[op]]:
            kinds[tree.module[op]] = _kind(texts[which[op]])
    names.update(dict.fromkeys(kinds))
    place = {name: number for number, name in enumerate(names)}
    code = np.array([place[text] for text in texts], dtype=np.int64)[which]
    module = np.array([place[kind] for kind in kinds] + [-1], dtype=np.int64)[tree.module]
    module[module == 0] = -1
    top, is_call = _outermost_operators(graph)
    return OperationGroups(
        operator=code[top], is_call=is_call, module=module,
        is_module=tree.is_called & (module >= 0),
        communicates=graph.communicates, names=list(names),
    )  # fmt: skip


def _kind(name: str) -> str:
    """Return the name of a module or range without its number: ``block.2`` is a ``block``."""
    kind = name.removeprefix("nn.Module: ")
    unnumbered = kind.rstrip(_DIGITS)
    if len(unnumbered) < len(kind) and unnumbered.endswith((".", "_", "#")):
        unnumbered = unnumbered[:-1]
    return unnumbered or name


def _outermost_operators(graph: EventGraph) -> tuple[Ints, Bools]:
    """Return the operation that each is a part of, and which stand for themselves."""
    is_operator = (graph.gather("category") == "operator").to_numpy()
    parent = graph.op_parent
    is_top = is_operator & ~((parent >= 0) & is_operator[parent])
    every = np.arange(graph.num_ops)
    found = nearest(every, parent, is_top)
    nodes = backward_nodes(graph)
    origin = np.full(graph.num_ops, -1, dtype=np.int64)
    origin[nodes.ops] = nodes.origin
    inside = nearest(every, parent, origin >= 0)  # what autograd runs for an operator
    found = np.where(inside >= 0, np.append(found, -1)[origin[inside]], found)
    is_call = is_top & (inside < 0)
    call = graph.recorded_launchers
    found = np.where(call >= 0, found[call], found)
    return np.where(found >= 0, found, every), is_call
