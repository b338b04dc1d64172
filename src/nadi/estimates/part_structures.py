"""Programs of a model's parts without their sizes, which many ways share.

Which operations a layer has, in which order, and what each waits for depends on names and on which
degrees exceed one. Degrees, micro-batches and widths change sizes alone. So programs are generated
once for each structure; where each of their rows takes its sizes from is found by its name.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nadi.models.job_rows import Row
from nadi.models.llm.chunk_tensors import ChunkTensors, LastingTensors
from nadi.models.llm.language_model import LanguageModel
from nadi.models.llm.layer_pieces import Piece
from nadi.models.llm.parallel_plan import ParallelPlan
from nadi.models.llm.product_tiles import name_without_tile, products_beside, tile_of
from nadi.models.llm.stage_traces import (
    BackwardKind,
    Chunk,
    ChunkLinks,
    backward_rows,
    forward_rows,
    residual_bytes,
)
from nadi.systems.memory_tiers import DISTANCE
from nadi.trace.arrays import Ints, whole_numbers
from nadi.trace.operations import Operations, dtype_code, op_class_code
from nadi.trace.work import Work

_WORKS = ("forward", "input_gradient", "weight_gradient")
GATHERED_AGAIN = ".input.all_gather"  # a gather for the gradients of weights
_TILE = " of a tile"
_NO_SHAPE = (-1, -1, -1, -1)
_NO_WORK = (0, 0, 0, 0, *_NO_SHAPE)
_F32 = 4


class Amounts(NamedTuple):
    """All sizes of a part's pieces, or of many parts; int64, shape (slots,) but for ``shape``."""

    flops: Ints
    bytes: Ints
    op_class: Ints
    dtype: Ints
    shape: Ints  # (slots, 4)
    whole: Ints  # bytes of a tensor that a collective moves

    @property
    def operations(self) -> Operations:
        """The computations, each with nothing to do where a slot is a collective's."""
        return Operations(*self[:5])


class VisitedAgain(NamedTuple):
    """What leaves and comes back within one direction of a part."""

    # names of pieces: of those whose tensors only come back, as they were there before, and of all
    # others
    loaded: frozenset[str]
    stored: frozenset[str]
    # the last row that uses one of these before it leaves, or in a forward the part's input; -1
    # without any
    left: int
    back: int  # the first row that uses one that came back; behind the last row without any


class PartProgram(NamedTuple):
    """What a part does in one direction."""

    rows: tuple[Row, ...]  # its operations; their sizes are those of one way
    slots: Ints  # where each has its sizes among the part's amounts: int64, shape (rows,)
    # the product that communication of tensor parallel ranks can go beside, by the places of both
    beside: Mapping[int, int]
    tiles: Ints  # where such a product has the sizes of a tile, -1 for others: shape (rows,)
    again: VisitedAgain  # what leaves and comes back, where tensors move


_Slot = tuple[str, str]  # name of a piece, and what of it


def amounts_of(model: LanguageModel, plan: ParallelPlan, pieces: Sequence[Piece]) -> Amounts:
    """Give the sizes of a part's pieces, in the same order for all ways with one structure."""
    return _amounts([numbers for _, numbers in _slots(model, plan, pieces)])


def amounts_of_works(works: Sequence[Work | None]) -> Amounts:
    """Give the sizes of operations, each with nothing to do where there is none."""
    return _amounts([_of_work(one) for one in works])


def _amounts(numbers: Sequence[tuple[int, ...]]) -> Amounts:
    table = whole_numbers(numbers, "model")
    flops, moved, op_class, dtype = table.T[:4]
    return Amounts(flops, moved, op_class, dtype, table[:, 4:8], table[:, 8])


def structure_of(
    model: LanguageModel, plan: ParallelPlan, layer: int, pieces: tuple[Piece, ...]
) -> tuple[PartProgram, PartProgram]:
    """Generate what a part does, forward and backward; layer -1 is the embedding and the head."""
    chunk = Chunk(((layer, pieces),), first=False, last=False)
    lasting = LastingTensors(model, plan, chunk.layers)
    tensors = ChunkTensors(model, plan, chunk.layers, lasting)
    forward = forward_rows(model, plan, chunk, ChunkLinks(), tensors)
    backward: list[Row] = []
    if not plan.inference:
        both = BackwardKind(True, True, False)
        backward = backward_rows(model, plan, chunk, ChunkLinks(), tensors, both)
    places = {slot: place for place, (slot, _) in enumerate(_slots(model, plan, pieces))}
    there, back = _program(forward, places), _program(backward, places)
    until_input = there.again._replace(left=_last_use_of_input(forward))
    return there._replace(again=until_input), back


def _last_use_of_input(rows: Sequence[Row]) -> int:
    """Give the last row that uses what the first one reads, but for what lasts, or -1."""
    read = {one.storage for row in rows[:1] for one in row.operands.inputs if not one.lasts}
    uses = (
        turn for turn, row in enumerate(rows)
        if any(one.storage in read for one in row.operands.inputs)
    )  # fmt: skip
    return max(uses, default=-1)


def _program(rows: Sequence[Row], places: Mapping[_Slot, int]) -> PartProgram:
    slots = [_slot_of(row) for row in rows]
    beside = products_beside(rows)
    tiles = np.full(len(rows), -1)
    for product in beside.values():
        name, what = slots[product]
        tiles[product] = places[name, what + _TILE]
    numbers = np.array([places[slot] for slot in slots], dtype=np.int64)
    return PartProgram(tuple(rows), numbers, beside, tiles, visited_again(rows))


def visited_again(rows: Sequence[Row]) -> VisitedAgain:
    """Find the pieces whose tensors leave and come back within one direction of a part.

    Their uses are too far apart for them to stay meanwhile.
    """
    uses: dict[str, tuple[int, bool]] = {}
    found: tuple[set[str], set[str]] = set(), set()
    left, back = -1, len(rows)
    for turn, row in enumerate(rows):
        for is_made, operands in enumerate(row.operands):
            for one in operands:
                if one.lasts:
                    continue
                last, made = uses.get(one.storage, (turn, bool(is_made)))
                if turn - last > DISTANCE:
                    found[made].add(_slot_of(row)[0])
                    left, back = max(left, last if made else -1), min(back, turn)
                uses[one.storage] = turn, made
    return VisitedAgain(frozenset(found[0]), frozenset(found[1]), left, back)


def weight_uses(rows: Sequence[Row]) -> tuple[int, int, int, int]:
    """Count the operations before the first one that uses weights, and from the last one on.

    The weights of experts, of which both are the last two, are a tensor of their own.
    """
    uses: dict[str, tuple[int, int]] = {}  # the first and the last, by their role
    for turn, row in enumerate(rows):
        for operands in row.operands:
            for one in operands:
                if one.role == "weights":
                    role = one.storage.split(".")[-2]
                    uses[role] = uses.get(role, (turn, turn))[0], turn
    none = len(rows), 0
    (first, last), (first_expert, last_expert) = (uses.get(role, none) for role in ("dp", "edp"))
    return first, len(rows) - last, first_expert, len(rows) - last_expert


def count_moved_tensors(there: Sequence[Row], back: Sequence[Row]) -> tuple[int, int]:
    """Count the weights that a forward uses, and the tensors that the backward has of it."""
    weights = {
        one.storage for row in there for one in row.operands.inputs if one.role == "weights"
    }  # fmt: skip
    known = {one.storage for row in there for part in row.operands for one in part}
    made: set[str] = set()
    kept: set[str] = set()
    for row in back:
        kept |= {one.storage for one in row.operands.inputs if not one.lasts} - made
        made |= {one.storage for one in row.operands.outputs}
    return len(weights), len(kept & known)


def _slots(
    model: LanguageModel, plan: ParallelPlan, pieces: Sequence[Piece]
) -> Iterator[tuple[_Slot, tuple[int, ...]]]:
    """Give all amounts of pieces, and what each is called."""
    for piece in pieces:
        for what in _WORKS:
            work = getattr(piece, what)
            yield (piece.name, what), _of_work(work)
            if plan.tp > 1 and work is not None and work.op_class == "gemm":
                yield (piece.name, f"{what}{_TILE}"), _of_work(tile_of(work, plan.tp))
        yield (piece.name, GATHERED_AGAIN), (*_NO_WORK, piece.gathered_again)
        for way in piece.ways:
            yield (piece.name, way.axis), (*_NO_WORK, way.size)
            yield (piece.name, f"{way.axis} backward"), (*_NO_WORK, way.gradient_size)
    yield ("", "residual"), (*_NO_WORK, residual_bytes(model, plan))
    yield ("", "loss"), (*_NO_WORK, _F32 * plan.tokens)


def _of_work(work: Work | None) -> tuple[int, ...]:
    if work is None:
        return *_NO_WORK, 0
    kind, dtype = op_class_code(work.op_class), dtype_code(work.dtype)
    return work.flops, work.bytes, kind, dtype, *(work.shape or _NO_SHAPE), 0


def _slot_of(row: Row) -> _Slot:
    """Return what a row's sizes are called, which its name tells."""
    name = name_without_tile(row.name.removeprefix(f"layers.{row.layer}."))
    piece, _, last = name.rpartition(".")
    if row.work is not None:
        return (piece, last) if last in _WORKS[1:] else (name, _WORKS[0])
    if name.endswith(GATHERED_AGAIN):
        return name.removesuffix(GATHERED_AGAIN), GATHERED_AGAIN
    if piece.startswith("head.loss."):
        return "", "loss"
    if piece == "embedding" and row.phase == "forward":
        return "", "residual"
    return piece, f"{row.role} backward" if row.phase == "backward" else row.role
