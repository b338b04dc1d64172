"""The fastest way to run inference by FlexGen's cost model: batches, and what lies where.

For a batch and a number of batches the best shares are a small linear program. How many batches
are best is searched by bounds: with a range of numbers instead of one, the program in shares per
sequence is still linear once the working space of a batch is bounded, and what it gives is below
the time of every number in the range.
"""

import heapq
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from nadi.errors import Parameter, UsageError
from nadi.memory.linear_programs import solve_program
from nadi.memory.offloading.flexgen_costs import (
    DECODE,
    NAMES,
    PREFILL,
    Inference,
    OffloadMachine,
    block_cost_lines,
)
from nadi.memory.offloading.flexgen_programs import (
    FREE,
    NUM_SHARES,
    RangeBound,
    SharesGiven,
    block_program,
    in_percent,
)

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
