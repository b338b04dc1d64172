"""A job of many ranks in a few traces; ``ranks.json`` says which ranks do the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import polars as pl

from nadi.errors import FormatError, InputError, PairError
from nadi.formats import files as container
from nadi.formats.trace_files import read
from nadi.model.arrays import Bools, Ints
from nadi.model.schema import DEPS, GROUPS, ISSUES, NODES
from nadi.model.trace import Trace

__all__ = ["RANK_MAP", "RankMap", "Shared", "device_part", "read_rank_map", "traces_of_ranks"]

RANK_MAP = "ranks.json"
_MOST_RANKS = 2**24
_Rank = Annotated[int, msgspec.Meta(ge=0, lt=_MOST_RANKS)]


class Shared(msgspec.Struct, frozen=True):
    """Ranks that do the same.

    Attributes
    ----------
    trace
        Name of the file of one of them, beside ``ranks.json``.
    ranks
        First and one past the last of each range of ranks.
    """

    trace: str
    ranks: list[tuple[_Rank, Annotated[int, msgspec.Meta(ge=1, le=_MOST_RANKS)]]]


class RankMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which rank does the same as which trace.

    Attributes
    ----------
    world_size
        Number of ranks of the job.
    shared
        The traces and their ranks; each rank occurs at most once.
    families
        Process groups by what they are for, such as ``mesh_tp``: the members of each. Groups are
        numbered over all families, from 1; a trace describes its group by its family, and another
        rank has the group of the same family in its place.
    """

    world_size: Annotated[int, msgspec.Meta(ge=1, le=_MOST_RANKS)]
    shared: list[Shared]
    families: dict[str, list[list[_Rank]]] = {}
    format: str = "nadi ranks"
    version: int = 1

    @property
    def known(self) -> Bools:
        """Which ranks have a trace; bool, shape (world_size,)."""
        found = np.zeros(self.world_size, dtype=np.bool_)
        for one in self.shared:
            for first, end in one.ranks:
                found[first:end] = True
        return found


def read_rank_map(folder: Path) -> RankMap | None:
    """Read the map of a folder; None if it has none.

    Raises
    ------
    FormatError
        If it is not one that this Nadi reads.
    """
    path = folder / RANK_MAP
    if not path.is_file():
        return None
    content = container.read_file(path).content.tobytes()
    try:
        return msgspec.json.decode(content, type=RankMap)
    except msgspec.MsgspecError as error:
        raise FormatError(str(path), str(error), "record the job again") from None


def traces_of_ranks(
    folder: Path, found: RankMap, progress: Callable[[str], None] = lambda _: None
) -> list[Trace]:
    """Return the trace of each rank; ranks that do the same share its tables.

    Of each trace only what runs on the device is left (:func:`device_part`). Groups and peers are
    those of the rank.

    Raises
    ------
    PairError
        If some ranks have no trace, or two.
    InputError
        If a trace cannot be read.
    """
    known = found.known
    if not known.all():
        some = int(np.argmin(known))
        raise PairError(
            str(folder), f"rank {some} and {int((~known).sum()) - 1:,} others of "
            f"{found.world_size:,} are not recorded", "record all ranks",
        )  # fmt: skip
    traces: list[Trace | None] = [None] * found.world_size
    places = _places(found)
    for one in found.shared:
        path = folder / one.trace
        if path.parent != folder:
            raise FormatError(str(folder / RANK_MAP), f"{one.trace!r} is no name of a file", "")
        progress(f"reading {one.trace}")
        base = device_part(read(path))
        for rank in (rank for first, end in one.ranks for rank in range(first, end)):
            traces[rank] = _trace_of(base, rank, found, places)
    return [trace for trace in traces if trace is not None]


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
    peers = {name: nodes[name].to_numpy() for name in ("src", "dst")}
    if any((peer >= 0).any() for peer in peers.values()):
        nodes = nodes.with_columns(
            pl.Series(name, _moved(peer, rank - base.rank, found.world_size))
            for name, peer in peers.items()
        )
    if not base.groups.height and nodes is base.nodes:
        return base if base.rank < 0 else replace(base, rank=rank, issues=ISSUES.empty())
    rows = [
        _group_of(base, rank, name, family, found, places)
        for name, family in base.groups.select("name", "description").iter_rows()
    ]
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


def _moved(peer: Ints, by: int, world_size: int) -> Ints:
    moved = np.where(peer >= 0, peer + by, -1)
    if ((moved >= world_size) | ((peer >= 0) & (moved < 0))).any():
        raise InputError(
            RANK_MAP, "a rank would send to a rank that does not exist", "record the job again"
        )
    return moved


def _group_of(
    base: Trace, rank: int, name: str, family: str, found: RankMap,
    places: Mapping[str, tuple[int, Mapping[int, list[int]]]],
) -> tuple[int, Sequence[int]]:  # fmt: skip
    """Return number and members of the group that a rank has where the base has another."""
    first, of_rank = places.get(family, (0, {}))
    own, others = of_rank.get(base.rank, []), of_rank.get(rank, [])
    if not name.isdecimal() or int(name) - first not in own or len(own) != len(others):
        raise InputError(
            RANK_MAP, f"rank {rank} has no group {family!r} as rank {base.rank} has",
            "record the job again",
        )  # fmt: skip
    number = others[own.index(int(name) - first)]
    return first + number, found.families[family][number]
