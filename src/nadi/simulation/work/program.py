"""The program of a job: the work of all ranks as arrays.

Columns of ranks that share traces, which take memory for each different trace only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NoReturn, cast
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.errors import InputError, PairError
from nadi.recordings.folded.folded_trace import own_times
from nadi.simulation.engine.codes import Slot
from nadi.trace.arrays import Bools, Ints
from nadi.trace.schema import COMM_TYPES, GIVEN_DEPS, NODE_KINDS
from nadi.trace.trace import Trace, host_nodes


class SharedColumn(np.lib.mixins.NDArrayOperatorsMixin):
    """A column of all nodes, of which each is one of a few own ones; behaves as an array.

    It is expanded where it is used, into an array that whoever uses it may drop. What numpy does
    with each value by itself is done with the own values first.

    Attributes
    ----------
    own
        Shape (own nodes,).
    place
        int32 or int64, shape (nodes,): which of them each node is.
    """

    def __init__(self, own: npt.NDArray[Any], place: npt.NDArray[Any]) -> None:
        self.own, self.place = own, place

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Return the values of all nodes."""
        own = self.own if dtype is None else self.own.astype(dtype)
        return np.asarray(own[self.place])

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Do with own values what is to be done with each value, else with all."""
        ours = [one for one in inputs if isinstance(one, SharedColumn)]
        others = [one for one in inputs if not isinstance(one, SharedColumn)]
        alike = all(one.place is self.place for one in ours) and all(map(np.isscalar, others))
        if alike and method == "__call__" and not options:
            own = (one.own if isinstance(one, SharedColumn) else one for one in inputs)
            return ufunc(*own)[self.place]
        whole = (np.asarray(one) if isinstance(one, SharedColumn) else one for one in inputs)
        return getattr(ufunc, method)(*whole, **options)

    def __getitem__(self, chosen: Any) -> Any:
        """Return the values of some nodes."""
        return self.own[self.place[chosen]]

    def __len__(self) -> int:
        """Return the number of nodes."""
        return self.place.size

    @property
    def size(self) -> int:
        """Number of nodes."""
        return self.place.size

    def __getattr__(self, name: str) -> Any:
        """Return what an array of all values has."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)


_COLUMNS = (
    "id", "kind", "comm_type", "is_cpu", "duration", "exclusive", "bytes", "comm_bytes", "flops",
    "src", "dst", "tag", "group",
)  # fmt: skip
_NODE_ARRAYS = (
    "row", "kind", "comm_type", "is_cpu", "duration", "tensor_bytes", "comm_bytes", "flops", "src",
    "dst", "tag", "group", "involved",
)  # fmt: skip
_HIGHEST = 1 << 62
_SMALL = 1 << 31
_BAD_ISSUES = {
    "chakra.data-missing": "depend on missing nodes",
    "chakra.ctrl-missing": "depend on missing nodes",
    "chakra.cycle": "form a dependency cycle",
}


@dataclass(frozen=True, eq=False)
class Program:
    """The nodes of all ranks, in order of rank and, in each, of id."""

    traces: tuple[Trace, ...]  # one per rank
    first: Ints  # int64, shape (ranks + 1,): where the nodes of each rank begin
    row: Ints  # int64, shape (nodes,): their rows in their trace
    # kind, comm_type: int64: positions in ``schema.NODE_KINDS`` and ``schema.COMM_TYPES``
    kind: Ints
    comm_type: Ints
    is_cpu: Bools  # bool
    # duration, tensor_bytes, comm_bytes, flops, src, dst, tag: int64, -1 where it is not stated;
    # duration in ns, of nodes that nest only their own: it is what an .et has as their duration,
    # with the whole beside it if Nadi wrote it
    duration: Ints
    tensor_bytes: Ints
    comm_bytes: Ints
    flops: Ints
    src: Ints
    dst: Ints
    tag: Ints
    group: Ints  # int64: position in ``group_names``, -1 for all ranks
    involved: Ints  # int64: which dimensions take part, as bits; -1 for all
    group_names: tuple[str, ...]
    group_ranks: tuple[tuple[int, ...], ...]
    # first_child, children: int64, shapes (nodes + 1,) and (dependencies,): who waits for each
    # node, by position
    first_child: Ints
    children: Ints
    # int64: the thread or stream of each node, counted over all ranks, -1 for none; None where
    # ranks have slots instead (``ordered_lanes``)
    lane: Ints | None = None
    lane_names: tuple[str, ...] = ()  # what each lane is called
    # where ranks share traces: the program of the traces that differ, and which of them each rank
    # has. Columns are then expanded where they are used.
    shared: tuple[Program, Ints] | None = None

    @property
    def num_ranks(self) -> int:
        """Number of ranks."""
        return self.first.size - 1

    @property
    def num_nodes(self) -> int:
        """Number of nodes over all ranks."""
        return self.row.size

    @cached_property
    def rank(self) -> Ints:
        """The rank of each node."""
        return np.repeat(np.arange(self.num_ranks), np.diff(self.first))

    @cached_property
    def slot(self) -> Ints:
        """The slot that each node takes where ranks have slots; int64, as in kernels.machine."""
        slot = np.full(self.num_nodes, Slot.COMM, dtype=np.int64)
        slot[self.kind == NODE_KINDS.index("COMP")] = Slot.COMP
        slot[self.kind == NODE_KINDS.index("COMM_RECV")] = Slot.NONE
        slot[self.is_cpu] = Slot.CPU
        return slot

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of nodes that there are."""
        return frozenset(NODE_KINDS[code] for code in _codes(self.kind))

    @cached_property
    def collective_types(self) -> list[str]:
        """The types of collectives that there are."""
        chosen = self.kind == NODE_KINDS.index("COMM_COLL")
        return [COMM_TYPES[code] for code in _codes(self.comm_type[chosen])]

    def column(self, name: str) -> Ints:
        """Return a numeric column of the traces, as int64, for all nodes."""
        return self._of_nodes(lambda _, trace: trace.nodes[name].to_numpy().astype(np.int64))

    @cached_property
    def priority(self) -> Ints:
        """The priority of each node (comm_priority of an .et), 0 where it is not stated.

        - Raises InputError if a priority is not an integer that fits.
        """
        return self._of_nodes(_priorities)

    def _of_nodes(self, of_trace: Callable[[int, Trace], Ints]) -> Ints:
        """Return values for all nodes from values for the rows of each rank's trace."""
        found: dict[int, Ints] = {}
        parts = []
        for rank, trace in enumerate(self.traces):
            if id(trace) not in found:
                found[id(trace)] = of_trace(rank, trace)
            rows = self.row[self.first[rank] : self.first[rank + 1]]
            parts.append(found[id(trace)][rows])
        return np.concatenate(parts)

    @cached_property
    def tier(self) -> tuple[Ints, tuple[str, ...]]:
        """The memory tier that each node names, as a position in the names; -1 for none."""
        number: dict[str, int] = {}

        def of_trace(_: int, trace: Trace) -> Ints:
            words = trace.nodes["tier"]
            known = words.unique(maintain_order=True).cast(pl.String).to_list()
            codes = [number.setdefault(name, len(number)) if name else -1 for name in known]
            place = words.cast(pl.Enum(known)).to_physical().to_numpy()
            of_row: Ints = np.array(codes, dtype=np.int64)[place]
            return of_row

        return self._of_nodes(of_trace), tuple(number)

    @cached_property
    def is_alike(self) -> bool:
        """Whether all ranks have the same nodes with the same dependencies."""
        if self.traces.count(self.traces[0]) == self.num_ranks:
            return True
        sizes = np.diff(self.first)
        if (sizes != sizes[0]).any():
            return False
        columns = (  # rows too, by which schedules name nodes
            self.row, self.kind, self.comm_type, self.is_cpu, self.duration, self.tensor_bytes,
            self.comm_bytes, self.flops, self.src, self.dst, self.tag, self.group, self.involved,
            np.diff(self.first_child),
            *(() if self.kinds.isdisjoint(("MEM_LOAD", "MEM_STORE")) else (self.tier[0],)),
            *(() if self.lane is None else (self.lane < 0,)),
        )  # fmt: skip
        for column in columns:  # one after the other: those of shared traces are expanded here
            of_rank = column.reshape(self.num_ranks, -1)
            if (of_rank != of_rank[0]).any():
                return False
        children = self.children.reshape(self.num_ranks, -1) - self.first[:-1, None]
        return bool((children == children[0]).all())

    def describe(self, node: int) -> str:
        """Describe a node for messages: rank, id and name."""
        rank = int(self.rank[node])
        nodes = self.traces[rank].nodes
        row = int(self.row[node])
        return f"rank {rank} node {nodes['id'][row]} ({nodes['name'][row]})"


def _codes(values: Ints) -> list[int]:
    """Return the different codes, ascending; of few, a count is faster than to sort."""
    return np.flatnonzero(np.bincount(values)).tolist()


def _priorities(rank: int, trace: Trace) -> Ints:
    """Return the priorities of nodes that a trace states."""
    attributes = trace.attributes_without_operands
    found = np.zeros(trace.nodes.height, dtype=np.int64)
    for row in attributes.rows_named("comm_priority").tolist():
        node, value = int(attributes.node[row]), attributes.python_value(row)
        if not isinstance(value, int) or abs(value) >= _HIGHEST:
            raise InputError(
                f"rank {rank} node {trace.nodes['id'][node]} ({trace.nodes['name'][node]})",
                f"its comm_priority is {value!r}", "write an integer, 0 for no priority",
            )  # fmt: skip
        found[node] = value
    return found


def program_of(traces: Sequence[Trace]) -> Program:
    """Convert the traces of a job, one per rank, to arrays. O(nodes + dependencies).

    - Raises InputError if a trace has no nodes, dependencies on missing nodes, a cycle, or
      dependency kinds that a Chakra trace does not have.
    """
    if len(traces) == 1:
        _check(0, traces[0])
        return _program_of_one(traces[0])
    place: dict[int, int] = {}  # of each trace that differs; ranks may share one
    which = np.array([place.setdefault(id(trace), len(place)) for trace in traces])
    found = dict(zip(which.tolist(), traces, strict=True))
    different = [found[k] for k in range(len(place))]
    for k, trace in enumerate(different):
        _check(int(np.argmax(which == k)), trace)
    program = _program_of_one(traces[0]) if len(place) == 1 else _program_of_different(different)
    return program if len(different) == len(traces) else shared_out(program, traces, which)


def _program_of_one(trace: Trace) -> Program:
    """Return the program of one rank; cached, since a search for a system needs it often."""
    if trace not in _OF_ONE:
        # without a reference to the trace, which would otherwise never be freed
        _OF_ONE[trace] = replace(_program_of_different([trace]), traces=())
    return replace(_OF_ONE[trace], traces=(trace,))


_OF_ONE: WeakKeyDictionary[Trace, Program] = WeakKeyDictionary()


def shared_out(program: Program, traces: Sequence[Trace], which: Ints) -> Program:
    """Return the nodes of each rank of a trace that several ranks share.

    - ``program``: Of the traces that differ.
    - ``which``: int64, shape (ranks,): which of them each rank has.
    """
    sizes = np.diff(program.first)[which]
    first = np.append(0, np.cumsum(sizes))
    small = np.int32 if program.num_nodes < _SMALL else np.int64
    node = np.arange(first[-1], dtype=np.int64)
    node -= np.repeat(first[:-1] - program.first[which], sizes)
    place = node.astype(small)
    del node
    of_rank = program.first_child[program.first]
    num_children = np.diff(of_rank)[which]
    ends = np.cumsum(num_children)
    entry = np.arange(ends[-1])
    entry -= np.repeat(ends - num_children - of_rank[which], num_children)
    children = program.children[entry]
    del entry
    children += np.repeat(first[:-1] - program.first[which], num_children)
    first_child = np.zeros(place.size + 1, dtype=np.int64)
    np.cumsum(np.diff(program.first_child)[place], out=first_child[1:])
    columns = {name: SharedColumn(getattr(program, name), place) for name in _NODE_ARRAYS}
    lane, names = _lanes_shared_out(program, place, which)
    return replace(
        program,
        traces=tuple(traces),
        first=first,
        first_child=first_child,
        children=children,
        lane=lane,
        lane_names=names,
        shared=(program, which),
        **cast(dict[str, Any], columns),
    )


def _lanes_shared_out(
    program: Program, place: npt.NDArray[Any], which: Ints
) -> tuple[Ints | None, tuple[str, ...]]:
    """Return the lane of each node and their names, if the program has lanes."""
    if program.lane is None:
        return None, ()
    # those of a rank follow each other, as do those of a trace
    of_lane = np.full(len(program.lane_names), 0, dtype=np.int64)
    has = program.lane >= 0
    of_lane[program.lane[has]] = program.rank[has]
    counts = np.bincount(of_lane, minlength=program.num_ranks)
    begin, own = np.cumsum(counts) - counts, counts[which]
    shift = np.repeat(np.cumsum(own) - own - begin[which], np.diff(program.first)[which])
    lane = program.lane[place]
    lane[lane >= 0] += shift[lane >= 0]
    ends = zip(begin[which].tolist(), own.tolist(), strict=True)
    names = tuple(name for at, count in ends for name in program.lane_names[at : at + count])
    return lane, names


def _program_of_different(traces: Sequence[Trace]) -> Program:
    sizes = np.array([trace.nodes.height for trace in traces], dtype=np.int64)
    first = np.append(0, np.cumsum(sizes))
    nodes = pl.concat([trace.nodes for trace in traces]).select(_COLUMNS)
    row = np.arange(first[-1]) - np.repeat(first[:-1], sizes)
    order, place = _order(nodes["id"].to_numpy(), first)
    src, dst = _dependencies(traces, first)
    if place is not None:
        src, dst = place[src], place[dst]
    by_src = np.argsort(src, kind="stable")
    first_child = np.zeros(first[-1] + 1, dtype=np.int64)
    np.cumsum(np.bincount(src, minlength=int(first[-1])), out=first_child[1:])
    names, members, group = _groups(traces, nodes, sizes)
    columns = {
        "row": row,
        "kind": nodes["kind"].to_physical().to_numpy().astype(np.int64),
        "comm_type": nodes["comm_type"].to_physical().to_numpy().astype(np.int64),
        "is_cpu": host_nodes(traces, nodes["is_cpu"].to_numpy(), first),
        "duration": own_times(nodes),
        "tensor_bytes": nodes["bytes"].to_numpy(),
        "comm_bytes": nodes["comm_bytes"].to_numpy(),
        "flops": nodes["flops"].to_numpy(),
        "src": nodes["src"].to_numpy(),
        "dst": nodes["dst"].to_numpy(),
        "tag": nodes["tag"].to_numpy(),
        "group": group,
        "involved": _involved(traces, first),
    }
    if order is not None:
        columns = {name: column[order] for name, column in columns.items()}
    return Program(
        traces=tuple(traces),
        first=first,
        group_names=tuple(names),
        group_ranks=tuple(members.get(name, ()) for name in names),
        first_child=first_child,
        children=dst[by_src],
        **columns,
    )


def refuse_node(program: Program, node: int, what: str, remedy: str = "") -> NoReturn:
    """Raise InputError about a node."""
    raise InputError(program.describe(int(node)), what, remedy)


def _order(ids: Ints, first: Ints) -> tuple[Ints | None, Ints | None]:
    """Return the order of nodes by id in each rank, and its inverse; None if already sorted."""
    later = ids[1:] > ids[:-1]
    later[first[1:-1] - 1] = True  # between ranks
    if later.all():
        return None, None
    order = np.lexsort((ids, np.repeat(np.arange(first.size - 1), np.diff(first))))
    place = np.empty(ids.size, dtype=np.int64)
    place[order] = np.arange(ids.size)
    return order, place


def _dependencies(traces: Sequence[Trace], first: Ints) -> tuple[Ints, Ints]:
    """Return all dependencies, each once, as positions among all nodes."""
    deps = traces[0].deps if len(traces) == 1 else pl.concat([trace.deps for trace in traces])
    heights = [trace.deps.height for trace in traces]
    kinds = set(deps["kind"].unique().to_list())
    if not kinds <= set(GIVEN_DEPS):
        raise PairError(
            _name_of(0, traces[0]), "it is a recording, not a Chakra trace",
            "convert it to Chakra .et first (nadi convert)",
        )  # fmt: skip
    shift = np.repeat(first[:-1], heights)
    src, dst = deps["src"].to_numpy() + shift, deps["dst"].to_numpy() + shift
    if len(kinds) > 1:  # one dependency may be given as both kinds
        src, dst = np.divmod(np.unique(src * first[-1] + dst), first[-1])
    return src, dst


def _name_of(rank: int, trace: Trace) -> str:
    sources = trace.provenance.sources
    return sources[0].path if sources else f"rank {rank}"


def _check(rank: int, trace: Trace) -> None:
    if not trace.nodes.height:
        raise InputError(_name_of(rank, trace), "it has no nodes", "remove this rank from the job")
    if not trace.issues.height:
        return
    for code, detail in trace.issues.select("code", "detail").iter_rows():
        if code in _BAD_ISSUES:
            raise InputError(
                _name_of(rank, trace), f"nodes {_BAD_ISSUES[code]}: {detail}",
                "correct the program that wrote it",
            )  # fmt: skip


def _groups(
    traces: Sequence[Trace], nodes: pl.DataFrame, sizes: Ints
) -> tuple[dict[str, int], dict[str, tuple[int, ...]], Ints]:
    """Assign numbers to the groups of all traces by name; "" and "0" are all ranks."""
    names: dict[str, int] = {}
    members: dict[str, tuple[int, ...]] = {}
    numbers: list[int] = []
    starts = []
    for trace in traces:
        starts.append(len(numbers))
        for name, _, ranks, _ in trace.groups.iter_rows() if trace.groups.height else ():
            numbers.append(-1 if name in ("", "0") else names.setdefault(name, len(names)))
            if ranks:
                members[name] = tuple(ranks)
    group = nodes["group"].to_numpy()
    if not numbers:
        return names, members, group
    number = np.array(numbers, dtype=np.int64)
    own = np.repeat(np.array(starts, dtype=np.int64), sizes)
    stated = group >= 0  # a rank after the last with groups has none to count from
    return names, members, np.where(stated, number[np.where(stated, group + own, 0)], -1)


def _involved(traces: Sequence[Trace], first: Ints) -> Ints:
    """Return the dimensions that a collective involves; few traces state them."""
    out = np.full(first[-1], -1, dtype=np.int64)
    for rank, trace in enumerate(traces):
        if not trace.given_attributes.nodes_with("involved_dim").size:
            continue
        attributes = trace.attributes
        for row in attributes.rows_named("involved_dim").tolist():
            flags = attributes.python_value(row)
            if isinstance(flags, list):
                bits = sum(1 << d for d, flag in enumerate(flags) if flag)
                out[first[rank] + attributes.node[row]] = bits
    return out
