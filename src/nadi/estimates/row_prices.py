"""Seconds of the operations of programs, alone.

Kernels are priced by a device's curves, or by engines' efficiencies; communication by the network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nadi.estimates.calculon.machine_description import MachineDescription, processor_usage
from nadi.estimates.execution import Executions
from nadi.estimates.part_structures import GATHERED_AGAIN, Amounts, PartProgram
from nadi.estimates.rings import RankGroup, collective_seconds
from nadi.models.llm.product_tiles import is_cut
from nadi.trace.arrays import Bools, Floats, Ints
from nadi.trace.operations import Operations, op_class_code

_GEMM, _ATTENTION = op_class_code("gemm"), op_class_code("attention")
_SUMS = ("all_reduce", "reduce_scatter")
PRICED_COLLECTIVES = (*_SUMS, "all_gather", "all_to_all")


class ProgramWays(NamedTuple):
    """A program, and the ways that have it."""

    program: PartProgram  # what all of them do
    ways: Ints  # int64, shape (ways of the program,): which they are
    begin: Ints  # where the amounts of each begin in the table of all: the same shape


class RowPrices(NamedTuple):
    """What the operations of a program cost: float64, shape (rows, ways of the program)."""

    seconds: Floats  # of each alone; of what is cut into tiles, of all parts
    matrix_seconds: Floats  # of products and attention, else 0
    # flops, bytes: of computation, else 0
    flops: Floats
    bytes: Floats
    parts: Floats  # how many it is cut into, to go tile by tile beside another one; 0 if it is not


def row_prices(
    machine: MachineDescription, ways: Executions, groups: Mapping[str, RankGroup],
    table: Amounts, datatype: Ints, programs: Sequence[ProgramWays],
) -> list[RowPrices]:  # fmt: skip
    """Price the operations of programs.

    - ``ways``: Of all programs.
    - ``groups``: Where the members of each role stand, per way.
    - ``table``: The amounts of all parts, which several ways can share.
    - ``datatype``: Of each of them, int64, shape (slots,): as for :func:`kernel_seconds`.
    - ``programs``: In each, every way once.
    """
    num = ways.num_executions
    beside = _Beside(
        np.broadcast_to(ways.seq_par_ag_redo == 1, num),
        np.broadcast_to(~ways.is_named("tensor_par_overlap", "none"), num),
        np.broadcast_to(ways.is_named("tensor_par_overlap", "ring"), num),
        np.broadcast_to(processor_usage(machine, ways.tensor_par_net), num),
        np.broadcast_to(ways.tensor_par, num),
    )
    all_parts = [_parts(one.program, beside.at(one.ways)) for one in programs]
    places = [_places(one, parts) for one, parts in zip(programs, all_parts, strict=True)]
    is_used = np.zeros(table.flops.size, dtype=np.bool_)
    for used in places:
        is_used[used] = True
    works = np.flatnonzero(is_used & (table.op_class > 0))
    of_slots = np.zeros(table.flops.size)
    of_slots[works] = kernel_seconds(machine, table.operations.at(works), datatype[works])
    is_matrix = np.isin(table.op_class, (_GEMM, _ATTENTION))
    found = []
    for place, parts in zip(places, all_parts, strict=True):
        times = np.maximum(parts, 1.0)
        seconds: Floats = of_slots[place] * times
        matrix = np.where(is_matrix[place], seconds, 0.0)
        flops: Floats = times * table.flops[place]
        moved: Floats = times * table.bytes[place]
        found.append(RowPrices(seconds, matrix, flops, moved, parts))
    _price_communication(machine, groups, table, programs, found)
    for one, prices in zip(programs, found, strict=True):
        _drop_and_slow(beside.at(one.ways), one.program, prices.seconds)
    return found


def _parts(program: PartProgram, beside: _Beside) -> Floats:
    """Give into how many parts each operation is cut in each way, 0 where there are no tiles."""
    found = np.zeros((len(program.rows), beside.degree.size))
    has_tiles = beside.overlaps & (beside.degree > 1)
    if not has_tiles.any():
        return found
    tiles = np.where(has_tiles, beside.degree, 0.0)
    of_ring = np.where(has_tiles & beside.is_ring, 1.0, tiles)
    for place, product in program.beside.items():
        stays = not is_cut(program.rows[place].comm_type, "ring")
        found[place] = of_ring if stays else tiles
        found[product] = tiles
    return found


def _places(one: ProgramWays, parts: Floats) -> Ints:
    """Give where the operations of a program have their sizes, or those of a tile, in each way."""
    slots, tiles = one.program.slots[:, None], one.program.tiles[:, None]
    found: Ints = one.begin + np.where((tiles >= 0) & (parts > 0), tiles, slots)
    return found


def kernel_seconds(machine: MachineDescription, operations: Operations, datatype: Ints) -> Floats:
    """Give the seconds of kernels alone.

    - ``datatype``: Codes of ``Executions``, for machines whose engines price kernels.
    """
    if machine.device is not None:
        nanoseconds: Ints = getattr(machine.kernel_prices(operations), machine.prices_at)
        return np.maximum(nanoseconds, 0) / 1e9
    flops, moved = operations.flops.astype(float), operations.bytes.astype(float)
    is_matrix = np.isin(operations.op_class, (_GEMM, _ATTENTION))
    compute = np.where(
        is_matrix,
        machine.compute_time("matrix", datatype, flops),
        machine.compute_time("vector", datatype, flops),
    )
    return machine.processing_time(compute, machine.mem1.time(moved))


def _price_communication(
    machine: MachineDescription, groups: Mapping[str, RankGroup], table: Amounts,
    programs: Sequence[ProgramWays], found: Sequence[RowPrices],
) -> None:  # fmt: skip
    """Price all collectives of one type and role at once."""
    places: dict[tuple[str, str], list[tuple[int, int]]] = {}  # program, row
    for number, one in enumerate(programs):
        for place, row in enumerate(one.program.rows):
            if row.role in groups and row.comm_type in PRICED_COLLECTIVES:
                places.setdefault((row.role, row.comm_type), []).append((number, place))
    for (role, kind), rows in places.items():
        sizes, ways, parts = [], [], []
        for number, place in rows:
            one = programs[number]
            sizes.append(table.whole[one.begin + one.program.slots[place]])
            ways.append(one.ways)
            parts.append(np.maximum(found[number].parts[place], 1.0))
        size, way, times = (np.concatenate(one) for one in (sizes, ways, parts))
        group = RankGroup(*(
            column if column.size == 1 else column[way] for column in groups[role]
        ))  # fmt: skip
        contributed = np.ceil(contributed_bytes(kind, size, group) / times)
        seconds = times * collective_seconds(machine, kind, contributed, group)
        ends = np.cumsum([one.size for one in ways])[:-1]
        for (number, place), part in zip(rows, np.split(seconds, ends), strict=True):
            found[number].seconds[place] = part


def contributed_bytes(operation: str, whole: Ints, group: RankGroup) -> Floats:
    """Give the bytes that each member of a collective contributes of a whole tensor."""
    contributed = whole if operation in _SUMS else -(-whole // group.members)
    return contributed.astype(float)


class _Beside(NamedTuple):
    """How collectives of tensor parallelism go along with products; shape (ways,)."""

    redo: Bools  # gathers once more for the gradients of weights
    overlaps: Bools
    is_ring: Bools
    usage: Floats
    degree: Ints

    def at(self, ways: Ints) -> _Beside:
        """Give some ways."""
        return _Beside(
            self.redo[ways], self.overlaps[ways], self.is_ring[ways], self.usage[ways],
            self.degree[ways],
        )  # fmt: skip


def _drop_and_slow(beside: _Beside, program: PartProgram, seconds: Floats) -> None:
    """Leave out gathers that are not done again, and slow products beside their collectives."""
    for place, row in enumerate(program.rows):
        if row.role == "tp" and row.name.endswith(GATHERED_AGAIN):
            seconds[place] = np.where(beside.redo, seconds[place], 0.0)
    if not beside.overlaps.any():
        return
    for place, product in program.beside.items():
        slowed = beside.usage * np.minimum(seconds[place], seconds[product])
        seconds[product] += np.where(beside.overlaps, slowed, 0.0)
