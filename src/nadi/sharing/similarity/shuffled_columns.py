"""A job that has all amounts of another, and nothing of what belongs together: the naive guess.

Each column of the operations is shuffled on its own. What is as far from a job as this has learned
nothing of it but histograms.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nadi.sharing.synthesis.job_columns import JobColumns, RankColumns
from nadi.sharing.synthesis.storage_lives import Lives
from nadi.trace.arrays import Bools, Ints
from nadi.trace.schema import COMM_TYPES, NODE_KINDS

__all__ = ["independent_sample"]

_COMP, _SEND, _RECV, _COLL = (
    NODE_KINDS.index(name) for name in ("COMP", "COMM_SEND", "COMM_RECV", "COMM_COLL")
)
_TYPE_SEND, _TYPE_RECV = COMM_TYPES.index("send"), COMM_TYPES.index("recv")
_APART = ("label", "duration", "flops", "bytes", "op_class", "dtype", "shape", "layer")


class _Event(NamedTuple):
    """One communication: its group or its two ranks, its type and size."""

    group: int
    ranks: tuple[int, ...]
    comm_type: int
    size: int
    tag: int = 0


def independent_sample(columns: JobColumns, seed: int = 0) -> JobColumns:
    """Return a job in which each property of an operation is drawn independently of the others.

    Names, durations, FLOPs, bytes, threads and streams of the computations of a rank are those of
    the job, each shuffled; types and sizes of communication, too. Ranks take part in as much
    communication as before, in a random order that is the same on all ranks, so that the job can
    be simulated. As many operations wait as before, for random earlier ones.

    Parameters
    ----------
    seed
        Equal seeds give equal jobs.
    """
    random = np.random.default_rng(seed)
    events = _shuffled(_events(columns), random)
    ranks = [
        _rank(rank, number, events, random) for number, rank in enumerate(columns.ranks)
    ]  # fmt: skip
    return columns._replace(ranks=tuple(ranks))


def _events(columns: JobColumns) -> list[_Event]:
    """Return the communication of a job, each once: of its lowest rank, or its sender."""
    found = []
    everybody = tuple(range(len(columns.ranks)))
    for number, rank in enumerate(columns.ranks):
        for row in np.flatnonzero((rank.kind == _COLL) | (rank.kind == _SEND)).tolist():
            group = int(rank.group[row])
            members = columns.groups[group] if group >= 0 else everybody
            what = int(rank.comm_type[row]), int(rank.comm_bytes[row])
            if rank.kind[row] == _SEND:
                found.append(_Event(-1, (number, int(rank.peer[row])), *what))
            elif members[0] == number:
                found.append(_Event(group, members, *what))
    return found


def _shuffled(events: list[_Event], random: np.random.Generator) -> list[_Event]:
    """Return the events in random order, with types and sizes of others."""
    mixed: list[_Event] = list(events)
    for is_message in (False, True):
        own = [at for at, one in enumerate(events) if (one.comm_type == _TYPE_SEND) == is_message]
        types = [events[at].comm_type for at in random.permutation(own).astype(int).tolist()]
        sizes = [events[at].size for at in random.permutation(own).astype(int).tolist()]
        for at, comm_type, size in zip(own, types, sizes, strict=True):
            mixed[at] = events[at]._replace(comm_type=comm_type, size=size)
    order = random.permutation(len(mixed)).tolist()
    return [mixed[at]._replace(tag=tag) for tag, at in enumerate(order)]


def _rank(
    rank: RankColumns, number: int, events: list[_Event], random: np.random.Generator
) -> RankColumns:
    computes = np.flatnonzero(rank.kind == _COMP)
    talks = np.flatnonzero(rank.kind != _COMP)
    own = [one for one in events if number in one.ranks]
    size = computes.size + len(own)
    is_event = np.zeros(size, dtype=np.bool_)
    is_event[random.choice(size, len(own), replace=False)] = True
    drawn: dict[str, Any] = {}
    for name in _APART:
        drawn[name] = _filled(rank, name, computes, talks, is_event, random)
    lane = random.permutation(computes)
    at = random.permutation(talks)[: len(own)] if len(own) <= talks.size else talks
    at = np.resize(at, len(own))
    for name in ("thread", "stream", "is_cpu"):
        column = getattr(rank, name)
        mixed = np.empty(size, dtype=column.dtype)
        mixed[~is_event], mixed[is_event] = column[lane], column[at]
        drawn[name] = mixed
    minus = np.full(size, -1, dtype=np.int64)
    kind, comm_type = np.full(size, _COMP), np.zeros(size, dtype=np.int64)
    comm_bytes, group, peer, tag = minus.copy(), minus.copy(), minus.copy(), minus.copy()
    for row, one in zip(np.flatnonzero(is_event).tolist(), own, strict=True):
        is_message = one.comm_type == _TYPE_SEND
        sends = is_message and one.ranks[0] == number
        kind[row] = _COLL if not is_message else _SEND if sends else _RECV
        comm_type[row] = _TYPE_RECV if is_message and not sends else one.comm_type
        comm_bytes[row], group[row] = one.size, one.group
        if is_message:
            peer[row], tag[row] = one.ranks[1] if sends else one.ranks[0], one.tag
    src, dst = _random_waits(rank, size, random)
    return rank._replace(
        kind=kind, comm_type=comm_type, comm_bytes=comm_bytes, group=group, peer=peer, tag=tag,
        step=np.full(size, -1), src=src, dst=dst,
        lives=_random_lives(rank, size, random), **drawn,
    )  # fmt: skip


def _filled(
    rank: RankColumns, name: str, computes: Ints, talks: Ints, is_event: Bools,
    random: np.random.Generator,
) -> Ints:  # fmt: skip
    column = getattr(rank, name)
    mixed: Ints = np.full((is_event.size, *column.shape[1:]), -1, dtype=np.int64)
    mixed[~is_event] = column[random.permutation(computes)]
    if talks.size:
        mixed[is_event] = column[random.choice(talks, int(is_event.sum()))]
    return mixed


def _random_waits(rank: RankColumns, size: int, random: np.random.Generator) -> tuple[Ints, Ints]:
    degree = random.permutation(np.bincount(rank.dst, minlength=rank.size))
    degree = np.resize(degree, size)
    dst = np.repeat(np.arange(size), degree)
    dst = dst[dst > 0]
    src = (random.random(dst.size) * dst).astype(np.int64)
    pairs = np.unique(dst * size + src)
    return pairs % size, pairs // size


def _random_lives(rank: RankColumns, size: int, random: np.random.Generator) -> Lives:
    """Return lives as long and storages as large as before, at random."""
    lives = rank.lives
    lasts = lives.begin < 0
    length = random.permutation((lives.end - lives.begin)[~lasts])
    begin = (random.random(length.size) * size).astype(np.int64)
    return Lives(
        np.concatenate([lives.bytes[lasts], random.permutation(lives.bytes[~lasts])]),
        np.concatenate([lives.begin[lasts], begin]),
        np.minimum(np.concatenate([lives.end[lasts], begin + length]), size - 1),
        np.concatenate([np.zeros(int(lasts.sum()), dtype=np.int64), begin]),
    )
