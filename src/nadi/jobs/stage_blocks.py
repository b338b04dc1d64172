"""A stage of a pipeline, read as blocks: the rows of each layer, forward and backward.

A block is what a stage does for one layer of one micro-batch; the embedding is the block before the
first layer, and the head the one after the last.

The layers of a stage, one after the other, between what it receives and what it sends.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import polars as pl

from nadi.errors import Parameter, UsageError
from nadi.jobs.class_rows import Origin, RankClass, typical_columns
from nadi.models.job_rows import BEFORE, COMPUTE, Link, Row
from nadi.systems.prices.traced_operations import stated_operations
from nadi.trace.arrays import Ints
from nadi.trace.operations import DTYPE_NAMES, OP_CLASSES
from nadi.trace.work import Work

EMBEDDING, HEAD = -1, 1 << 30
RECEIVED = -2
FORWARD, BACKWARD, LAST = "forward", "backward", "last backward"
_PLAIN = "layers, micro-batches and phases, which rows of nadi generate llm state"


class Times(NamedTuple):
    """The typical, least and largest time of a row in ns; -1 where none is known."""

    typical: int
    low: int
    high: int


class Wait(NamedTuple):
    """What a row of a block waits for."""

    # how many blocks before its own; ``BEFORE`` for the computation before all blocks, and
    # ``RECEIVED`` for what the stage receives
    block: int
    row: int  # of that block


class TimedRow(NamedTuple):
    """A row of a block, its times and what it waits for; waits of ``row`` itself are empty."""

    row: Row
    times: Times
    waits: tuple[Wait, ...] = ()


Block = tuple[TimedRow, ...]


class StepPart(NamedTuple):
    """A part of a step: its direction, which of the stage's chunks, and its micro-batch."""

    direction: str
    chunk: int
    micro_batch: int


class Stage(NamedTuple):
    """What the ranks of a stage do."""

    # of each of its chunks of layers, the first first, for each direction (``FORWARD``,
    # ``BACKWARD``, ``LAST``, the backward of the last micro-batch), the blocks in their order, by
    # layer
    chunks: tuple[dict[str, dict[int, Block]], ...]
    messages: dict[str, TimedRow]  # rows that send or receive, by name
    end: tuple[TimedRow, ...]  # rows after the last backward; their waits are not kept
    order: tuple[StepPart, ...]  # the parts of the step

    def blocks(self, direction: str) -> dict[int, Block]:
        """Return the blocks of a direction, of all chunks."""
        return {key: one for chunk in self.chunks for key, one in chunk.get(direction, {}).items()}


class _Rows:
    """The rows of a trace, and what each waits for beside the order of its stream."""

    def __init__(self, one: RankClass) -> None:
        trace = one.trace
        nodes = trace.nodes
        self.nodes = nodes
        self.work = stated_operations(trace)
        self.roles = [*trace.groups["name"].to_list(), ""]
        self.times = typical_columns(one.times)
        text = {name: nodes[name].cast(pl.String).to_list() for name in ("name", "phase", "kind")}
        self.name, self.phase, self.kind = text["name"], text["phase"], text["kind"]
        self.comm_type = nodes["comm_type"].cast(pl.String).to_list()
        self.column = {name: nodes[name].to_numpy() for name in (
            "layer", "micro_batch", "stream", "group", "src", "dst", "tag", "comm_bytes",
        )}  # fmt: skip
        self.waits = _waits(one)

    def row(self, k: int) -> Row:
        """Return a node as a row without waits."""
        column = {name: int(values[k]) for name, values in self.column.items()}
        peer = max(column["src"], column["dst"])
        return Row(
            self.name[k], self.phase[k], column["layer"], self._work(k), self.comm_type[k],
            column["comm_bytes"], self.roles[column["group"]], column["stream"], peer,
            column["tag"],
        )  # fmt: skip

    def _work(self, k: int) -> Work | None:
        if self.kind[k] != "COMP":
            return None
        work = self.work
        shape = work.shape[k].tolist()
        return Work(
            OP_CLASSES[work.op_class[k]], int(work.flops[k]), int(work.bytes[k]),
            tuple(shape) if min(shape) > 0 else (), DTYPE_NAMES[work.dtype[k]],
        )  # fmt: skip

    def times_of(self, rows: Ints) -> Times:
        """Return the mean, least and largest time of rows that do the same."""
        typical, low, high = (column[rows] for column in self.times)
        return Times(round(float(typical.mean())), int(low.min()), int(high.max()))

    def is_message(self, k: int) -> bool:
        return self.comm_type[k] in ("send", "recv")


def _waits(one: RankClass) -> dict[int, list[int]]:
    """Return what rows wait for, but for the row before on the same stream."""
    deps = one.trace.deps
    stream = one.trace.column("stream")
    src, dst = deps["src"].to_numpy(), deps["dst"].to_numpy()
    found: dict[int, list[int]] = {}
    for a, b in zip(src.tolist(), dst.tolist(), strict=True):
        if stream[a] != stream[b]:
            found.setdefault(b, []).append(a)
    return found


def read_stage(one: RankClass, number: int) -> Stage:
    """Read a stage.

    - Raises UsageError if its rows do not state layers, micro-batches and phases.
    """
    rows = _Rows(one)
    micro_batch = rows.column["micro_batch"]
    ends = np.flatnonzero(micro_batch < 0)
    first_end = int(ends[0]) if ends.size else micro_batch.size
    phases = set(rows.phase)
    if (
        (ends != np.arange(first_end, micro_batch.size)).any()
        or not ends.size
        or (
            phases != {"forward", "backward", "optimizer"}
            and phases != {"forward", "backward", "optimizer", "recompute"}
        )
    ):
        raise UsageError(
            Parameter("pp"),
            f"stage {number} is no training step by {_PLAIN}",
            ["change ", Parameter("dp"), " only"],
        )
    parts = _parts(rows, first_end)
    listed: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for part, span in parts:
        listed.setdefault((part.direction, part.chunk), []).append(span)
    chunks = []
    for chunk in range(1 + max(part.chunk for part, _ in parts)):
        back = listed.get((BACKWARD, chunk), [])
        chosen = {FORWARD: listed.get((FORWARD, chunk), []), BACKWARD: back[:-1], LAST: back[-1:]}
        chunks.append({
            direction: _blocks(rows, spans, number) for direction, spans in chosen.items() if spans
        })  # fmt: skip
    messages: dict[str, TimedRow] = {}
    for k in range(first_end):
        if rows.is_message(k):
            messages.setdefault(rows.name[k], TimedRow(rows.row(k), _NO_TIMES))
    end = tuple(TimedRow(rows.row(k), rows.times_of(np.array([k]))) for k in ends.tolist())
    return Stage(tuple(chunks), messages, end, with_last([part for part, _ in parts]))


def with_last(order: Sequence[StepPart]) -> tuple[StepPart, ...]:
    """Return parts in which the last backward of each chunk is called so."""
    last = {part.chunk: k for k, part in enumerate(order) if part.direction == BACKWARD}
    return tuple(
        part._replace(direction=LAST) if last.get(part.chunk) == k else part
        for k, part in enumerate(order)
    )


def _parts(rows: _Rows, end: int) -> list[tuple[StepPart, tuple[int, int]]]:
    """Return the parts before the end of a step, and the rows of each.

    The chunk of a part follows from its layers: chunks have different ones, in ascending order.
    """
    micro_batch, layer = rows.column["micro_batch"], rows.column["layer"]
    found: list[tuple[str, int, int, int]] = []  # direction, micro-batch, first row, end
    for k in range(end):
        direction = FORWARD if rows.phase[k] == "forward" else BACKWARD
        key = direction, int(micro_batch[k])
        begin = k
        if found and found[-1][:2] == key:
            begin = found.pop()[2]
        found.append((*key, begin, k + 1))
    firsts = [int(layer[begin:stop].max(initial=-1)) for _, _, begin, stop in found]
    chunk = {top: number for number, top in enumerate(sorted(set(firsts)))}
    return [
        (StepPart(direction, chunk[top], number), (begin, stop))
        for (direction, number, begin, stop), top in zip(found, firsts, strict=True)
    ]


_NO_TIMES = Times(-1, -1, -1)


def _blocks(rows: _Rows, parts: list[tuple[int, int]], number: int) -> dict[int, Block]:
    """Return the blocks of the last of some parts, with the times of all of them.

    Before the first part nothing is computed for which rows could wait.
    """
    firsts = np.array([first for first, _ in parts])
    begin, end = parts[-1]
    if len({stop - start for start, stop in parts}) > 1:
        raise UsageError(
            Parameter("pp"), f"micro-batches of stage {number} differ in their operations",
            ["change ", Parameter("dp"), " and ", Parameter("tp"), " only"],
        )  # fmt: skip
    layers = rows.column["layer"]
    own = [k for k in range(begin, end) if not rows.is_message(k)]
    known = [int(layers[k]) for k in own if layers[k] >= 0]
    is_forward = rows.phase[own[0]] == "forward"
    outer = [EMBEDDING, HEAD] if is_forward else [HEAD, EMBEDDING]
    place: dict[int, tuple[int, int]] = {}  # of each row: its block, and its row there
    found: dict[int, list[int]] = {}
    seen = 0
    for k in own:
        layer = int(layers[k])
        seen += layer >= 0
        key = layer if layer >= 0 else outer[0] if seen == 0 else outer[1]
        if not known:  # a stage without layers
            key = EMBEDDING if "embedding" in rows.name[k] else HEAD
        found.setdefault(key, [])
        place[k] = len(found) - 1, len(found[key])
        found[key].append(k)
    return {
        key: tuple(
            TimedRow(
                rows.row(k), rows.times_of(firsts + k - begin),
                _within(k, rows, place, (begin, end)),
            )
            for k in listed
        )
        for key, listed in found.items()
    }  # fmt: skip


def _within(
    k: int, rows: _Rows, place: dict[int, tuple[int, int]], part: tuple[int, int]
) -> tuple[Wait, ...]:
    """Return what a row waits for, in blocks."""
    found = []
    streams = rows.column["stream"]
    for before in rows.waits.get(k, []):
        if before in place:
            block, row = place[before]
            found.append(Wait(place[k][0] - block, row))
        elif rows.is_message(before) and part[0] <= before < part[1]:
            found.append(Wait(RECEIVED, 0))
        elif not part[0] <= before < part[1] and streams[before] == COMPUTE:
            found.append(Wait(BEFORE, 0))
    return tuple(sorted(set(found)))


_Waits: TypeAlias = tuple[tuple[Wait, ...], ...]
_UNKNOWN = Times(-1, -1, -1)


class PlacedRow(NamedTuple):
    """A row of a piece with its waits, its times and where it comes from."""

    row: Row
    times: Times
    origin: Origin


class LayerChunks:
    """Puts blocks together.

    What a row waits for can lie in the block before. Of a block that was the first of its stage,
    that is known from another one with the same operations.
    """

    def __init__(self, stages: Sequence[Stage]) -> None:
        self.blocks: dict[tuple[str, int], Block] = {}
        self.messages: dict[str, TimedRow] = {}
        self._waits: dict[Hashable, _Waits] = {}
        self._before: dict[tuple[str, int], int | None] = {}
        for stage in stages:
            for name, one in stage.messages.items():
                self.messages.setdefault(name, one)
            for direction, blocks in (pair for chunk in stage.chunks for pair in chunk.items()):
                before: int | None = None
                for key, block in blocks.items():
                    self.blocks[direction, key] = block
                    self._before[direction, key] = before
                    sign = direction, _sign(block), before is not None and _sign(blocks[before])
                    self._waits.setdefault(sign, tuple(one.waits for one in block))
                    before = key

    def rows(
        self, direction: str, keys: Sequence[int], source: Link | None, destination: Link | None
    ) -> list[PlacedRow]:
        """Return the rows of a piece.

        - ``keys``: Its blocks, in the order of this direction.
        - ``source``, ``destination``: Where it receives from, and sends to.
        """
        what = "activations" if direction == FORWARD else "gradients"
        found: list[PlacedRow] = []
        if source is not None:
            found.append(self._message(f"receive_{what}", source, ()))
        starts: list[int] = []
        for number, key in enumerate(keys):
            starts.append(len(found))
            block = self.blocks[direction, key]
            before = keys[number - 1] if number else None
            waits, is_known = self._waits_of(direction, key, before)
            if source is not None and number == 0:
                waits = _after_message(block, waits)
            for one, of_row in zip(block, waits, strict=True):
                listed = [_place(wait, starts) for wait in of_row]
                row = one.row._replace(waits=tuple(dict.fromkeys(listed)))
                origin = Origin.COPIED if is_known or not of_row else Origin.GUESSED
                found.append(PlacedRow(row, one.times, origin))
        if destination is not None:
            found.append(self._message(f"send_{what}", destination, _last(found)))
        return found

    def _waits_of(self, direction: str, key: int, before: int | None) -> tuple[_Waits, bool]:
        """Return what the rows of a block wait for, after another block or as the first.

        Also whether that is known from some stage of the job.
        """
        block = self.blocks[direction, key]
        own: _Waits = tuple(one.waits for one in block)
        if self._before[direction, key] == before:
            return own, True
        sign = before is not None and _sign(self.blocks[direction, before])
        known = self._waits.get((direction, _sign(block), sign))
        if known is not None:
            return known, True
        left = (tuple(wait for wait in of_row if wait.block != RECEIVED) for of_row in own)
        return tuple(left), False

    def _message(self, name: str, link: Link, waits: tuple[int, ...]) -> PlacedRow:
        row = self.messages[name].row._replace(peer=link.peer, tag=link.tag, waits=waits)
        return PlacedRow(row, _UNKNOWN, Origin.MADE)


def _place(wait: Wait, starts: Sequence[int]) -> int:
    """Return the row of a piece that is waited for; the last of ``starts`` is of its block."""
    if wait.block == RECEIVED:
        return 0
    if wait.block < 0 or wait.block >= len(starts):
        return BEFORE
    return starts[-1 - wait.block] + wait.row


def _after_message(block: Block, waits: _Waits) -> _Waits:
    """Let the first computation wait for what is received, if no row is known to."""
    if any(wait.block == RECEIVED for of_row in waits for wait in of_row):
        return waits
    first = next((k for k, one in enumerate(block) if one.row.stream == COMPUTE), 0)
    own = (*waits[first], Wait(RECEIVED, 0))
    return (*waits[:first], own, *waits[first + 1 :])


def _last(rows: Sequence[PlacedRow]) -> tuple[int, ...]:
    """Return what is sent: the last computation."""
    computed = [k for k, one in enumerate(rows) if one.row.stream == COMPUTE]
    return (computed[-1],) if computed else ()


def _sign(block: Block) -> Hashable:
    """Return what a block does, whichever layer it is of."""
    return tuple(
        (one.row.work, one.row.comm_type, one.row.comm_bytes, one.row.role, one.row.phase)
        for one in block
    )
