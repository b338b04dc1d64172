"""A recorded rank as stages of a pipeline: each has some blocks, in the order of a schedule.

Each part of a step is put together of the nodes that are of a stage's blocks. What a node of
another stage was waited for is done by what came before it on its thread or stream.

How many bytes of tensors each stage of a recorded rank has at once.

Where a recorded model can be cut into stages: between layers, if one tensor is all that passes.

Layers are repeats in the sequence of operators of the forward. Their names and sizes have to be
equal, and each has a product or an attention. A cut is where only one tensor, of those that have a
gradient, was given before and is read after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, NoReturn

import numpy as np
import polars as pl

from nadi.errors import Parameter, UsageError
from nadi.jobs.class_rows import Origin, RankClass, typical_columns
from nadi.jobs.recorded_ranks import (
    Direction,
    KnownRank,
    Operators,
    RecordedLives,
    Sharing,
    peak_bytes,
)
from nadi.jobs.recorded_shares import (
    TENSOR_PARALLEL,
    SharedRank,
    lanes_of,
    with_made_rows,
    working_rows,
)
from nadi.models.llm.pipeline_schedules import FORWARD, StageOrder, pipeline_schedule
from nadi.recordings.folded.folded_trace import NodeTimes, with_own_times
from nadi.recordings.folded.row_values import Loop, SignedRows, find_repeats
from nadi.trace.arrays import Bools, Ints
from nadi.trace.attributes import Attributes
from nadi.trace.operations import OP_CLASSES
from nadi.trace.schema import DEPS, GROUPS

EVERY = -1
"""The block of what belongs to no block: each stage does it."""

_WITH_WEIGHTS = [OP_CLASSES.index(name) for name in ("gemm", "attention")]


class Blocks(NamedTuple):
    """The blocks of a model, one for each layer; the first and the last have all around."""

    number: int  # how many there are
    # int64, shape (nodes,): of each node that a simulation has of the rank, or ``EVERY``
    of_node: Ints
    passed: Ints  # int64, shape (blocks,): bytes that pass from the block before; 0 for the first
    weights: Ints  # int64, shape (blocks,): bytes of weights that its operators read
    of_operator: Ints  # int64, shape (operators,): of each operator, or ``EVERY``
    of_weight: dict[int, int]  # the block of each storage of weights


PIPELINE = "pp"
"""Role of the groups that pass activations and gradients."""


class _Piece(NamedTuple):
    """A part of a step, as a stage does it once."""

    part: int  # position in the parts of the recording
    micro_batch: int  # of the schedule; -1 for the end of a step


class _Message(NamedTuple):
    """What a stage receives or sends: the other stage, a tag for the direction, and bytes."""

    peer: int
    tag: int
    bytes: int


def cut_evenly(time: Ints, size: int) -> list[Ints]:
    """Cut blocks into so many stages that the slowest is fastest. O(size * blocks^2).

    - ``time``: int64, shape (blocks,): the time of each, in order.
    - Returns list of int64: The blocks of each stage, one or more.
    """
    total = np.concatenate([[0], np.cumsum(time)])
    count = time.size
    best = np.full((size + 1, count + 1), np.inf)
    cut = np.zeros((size + 1, count + 1), dtype=np.int64)
    best[0, 0] = 0
    for stages in range(1, size + 1):
        for end in range(stages, count + 1):
            begins = np.arange(stages - 1, end)
            slowest = np.maximum(best[stages - 1, begins], total[end] - total[begins])
            chosen = int(np.argmin(slowest))
            best[stages, end], cut[stages, end] = slowest[chosen], begins[chosen]
    found, end = [], count
    for stages in range(size, 0, -1):
        begin = int(cut[stages, end])
        found.append(np.arange(begin, end))
        end = begin
    return found[::-1]


def recorded_stages(
    rank: SharedRank, blocks: Blocks, cuts: Sequence[Ints], micro_batches: int
) -> list[RankClass]:
    """Return what each stage does, in the order of 1F1B.

    - ``cuts``: The blocks of each stage.
    - ``micro_batches``: Of a step; if there are more than were recorded, they come again.
    """
    of_class = rank.of_class._replace(times=_of_all_steps(rank))
    rank = rank._replace(of_class=of_class)
    orders = pipeline_schedule("1f1b", len(cuts), micro_batches)
    return [
        _Stage(rank, blocks, cuts, number).made(order) for number, order in enumerate(orders)
    ]  # fmt: skip


def _of_all_steps(rank: SharedRank) -> NodeTimes:
    """Return times between what alike parts of all steps take: forwards, backwards, ends.

    Each part may take as long as the shortest or the longest of them, where it works.
    """
    parts, times = rank.known.parts, rank.of_class.times
    part = parts.at(rank.known.time)
    works = working_rows(rank.of_class.trace)[0] & (times.typical > 0)
    total = np.bincount(part[works], times.typical[works], minlength=parts.begin.size)
    low, high = np.ones((2, parts.begin.size))
    for direction in Direction:
        alike = np.flatnonzero((parts.direction == direction) & (total > 0))
        if alike.size:
            low[alike] = total[alike].min() / total[alike]
            high[alike] = total[alike].max() / total[alike]
    columns = [times.low.copy(), times.high.copy()]
    for column, factor in zip(columns, (low, high), strict=True):
        column[works] = np.rint(column[works] * factor[part[works]])
    return NodeTimes(times.typical, *columns)


class _Stage:
    """Puts the step of a stage together."""

    def __init__(self, rank: SharedRank, blocks: Blocks, cuts: Sequence[Ints], number: int) -> None:
        self.rank, self.number, self.size = rank, number, len(cuts)
        known = rank.known
        own = cuts[number]
        self.part = known.parts.at(known.time)
        self.is_own = np.isin(blocks.of_node, own) | (blocks.of_node == EVERY)
        self.lane = lanes_of(rank.of_class.trace)
        self.bytes_in = int(blocks.passed[own[0]]) if number else 0
        after = cuts[number + 1][0] if number + 1 < self.size else -1
        self.bytes_out = int(blocks.passed[after]) if after >= 0 else 0
        whole = int(blocks.weights.sum())
        share = blocks.weights[own].sum() / whole if whole else 1.0
        self.is_shared = known.is_update & (blocks.of_node == EVERY) & (known.operator >= 0)
        self.share = float(share)
        self.summed = (rank.of_class.trace.nodes["kind"] == "COMM_COLL").to_numpy()
        self.summed &= blocks.of_node == EVERY
        self._src, self._dst = self._edges()

    def _edges(self) -> tuple[Ints, Ints]:
        """Return edges between own nodes; in place of others stand those before on their lane."""
        deps = self.rank.of_class.trace.deps
        src, dst = deps["src"].to_numpy(), deps["dst"].to_numpy()
        stands = np.arange(self.is_own.size)
        for lane in range(int(self.lane.max(initial=-1)) + 1):
            rows = np.flatnonzero(self.lane == lane)
            before = np.maximum.accumulate(np.where(self.is_own[rows], rows, -1))
            stands[rows] = before
        src = stands[src]
        kept = self.is_own[dst] & (src >= 0) & (src != dst)
        return src[kept], dst[kept]

    def pieces(self, order: StageOrder) -> list[_Piece]:
        """Return the pieces of all steps, in order."""
        parts = self.rank.known.parts
        found = []
        for step in range(int(parts.step.max()) + 1):
            place = {
                (int(parts.direction[k]), int(parts.micro_batch[k])): int(k)
                for k in np.flatnonzero(parts.step == step)
            }
            recorded = 1 + max(number for _, number in place)
            if (Direction.BACKWARD, 0) not in place:  # a step that was cut off
                continue
            for phase, number in zip(order.phase.tolist(), order.micro_batch.tolist(), strict=True):
                direction = Direction.FORWARD if phase == FORWARD else Direction.BACKWARD
                part = place.get((direction, number % recorded))
                if part is not None:
                    found.append(_Piece(part, number))
            found.append(_Piece(place[Direction.END, -1], -1))
        return found

    def made(self, order: StageOrder) -> RankClass:
        """Return what the stage does."""
        parts, rows_of = self.rank.known.parts, {}
        for part in range(parts.begin.size):
            rows_of[part] = np.flatnonzero((self.part == part) & self.is_own)
        builder = _Builder(self.lane, self.part)
        for piece in self.pieces(order):
            direction = int(parts.direction[piece.part])
            receives, sends = self._messages(direction, max(piece.micro_batch, 0))
            builder.add(piece, rows_of[piece.part], receives, sends, self._first_work)
        edges = builder.edges(self._src, self._dst)
        return self._class(builder, edges)

    def _messages(
        self, direction: int, micro_batch: int
    ) -> tuple[_Message | None, _Message | None]:
        """Return what a part receives and sends."""
        if direction == Direction.END:
            return None, None
        stage, last = self.number, self.size - 1
        tag = 2 * stage + 2 * self.size * micro_batch
        earlier = _Message(stage - 1, tag - 2, self.bytes_in) if stage else None
        later = _Message(stage + 1, tag, self.bytes_out) if stage < last else None
        if direction == Direction.FORWARD:
            return earlier, later
        return (
            later and later._replace(tag=later.tag + 1),
            earlier and earlier._replace(tag=earlier.tag + 1),
        )

    def _first_work(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return positions of a piece's first and last nodes on its streams, or its threads."""
        trace = self.rank.of_class.trace
        if not rows.size:
            return rows, rows
        works = ~trace.nodes["is_cpu"].to_numpy()[rows]
        works &= (trace.nodes["kind"] == "COMP").to_numpy()[rows]
        chosen = np.flatnonzero(works) if works.any() else np.arange(rows.size)
        lane = self.lane[rows[chosen]]
        _, first = np.unique(lane, return_index=True)
        _, last = np.unique(lane[::-1], return_index=True)
        return chosen[first], chosen[::-1][last]

    def _class(self, builder: _Builder, edges: tuple[Ints, Ints]) -> RankClass:
        one = self.rank.of_class
        source = np.concatenate(builder.source)
        is_made = source < 0
        row = np.maximum(source, 0)
        nodes = self._nodes(row, is_made, builder.messages)
        columns = [np.where(is_made, -1, column[row]) for column in typical_columns(one.times)]
        part = self.is_shared[row] & ~is_made
        columns = [
            np.where(part & (column > 0), np.rint(column * self.share), column).astype(np.int64)
            for column in columns
        ]
        times = NodeTimes(*columns)
        origin = np.where(is_made, Origin.MADE, one.origin[row])
        origin[part] = np.maximum(origin[part], Origin.GUESSED)
        summed = self.summed[row] & ~is_made & ~np.isin(
            nodes["group"].to_numpy(), _rows_of(one.trace.groups, TENSOR_PARALLEL)
        )  # fmt: skip
        size = nodes["comm_bytes"].to_numpy()
        smaller = np.where(summed, np.ceil(size * self.share), size).astype(np.int64)
        origin[summed] = Origin.GUESSED
        nodes = with_own_times(nodes.with_columns(comm_bytes=pl.Series(smaller)), times.typical)
        src, dst = edges
        deps = DEPS.build(src.size, {"src": src, "dst": dst, "kind": "data"})
        groups = GROUPS.build(1, {"name": [PIPELINE], "ranks": [[]], "backend": [""]})
        trace = replace(
            one.trace, nodes=nodes, deps=deps.unique(["src", "dst"]).sort("dst", "src"),
            groups=pl.concat([one.trace.groups, groups]),
            given_attributes=_copied(one.trace.attributes, source),
        )  # fmt: skip
        repriced = (one.repriced[row] | (part & (times.typical > 0))) & ~is_made
        return RankClass(trace, times, origin, repriced)

    def _nodes(self, row: Ints, is_made: Bools, messages: Sequence[tuple[bool, _Message]]) -> (
        pl.DataFrame
    ):  # fmt: skip
        trace = self.rank.of_class.trace
        kinds = ["COMM_SEND" if sends else "COMM_RECV" for sends, _ in messages]
        peers = [one.peer for _, one in messages]
        pairs = list(zip((sends for sends, _ in messages), peers, strict=True))
        own: dict[str, list[object] | object] = {
            "name": [f"{PIPELINE}::{kind[5:].lower()}" for kind in kinds], "kind": kinds,
            "comm_type": [kind[5:].lower() for kind in kinds], "category": "kernel",
            "comm_bytes": [one.bytes for _, one in messages], "group": trace.groups.height,
            "src": [-1 if sends else peer for sends, peer in pairs],
            "dst": [peer if sends else -1 for sends, peer in pairs],
            "tag": [one.tag for _, one in messages], "is_cpu": False, "thread": -1,
            "stream": int(trace.column("stream").max(initial=-1)) + 1, "flops": -1, "bytes": -1,
        }  # fmt: skip
        return with_made_rows(trace.nodes[row], own, is_made)


class _Builder:
    """Collects the pieces of a stage, and the edges between them."""

    def __init__(self, lane: Ints, part: Ints) -> None:
        self.lane, self.part = lane, part
        self.source: list[Ints] = []  # rows; -1 for messages
        self.messages: list[tuple[bool, _Message]] = []
        self._size = 0
        self._pieces: list[tuple[_Piece, Ints, int]] = []  # with rows, and where they begin
        self._edges: list[tuple[Ints, Ints]] = []
        self._last: dict[int, int] = {}  # the last node on each lane

    def add(
        self, piece: _Piece, rows: Ints, receives: _Message | None, sends: _Message | None,
        ends: Callable[[Ints], tuple[Ints, Ints]],
    ) -> None:  # fmt: skip
        """Add a piece; ``ends`` gives the nodes that wait for messages, and those that send."""
        first, last = ends(rows)
        if receives is not None:
            self._message(False, receives)
        begin = self._size
        if receives is not None:
            self._edge(np.full(first.size, begin - 1), begin + first)
        self.source.append(rows)
        self._size += rows.size
        self._pieces.append((piece, rows, begin))
        self._chain(rows, begin)
        if sends is not None:
            self._edge(begin + last, np.full(last.size, self._size))
            self._message(True, sends)

    def _message(self, sends: bool, message: _Message) -> None:
        self.messages.append((sends, message))
        self.source.append(np.array([-1]))
        self._size += 1

    def _edge(self, src: Ints, dst: Ints) -> None:
        self._edges.append((src, dst))

    def _chain(self, rows: Ints, begin: int) -> None:
        """Let the first node on each lane wait for the last one of the pieces before."""
        lane = self.lane[rows]
        for which, at in zip(*np.unique(lane, return_index=True), strict=True):
            if which in self._last:
                self._edge(np.array([self._last[which]]), np.array([begin + int(at)]))
        lanes, at = np.unique(lane[::-1], return_index=True)
        for which, place in zip(lanes.tolist(), at.tolist(), strict=True):
            self._last[which] = begin + rows.size - 1 - place

    def edges(self, src: Ints, dst: Ints) -> tuple[Ints, Ints]:
        """Return all edges: those of the recording between copies that belong together."""
        order = np.argsort(self.part[dst], kind="stable")
        src, dst = src[order], dst[order]
        bounds = np.searchsorted(self.part[dst], np.arange(int(self.part.max(initial=0)) + 2))
        latest: dict[int, tuple[Ints, int]] = {}
        of_batch: dict[tuple[int, int], tuple[Ints, int]] = {}
        for piece, rows, begin in self._pieces:
            latest[piece.part] = of_batch[piece.part, piece.micro_batch] = rows, begin
            own = slice(int(bounds[piece.part]), int(bounds[piece.part + 1]))
            a, b = src[own], dst[own]
            from_part = self.part[a]
            to = begin + np.searchsorted(rows, b)
            for part in np.unique(from_part).tolist():
                chosen = from_part == part
                found = of_batch.get((part, piece.micro_batch), latest.get(part))
                if found is None:
                    continue  # of a micro-batch that comes later now
                there, start = found
                self._edge(start + np.searchsorted(there, a[chosen]), to[chosen])
        pairs = list(zip(*self._edges, strict=True))
        return np.concatenate(pairs[0]), np.concatenate(pairs[1])


def _rows_of(groups: pl.DataFrame, role: str) -> list[int]:
    return [k for k, name in enumerate(groups["name"].to_list()) if name == role]


def _copied(given: Attributes, source: Ints) -> Attributes:
    """Return the attributes of nodes that are copies of others; -1 for none."""
    own = given.with_own_bytes()
    node = own.node.astype(np.int64)
    first = np.searchsorted(node, np.maximum(source, 0))
    count = np.searchsorted(node, np.maximum(source, 0), side="right") - first
    count[source < 0] = 0
    general = np.flatnonzero(node < 0)
    new = np.repeat(np.arange(source.size), count)
    within = np.arange(new.size) - np.repeat(np.cumsum(count) - count, count)
    rows = np.concatenate([general, np.repeat(first, count) + within])
    nodes = np.concatenate([node[general], new])
    return replace(
        own, node=nodes.astype(np.int32), name=own.name[rows], type=own.type[rows],
        value=own.value[rows], length=own.length[rows],
    )  # fmt: skip


class StageBlocks(NamedTuple):
    """The blocks of a model, those of each stage, and the micro-batches of a step."""

    blocks: Blocks
    cuts: Sequence[Ints]
    micro_batches: int


def stage_bytes(
    known: KnownRank, lives: RecordedLives, sharing: Sharing | None, stages: StageBlocks
) -> list[int]:
    """Return the most bytes of tensors of each stage.

    A stage holds what its forward gives for the backward once for each micro-batch that 1F1B has
    under way there. States of an optimizer that works on all weights at once are divided as
    weights are.
    """
    blocks, cuts, micro_batches = stages
    block = _block_of_lives(known, lives, blocks)
    direction = known.parts.direction[known.operators.part]
    given = np.maximum(lives.giver, 0)
    is_saved = (lives.giver >= 0) & (direction[given] == Direction.FORWARD)
    is_saved &= direction[lives.last] == Direction.BACKWARD
    is_saved &= known.parts.micro_batch[known.operators.part[given]] == 0  # of one
    of_forward = lives._replace(first=np.zeros_like(lives.first), last=np.zeros_like(lives.last))
    lasts = (lives.giver < 0) & (block == EVERY)
    whole = max(int(blocks.weights.sum()), 1)
    found = []
    for number, own in enumerate(cuts):
        is_own = np.isin(block, own)
        under_way = min(len(cuts) - number, micro_batches)
        saved = peak_bytes(of_forward, sharing, is_own & is_saved)
        beside = peak_bytes(of_forward, sharing, lasts) * blocks.weights[own].sum() / whole
        moving = is_own | ((lives.giver >= 0) & (block == EVERY))
        found.append(round(peak_bytes(lives, sharing, moving) + (under_way - 1) * saved + beside))
    return found


def _block_of_lives(known: KnownRank, lives: RecordedLives, blocks: Blocks) -> Ints:
    """Return the block of each storage: of who gives it, or of the weights that it belongs to."""
    found = np.where(lives.giver >= 0, blocks.of_operator[np.maximum(lives.giver, 0)], EVERY)
    operators = known.operators
    reader: dict[int, int] = {}
    ends = np.flatnonzero(known.parts.direction[operators.part] == Direction.END)
    for number in ends.tolist():
        for use in operators.inputs[number]:
            reader.setdefault(use.storage, int(blocks.of_operator[number]))
    for place in np.flatnonzero(lives.giver < 0).tolist():
        storage = int(lives.storage[place])
        found[place] = blocks.of_weight.get(storage, reader.get(storage, EVERY))
    return found


def find_blocks(known: KnownRank) -> Blocks:
    """Find the blocks of a recorded rank. O(operators log operators).

    - Raises UsageError if its forward has no repeats that can be cut, or micro-batches differ.
    """
    parts, operators = known.parts, known.operators
    if not operators.row.size:
        _refuse("no operator of the recording states tensors, so layers cannot be found",
                "record host traces, too (nadi record, nadi.record)")  # fmt: skip
    if not (parts.direction == Direction.BACKWARD).any():
        _refuse("the recording has no backward, or its operators state no sequence numbers, so it "
                "is no training step")  # fmt: skip
    forwards = np.flatnonzero(parts.direction == Direction.FORWARD)
    own = [np.flatnonzero(operators.part == part) for part in forwards.tolist()]
    cuts, passed = zip(*(_cuts(operators, one) for one in own), strict=True)
    number = len(cuts[0])
    if number == 0:
        _refuse("no operators of its forward repeat as layers between which one tensor passes")
    if any(len(one) != number for one in cuts):
        _refuse("its micro-batches differ in their operators")
    start = known.trace.column("start")
    begins = [start[operators.row[one[cut]]] for one, cut in zip(own, cuts, strict=True)]
    of_node = _at_times(known, forwards, begins, known.time)
    of_operator = _at_times(known, forwards, begins, start[operators.row])
    weights, owner = _weights(operators, own[0], cuts[0])
    _of_updates(known, owner, of_node, of_operator)
    return Blocks(number + 1, of_node, np.array([0, *passed[0]]), weights, of_operator, owner)


def _refuse(what: str, remedy: str = "change other axes") -> NoReturn:
    raise UsageError(Parameter("pp"), what, remedy)


def _cuts(operators: Operators, own: Ints) -> tuple[list[int], list[int]]:
    """Return before which operators a forward can be cut, and the bytes that pass there."""
    sign = _signs(operators, own)
    loops = find_repeats(SignedRows(sign, np.zeros(own.size + 1, dtype=np.int64), sign[:0]))
    has_weights = np.isin(operators.work.op_class[operators.row[own]], _WITH_WEIGHTS)
    passed = _passed(operators, own)
    found: set[int] = set()
    for loop in loops:
        if has_weights[loop.first : loop.first + loop.size].any():
            found.update(_borders(loop, sign, passed >= 0))
    # what is before the first layer and behind the last goes with them
    at = [one for one in sorted(found)[1:-1] if passed[one] >= 0]
    return at, passed[at].tolist()


def _signs(operators: Operators, own: Ints) -> Ints:
    """Return equal numbers for operators of equal names and sizes."""
    known: dict[object, int] = {}
    keys = (
        (operators.name[k], tuple(use.shape for use in operators.inputs[k]),
         tuple(use.shape for use in operators.outputs[k]))
        for k in own.tolist()
    )  # fmt: skip
    return np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int64)


def _borders(loop: Loop, sign: Ints, can_cut: Bools) -> list[int]:
    """Return the borders of the turns of a repeat, of all that it can have those with most cuts.

    Where the first turn begins and the last one ends are borders, too.
    """
    first, end, period = loop.first, loop.end, loop.size
    while first > 0 and sign[first - 1] == sign[first - 1 + period]:
        first -= 1
    while end < sign.size and sign[end] == sign[end - period]:
        end += 1
    best: list[int] = []
    most = -1
    for shift in range(period):
        borders = list(range(first + shift, end + 1, period))
        number = sum(bool(can_cut[at]) for at in borders[1:-1])
        if number > most:
            best, most = borders, number
    return [best[0], *(at for at in best[1:-1] if can_cut[at]), best[-1]]


def _passed(operators: Operators, own: Ints) -> Ints:
    """Return the bytes of the only tensor that passes before each operator; -1 if several do."""
    size = own.size
    count, total = np.zeros((2, size + 1), dtype=np.int64)
    live: dict[int, tuple[int, int, int]] = {}  # storage: given by, last read by, bytes

    def close(storage: int) -> None:
        given, last, moved = live.pop(storage)
        if last > given:
            count[given + 1] += 1
            count[last + 1] -= 1
            total[given + 1] += moved
            total[last + 1] -= moved

    for at, number in enumerate(own.tolist()):
        read = {use.storage for use in operators.inputs[number]}
        for storage in read & live.keys():
            given, _, moved = live[storage]
            live[storage] = given, at, moved
        for use in operators.outputs[number]:
            if use.storage in read:
                continue  # changed in place
            if use.storage in live:
                close(use.storage)
            if operators.makes_gradients[number]:
                live[use.storage] = at, at, use.elements * use.itemsize
    for storage in list(live):
        close(storage)
    passing, size_of = np.cumsum(count)[:size], np.cumsum(total)[:size]
    return np.where(passing == 1, size_of, -1)


def _at_times(known: KnownRank, forwards: Ints, begins: list[Ints], time: Ints) -> Ints:
    """Return the block of what begins at some times; ``EVERY`` at the ends of steps."""
    parts = known.parts
    part = parts.at(time)
    found = np.full(time.size, EVERY, dtype=np.int64)
    for forward, borders in zip(forwards.tolist(), begins, strict=True):
        own = np.flatnonzero(part == forward)
        found[own] = np.searchsorted(borders, time[own], side="right")
    made_in = parts.at(known.made_by)
    block = np.full(known.backward.size, -1, dtype=np.int64)
    for forward, borders in zip(forwards.tolist(), begins, strict=True):
        own = np.flatnonzero((known.made_by >= 0) & (made_in == forward))
        block[own] = np.searchsorted(borders, known.made_by[own], side="right")
    last = np.maximum.accumulate(np.where(block >= 0, np.arange(block.size), 0))
    block = np.maximum(block[last], 0)  # accumulations of gradients are of the node before
    rows = np.flatnonzero(parts.direction[part] == Direction.BACKWARD)
    at = np.searchsorted(known.backward, time[rows], side="right") - 1
    found[rows] = block[np.maximum(at, 0)]
    return found


def _weights(operators: Operators, own: Ints, cuts: list[int]) -> tuple[Ints, dict[int, int]]:
    """Return the bytes of weights of each block, and the block of each weight's storage."""
    made: set[int] = set()
    owner: dict[int, int] = {}
    size = np.zeros(len(cuts) + 1, dtype=np.int64)
    for at, number in enumerate(own.tolist()):
        block = int(np.searchsorted(cuts, at, side="right"))
        for use in operators.inputs[number] if operators.makes_gradients[number] else ():
            if use.storage not in made and use.storage not in owner:
                owner[use.storage] = block
                size[block] += use.elements * use.itemsize
        made.update(use.storage for use in operators.outputs[number])
    return size, owner


def _of_updates(known: KnownRank, owner: dict[int, int], of_node: Ints, of_operator: Ints) -> None:
    """Set the block of nodes of an optimizer that works on one block's weights after another."""
    operators = known.operators
    found = np.full(operators.row.size + 1, EVERY, dtype=np.int64)
    ends = np.flatnonzero(known.parts.direction[operators.part] == Direction.END)
    for number in ends.tolist():
        blocks = {owner[use.storage] for use in operators.inputs[number] if use.storage in owner}
        if len(blocks) == 1:
            found[number] = blocks.pop()
        elif blocks:
            return  # on all at once
    rows = np.flatnonzero(known.is_update)
    rows = rows[np.argsort(known.time[rows], kind="stable")]
    block = found[known.operator[rows]]
    if not (block >= 0).any():
        return
    is_known = found[:-1] >= 0
    of_operator[is_known] = found[:-1][is_known]
    # what an optimizer does for a weight is around the operators that name it
    known_at = np.flatnonzero(block >= 0)
    after = np.minimum(np.searchsorted(known_at, np.arange(rows.size)), known_at.size - 1)
    of_node[rows] = block[known_at[after]]
