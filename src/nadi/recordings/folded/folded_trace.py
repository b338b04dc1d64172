"""A trace in which repeated rows are stored once, and how it is folded and unfolded."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from nadi.errors import checked
from nadi.recordings.folded.repeats import (
    frame_of_operands,
    operands_apart,
    operands_of_frame,
)
from nadi.recordings.folded.row_values import (
    COUNTERS,
    Loop,
    RowLayout,
    SignedRows,
    find_repeats,
    join_values,
    names_of,
    numbered_names,
    parts_of,
    signed_rows,
    split_values,
)
from nadi.trace.arrays import Ints
from nadi.trace.attributes import Attributes, LazyAttributes
from nadi.trace.operands import AttributesWithOperands, OperandColumns, TensorType
from nadi.trace.schema import DEPS
from nadi.trace.trace import Provenance, Trace

_MOST_BLOCKS = 64


@dataclass(frozen=True, eq=False)
class NodeTimes:
    """Times of the nodes of a trace that stands for several ranks: typical, least and largest.

    Each is int64 of shape (nodes,), in ns; -1 where no time is known.
    """

    typical: Ints
    low: Ints
    high: Ints


@dataclass(frozen=True, eq=False)
class FoldedTrace:
    """A trace in which repeats are stored once.

    Attributes
    ----------
    nodes
        Rows that are kept (``schema.NODES``), of repeats those of the first turn. ``parent`` counts
        rows of the whole trace.
    loops
        ``first``, ``size``: kept rows of a repeat; ``count``: its turns; ``depth``: in how many
        others it is. Sorted by ``first`` and ``depth``.
    deps
        ``row`` (kept) waits for ``src``, a row of the whole trace; with ``kind``, ``inferred`` and
        ``block``: its part of the whole table. Sorted by ``row``.
    operands
        ``row`` (kept) reads or gives a tensor: ``is_output``, ``position``, ``tensor_id``,
        ``storage_id``, ``offset``, ``kind``, which of ``types``, and ``role``, which of
        ``TENSOR_ROLES``; -1 for none.
    steps
        By how much values grow from turn to turn: ``value``, a position in :attr:`values`;
        ``depth`` of the repeat; ``step``.
    times
        ``typical``, ``low`` and ``high``: time of each kept row in ns, the typical, the least and
        the largest; of each row of the whole trace, if turns took different times.
    types, device
        Of the operands.
    attributes
        What has no column, of kept rows.
    groups, issues, provenance, rank, world_size, process
        As of the trace.
    """

    nodes: pl.DataFrame
    loops: pl.DataFrame
    deps: pl.DataFrame
    operands: pl.DataFrame
    steps: pl.DataFrame
    times: pl.DataFrame
    types: tuple[TensorType, ...]
    device: str
    attributes: Attributes
    groups: pl.DataFrame
    issues: pl.DataFrame
    provenance: Provenance
    rank: int
    world_size: int
    process: int

    def __repr__(self) -> str:
        return f"<FoldedTrace kept={self.nodes.height} nodes={self.num_nodes}>"

    @cached_property
    def turns(self) -> tuple[Ints, Ints]:
        """The kept row of each row of the whole trace, and the turn of each repeat it is in.

        int64, shapes (nodes,) and (depths, nodes); turns count from 0.
        """
        return _spread(_tree(self.loops), 0, self.nodes.height, 0, _depths(self.loops))

    @property
    def num_nodes(self) -> int:
        """Number of rows of the whole trace."""
        return int(self.turns[0].size)

    @cached_property
    def layout(self) -> RowLayout:
        """How the values of kept rows are made up."""
        size = np.arange(self.nodes.height + 1)
        return RowLayout(
            numbered_names(self.nodes["name"]).first,
            np.searchsorted(self.deps["row"].to_numpy(), size),
            np.searchsorted(self.operands["row"].to_numpy(), size),
        )

    @cached_property
    def values(self) -> Ints:
        """The values of kept rows in the first turn; int64, shape (values,)."""
        names = numbered_names(self.nodes["name"])
        return join_values(self.layout, parts_of(self.nodes, names, self.deps, self.operands))

    @property
    def all_times(self) -> NodeTimes:
        """Times of all rows of the whole trace."""
        columns = [self.times[name].to_numpy() for name in ("typical", "low", "high")]
        if not self.turns_vary:
            columns = [column[self.turns[0]] for column in columns]
        return NodeTimes(*columns)

    @property
    def turns_vary(self) -> bool:
        """Whether turns of a repeat took different times."""
        return self.times.height != self.nodes.height

    @property
    def ranks_vary(self) -> bool:
        """Whether ranks for which the trace stands took different times."""
        return bool((self.times["low"] != self.times["high"]).any())


class _Kept:
    """Rows of a trace that stay, and the repeats among them."""

    def __init__(self, loops: Sequence[Loop], size: int) -> None:
        self.flat = list(_flat(loops, 0))
        kept = np.ones(size, dtype=np.bool_)
        for loop, _ in self.flat:
            kept[loop.first + loop.size : loop.end] = False
        self.rows = np.flatnonzero(kept)
        self.new_row = np.where(kept, np.cumsum(kept) - 1, -1)

    def table(self) -> pl.DataFrame:
        """Return the repeats, in kept rows."""
        first = [int(self.new_row[loop.first]) for loop, _ in self.flat]
        end = [int(np.searchsorted(self.rows, loop.first + loop.size)) for loop, _ in self.flat]
        return pl.DataFrame(
            {
                "first": first, "size": [b - a for a, b in zip(first, end, strict=True)],
                "count": [loop.turns for loop, _ in self.flat],
                "depth": [depth for _, depth in self.flat],
            },
            schema=dict.fromkeys(("first", "size", "count", "depth"), pl.Int64),
        )  # fmt: skip

    def steps(self, rows: SignedRows) -> pl.DataFrame:
        """Return by how much values grow, of those that do."""
        sizes = np.diff(rows.first)[self.rows]
        first = np.append(0, np.cumsum(sizes))
        parts: list[tuple[Ints, int, Ints]] = []
        for loop, depth in self.flat:
            a, b = np.searchsorted(self.rows, [loop.first, loop.first + loop.size])
            begin = rows.first[self.rows[a:b]]
            shift = int(rows.first[loop.first + loop.size] - rows.first[loop.first])
            at = np.repeat(begin - first[a:b], sizes[a:b]) + np.arange(first[a], first[b])
            step = rows.value[at + shift] - rows.value[at]
            grows = np.flatnonzero(step)
            parts.append((first[a] + grows, depth, step[grows]))
        return pl.DataFrame(
            {
                "value": np.concatenate([[], *(one[0] for one in parts)]),
                "depth": np.concatenate([[], *(np.full(one[0].size, one[1]) for one in parts)]),
                "step": np.concatenate([[], *(one[2] for one in parts)]),
            },
            schema=dict.fromkeys(("value", "depth", "step"), pl.Int64),
        )  # fmt: skip


def _flat(loops: Sequence[Loop], depth: int) -> Iterator[tuple[Loop, int]]:
    for loop in loops:
        yield loop, depth
        yield from _flat(loop.inner, depth + 1)


@checked
def fold_trace(trace: Trace, times: NodeTimes | None = None) -> FoldedTrace:
    """Store the repeats of a trace once.

    Rows repeat if all columns but times are equal or grow by the same step from turn to turn, and
    so do their dependencies and tensors; attributes are equal. Times may differ from turn to turn;
    then each turn has its own. Recorded starts are left out.

    Parameters
    ----------
    times
        Of the ranks for which the trace stands; by default its own.
    """
    columns, attributes = operands_apart(trace)
    operands = frame_of_operands(columns)
    deps = _deps_of(trace)
    rows, _ = signed_rows(trace.nodes, attributes, deps, operands)
    kept = _Kept(find_repeats(rows), rows.size)
    loops, stays = kept.table(), pl.Series(kept.rows)
    stated = times or _own_times(trace)
    nodes = trace.nodes[stays].with_columns(start=pl.lit(-1, dtype=pl.Int64))
    attributes = _of_kept(attributes, kept.new_row)
    return FoldedTrace(
        nodes=nodes, loops=loops, deps=_moved(deps, kept.new_row),
        operands=_moved(operands, kept.new_row), steps=kept.steps(rows),
        times=_times_of(loops, kept, stated),
        types=columns.types if columns else (), device=columns.device if columns else "",
        attributes=attributes, groups=trace.groups, issues=trace.issues,
        provenance=trace.provenance, rank=trace.rank, world_size=trace.world_size,
        process=trace.process,
    )  # fmt: skip


def _own_times(trace: Trace) -> NodeTimes:
    own = own_times(trace.nodes)
    return NodeTimes(own, own, own)


def own_times(nodes: pl.DataFrame) -> Ints:
    """Return the time that a simulation takes for each node: its own; int64 ns."""
    own, whole = nodes["exclusive"].to_numpy(), nodes["duration"].to_numpy()
    return np.where(own >= 0, own, whole)


def _deps_of(trace: Trace) -> pl.DataFrame:
    """Return dependencies by the row that waits, and how the table was sorted."""
    dst = trace.deps["dst"].to_numpy()
    block = np.append(0, np.cumsum(np.diff(dst) < 0))[: dst.size]
    if dst.size and block[-1] >= _MOST_BLOCKS:
        block[:] = 0
    frame = pl.DataFrame({
        "row": dst, "src": trace.deps["src"], "kind": trace.deps["kind"],
        "inferred": trace.deps["inferred"], "block": block,
    })  # fmt: skip
    return frame[pl.Series(np.argsort(dst, kind="stable"))] if dst.size else frame


def _moved(frame: pl.DataFrame, new_row: Ints) -> pl.DataFrame:
    row = new_row[frame["row"].to_numpy()]
    return frame.with_columns(row=pl.Series(row)).filter(pl.Series(row >= 0))


def _of_kept(attributes: Attributes, new_row: Ints) -> Attributes:
    """Return the attributes of kept rows, and those of the trace itself."""
    node = attributes.node
    place = np.where(node >= 0, new_row[np.maximum(node, 0)], -1)
    stays = (node < 0) | (place >= 0)
    rows = np.flatnonzero(stays)
    found = attributes.filtered(stays)
    return Attributes(
        place[rows].astype(np.int32), found.name, found.type, found.value, found.length,
        found.names, found.buffers,
    ).with_own_bytes()  # fmt: skip


def _times_of(loops: pl.DataFrame, kept: _Kept, stated: NodeTimes) -> pl.DataFrame:
    """Return the times of kept rows, or of all if turns differ."""
    of_row, _ = _spread(_tree(loops), 0, kept.rows.size, 0, _depths(loops))
    frame = pl.DataFrame({"typical": stated.typical, "low": stated.low, "high": stated.high})
    first = frame[pl.Series(kept.rows)]
    return first if first[pl.Series(of_row)].equals(frame) else frame


def with_own_times(nodes: pl.DataFrame, own: Ints) -> pl.DataFrame:
    """Return nodes that take other times of their own; int64 ns, shape (nodes,)."""
    changed = own != own_times(nodes)
    known = nodes["exclusive"].to_numpy() >= 0
    whole, part = nodes["duration"].to_numpy(), nodes["exclusive"].to_numpy()
    return nodes.with_columns(
        duration=pl.Series(np.where(changed, own, whole)),
        exclusive=pl.Series(np.where(changed & known, own, part)),
    )


def _depths(loops: pl.DataFrame) -> int:
    deepest: int | None = loops["depth"].max()  # type: ignore[assignment]
    return 1 if deepest is None else deepest + 1


# from kept rows to all rows


class _Branch:
    """A repeat with those inside it."""

    def __init__(self, first: int, size: int, count: int, depth: int) -> None:
        self.first, self.size, self.count, self.depth = first, size, count, depth
        self.inner: list[_Branch] = []


def _tree(loops: pl.DataFrame) -> list[_Branch]:
    """Return the outermost repeats."""
    top: list[_Branch] = []
    open_ones: list[_Branch] = []
    for row in loops.sort("first", "depth").iter_rows(named=True):
        one = _Branch(row["first"], row["size"], row["count"], row["depth"])
        del open_ones[one.depth :]
        (open_ones[-1].inner if open_ones else top).append(one)
        open_ones.append(one)
    return top


def _spread(
    loops: Sequence[_Branch], first: int, size: int, depth: int, depths: int
) -> tuple[Ints, Ints]:
    """Return the kept row of each row, and its turn in the repeat of each depth."""
    parts: list[tuple[Ints, Ints]] = []

    def plain(begin: int, end: int) -> None:
        rows = np.arange(begin, end)
        parts.append((rows, np.zeros((depths, rows.size), dtype=np.int64)))

    at = first
    for loop in loops:
        plain(at, loop.first)
        row, turn = _spread(loop.inner, loop.first, loop.size, depth + 1, depths)
        turn = np.tile(turn, loop.count)
        turn[depth] = np.repeat(np.arange(loop.count), row.size)
        parts.append((np.tile(row, loop.count), turn))
        at = loop.first + loop.size
    plain(at, first + size)
    return np.concatenate([one[0] for one in parts]), np.concatenate(
        [one[1] for one in parts], axis=1
    )


def unfold_trace(folded: FoldedTrace) -> Trace:
    """Return the whole trace, each turn of a repeat with its own values and typical times.

    Attributes and operands are made when they are asked for. O(nodes + values).
    """
    of_row, turn = folded.turns
    layout = _layout_of(folded.layout, of_row)
    parts = split_values(layout, _values(folded, of_row, turn, layout))
    kept = pl.Series(of_row)
    names = numbered_names(folded.nodes["name"])
    nodes = folded.nodes[kept].with_columns(
        names_of(
            names._replace(pattern=names.pattern[of_row], first=layout.names, number=parts.names)
        ).alias("name"),
        *(pl.Series(name, parts.counters[:, k]) for k, name in enumerate(COUNTERS)),
    )
    nodes = with_own_times(nodes, folded.all_times.typical)
    return Trace(
        nodes=nodes, deps=_all_deps(folded, layout, of_row, parts.waits), groups=folded.groups,
        issues=folded.issues, provenance=folded.provenance, rank=folded.rank,
        world_size=folded.world_size, process=folded.process,
        given_attributes=_given(folded, layout, of_row, parts.tensors, parts.storages),
    )  # fmt: skip


def _entries(first: Ints, of_row: Ints) -> tuple[Ints, Ints]:
    """Return the entries of rows, one after the other, and where those of each begin."""
    sizes = np.diff(first)[of_row]
    begin = np.append(0, np.cumsum(sizes))
    return np.arange(begin[-1]) + np.repeat(first[of_row] - begin[:-1], sizes), begin


def _layout_of(layout: RowLayout, of_row: Ints) -> RowLayout:
    return RowLayout(*(_entries(first, of_row)[1] for first in layout))


def _values(folded: FoldedTrace, of_row: Ints, turn: Ints, layout: RowLayout) -> Ints:
    """Return the values of all rows: those of the first turn, and a step for each further one."""
    entry, _ = _entries(folded.layout.first, of_row)
    value = folded.values[entry]
    sizes = np.diff(layout.first)
    for depth in range(turn.shape[0]):
        steps = folded.steps.filter(depth=depth)
        if steps.height:
            step = np.zeros(folded.values.size, dtype=np.int64)
            step[steps["value"].to_numpy()] = steps["step"].to_numpy()
            value = value + step[entry] * np.repeat(turn[depth], sizes)
    return value


def _all_deps(folded: FoldedTrace, layout: RowLayout, of_row: Ints, src: Ints) -> pl.DataFrame:
    entry, first = _entries(folded.layout.deps, of_row)
    dst = np.repeat(np.arange(of_row.size), np.diff(first))
    stated = folded.deps[pl.Series(entry)]
    order = np.argsort(stated["block"].to_numpy(), kind="stable")
    rows = pl.Series(order)
    return DEPS.build(dst.size, {
        "src": src[order], "dst": dst[order], "kind": stated["kind"][rows],
        "inferred": stated["inferred"][rows],
    })  # fmt: skip


def _given(
    folded: FoldedTrace, layout: RowLayout, of_row: Ints, tensors: Ints, storages: Ints
) -> LazyAttributes:
    def others() -> Attributes:
        return _all_attributes(folded.attributes, of_row, folded.nodes.height)

    def operands() -> OperandColumns:
        entry, first = _entries(folded.layout.operands, of_row)
        row = np.repeat(np.arange(of_row.size), np.diff(first))
        frame = folded.operands[pl.Series(entry)].with_columns(
            row=pl.Series(row), tensor_id=pl.Series(tensors), storage_id=pl.Series(storages)
        )
        return operands_of_frame(frame, folded.types, folded.device)

    if not folded.operands.height:
        return LazyAttributes(others)
    return AttributesWithOperands(others, operands)


def _all_attributes(kept: Attributes, of_row: Ints, num_kept: int) -> Attributes:
    """Return the attributes of all rows, and first those of the trace itself."""
    of_trace = int(np.searchsorted(kept.node, 0))
    first = np.searchsorted(kept.node, np.arange(num_kept + 1)).astype(np.int64)
    entry, begin = _entries(first, of_row)
    node = np.repeat(np.arange(of_row.size), np.diff(begin))
    chosen = np.append(np.arange(of_trace), entry)
    return Attributes(
        np.append(np.full(of_trace, -1), node).astype(np.int32), kept.name[chosen],
        kept.type[chosen], kept.value[chosen], kept.length[chosen], kept.names, kept.buffers,
    )  # fmt: skip
