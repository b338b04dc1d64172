"""The fastest way to run inference by FlexGen's cost model: batches, and what lies where.

For a batch and a number of batches the best shares are a small linear program. How many batches
are best is searched by bounds: with a range of numbers instead of one, the program in shares per
sequence is still linear once the working space of a batch is bounded, and what it gives is below
the time of every number in the range.

FlexGen's placement as linear programs: of one block, and of blocks of any size in a range.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.memory.linear_programs import LinearProgram, program_of_rows, solve_program
from nadi.memory.offloading.flexgen_costs import (
    DECODE,
    NAMES,
    NUM_COLUMNS,
    PREFILL,
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


_LARGEST = 1 << 20  # of batches, and of numbers of them: more is taken for no limit
_CLOSE = 1e-9
_Range = tuple[float, int, int, int]  # bound, first, last and likely number of batches


class OffloadPolicy(NamedTuple):
    """A batch, a number of batches, and what lies where.

    Attributes
    ----------
    batch, num_batches
        Sequences that the GPU computes at once, and how many such batches share each load of
        weights.
    seconds
        Of a block, which is all of its batches: prompts and all generated tokens.
    prefill_seconds, decode_seconds
        Of a layer in each phase, for one token in the second.
    bounds
        What takes longest in each phase, by its name in ``PREFILL`` and ``DECODE``.
    shares
        By name, such as ``weights_gpu``: of weights, cache and hidden in each memory.
    memory
        Bytes on GPU and CPU while prompts are read, then while tokens are generated, then on disk.
    rate
        Generated tokens a second.
    """

    batch: int
    num_batches: int
    seconds: float
    prefill_seconds: float
    decode_seconds: float
    bounds: tuple[str, str]
    shares: dict[str, float]
    memory: tuple[float, ...]
    rate: float

    @property
    def seconds_per_sequence(self) -> float:
        """What the program minimizes."""
        return self.seconds / (self.batch * self.num_batches)


class FlexGenSearch(NamedTuple):
    """What a search found.

    Attributes
    ----------
    policy
        The fastest; None if nothing fits.
    num_programs
        Linear programs that were solved.
    """

    policy: OffloadPolicy | None
    num_programs: int


def place_block(
    asked: Inference, machine: OffloadMachine, batch: int, num_batches: int,
    given: SharesGiven = FREE, *, whole_percent: bool = False,
) -> OffloadPolicy | None:  # fmt: skip
    """Find the shares with which a block takes the least time.

    Parameters
    ----------
    given
        Shares of weights on GPU and CPU, then of cache, then of hidden; None where they are free.
    whole_percent
        Only whole percentages, as FlexGen takes them.

    Returns
    -------
    OffloadPolicy or None
        None if no shares fit into the memories.

    Raises
    ------
    UsageError
        If the batch or their number is below 1, a share is not 0 to 1, or there is no solver.
    """
    _check(batch, num_batches, given)
    costs = block_cost_lines(asked, machine, batch, num_batches)
    program = block_program(asked, costs, machine.usable, given)
    if whole_percent:
        program = in_percent(program)
    found = solve_program(program)
    if found.status != "optimal":
        return None
    values = found.values
    if whole_percent:
        values = np.where(program.whole, np.round(values) / 100, values)
    values[:NUM_SHARES] = np.clip(values[:NUM_SHARES], 0.0, 1.0) + 0.0  # no -0
    at = np.append(values, 1.0)
    lines = costs.prefill @ at, costs.decode @ at
    prefill, decode = (float(line.max()) for line in lines)
    bounds = PREFILL[int(lines[0].argmax())], DECODE[int(lines[1].argmax())]
    seconds = asked.layers * (prefill + decode * (asked.generated - 1))
    sequences = batch * num_batches
    return OffloadPolicy(
        batch, num_batches, seconds, prefill, decode, bounds,
        dict(zip(NAMES, values[:NUM_SHARES].tolist(), strict=True)),
        tuple((costs.memory @ at).tolist()), sequences * asked.generated / seconds,
    )  # fmt: skip


def _check(batch: int, num_batches: int, given: SharesGiven) -> None:
    for name, count in (("batch", batch), ("num_batches", num_batches)):
        if count < 1:
            raise UsageError(Parameter(name, count), "not a number of sequences", "state 1 or more")
    if wrong := [share for share in given if share is not None and not 0 <= share <= 1]:
        raise UsageError(Parameter("given"), f"{wrong[0]:g} is not a share", "state 0 to 1")


def best_policy(
    asked: Inference, machine: OffloadMachine, batch: int | None = None,
    num_batches: int | None = None, given: SharesGiven = FREE, *, compat: str = "",
) -> FlexGenSearch:  # fmt: skip
    """Find the batch, the number of batches and the shares with the highest rate.

    Batches are the powers of two and their triples, up to the largest that fits; for each of them
    every number of batches is considered, most of them by bounds.

    Parameters
    ----------
    batch, num_batches
        Fixed numbers; None for the best.
    given
        As for :func:`place_block`.
    compat
        ``flexgen`` for the search of FlexGen's file: batches 1, 2, 3, 4, 8, 16, ..., and for each
        the numbers of batches from 1 until the rate falls for the first time.

    Raises
    ------
    UsageError
        As for :func:`place_block`, and if ``compat`` has another value.
    """
    if compat not in ("", "flexgen"):
        raise UsageError(Parameter("compat", compat), "unknown rules", "the only one is flexgen")
    _check(batch or 1, num_batches or 1, given)
    for name, count in (("batch", batch), ("num_batches", num_batches)):
        if count == 0:
            raise UsageError(Parameter(name, 0), "not a number of sequences", "state 1 or more")
    search = _Search(asked, machine, given, as_printed=bool(compat))
    batches = iter([batch]) if batch else _batches(compat)
    for size in batches:
        if num_batches is not None:
            fits = search.consider(size, num_batches) is not None
        elif compat:
            fits = search.until_falling(size)
        else:
            fits = search.by_bounds(size)
        if not fits:
            break
    return FlexGenSearch(search.best, search.num_programs)


def _batches(compat: str) -> Iterator[int]:
    size = 1
    while size < _LARGEST:
        yield size
        if not compat and size > 1:
            yield size * 3 // 2
        elif size == 2:
            yield 3
        size *= 2


class _Search:
    """The best policy so far, and the numbers of batches of one size after another.

    FlexGen reads times from a file of its solver, with eight digits: of equal rates, which one is
    called higher, and whether a rate is called lower than the one before, is their rounding.
    """

    def __init__(
        self, asked: Inference, machine: OffloadMachine, given: SharesGiven, *, as_printed: bool
    ) -> None:
        self.asked, self.machine, self.given = asked, machine, given
        self.as_printed = as_printed
        self.best: OffloadPolicy | None = None
        self.num_programs = 0

    def consider(self, batch: int, num_batches: int) -> OffloadPolicy | None:
        """Solve the program of a block, and remember its policy if it is the best."""
        self.num_programs += 1
        found = place_block(self.asked, self.machine, batch, num_batches, self.given)
        if found and (self.best is None or self.is_higher(found, self.best)):
            self.best = found
        return found

    def is_higher(self, one: OffloadPolicy, other: OffloadPolicy) -> bool:
        """Return whether one rate is higher than another."""
        if not self.as_printed:
            return one.rate > other.rate * (1 + _CLOSE)
        rates = [
            p.batch * p.num_batches * self.asked.generated / float(f"{p.seconds:.8g}")
            for p in (one, other)
        ]
        return rates[0] > rates[1]

    def until_falling(self, batch: int) -> bool:
        """Try numbers of batches until the rate falls; return whether one fits at all."""
        before: OffloadPolicy | None = None
        for number in range(1, _LARGEST):
            found = self.consider(batch, number)
            if found is None or (before and self.is_higher(before, found)):
                break
            before = found
        return before is not None

    def by_bounds(self, batch: int) -> bool:
        """Try the numbers of batches that may be best; return whether one fits at all."""
        relaxed = RangeBound(self.asked, self.machine, batch, self.given)
        open_ranges: list[_Range] = []
        low = 1
        while low < _LARGEST and self._add(open_ranges, relaxed, low, 2 * low - 1):
            low *= 2
        while open_ranges:
            bound, low, high, likely = heapq.heappop(open_ranges)
            if self.best and bound >= self.best.seconds_per_sequence * (1 - _CLOSE):
                break
            self.consider(batch, likely)
            self._add(open_ranges, relaxed, low, likely - 1)
            self._add(open_ranges, relaxed, likely + 1, high)
        return low > 1 or self.consider(batch, 1) is not None

    def _add(
        self,
        open_ranges: list[tuple[float, int, int, int]],
        relaxed: RangeBound,
        low: int,
        high: int,
    ) -> bool:
        """Add a range of numbers if it is not empty and something in it may fit."""
        if low > high:
            return False
        self.num_programs += 1
        bound, likely = relaxed.bound(low, high)
        if math.isfinite(bound):
            heapq.heappush(open_ranges, (bound, low, high, likely))
        return math.isfinite(bound)
