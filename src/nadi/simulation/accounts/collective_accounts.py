"""Times, bandwidths and efficiencies of the collectives of a simulated job.

Matched communication of a simulation: members of collectives, sends and receives.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from nadi.errors import checked
from nadi.simulation.collectives.bandwidth_bounds import UNKNOWN, least_time
from nadi.simulation.collectives.phases import Recipe
from nadi.simulation.engine.codes import NodeKind, PhaseKind
from nadi.simulation.engine.machine_state import SHAPE
from nadi.simulation.simulation import Simulation
from nadi.systems.nccl.measured import nccl_tests_factors
from nadi.trace.arrays import Bools, Floats, Ints
from nadi.trace.rows import number_rows
from nadi.trace.schema import COLLECTIVE_TIMES, COMM_TYPES


class Messages(NamedTuple):
    """Sends and their receives, as nodes; int64, shape (messages,), in order of arrival."""

    send: Ints
    receive: Ints


def meetings_of(simulation: Simulation) -> tuple[Ints, Ints]:
    """Find the members of collectives: node, and number of the collective from 0. O(n log n).

    The k-th collectives of a group's members are one. Where only some dimensions take part,
    those ranks are that have the same place in the others.
    """
    trail, size = simulation.trail, simulation.program.num_nodes
    node = np.flatnonzero(trail.kind[:size] == NodeKind.COLLECTIVE)
    place = _places(simulation, node)
    whole = np.flatnonzero(trail.kind[:size] == NodeKind.CUSTOM)
    number, _ = number_rows([
        np.concatenate([trail.peer[node], np.full(whole.size, -1)]),
        np.concatenate([trail.number[node], _counted(simulation, whole)]),
        np.concatenate([place, np.zeros(whole.size, dtype=np.int64)]),
    ])  # fmt: skip
    return np.concatenate([node, whole]), number


def _places(simulation: Simulation, node: Ints) -> Ints:
    """Return the lowest rank of the collective of each member, among all ranks."""
    trail = simulation.trail
    place = np.zeros(node.size, dtype=np.int64)
    for number, recipe in enumerate(trail.recipes):
        dims = {phase.dim for phase in recipe.phases}
        if -1 in dims:
            continue
        mine = trail.shapes[trail.key[node], SHAPE.recipe] == number
        mine = np.flatnonzero(mine & (trail.peer[node] == 0))
        rank = trail.rank[node[mine]]
        place[mine], stride = rank, 1
        for d, dimension in enumerate(simulation.system.network.dimensions):
            if d in dims:
                place[mine] -= rank // stride % dimension.size * stride
            stride *= dimension.size
    return place


def _counted(simulation: Simulation, node: Ints) -> Ints:
    """Count nodes of each rank from 0, in order of their start."""
    rank = simulation.trail.rank[node]
    order = np.lexsort((simulation.start[node], rank))
    _, first = np.unique(rank[order], return_index=True)
    number = np.empty(node.size, dtype=np.int64)
    sizes = np.diff(np.append(first, node.size))
    number[order] = np.arange(node.size) - np.repeat(first, sizes)
    return number


def messages_of_nodes(simulation: Simulation) -> Messages:
    """Find the receive of each send. O(nodes log nodes).

    Of those with the same ranks, size and tag the first to arrive is for the first receive.
    """
    trail, size = simulation.trail, simulation.program.num_nodes
    send = np.flatnonzero(trail.kind[:size] == NodeKind.SEND)
    receive = np.flatnonzero(trail.kind[:size] == NodeKind.RECEIVE)
    sent = np.lexsort((simulation.start[send], simulation.end[send], trail.key[send]))
    received = np.lexsort((simulation.start[receive], trail.key[receive]))
    send, receive = send[sent], receive[received]
    if send.size == receive.size:
        return Messages(send, receive)
    return _paired(trail.key, send, receive)


def _paired(key: Ints, send: Ints, receive: Ints) -> Messages:
    """Pair sends with receives where some messages are never received."""
    first_send = np.searchsorted(key[send], key[send])
    nth = np.arange(send.size) - first_send
    at = np.searchsorted(key[receive], key[send]) + nth
    there = at < np.searchsorted(key[receive], key[send], side="right")
    return Messages(send[there], receive[at[there]])


_ALGORITHMS = {
    PhaseKind.RING: "ring",
    PhaseKind.DIRECT: "direct",
    PhaseKind.HALVING_DOUBLING: "halvingDoubling",
    PhaseKind.TREE: "doubleBinaryTree",
}
_OWN_TRACE = "own trace"


class _Collectives(NamedTuple):
    """Arrays with an entry per collective; int64, shape (collectives,).

    ``example`` is the node of the member that entered last, of several of the lowest rank, and
    ``meeting`` the number that it has in ``meetings_of``.
    """

    example: Ints
    meeting: Ints
    first_entry: Ints
    last_entry: Ints
    end: Ints
    waiting: Ints


@checked
def collective_times(simulation: Simulation) -> pl.DataFrame:
    """Compute the times, bandwidths and efficiency of each collective.

    Collectives that are replayed with their recorded time are not included.

    Returns
    -------
    polars.DataFrame
        ``schema.COLLECTIVE_TIMES`` in order of the first entry; O(nodes log nodes).
    """
    program, trail = simulation.program, simulation.trail
    found = _find(simulation)
    node = found.example
    comm_type = pl.Series(COMM_TYPES).gather(program.comm_type[node])
    size = np.maximum(program.comm_bytes[node], 0)
    moved = np.where((comm_type == "barrier").to_numpy(), 1, size)  # whatever is stated
    shapes = _shapes(simulation, node, moved)
    members, bound = shapes.members[shapes.which], shapes.bound[shapes.which]
    time = found.end - found.last_entry
    whole, factor = _volumes(comm_type, size, members)
    bandwidth = _quotient(whole, time, (time > 0) & (whole > 0))
    met = (
        trail.kind[node] == NodeKind.COLLECTIVE
    )  # others are traces of their own, counted in order
    # a group of all ranks is the same as none, whatever its name
    group = np.where(met & (trail.peer[node] > 0), program.group[node] + 1, 0)
    lowest = np.unique(simulation.like, return_index=True)[1]  # who stands for others
    alone = np.zeros((1, 0), dtype=np.int64)
    names = [simulation.group_label(group) for group in range(len(program.group_names))]
    alike = [simulation.copies.get(name, alone) for name in program.group_names]
    copies = [1, *(ranks.shape[0] for ranks in alike)]
    columns = {
        "type": comm_type,
        "algorithm": pl.Series(shapes.algorithm, dtype=pl.String).gather(shapes.which),
        "group": pl.Series(["", *names], dtype=pl.String).gather(group),
        "number": np.where(met, trail.number[node], found.meeting),
        "members": members,
        "bytes": size,
        "first_entry": found.first_entry,
        "last_entry": found.last_entry,
        "last_rank": lowest[program.rank[node]],
        "end": found.end,
        "time": time,
        "waiting": found.waiting,
        "bandwidth": bandwidth,
        "bus_bandwidth": np.where((bandwidth >= 0) & (factor > 0), bandwidth * factor, -1.0),
        "bound": bound,
        "fraction": _quotient(bound, time, (time > 0) & (bound >= 0)),
        "copies": np.array(copies, dtype=np.int64)[group],
    }
    table = COLLECTIVE_TIMES.build(node.size, columns)
    is_one_of_all = program.num_ranks == 1 < simulation.cycles.size
    return _of_all(table, shapes) if is_one_of_all and not simulation.copies else table


def _of_all(table: pl.DataFrame, shapes: _Shapes) -> pl.DataFrame:
    """Repeat the collectives of a representative rank for the ranks that it represents."""
    lowest = [shapes.lowest[which] for which in shapes.which.tolist()]
    row = np.repeat(np.arange(table.height), [ranks.size for ranks in lowest])
    ranks = np.concatenate([*lowest, np.zeros(0, dtype=np.int64)])
    return table[row].with_columns(last_rank=pl.Series(ranks, dtype=pl.Int64))


def _quotient(part: npt.ArrayLike, whole: Ints, known: Bools) -> Floats:
    """Divide where both values are known, else return -1."""
    out = np.full(whole.size, UNKNOWN)
    return np.asarray(np.divide(part, whole, out=out, where=known))


def _find(simulation: Simulation) -> _Collectives:
    """Find the members and times of each collective, in order of the first entry."""
    program, start, end = simulation.program, simulation.start, simulation.end
    node, number = meetings_of(simulation)
    if not node.size:
        return _Collectives(*(np.zeros(0, dtype=np.int64) for _ in _Collectives._fields))
    # the member that entered last comes first, of several the one of the lowest rank
    order = np.lexsort((program.rank[node], -start[node], number))
    node, number = node[order], number[order]
    first = np.flatnonzero(np.diff(number, prepend=-1))
    entry, last = np.minimum.reduceat(start[node], first), start[node[first]]
    # a member that finished before the last one entered did not wait for it
    until = np.minimum(last[number], end[node])
    found = _Collectives(
        node[first], np.arange(first.size), entry, last, np.maximum.reduceat(end[node], first),
        np.add.reduceat(until - start[node], first),
    )  # fmt: skip
    by_entry = np.lexsort((found.example, found.first_entry))
    return _Collectives(*(column[by_entry] for column in found))


class _Shapes(NamedTuple):
    """Common values of collectives of one shape and group, and the shape of each.

    ``lowest`` are the ranks that are the lowest of their collective, where all do one.
    """

    which: Ints
    lowest: list[Ints]
    members: Ints
    algorithm: list[str]
    bound: Floats


def _shapes(simulation: Simulation, node: Ints, size: Ints) -> _Shapes:
    """Compute each shape of a group once; custom collectives add one more."""
    trail, num_ranks = simulation.trail, simulation.cycles.size
    own_trace = trail.kind[node] != NodeKind.COLLECTIVE
    pair = trail.key[node] * len(trail.group_members) + trail.peer[node]
    pair[own_trace] = -1
    different, first, which = np.unique(pair, return_index=True, return_inverse=True)
    members, algorithms, bounds, lowest = [], [], [], []
    for code, at in zip(different.tolist(), first.tolist(), strict=True):
        if code < 0:
            members.append(num_ranks)
            algorithms.append(_OWN_TRACE)
            bounds.append(UNKNOWN)
            lowest.append(np.zeros(1, dtype=np.int64))
            continue
        shape, group = divmod(code, len(trail.group_members))
        recipe = trail.recipes[trail.shapes[shape, SHAPE.recipe]]
        ranks = trail.group_members[group]
        lowest.append(ranks[:1] if group else _lowest(simulation, recipe))
        members.append(ranks.size if group else num_ranks // lowest[-1].size)
        names = [_ALGORITHMS.get(phase.algorithm, phase.name) for phase in recipe.phases]
        algorithms.append(", ".join(dict.fromkeys(names)))
        bounds.append(least_time(simulation.system, recipe, int(size[at]), ranks))
    return _Shapes(
        which.reshape(-1), lowest, np.array(members, dtype=np.int64), algorithms,
        np.array(bounds, dtype=np.float64),
    )  # fmt: skip


def _lowest(simulation: Simulation, recipe: Recipe) -> Ints:
    """Return the lowest rank of each collective of all: they may differ in some dimensions only."""
    dims = {phase.dim for phase in recipe.phases}
    ranks = np.arange(simulation.cycles.size)
    if -1 in dims:
        return ranks[:1]
    stride, is_lowest = 1, np.ones(ranks.size, dtype=np.bool_)
    for d, dimension in enumerate(simulation.system.network.dimensions):
        if d in dims:
            is_lowest &= ranks // stride % dimension.size == 0
        stride *= dimension.size
    return ranks[is_lowest]


def _volumes(comm_type: pl.Series, size: Ints, members: Ints) -> tuple[Ints, Floats]:
    """Return the size of each collective as in nccl-tests, and its bus bandwidth factor.

    The size is that of the larger of a member's input and output; the factor is 0 where none is
    defined.
    """
    kinds = pl.DataFrame({"type": comm_type.cast(pl.String), "members": members})
    known = kinds.unique()
    factors = [nccl_tests_factors(*kind) for kind in known.iter_rows()]
    found = kinds.join(
        known.with_columns(
            whole=pl.Series([pair[0] for pair in factors], dtype=pl.Int64),
            bus=pl.Series([pair[1] for pair in factors], dtype=pl.Float64),
        ),
        on=["type", "members"], how="left", maintain_order="left",
    )  # fmt: skip
    return size * found["whole"].to_numpy(), found["bus"].to_numpy()


def sum_by_type(collectives: pl.DataFrame) -> pl.DataFrame:
    """Sum the collectives of each type, as returned by ``collective_times``.

    Returns
    -------
    polars.DataFrame
        In order of time: ``type``, ``algorithm``, ``members`` (a list of the different numbers),
        ``count``, ``bytes``, ``time``, ``waiting`` and ``bound``, the sums of
        ``schema.COLLECTIVE_TIMES``; ``bandwidth`` and ``bus_bandwidth``, weighted with time, and
        ``fraction``, the sum of bounds divided by the sum of times: -1 where any is unknown.
    """
    return _summed(collectives, ["type", "algorithm"])


def sum_by_group(collectives: pl.DataFrame) -> pl.DataFrame:
    """Sum the collectives of each process group, as :func:`sum_by_type` with ``group``."""
    return _summed(collectives, ["group"])


def _summed(table: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    time, copies = pl.col("time"), pl.col("copies")
    lasts = time > 0

    def weighted(name: str) -> pl.Expr:
        known = pl.col(name).filter(lasts)
        weight = (time * copies).filter(lasts)
        mean = (known * weight).sum() / weight.sum()
        return pl.when(lasts.any() & (known >= 0).all()).then(mean).otherwise(-1.0).alias(name)

    bound = pl.col("bound")
    whole = pl.when((bound >= 0).all()).then((bound * copies).sum()).otherwise(-1.0)
    return (
        table.with_columns(pl.col("type", "algorithm", "group").cast(pl.String))
        .group_by(keys, maintain_order=True)
        .agg(
            pl.col("members").unique().sort(),
            copies.sum().alias("count"),
            (pl.col("bytes", "time", "waiting") * copies).sum(),
            weighted("bandwidth"),
            weighted("bus_bandwidth"),
            whole.alias("bound"),
        )
        .with_columns(
            pl.when((time > 0) & (bound >= 0)).then(bound / time).otherwise(-1.0).alias("fraction")
        )
        .sort("time", descending=True, maintain_order=True)
    )
