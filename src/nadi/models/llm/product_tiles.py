"""Products cut into tiles, beside the communication of tensor parallel ranks that they go with.

A product that needs a gathered tensor, or whose result is summed, is cut along the tokens into as
many tiles as there are ranks, each an operation of its own, which reads all of the weights. The
communication is cut, too, and each part of it is a collective of its own:

- ``pipe``: into as many parts as tiles. A tile of a gathered tensor is multiplied once it is there;
  of a sum, each tile is reduced once it is multiplied. One part has no product beside it.
- ``ring``: a rank's own tile needs no communication, so there is a part less. Of a gathered tensor
  it is multiplied first, while the next one comes; of a scattered sum last, while the sum of the
  tile before goes on. All-reduces have no tile of one rank, so they go as with ``pipe``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import TypeVar

from nadi.models.job_rows import Operand, Row, RowOperands
from nadi.trace.arrays import Ints
from nadi.trace.operations import ITEMSIZE
from nadi.trace.work import Work

_GATHER, _REDUCE = "all_gather", "all_reduce"
_TILE = ".tile"


def tile_of(product: Work, tiles: int) -> Work:
    """Return the work of one of equal tiles of a product, which are cut along its rows."""
    batch, m, n, k = product.shape
    weights = batch * n * k * ITEMSIZE[product.dtype]  # which each tile reads
    return product._replace(
        flops=product.flops // tiles,
        bytes=max(product.bytes - weights, 0) // tiles + weights,
        shape=(batch, max(m // tiles, 1), n, k),
        uncut=product.uncut // tiles,
    )


_Count = TypeVar("_Count", int, Ints)


def parts_of(comm_type: str, overlap: str, tiles: _Count) -> _Count:
    """Return into how many parts the communication beside a product of some tiles is cut."""
    return tiles - 1 if overlap == "ring" and comm_type != _REDUCE else tiles


def products_beside(rows: Sequence[Row]) -> dict[int, int]:
    """Return the products that tensor parallel communication can go beside.

    By the place of the communication; it stands before a product that it gathers for, and after
    one whose result it sums.
    """
    found = {}
    for place, row in enumerate(rows):
        if row.role != "tp":
            continue
        is_gather = row.comm_type == _GATHER
        product = _reader(rows, place) if is_gather else max(row.waits[:1], default=-1)
        work = rows[product].work if product >= 0 else None
        if work is not None and work.op_class == "gemm":
            found[place] = product
    return found


def _reader(rows: Sequence[Row], place: int) -> int:
    """Return the first computation that waits for a row, -1 if there is none."""
    readers = (
        later for later in range(place + 1, len(rows))
        if rows[later].work is not None and place in rows[later].waits
    )  # fmt: skip
    return next(readers, -1)


def name_without_tile(name: str) -> str:
    """Return what an operation is called that a tile is of; others keep their names."""
    return name.partition(_TILE)[0]


def tiled(rows: Sequence[Row], overlap: str, tiles: int) -> tuple[Row, ...]:
    """Return rows in which products, and what goes beside them, are cut into tiles.

    - ``overlap``: ``ring`` or ``pipe``; with ``none``, or one tile, they stay as they are.
    """
    if overlap == "none" or tiles == 1:
        return tuple(rows)
    return tuple(_Tiles(rows, overlap, tiles).made)


class _Tiles:
    """Cuts rows one after the other, so that each knows where those before it went."""

    def __init__(self, rows: Sequence[Row], overlap: str, tiles: int) -> None:
        self.made: list[Row] = []
        self._overlap, self._tiles = overlap, tiles
        self._parts: dict[int, range] = {}  # where each row went
        self._last: dict[int, tuple[int, ...]] = {}  # of these, what ends last
        beside = products_beside(rows)
        gathers = {product: place for place, product in beside.items() if place < product}
        self._own: dict[int, tuple[int, ...]] = {}  # what a rank's own tile waits for
        for place, row in enumerate(rows):
            begin = len(self.made)
            if place in beside:
                self._cut_communication(place, row, beside[place])
            elif place in beside.values():
                self._cut_product(row, gathers.get(place, -1))
            else:
                self.made.append(row._replace(waits=self._ends(row.waits)))
            self._parts[place] = range(begin, len(self.made))
            # of a sum by a ring, the parts are without a rank's own tile
            own = self._last.get(beside.get(place, place), ())
            self._last[place] = (len(self.made) - 1, *own)

    def _cut_communication(self, place: int, row: Row, product: int) -> None:
        parts = parts_of(row.comm_type, self._overlap, self._tiles)
        is_gather = product > place
        self._own[place] = self._ends(row.waits)
        others = self._ends(wait for wait in row.waits if wait != product)
        for number in range(parts):
            waits = others if number == 0 else ()
            if not is_gather:
                waits = (self._parts[product][number], *waits)
            self._add(row._replace(comm_bytes=-(-row.comm_bytes // parts), waits=waits),
                      number, self._tiles - parts if is_gather else 0)  # fmt: skip

    def _cut_product(self, row: Row, gather: int) -> None:
        assert row.work is not None
        work = tile_of(row.work, self._tiles)
        others = self._ends(wait for wait in row.waits if wait != gather)
        for number in range(self._tiles):
            waits = others if number == 0 else ()
            if gather >= 0:
                parts = self._parts[gather]
                part = number - (self._tiles - len(parts))
                waits += (parts[part],) if part >= 0 else self._own[gather]
            self._add(row._replace(work=work, waits=tuple(dict.fromkeys(waits))), number)

    def _add(self, row: Row, number: int, first: int = 0) -> None:
        """Add one part of a row, which uses the tile of its number after the first ones."""
        given, made = (
            tuple(self._tile(one, number + first) for one in part) for part in row.operands
        )
        if number:  # into what the first one made
            given = tuple(dict.fromkeys((*given, *made)))
        operands = RowOperands(given, made)
        self.made.append(row._replace(name=f"{row.name}{_TILE}{number}", operands=operands))

    def _tile(self, operand: Operand, number: int) -> Operand:
        """Return a tile of a tensor of tokens; weights and what cannot be cut stay whole."""
        rows, *width = operand.shape
        if operand.lasts or operand.role or not width or rows % self._tiles:
            return operand
        shape = (rows // self._tiles, *width)
        return operand._replace(shape=shape, offset=operand.offset + number * prod(shape))

    def _ends(self, waits: Iterable[int]) -> tuple[int, ...]:
        """Return where the last parts of rows went; what is before all rows stays so."""
        ends = [self._last[wait] if wait >= 0 else (wait,) for wait in waits]
        return tuple(dict.fromkeys(end for of_row in ends for end in of_row))
