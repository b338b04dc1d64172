"""A job of many ranks in a few traces; ``ranks.json`` says which ranks do the same."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import polars as pl

from nadi.errors import FormatError, InputError, PairError, UsageError
from nadi.files import files as container
from nadi.files.files import available_memory
from nadi.files.settings_text import decode_json
from nadi.files.trace_files import read
from nadi.trace.arrays import Ints
from nadi.trace.groups import RankGroups
from nadi.trace.rows import number_rows
from nadi.trace.schema import DEPS, GROUPS, ISSUES, MATCHES, NODES
from nadi.trace.trace import Job, Trace
from nadi.units import format_bytes

RANK_MAP = "ranks.json"
_MOST_RANKS = 2**24
# of memory, for a rank that has a trace of its own; and for each node of it
_BYTES_OF_TRACE, _BYTES_OF_PEERS = 4096, 16
_MESSAGES = ["COMM_SEND", "COMM_RECV"]
_Rank = Annotated[int, msgspec.Meta(ge=0, lt=_MOST_RANKS)]


class Shared(msgspec.Struct, frozen=True):
    """Ranks that do the same."""

    trace: str  # name of the file of one of them, beside ``ranks.json``
    # first and one past the last of each range of ranks
    ranks: list[tuple[_Rank, Annotated[int, msgspec.Meta(ge=1, le=_MOST_RANKS)]]]


class RankMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which rank does the same as which trace."""

    world_size: Annotated[int, msgspec.Meta(ge=1, le=_MOST_RANKS)]  # number of ranks of the job
    shared: list[Shared]  # the traces and their ranks; each rank occurs at most once
    # process groups by what they are for, such as ``mesh_tp``: the members of each. Groups are
    # numbered over all families, from 1; a trace describes its group by its family, and another
    # rank has the group of the same family in its place.
    families: dict[str, list[list[_Rank]]] = {}
    format: str = "nadi ranks"
    version: int = 1

    def entries(self) -> Ints:
        """Return which of ``shared`` each rank is in; int64, shape (world_size,), -1 for none.

        - Raises FormatError if a range is none of ranks, or a rank is in two.
        """
        found = np.full(self.world_size, -1, dtype=np.int64)
        left = self.world_size
        for number, one in enumerate(self.shared):
            for first, end in one.ranks:
                left -= end - first
                if not first < end <= self.world_size or left < 0:
                    what = (
                        f"[{first}, {end}] of {one.trace!r} has ranks that are none, or told twice"
                    )
                    raise FormatError(RANK_MAP, what, "record the job again")
                found[first:end] = number
        return found


def read_rank_map(folder: Path) -> RankMap | None:
    """Read the map of a folder; None if it has none.

    - Raises FormatError if it is not one that this Nadi reads.
    """
    path = folder / RANK_MAP
    if not path.is_file():
        return None
    content = container.read_file(path).content.tobytes()
    return decode_json(content, RankMap, str(path), "record the job again")


def job_of_ranks(
    folder: Path, found: RankMap, progress: Callable[[str], None] = lambda _: None
) -> Job | list[Trace]:
    """Return the job of all ranks; ranks that do the same share traces.

    Of each trace only what runs on the device is left (:func:`device_part`).

    - Returns Job or list of Trace: With ``rank_groups``, if the groups of each family have one size
      and share no rank; else the trace of each rank, with its own groups.
    - Raises PairError if some ranks have no trace.
    - Raises InputError if a trace cannot be read, or does not fit the map.
    """
    entry = found.entries()
    known = entry >= 0
    if not known.all():
        some = int(np.argmin(known))
        raise PairError(
            str(folder), f"rank {some} and {int((~known).sum()) - 1:,} others of "
            f"{found.world_size:,} are not recorded", "record all ranks",
        )  # fmt: skip
    different: dict[str, Trace] = {}  # by the name of its file
    for one in found.shared:
        path = folder / one.trace
        if path.parent != folder:
            raise FormatError(str(folder / RANK_MAP), f"{one.trace!r} is no name of a file", "")
        if one.trace not in different:
            progress(f"reading {one.trace}")
            different[one.trace] = base = device_part(read(path))
            if base.rank >= found.world_size:
                what = f"it is rank {base.rank} of a job of {found.world_size:,}"
                raise PairError(str(path), what, "record the job again")
    bases = list(different.values())
    number = {name: at for at, name in enumerate(different)}
    entry = np.array([number[one.trace] for one in found.shared], dtype=np.int64)[entry]
    roles = _roles(found, bases)
    if roles is not None:
        return _job_of_roles(bases, entry, roles)
    _check_room(found, bases, entry)
    places = _places(found)
    return [_trace_of(bases[of], rank, found, places) for rank, of in enumerate(entry.tolist())]


def _refuse_too_many(count: int, needed: int) -> None:
    """Raise InputError if traces of their own for so many ranks do not fit into free memory."""
    if needed > (room := available_memory()):
        what = f"{count:,} ranks have peers or groups of their own, which need "
        what += f"{format_bytes(needed)} of memory, and {format_bytes(room)} are free"
        raise InputError(RANK_MAP, what, "record a smaller job")


def _check_room(found: RankMap, bases: Sequence[Trace], entry: Ints) -> None:
    """Raise InputError if there is no room for a trace, and groups, for each rank."""
    largest = {name: max(map(len, groups), default=0) for name, groups in found.families.items()}
    count = np.bincount(entry, minlength=len(bases)).tolist()
    needed = 0
    for base, ranks in zip(bases, count, strict=True):
        members = sum(largest.get(name, 0) for name in base.groups["description"])
        needed += ranks * (_BYTES_OF_TRACE + _BYTES_OF_PEERS * base.nodes.height + 8 * members)
    _refuse_too_many(found.world_size, needed)


def _roles(found: RankMap, bases: Sequence[Trace]) -> RankGroups | None:
    """Return the groups that traces use by family; None if a family is none of equal groups."""
    used: set[str] = set()
    for base in dict.fromkeys(bases):
        used |= set(base.groups["description"])
    members = {}
    for name in sorted(used & set(found.families)):
        groups = found.families[name]
        flat = [rank for group in groups for rank in group]
        if len({len(group) for group in groups}) != 1 or len(set(flat)) < len(flat):
            return None
        members[name] = np.array(groups, dtype=np.int64)
    try:
        return RankGroups(members, found.world_size)
    except UsageError as error:
        raise FormatError(RANK_MAP, error.what, "record the job again") from None


def _job_of_roles(bases: Sequence[Trace], entry: Ints, roles: RankGroups) -> Job:
    """Let ranks share a trace whose groups are families, and whose peers are positions in them."""
    traces = np.empty(entry.size, dtype=object)
    order = np.argsort(entry, kind="stable")
    begin = np.searchsorted(entry[order], np.arange(1, len(bases)))
    for base, ranks in zip(bases, np.split(order, begin), strict=True):
        if ranks.size:
            number, moved = _moved(base, ranks, roles)
            made = np.empty(len(moved), dtype=object)
            for case, row in enumerate(moved):
                made[case] = _by_role(base, roles, row)
            traces[ranks] = made[number]
    return Job(tuple(traces.tolist()), MATCHES.empty(), ISSUES.empty(), rank_groups=roles)


def _moved(base: Trace, ranks: Ints, roles: RankGroups) -> tuple[Ints, list[list[int]]]:
    """Tell how much further than that of a trace's rank the positions of other ranks are.

    - Returns: Which of the different cases each rank is; and of each case by how much, in the group
      of all ranks and in each group of the trace, where messages are sent.
    """
    names = ("", *base.groups["description"])  # the group of all ranks comes first
    positions, nowhere = [], np.zeros_like(ranks)
    for name, used in zip(names, _messages_in(base), strict=True):
        if name and name not in roles.members:
            raise _no_group(int(ranks[0]), name)
        place, position = roles.place[name] if name else (None, None)
        if place is not None and min(place[ranks].min(), place[base.rank]) < 0:
            raise _no_group(int(ranks[np.argmin(place[ranks])]), name)
        own = ranks - base.rank if position is None else position[ranks] - position[base.rank]
        positions.append(own if used else nowhere)
    number, first = number_rows(positions)
    needed = first.size * (_BYTES_OF_TRACE + _BYTES_OF_PEERS * base.nodes.height)
    _refuse_too_many(first.size, needed)
    return number, np.stack([position[first] for position in positions], axis=1).tolist()


def _messages_in(base: Trace) -> list[bool]:
    """Return whether messages are sent in the group of all ranks, and in each other group."""
    is_message = base.nodes["kind"].is_in(_MESSAGES).to_numpy()
    used = set(base.column("group")[is_message].tolist())
    return [group in used for group in range(-1, base.groups.height)]


def _by_role(base: Trace, roles: RankGroups, moved: Sequence[int]) -> Trace:
    """Return a trace by role, for ranks whose position in each group is further by so much."""
    nodes, group = base.nodes, base.column("group")
    is_message = nodes["kind"].is_in(_MESSAGES).to_numpy()
    columns = {}
    for name in ("src", "dst"):
        peer = nodes[name].to_numpy().copy()
        for row, role in enumerate(("", *base.groups["description"]), -1):
            chosen = np.flatnonzero((group == row) & (peer >= 0))
            ends = roles.place[role][1][peer[chosen]] if role else peer[chosen]
            ends = ends + np.where(is_message[chosen], moved[row + 1], 0)
            size = roles.members[role].shape[1] if role else roles.world_size
            if ((ends < 0) | (ends >= size)).any():
                raise _no_peer()
            peer[chosen] = ends
        columns[name] = pl.Series(name, peer)
    groups = GROUPS.build(base.groups.height, {
        "name": base.groups["description"], "ranks": [[]] * base.groups.height,
    })  # fmt: skip
    return replace(
        base, nodes=nodes.with_columns(**columns), groups=groups, rank=-1,
        world_size=roles.world_size,
    )  # fmt: skip


def device_part(trace: Trace) -> Trace:
    """Return what a trace does on the device: operations without a stream are left out."""
    kept = trace.column("stream") >= 0
    new_row = np.where(kept, np.cumsum(kept) - 1, -1)
    nodes = trace.nodes.filter(pl.Series(kept))
    deps = trace.deps
    src, dst = new_row[deps["src"].to_numpy()], new_row[deps["dst"].to_numpy()]
    inside = (src >= 0) & (dst >= 0)
    parents = pl.Series("parent", np.full(nodes.height, -1, dtype=np.int64))
    return replace(
        trace,
        nodes=NODES.build(nodes.height, {**nodes.to_dict(), "parent": parents}),
        deps=DEPS.build(int(inside.sum()), {
            "src": src[inside], "dst": dst[inside], "kind": deps["kind"].filter(pl.Series(inside)),
        }),
        given_attributes=trace.attributes.moved(new_row),
    )  # fmt: skip


def _places(found: RankMap) -> dict[str, tuple[int, Mapping[int, list[int]]]]:
    """Return, by family, its first number, and the groups of each rank."""
    places: dict[str, tuple[int, Mapping[int, list[int]]]] = {}
    first = 1
    for name, groups in found.families.items():
        of_rank: dict[int, list[int]] = {}
        for number, members in enumerate(groups):
            for rank in members:
                of_rank.setdefault(rank, []).append(number)
        places[name] = first, of_rank
        first += len(groups)
    return places


def _trace_of(
    base: Trace, rank: int, found: RankMap,
    places: Mapping[str, tuple[int, Mapping[int, list[int]]]],
) -> Trace:  # fmt: skip
    if rank == base.rank:
        return base
    nodes = base.nodes
    rows = [
        _group_of(base, rank, name, family, found, places)
        for name, family in base.groups.select("name", "description").iter_rows()
    ]
    peers = {name: nodes[name].to_numpy() for name in ("src", "dst")}
    if any((peer >= 0).any() for peer in peers.values()):
        members = [ranks for _, ranks in rows]
        nodes = nodes.with_columns(
            pl.Series(name, _own_peers(base, peer, rank, members, found.world_size))
            for name, peer in peers.items()
        )
    if not base.groups.height and nodes is base.nodes:
        return base if base.rank < 0 else replace(base, rank=rank, issues=ISSUES.empty())
    groups = GROUPS.build(len(rows), {
        "name": [str(number) for number, _ in rows], "ranks": [members for _, members in rows],
        "description": base.groups["description"],
    })  # fmt: skip
    # what the program asked for is told once, with the trace of the rank that was recorded
    own = {"nodes": nodes, "groups": groups, "rank": rank, "issues": ISSUES.empty()}
    return Trace.of_checked(**{**_parts(base), **own})


def _parts(trace: Trace) -> dict[str, object]:
    names = (
        "nodes", "deps", "groups", "issues", "provenance", "rank", "world_size", "process",
        "given_attributes",
    )  # fmt: skip
    return {name: getattr(trace, name) for name in names}


def _own_peers(
    base: Trace, peer: Ints, rank: int, members: Sequence[Sequence[int]], world_size: int
) -> Ints:
    """Return the peers of messages at the same distance, and roots at the same position."""
    is_message = base.nodes["kind"].is_in(_MESSAGES).to_numpy() & (peer >= 0)
    found = np.where(is_message, peer + rank - base.rank, peer)
    if (is_message & ((found < 0) | (found >= world_size))).any():
        raise _no_peer()
    group = base.column("group")
    for row, ranks in enumerate(members):
        position = {one: k for k, one in enumerate(base.groups["ranks"][row].to_list())}
        for node in np.flatnonzero((group == row) & ~is_message & (peer >= 0)).tolist():
            found[node] = ranks[position[int(peer[node])]]
    return found


def _no_peer() -> InputError:
    what = "a rank would send to a rank that does not exist"
    return InputError(RANK_MAP, what, "record the job again")


def _no_group(rank: int, family: str) -> InputError:
    what = f"rank {rank} is in no group {family!r}, which ranks that do the same use"
    return InputError(RANK_MAP, what, "record the job again")


def _group_of(
    base: Trace, rank: int, name: str, family: str, found: RankMap,
    places: Mapping[str, tuple[int, Mapping[int, list[int]]]],
) -> tuple[int, Sequence[int]]:  # fmt: skip
    """Return number and members of the group that a rank has where the base has another."""
    first, of_rank = places.get(family, (0, {}))
    own, others = of_rank.get(base.rank, []), of_rank.get(rank, [])
    if not name.isdecimal() or int(name) - first not in own or len(own) != len(others):
        raise _no_group(rank, family)
    number = others[own.index(int(name) - first)]
    return first + number, found.families[family][number]
