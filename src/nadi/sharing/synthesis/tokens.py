"""Operations as tokens: what they are and what they wait for, without times and sizes.

Equal tokens do the same: on the same thread or stream of their rank, in a process group of the same
form, after operations that stand at the same places before them. Sizes are only told apart by the
order in which the operations of a job meet them, so that jobs of another width have equal tokens.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from nadi.sharing.synthesis.job_columns import JobColumns, RankColumns
from nadi.trace.arrays import Bools, Ints
from nadi.trace.rows import number_rows

WORLD: tuple[int, ...] = ()
"""The form of the group of all ranks."""
_NO_LANE = -1


class Token(NamedTuple):
    """What an operation does."""

    label: str  # its name, with ``#`` for numbers
    # kind, comm_type, op_class, dtype: as in ``RankColumns``
    kind: int
    comm_type: int
    op_class: int
    dtype: int
    is_cpu: bool  # whether it runs on the host
    thread: int  # the thread, counted by when the rank first uses it; -1 for none
    stream: int  # its number; -1 for none
    group: tuple[int, ...]  # form of its process group, as of ``form_of``
    nth_group: int  # which of the rank's groups of this form, by first use; -1 for none
    peer: int  # rank of the other end of a message less the own rank; 0 for none
    size: int  # which size of operations with this name it has, by first use in the job
    # operations that it waits for: lane, and how many operations of it come between
    waits: tuple[tuple[int, int], ...]

    @property
    def lane(self) -> int:
        """Number of its thread (odd) or stream (even); -1 for none."""
        return lane_number(self.thread, self.stream)


class RankTokens(NamedTuple):
    """A rank as tokens: int64, shape (operations,), positions in the vocabulary."""

    token: Ints
    columns: RankColumns


class Vocabulary:
    """Every different token of some jobs, numbered as they come."""

    def __init__(self) -> None:
        self.number: dict[Token, int] = {}

    @property
    def tokens(self) -> list[Token]:
        """The tokens in order of their numbers."""
        return list(self.number)

    def encode(self, columns: JobColumns) -> list[RankTokens]:
        """Return the tokens of each rank; ranks that share columns share them. O(n log n)."""
        seen: dict[int, dict[tuple[int, ...], int]] = {}
        return [
            RankTokens(self._rank(rank, number, columns, seen), rank)
            for number, rank in enumerate(columns.ranks)
        ]

    def _rank(
        self, rank: RankColumns, number: int, columns: JobColumns,
        seen: dict[int, dict[tuple[int, ...], int]],
    ) -> Ints:  # fmt: skip
        thread, lane = _lanes_of(rank)
        talks = rank.kind != _COMP
        peer = np.where(rank.peer >= 0, rank.peer - number, 0)
        nth, forms = _groups(rank, columns, talks & (rank.peer < 0))
        size = _sizes(rank, seen)
        waits, texts = _waits(rank, lane)
        parts = [
            rank.label, rank.kind, rank.comm_type, rank.op_class, rank.dtype,
            rank.is_cpu.astype(np.int64), thread, rank.stream, nth, peer, size, waits,
        ]  # fmt: skip
        which, first = number_rows(parts)
        own = np.empty(first.size, dtype=np.int64)
        for place, row in enumerate(first.tolist()):
            token = Token(
                columns.labels[rank.label[row]], int(rank.kind[row]), int(rank.comm_type[row]),
                int(rank.op_class[row]), int(rank.dtype[row]), bool(rank.is_cpu[row]),
                int(thread[row]), int(rank.stream[row]), *forms.get(int(nth[row]), (WORLD, -1)),
                int(peer[row]), int(size[row]), texts[int(waits[row])],
            )  # fmt: skip
            own[place] = self.number.setdefault(token, len(self.number))
        return own[which]


_COMP = 4


def alike_tokens(tokens: Sequence[Token]) -> Ints:
    """Return of each token the first that is like it but for how far apart ranks are.

    That depends on the number of ranks of a job. What comes first stays so if tokens are added.
    """
    known: dict[Token, int] = {}
    found = []
    for number, one in enumerate(tokens):
        peer = (one.peer > 0) - (one.peer < 0)
        like = one._replace(peer=peer, group=(0,) * len(one.group))
        found.append(known.setdefault(like, number))
    return np.array(found, dtype=np.int64)


def form_of(ranks: tuple[int, ...], world_size: int) -> tuple[int, ...]:
    """Return the form of a process group: its members less the first; empty for all ranks.

    Of members at even distances the first two: so groups of another number of ranks are alike.
    """
    if len(ranks) == world_size:
        return WORLD
    apart = {after - before for before, after in pairwise(ranks)}
    return tuple(one - ranks[0] for one in (ranks[:2] if len(apart) == 1 else ranks))


def lane_number(thread: int, stream: int) -> int:
    """Return the number of a thread (odd) or stream (even); -1 for neither."""
    return 2 * stream if stream >= 0 else 2 * thread + 1 if thread >= 0 else _NO_LANE


def _lanes_of(rank: RankColumns) -> tuple[Ints, Ints]:
    """Return the thread of each operation, by first use, and its lane; -1 for none."""
    known, first, place = np.unique(rank.thread, return_index=True, return_inverse=True)
    own = (known >= 0) & np.isin(known, rank.thread[rank.stream < 0])
    order = np.argsort(np.where(own, first, rank.size), kind="stable")
    number = np.full(known.size, -1, dtype=np.int64)
    number[order[: own.sum()]] = np.arange(own.sum())
    thread = np.where(rank.stream < 0, number[place.reshape(-1)], -1)
    lane = np.where(rank.stream >= 0, 2 * rank.stream, np.where(thread >= 0, 2 * thread + 1, -1))
    return thread, lane


def _groups(
    rank: RankColumns, columns: JobColumns, collective: Bools
) -> tuple[Ints, dict[int, tuple[tuple[int, ...], int]]]:
    """Return a number of each operation's group, and the form and place that it stands for."""
    world = len(columns.ranks)
    rows = np.flatnonzero(collective)
    seen: dict[int, int] = {}
    count: dict[tuple[int, ...], int] = {}
    forms: dict[int, tuple[tuple[int, ...], int]] = {}
    nth = np.full(rank.size, -1, dtype=np.int64)
    for row, group in zip(rows.tolist(), rank.group[rows].tolist(), strict=True):
        if group not in seen:
            form = form_of(columns.groups[group], world) if group >= 0 else WORLD
            place = 0 if form == WORLD else count.get(form, 0)
            count[form] = place + 1
            seen[group] = len(seen)
            forms[seen[group]] = form, place
        nth[row] = seen[group]
    return nth, forms


def _sizes(rank: RankColumns, seen: dict[int, dict[tuple[int, ...], int]]) -> Ints:
    """Return a number for each size of operations of a name, as the job has them."""
    parts = [rank.label, rank.flops, rank.bytes, rank.comm_bytes, *rank.shape.T]
    which, first = number_rows(parts)
    rows = np.stack(parts, axis=1)[first].tolist()
    number = np.empty(first.size, dtype=np.int64)
    for place in np.argsort(first, kind="stable").tolist():
        label, *size = rows[place]
        known = seen.setdefault(label, {})
        number[place] = known.setdefault(tuple(size), len(known))
    return number[which]


def _waits(rank: RankColumns, lane: Ints) -> tuple[Ints, dict[int, tuple[tuple[int, int], ...]]]:
    """Return a number of what each operation waits for, and what it stands for."""
    between = np.empty(rank.src.size, dtype=np.int64)
    of = lane[rank.src]
    for one in np.unique(of).tolist():
        rows = np.flatnonzero(lane == one)
        mine = of == one
        before = np.searchsorted(rows, rank.dst[mine])
        between[mine] = before - 1 - np.searchsorted(rows, rank.src[mine])
    pair, first = number_rows([of, between])
    pairs = [(int(of[row]), int(between[row])) for row in first.tolist()]
    begin = np.searchsorted(rank.dst, np.arange(rank.size + 1))
    degree = np.diff(begin)
    single = np.flatnonzero(degree == 1)
    number = np.zeros(rank.size, dtype=np.int64)  # 0 for none, then single ones, then others
    number[single] = 1 + pair[begin[single]]
    texts: dict[int, tuple[tuple[int, int], ...]] = {0: ()}
    texts |= {1 + place: (one,) for place, one in enumerate(pairs)}
    known: dict[tuple[tuple[int, int], ...], int] = {}
    for row in np.flatnonzero(degree > 1).tolist():
        own = tuple(sorted(pairs[one] for one in pair[begin[row] : begin[row + 1]].tolist()))
        number[row] = known.setdefault(own, 1 + len(pairs) + len(known))
    texts |= {place: own for own, place in known.items()}
    return number, texts
