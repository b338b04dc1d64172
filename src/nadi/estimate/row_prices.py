"""Seconds of the operations of programs, alone.

Kernels are priced by a device's curves, or by engines' efficiencies; communication by the network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nadi.estimate.execution import Executions
from nadi.estimate.machine_description import MachineDescription
from nadi.estimate.nested_collectives import RankGroup, collective_seconds
from nadi.estimate.network_times import processor_usage
from nadi.generate.job_rows import Row
from nadi.model.arrays import Floats, Ints
from nadi.pricing.operations import Operations, dtype_code, op_class_code
from nadi.pricing.price_list import price

__all__ = ["RowPrices", "kernel_seconds", "row_prices"]

_GEMM, _ATTENTION = op_class_code("gemm"), op_class_code("attention")
_COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")
_AGAIN = ".input.all_gather"  # a gather for the gradients of weights


class RowPrices(NamedTuple):
    """What operations of programs cost, one program after the other; shape (rows,).

    Attributes
    ----------
    seconds
        Of each alone.
    matrix_seconds
        Of products and attention, else 0.
    flops, bytes
        Of computation, else 0.
    first
        int64, shape (programs,): where each begins.
    """

    seconds: Floats
    matrix_seconds: Floats
    flops: Floats
    bytes: Floats
    first: Ints


def row_prices(
    machine: MachineDescription, ways: Executions, groups: Mapping[str, RankGroup],
    programs: Sequence[tuple[int, Sequence[Row]]],
) -> RowPrices:  # fmt: skip
    """Price the operations of programs.

    Parameters
    ----------
    ways
        Of all programs; which one a program is of comes with it.
    groups
        Where the members of each role stand, per way.
    """
    lengths = np.array([len(rows) for _, rows in programs], dtype=np.int64)
    way = np.repeat(np.array([number for number, _ in programs], dtype=np.int64), lengths)
    all_rows = [row for _, rows in programs for row in rows]
    works = [row.work for row in all_rows]
    is_work = np.array([work is not None for work in works], dtype=bool)
    operations = _operations([work for work in works if work is not None])
    datatype = np.broadcast_to(ways.datatype, ways.num_executions)
    seconds = np.zeros(len(all_rows))
    seconds[is_work] = kernel_seconds(machine, operations, datatype[way[is_work]])
    flops, moved = np.zeros((2, seconds.size))
    flops[is_work], moved[is_work] = operations.flops, operations.bytes
    is_matrix = np.zeros(seconds.size, dtype=bool)
    is_matrix[is_work] = np.isin(operations.op_class, (_GEMM, _ATTENTION))
    _price_communication(machine, groups, all_rows, way, seconds)
    first = np.cumsum(lengths) - lengths
    _drop_and_overlap(machine, ways, programs, first, seconds)
    return RowPrices(seconds, np.where(is_matrix, seconds, 0.0), flops, moved, first)


def _operations(works: Sequence[object]) -> Operations:
    codes: dict[str, int] = {}
    types: dict[str, int] = {}

    def code(table: dict[str, int], name: str, of: object) -> int:
        if name not in table:
            table[name] = of(name)  # type: ignore[operator]
        return table[name]

    nothing = (-1, -1, -1, -1)
    return Operations(
        np.array([work.flops for work in works], dtype=np.int64),  # type: ignore[attr-defined]
        np.array([work.bytes for work in works], dtype=np.int64),  # type: ignore[attr-defined]
        np.array([code(codes, work.op_class, op_class_code) for work in works], dtype=np.int64),  # type: ignore[attr-defined]
        np.array([code(types, work.dtype, dtype_code) for work in works], dtype=np.int64),  # type: ignore[attr-defined]
        np.array([work.shape or nothing for work in works], dtype=np.int64).reshape(-1, 4),  # type: ignore[attr-defined]
    )


def kernel_seconds(machine: MachineDescription, operations: Operations, datatype: Ints) -> Floats:
    """Give the seconds of kernels alone.

    Parameters
    ----------
    datatype
        Codes of ``Executions``, for machines whose engines price kernels.
    """
    if machine.device is not None:
        return np.maximum(price(operations, machine.device).duration, 0) / 1e9
    flops, moved = operations.flops.astype(float), operations.bytes.astype(float)
    is_matrix = np.isin(operations.op_class, (_GEMM, _ATTENTION))
    compute = np.where(
        is_matrix,
        machine.compute_time("matrix", datatype, flops),
        machine.compute_time("vector", datatype, flops),
    )
    return machine.processing_time(compute, machine.mem1.time(moved))


def _price_communication(
    machine: MachineDescription, groups: Mapping[str, RankGroup], rows: Sequence[Row], way: Ints,
    seconds: Floats,
) -> None:  # fmt: skip
    kinds = np.array([
        _COLLECTIVES.index(row.comm_type) if row.comm_type in _COLLECTIVES else -1 for row in rows
    ])  # fmt: skip
    roles = list(groups)
    role = np.array([roles.index(row.role) if row.role in roles else -1 for row in rows])
    size = np.array([float(row.comm_bytes) for row in rows])
    for number, name in enumerate(roles):
        for kind, operation in enumerate(_COLLECTIVES):
            chosen = np.flatnonzero((kinds == kind) & (role == number))
            if chosen.size:
                here = RankGroup(*(
                    column if column.size == 1 else column[way[chosen]] for column in groups[name]
                ))  # fmt: skip
                seconds[chosen] = collective_seconds(machine, operation, size[chosen], here)


def _drop_and_overlap(
    machine: MachineDescription, ways: Executions,
    programs: Sequence[tuple[int, Sequence[Row]]], first: Ints, seconds: Floats,
) -> None:  # fmt: skip
    """Leave out gathers that are not done again, and overlap products with their collectives."""
    num = ways.num_executions
    redo = np.broadcast_to(ways.seq_par_ag_redo == 1, num)
    beside = np.broadcast_to(~ways.is_named("tensor_par_overlap", "none"), num)
    last = np.broadcast_to(ways.is_named("tensor_par_overlap", "pipe"), num)
    usage = np.broadcast_to(processor_usage(machine, ways.tensor_par_net), num)
    degree = np.broadcast_to(ways.tensor_par, num)
    for (way, rows), begin in zip(programs, first.tolist(), strict=True):
        if redo[way] and not beside[way]:
            continue
        for place, row in enumerate(rows):
            if row.role != "tp":
                continue
            if row.name.endswith(_AGAIN):
                if not redo[way]:
                    seconds[begin + place] = 0.0
            elif beside[way] and (product := _product_beside(rows, place)) >= 0:
                seconds[begin + place] = _exposed(
                    seconds[begin + place], seconds[begin + product], int(degree[way]),
                    is_pipe=bool(last[way]), usage=float(usage[way]),
                )  # fmt: skip


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


def _exposed(network: float, product: float, tiles: int, *, is_pipe: bool, usage: float) -> float:
    """Return what a collective exposes beside a product, tile by tile; a pipe one tile more."""
    tile = network / tiles
    excess = max(network - product, 0.0) * (tiles - 1) / tiles
    slowed = usage * min(network, product)
    return excess + slowed + (tile if is_pipe else 0.0)
