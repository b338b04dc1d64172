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
from nadi.models.job_rows import Row
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

    seconds: Floats  # of each alone
    matrix_seconds: Floats  # of products and attention, else 0
    # flops, bytes: of computation, else 0
    flops: Floats
    bytes: Floats


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
    works = np.flatnonzero(table.op_class > 0)
    of_slots = np.zeros(table.flops.size)
    of_slots[works] = kernel_seconds(machine, table.operations.at(works), datatype[works])
    is_matrix = np.isin(table.op_class, (_GEMM, _ATTENTION))
    found = []
    for one in programs:
        places = one.begin + one.program.slots[:, None]
        seconds = of_slots[places]
        matrix = np.where(is_matrix[places], seconds, 0.0)
        flops, moved = (column[places].astype(float) for column in (table.flops, table.bytes))
        found.append(RowPrices(seconds, matrix, flops, moved))
    _price_communication(machine, groups, table, programs, found)
    num = ways.num_executions
    beside = _Beside(
        np.broadcast_to(ways.seq_par_ag_redo == 1, num),
        np.broadcast_to(~ways.is_named("tensor_par_overlap", "none"), num),
        np.broadcast_to(ways.is_named("tensor_par_overlap", "pipe"), num),
        np.broadcast_to(processor_usage(machine, ways.tensor_par_net), num),
        np.broadcast_to(ways.tensor_par, num),
    )
    for one, prices in zip(programs, found, strict=True):
        _drop_and_overlap(beside, one, prices.seconds)
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
        sizes, ways = [], []
        for number, place in rows:
            one = programs[number]
            sizes.append(table.whole[one.begin + one.program.slots[place]])
            ways.append(one.ways)
        size, way = np.concatenate(sizes), np.concatenate(ways)
        group = RankGroup(*(
            column if column.size == 1 else column[way] for column in groups[role]
        ))  # fmt: skip
        contributed = contributed_bytes(kind, size, group)
        seconds = collective_seconds(machine, kind, contributed, group)
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
    is_pipe: Bools
    usage: Floats
    degree: Ints

    def at(self, ways: Ints) -> _Beside:
        """Give some ways."""
        return _Beside(
            self.redo[ways], self.overlaps[ways], self.is_pipe[ways], self.usage[ways],
            self.degree[ways],
        )  # fmt: skip


def _drop_and_overlap(beside: _Beside, one: ProgramWays, seconds: Floats) -> None:
    """Leave out gathers that are not done again, and overlap products with their collectives."""
    here = beside.at(one.ways)
    rows = one.program.rows
    for place, row in enumerate(rows):
        if row.role != "tp":
            continue
        if row.name.endswith(GATHERED_AGAIN):
            seconds[place] = np.where(here.redo, seconds[place], 0.0)
        elif (product := _product_beside(rows, place)) >= 0:
            exposed = _exposed(seconds[place], seconds[product], here)
            seconds[place] = np.where(here.overlaps, exposed, seconds[place])


def _product_beside(rows: Sequence[Row], place: int) -> int:
    """Return the product whose tiles a collective can go along with, -1 if there is none."""
    row = rows[place]
    if row.comm_type == "all_gather":
        for later in range(place + 1, len(rows)):
            work = rows[later].work
            if work is not None and place in rows[later].waits:
                return later if work.op_class == "gemm" else -1
        return -1
    before = [wait for wait in row.waits if wait >= 0]
    work = rows[before[0]].work if before else None
    return before[0] if work is not None and work.op_class == "gemm" else -1


def _exposed(network: Floats, product: Floats, beside: _Beside) -> Floats:
    """Return what collectives expose beside products, tile by tile; a pipe one tile more."""
    tile = network / beside.degree
    excess = np.maximum(network - product, 0.0) * (beside.degree - 1) / beside.degree
    slowed = beside.usage * np.minimum(network, product)
    exposed: Floats = excess + slowed + np.where(beside.is_pipe, tile, 0.0)
    return exposed
