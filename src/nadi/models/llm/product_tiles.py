"""Products cut into tiles, beside the communication of tensor parallel ranks that they go with.

A product that needs a gathered tensor, or whose result is summed, is cut along the tokens into as
many tiles as there are ranks, each an operation of its own, which reads all of the weights.

- ``ring``: the collective stays one, and takes as long as alone. In each of its steps a rank passes
  a tile on, and multiplies another one meanwhile; one tile, its own, needs no communication. Of a
  gathered tensor it is multiplied first, and what the last step brings after all steps. Of a
  scattered sum the first step needs the first tile, and its own comes last. So what has to wait
  waits for that, and tiles in between never wait longer.
- ``pipe``: each tile is a collective of its own. A tile of a gathered tensor is multiplied once it
  is there; of a sum, each is reduced once it is multiplied. One of them has no product beside it.

All-reduces have no tile of one rank, so they always go as with ``pipe``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from nadi.models.job_rows import Operand, Row, RowOperands
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


def is_cut(comm_type: str, overlap: str) -> bool:
    """Return whether the communication beside a product is cut into tiles, too."""
    return overlap == "pipe" or comm_type == _REDUCE


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
        self._rows, self._overlap, self._tiles = rows, overlap, tiles
        self._parts: dict[int, range] = {}  # where each row went
        self._last: dict[int, tuple[int, ...]] = {}  # of these, what ends last
        beside = products_beside(rows)
        gathers = {product: place for place, product in beside.items() if place < product}
        for place, row in enumerate(rows):
            begin = len(self.made)
            if place in beside:
                self._add_communication(row, beside[place])
            elif place in beside.values():
                self._add_product(row, gathers.get(place, -1))
            else:
                self.made.append(row._replace(waits=self._ends(row.waits)))
            self._parts[place] = range(begin, len(self.made))
            # of a sum by a ring, a rank's own tile comes last
            own = self._last.get(beside.get(place, place), ())
            self._last[place] = (len(self.made) - 1, *own)

    def _add_communication(self, row: Row, product: int) -> None:
        made = self._parts.get(product)  # what is summed
        first = self._ends(wait for wait in row.waits if wait != product)
        parts = self._tiles if is_cut(row.comm_type, self._overlap) else 1
        for number in range(parts):
            waits = first if number == 0 else ()
            if made is not None:
                waits = (made[number], *waits)
            part = row._replace(comm_bytes=-(-row.comm_bytes // parts), waits=waits)
            self.made.append(part if parts == 1 else self._tile_of(part, number))

    def _add_product(self, row: Row, gather: int) -> None:
        assert row.work is not None
        work = tile_of(row.work, self._tiles)
        first = self._ends(wait for wait in row.waits if wait != gather)
        parts = self._parts.get(gather, range(0))
        for number in range(self._tiles):
            waits = first if number == 0 else ()
            from_end = self._tiles - number
            if from_end <= len(parts):  # of a ring, the last tile alone
                waits = (*waits, parts[-from_end])
            tile = self._tile_of(row._replace(work=work, waits=waits), number)
            if number == 0 and len(parts) == 1:
                tile = self._of_own(tile, self._rows[gather])
            self.made.append(tile)

    def _of_own(self, tile: Row, gather: Row) -> Row:
        """Return a tile that reads what a rank has before it is gathered."""
        (given, *_), (whole, *_) = gather.operands
        read = tuple(given if one.storage == whole.storage else one for one in tile.operands.inputs)
        waits = (*tile.waits, *self._ends(gather.waits))
        return tile._replace(waits=waits, operands=tile.operands._replace(inputs=read))

    def _tile_of(self, row: Row, number: int) -> Row:
        """Return one part of a row, which uses tiles of its tensors."""
        given, made = (tuple(self._tile(one, number) for one in part) for part in row.operands)
        if number:  # into what the first one made
            given = tuple(dict.fromkeys((*given, *made)))
        name = f"{row.name}{_TILE}{number}"
        return row._replace(name=name, operands=RowOperands(given, made))

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
