"""The layers of a stage, one after the other, between what it receives and what it sends."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple, TypeAlias

from nadi.jobs.class_rows import Origin
from nadi.jobs.stage_blocks import FORWARD, RECEIVED, Block, Stage, TimedRow, Times, Wait
from nadi.models.job_rows import BEFORE, COMPUTE, Link, Row

__all__ = ["LayerChunks", "PlacedRow"]

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

        Parameters
        ----------
        keys
            Its blocks, in the order of this direction.
        source, destination
            Where it receives from, and sends to.
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
