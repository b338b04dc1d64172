"""What the ranks of a job are to do, as arrays over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from nadi.errors import InputError, PairError
from nadi.schema import COMM_TYPES, GIVEN_DEPS, NODE_KINDS
from nadi.trace import Trace

__all__ = ["Program", "program_of"]

Ints = npt.NDArray[np.int64]
_KIND = {name: code for code, name in enumerate(NODE_KINDS)}
_BAD_ISSUES = {
    "chakra.data-missing": "wait for nodes that are not there",
    "chakra.ctrl-missing": "wait for nodes that are not there",
    "chakra.cycle": "wait for each other",
}


@dataclass(frozen=True, eq=False)
class Program:
    """The nodes of all ranks, in order of rank and, in each, of id.

    Attributes
    ----------
    traces
        One per rank.
    first
        int64, shape (ranks + 1,): where the nodes of each rank begin.
    row
        int64, shape (nodes,): their rows in their trace.
    kind, comm_type
        int64: positions in ``schema.NODE_KINDS`` and ``schema.COMM_TYPES``.
    is_cpu
        bool.
    duration, tensor_bytes, comm_bytes, flops, src, dst, tag
        int64, -1 where it is not stated; duration in ns.
    group
        int64: position in ``group_names``, -1 for all ranks.
    involved
        int64: which dimensions take part, as bits; -1 for all.
    first_child, children
        int64, shapes (nodes + 1,) and (dependencies,): who waits for each node, by position.
    """

    traces: tuple[Trace, ...]
    first: Ints
    row: Ints
    kind: Ints
    comm_type: Ints
    is_cpu: npt.NDArray[np.bool_]
    duration: Ints
    tensor_bytes: Ints
    comm_bytes: Ints
    flops: Ints
    src: Ints
    dst: Ints
    tag: Ints
    group: Ints
    involved: Ints
    group_names: tuple[str, ...]
    group_ranks: tuple[tuple[int, ...], ...]
    first_child: Ints
    children: Ints

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
    def is_alike(self) -> bool:
        """Whether all ranks have the same nodes with the same dependencies."""
        if self.num_ranks == 1 or all(trace is self.traces[0] for trace in self.traces):
            return True
        sizes = np.diff(self.first)
        if (sizes != sizes[0]).any():
            return False
        columns = (
            self.kind, self.comm_type, self.is_cpu, self.duration, self.tensor_bytes,
            self.comm_bytes, self.flops, self.src, self.dst, self.tag, self.group, self.involved,
            np.diff(self.first_child),
        )  # fmt: skip
        rows = [column.reshape(self.num_ranks, -1) for column in columns]
        if not all((row == row[0]).all() for row in rows):
            return False
        children = self.children.reshape(self.num_ranks, -1) - self.first[:-1, None]
        return bool((children == children[0]).all())

    def describe(self, node: int) -> str:
        """Name a node for people: its rank, id and name."""
        rank = int(self.rank[node])
        nodes = self.traces[rank].nodes
        row = int(self.row[node])
        return f"rank {rank} node {nodes['id'][row]} ({nodes['name'][row]})"


def program_of(traces: Sequence[Trace]) -> Program:
    """Put the traces of a job, one per rank, into arrays. O(nodes + dependencies).

    Raises
    ------
    InputError
        If a trace has no nodes, dependencies on nodes that are not there, a cycle, or
        dependencies of other kinds than a Chakra trace's.
    """
    names: dict[str, int] = {}
    members: dict[str, tuple[int, ...]] = {}
    parts = []
    base = 0
    for rank, trace in enumerate(traces):
        part = _part(rank, trace, base, names, members)
        parts.append(part)
        base += part["row"].size
    sizes = [part["row"].size for part in parts]
    columns = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    src, dst = columns.pop("dep_src"), columns.pop("dep_dst")
    order = np.argsort(src, kind="stable")
    first_child = np.zeros(base + 1, dtype=np.int64)
    np.cumsum(np.bincount(src, minlength=base), out=first_child[1:])
    return Program(
        traces=tuple(traces),
        first=np.cumsum([0, *sizes], dtype=np.int64),
        group_names=tuple(names),
        group_ranks=tuple(members.get(name, ()) for name in names),
        first_child=first_child,
        children=dst[order],
        **columns,
    )


def _name_of(rank: int, trace: Trace) -> str:
    sources = trace.provenance.sources
    return sources[0].path if sources else f"rank {rank}"


def _check(rank: int, trace: Trace) -> None:
    if not trace.nodes.height:
        raise InputError(_name_of(rank, trace), "it has no nodes", "leave its rank out of the job")
    for issue in trace.issues.iter_rows(named=True):
        if issue["code"] in _BAD_ISSUES:
            raise InputError(
                _name_of(rank, trace), f"nodes {_BAD_ISSUES[issue['code']]}: {issue['detail']}",
                "mend the program that wrote it",
            )  # fmt: skip
    if trace.deps.height and not trace.deps["kind"].is_in(GIVEN_DEPS).all():
        raise PairError(
            _name_of(rank, trace), "its dependencies are those of a recording",
            "write it as Chakra .et first: nadi convert",
        )  # fmt: skip


def _part(
    rank: int, trace: Trace, base: int, names: dict[str, int], members: dict[str, tuple[int, ...]]
) -> dict[str, npt.NDArray[np.int64]]:
    """Give one rank's columns, with dependencies as positions among all nodes."""
    _check(rank, trace)
    nodes = trace.nodes
    ids = trace.column("id")
    ascending = bool((ids[1:] > ids[:-1]).all())
    order = np.arange(ids.size) if ascending else np.argsort(ids, kind="stable")
    place = np.empty(ids.size, dtype=np.int64)
    place[order] = np.arange(base, base + ids.size)
    kind = nodes["kind"].to_physical().to_numpy().astype(np.int64)
    columns = {
        "row": order,
        "kind": kind[order],
        "comm_type": nodes["comm_type"].to_physical().to_numpy().astype(np.int64)[order],
        "is_cpu": _is_cpu(trace, kind)[order],
        "duration": trace.column("duration")[order],
        "tensor_bytes": trace.column("bytes")[order],
        "comm_bytes": trace.column("comm_bytes")[order],
        "flops": trace.column("flops")[order],
        "src": trace.column("src")[order],
        "dst": trace.column("dst")[order],
        "tag": trace.column("tag")[order],
        "group": _groups(trace, names, members)[order],
        "involved": _involved(trace)[order],
    }
    src = place[trace.deps["src"].to_numpy()]
    dst = place[trace.deps["dst"].to_numpy()]
    if trace.deps["kind"].n_unique() > 1:  # one dependency may be given as both kinds
        both = np.unique(src * np.int64(base + ids.size) + dst)
        src, dst = np.divmod(both, np.int64(base + ids.size))
    columns["dep_src"], columns["dep_dst"] = src, dst
    return columns


def _is_cpu(trace: Trace, kind: Ints) -> npt.NDArray[np.bool_]:
    """Tell which nodes are of the host; of an .et, only those that say so."""
    is_cpu: npt.NDArray[np.bool_] = trace.nodes["is_cpu"].to_numpy()
    sources = trace.provenance.sources
    if not is_cpu.any() or not (sources and sources[0].format.startswith("Chakra")):
        return is_cpu
    attributes = trace.attributes
    stated = np.zeros(kind.size, dtype=np.bool_)
    stated[attributes.node[attributes.rows_named("is_cpu_op")]] = True
    return is_cpu & stated


def _groups(
    trace: Trace, names: dict[str, int], members: dict[str, tuple[int, ...]]
) -> npt.NDArray[np.int64]:
    """Number the groups of a trace through all traces; "" and "0" are all ranks."""
    group = trace.column("group")
    if not trace.groups.height:
        return np.full(group.size, -1, dtype=np.int64)
    number = []
    for name, ranks in trace.groups.select("name", "ranks").iter_rows():
        if name in ("", "0"):
            number.append(-1)
            continue
        number.append(names.setdefault(name, len(names)))
        if ranks:
            members[name] = tuple(ranks)
    return np.array([*number, -1], dtype=np.int64)[group]


def _involved(trace: Trace) -> Ints:
    """Give which dimensions a collective takes part in; nearly no trace says so."""
    out = np.full(trace.nodes.height, -1, dtype=np.int64)
    is_collective = trace.nodes["kind"].to_physical().to_numpy() == _KIND["COMM_COLL"]
    if is_collective.any():
        attributes = trace.attributes
        for row in attributes.rows_named("involved_dim").tolist():
            flags = attributes.python_value(row)
            if isinstance(flags, list):
                out[attributes.node[row]] = sum(1 << d for d, flag in enumerate(flags) if flag)
    return out
