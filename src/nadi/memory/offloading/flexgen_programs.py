"""FlexGen's placement as linear programs: of one block, and of blocks of any size in a range."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from nadi.memory.linear_programs import LinearProgram, program_of_rows, solve_program
from nadi.memory.offloading.flexgen_costs import (
    NUM_COLUMNS,
    BlockCostLines,
    Inference,
    OffloadMachine,
    block_cost_lines,
)
from nadi.trace.arrays import Floats

SharesGiven = tuple[float | None, ...]
"""Shares of weights on GPU and CPU, then of cache, then of hidden; None where they are free."""
FREE: SharesGiven = (None,) * 6
NUM_SHARES = 8
"""Columns before the times of a layer."""
MEMORIES = np.array([0, 1, 0, 1, 2])
"""Of each line of bytes: GPU, CPU or disk."""
_GIVEN = (0, 1, 3, 4, 6, 7)  # columns of the shares that may be given
_WEIGHTS = 3  # the first columns
_PREFILL, _DECODE = 8, 9  # columns of the times of a layer
_SUMS = np.zeros((3, NUM_COLUMNS))  # shares that add up to 1
_SUMS[0, :3] = _SUMS[1, 3:6] = _SUMS[2, 6:8] = 1.0


class _Scales(NamedTuple):
    """What makes times, bytes and costs of a block near 1, as the solver's tolerances need it."""

    # seconds that the computation of a layer takes in prefill and in decode
    phases: tuple[float, float]
    # limits, sizes: bytes that each line of memory may fill, and the same but never 0
    limits: Floats
    sizes: Floats
    costs: Floats  # of shares and times
    seconds: float  # of a block, for a cost of 1

    @classmethod
    def of(cls, asked: Inference, block: BlockCostLines, usable: Floats) -> _Scales:
        """Choose the scales of a block."""
        phases = (float(block.prefill[:, -1].max()), float(block.decode[:, -1].max()))
        limits = usable[MEMORIES]
        sizes = np.where(limits > 0, limits, np.abs(block.memory).max(axis=1))
        times = np.array([phases[0], phases[1] * (asked.generated - 1)])
        costs = np.append(np.zeros(NUM_SHARES), times / times.sum())
        return cls(phases, limits, sizes, costs, asked.layers * float(times.sum()))

    def lines(self, block: BlockCostLines) -> Floats:
        """Give times less the longest of their phase, and bytes; the last column is constant."""
        prefill, decode = block.prefill / self.phases[0], block.decode / self.phases[1]
        prefill[:, _PREFILL] -= 1
        decode[:, _DECODE] -= 1
        return np.vstack([prefill, decode, block.memory / self.sizes[:, None]])


def block_program(
    asked: Inference, block: BlockCostLines, usable: Floats, given: SharesGiven
) -> LinearProgram:
    """Make the program that minimizes the time of a block; its columns are those of its costs.

    - ``usable``: Bytes that may be filled on GPU, CPU and disk: float64, shape (3,).
    """
    scales = _Scales.of(asked, block, usable)
    lines = scales.lines(block)
    most = np.append(np.zeros(len(lines) - len(MEMORIES)), scales.limits / scales.sizes)
    high = np.append(np.ones(len(_SUMS)), most - lines[:, -1])
    low = np.append(np.ones(len(_SUMS)), np.full(len(lines), -np.inf))
    begins, ends = _given_bounds(given)
    rows = np.vstack([_SUMS, lines[:, :-1]])
    return program_of_rows(
        scales.costs, np.append(begins, np.zeros(2)), np.append(ends, np.full(2, np.inf)), rows,
        low, high,
    )  # fmt: skip


def in_percent(program: LinearProgram) -> LinearProgram:
    """Give a program of a block whose shares are whole percentages."""
    unit = np.append(np.full(NUM_SHARES, 100.0), [1.0, 1.0])
    return program._replace(
        low=program.low * unit, high=program.high * unit, costs=program.costs / unit,
        values=program.values / unit[program.columns], whole=unit > 1,
    )  # fmt: skip


def needed_bytes(
    asked: Inference, machine: OffloadMachine, batch: int, num_batches: int, given: SharesGiven
) -> tuple[float, ...]:
    """Give the least usable bytes of GPU, CPU and disk with which a block fits, one at a time.

    The other two are as they are; infinite if a memory of any size would not be enough.
    """
    memory = block_cost_lines(asked, machine, batch, num_batches).memory
    scale = float(np.abs(memory).max())
    lines = memory[:, :NUM_SHARES] / scale
    begins, ends = _given_bounds(given)
    rows = np.zeros((len(_SUMS) + len(lines), NUM_SHARES + 1))
    rows[: len(_SUMS), :NUM_SHARES] = _SUMS[:, :NUM_SHARES]
    rows[len(_SUMS) :, :NUM_SHARES] = lines
    low = np.append(np.ones(len(_SUMS)), np.full(len(lines), -np.inf))
    costs = np.append(np.zeros(NUM_SHARES), 1.0)
    found = []
    for number in range(len(machine.usable)):
        is_free = np.equal(MEMORIES, number)
        rows[len(_SUMS) :, NUM_SHARES] = np.where(is_free, -1.0, 0.0)
        most = np.where(is_free, 0.0, machine.usable[MEMORIES] / scale) - memory[:, -1] / scale
        high = np.append(np.ones(len(_SUMS)), most)
        bounds = np.append(begins, 0.0), np.append(ends, np.inf)
        found.append(solve_program(program_of_rows(costs, *bounds, rows, low, high)).objective)
    return tuple(one * scale for one in found)


def _given_bounds(given: SharesGiven) -> tuple[Floats, Floats]:
    """Give the least and largest shares."""
    begins, ends = np.zeros(NUM_SHARES), np.ones(NUM_SHARES)
    for column, share in zip(_GIVEN, given, strict=True):
        if share is not None:
            begins[column] = ends[column] = share
    return begins, ends


class RangeBound:
    """What no number of batches in a range can beat.

    All is divided by the number of sequences, whose inverse is a column of its own. Shares of
    weights are divided by it, too. What a batch needs while it is worked on does not grow with the
    number of batches; it counts with the number in the range that makes it least.
    """

    def __init__(
        self, asked: Inference, machine: OffloadMachine, batch: int, given: SharesGiven
    ) -> None:
        self._asked, self._usable, self._batch = asked, machine.usable, batch
        self._given = given
        one = block_cost_lines(asked, machine, batch, 1)
        two = block_cost_lines(asked, machine, batch, 2)
        self._growth = [b - a for a, b in zip(one, two, strict=True)]
        self._fixed = [a - b for a, b in zip(one, self._growth, strict=True)]

    def bound(self, low: int, high: int) -> tuple[float, int]:
        """Give a bound of the seconds per sequence, and the number that is likely best.

        The bound is infinite if no number from ``low`` to ``high`` fits.
        """
        parts = list(zip(self._fixed, self._growth, strict=True))
        smallest = BlockCostLines(*(fixed + low * growth for fixed, growth in parts))
        scales = _Scales.of(self._asked, smallest, self._usable)
        lines = scales.lines(BlockCostLines(*(_divided(*part, low, high) for part in parts)))
        lines[-len(MEMORIES) :, NUM_COLUMNS] -= scales.limits / scales.sizes
        equal, sums, begins, ends = self._equations(low / high)
        program = program_of_rows(
            np.append(scales.costs, 0.0), begins, ends, np.vstack([equal, lines[:, :-1]]),
            np.append(sums, np.full(len(lines), -np.inf)), np.append(sums, -lines[:, -1]),
        )  # fmt: skip
        found = solve_program(program)
        if found.status != "optimal":
            return math.inf, low
        seconds = found.objective * scales.seconds / (low * self._batch)
        return seconds, min(max(round(low / found.values[NUM_COLUMNS]), low), high)

    def _equations(self, least: float) -> tuple[Floats, Floats, Floats, Floats]:
        """Give rows of shares that add up or are given, their sums, and bounds of columns."""
        rows = np.hstack([_SUMS, np.zeros((len(_SUMS), 1))])
        rows[0, NUM_COLUMNS] = -1.0  # shares of weights are divided, too
        sums = [0.0, 1.0, 1.0]
        begins, ends = _given_bounds(self._given)
        begins[:_WEIGHTS], ends[:_WEIGHTS] = 0.0, 1.0
        for column, share in zip(_GIVEN[:2], self._given[:2], strict=True):
            if share is not None:
                row = np.zeros(NUM_COLUMNS + 1)
                row[column], row[NUM_COLUMNS] = 1.0, -share
                rows = np.vstack([rows, row])
                sums.append(0.0)
        begins = np.append(begins, [0.0, 0.0, least])
        return rows, np.array(sums), begins, np.append(ends, [np.inf, np.inf, 1.0])


def _divided(fixed: Floats, growth: Floats, low: int, high: int) -> Floats:
    """Give lines divided by the number of batches and times ``low``.

    The new column before the constant is ``low`` by that number.
    """
    lines = low * growth
    rest = fixed[:, _WEIGHTS:-1]
    least = np.where(rest > 0, rest * low / high, rest)
    lines[:, :-1] += np.hstack([fixed[:, :_WEIGHTS], least])
    return np.insert(lines, NUM_COLUMNS, fixed[:, -1], axis=1)
