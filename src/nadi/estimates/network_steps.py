"""The seconds of a step of a network on data parallel ranks, from the rows that are generated.

The rows are those of ``nadi generate network``, priced as those of language models are. They go
through the streams of one rank of each kind, as ranks differ in what they have of tables: a
collective begins when the last kind comes to it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nadi.errors import UsageError
from nadi.estimates.part_structures import amounts_of_works
from nadi.models.job_rows import BEFORE, COMPUTE, STREAM_OF, Row
from nadi.models.networks.network_file import NeuralNetwork
from nadi.models.networks.network_jobs import memory_of_step, planned_network, steps_of_kinds
from nadi.models.networks.network_plan import NetworkPlan
from nadi.models.networks.network_rows import step_rows
from nadi.simulation.alone.collective import collective_time
from nadi.systems.library import load_system
from nadi.systems.prices.price_list import price
from nadi.systems.system import System
from nadi.trace.arrays import Floats
from nadi.units import format_bytes

_PARTS = {"embedding": "tables", "gemm": "products", "conv": "products", "optimizer": "optimizer"}
_EXPOSED = {"tables": "exposed exchange of tables", "dp": "exposed data parallelism"}


class NetworkEstimate(NamedTuple):
    """What a step of a network takes.

    Attributes
    ----------
    network, plan, system
        What was estimated.
    times
        Seconds by part of the step, on a rank of the kind that computes longest; they add up to it.
    memory
        Bytes of each kind of tensor, on a rank of the kind that has most.
    """

    network: NeuralNetwork
    plan: NetworkPlan
    system: System
    times: dict[str, float]
    memory: dict[str, int]

    @property
    def lacks(self) -> str:
        """What the device lacks for it, as text; empty if it lacks nothing."""
        needed, capacity = sum(self.memory.values()), self.system.memory_capacity
        if not 0 < capacity < needed:
            return ""
        return f"a rank needs {format_bytes(needed)}, and a device has {format_bytes(capacity)}"

    @property
    def seconds(self) -> float:
        """Of a step."""
        return sum(self.times.values())

    @property
    def rate(self) -> float:
        """Samples a second of all ranks."""
        return self.plan.samples / self.seconds


def estimate_network(network: NeuralNetwork, plan: NetworkPlan, system: System) -> NetworkEstimate:
    """Estimate a step of training, or of inference.

    O(rows * kinds of ranks), and a simulation of each different collective alone.

    Raises
    ------
    UsageError
        If network and plan do not fit together, or the system prices no kernels.
    """
    if system.compute.device is None:
        what = "its rules price no computations"
        raise UsageError(f"{system.name}: $.compat", what, "leave it out")
    steps, _ = steps_of_kinds(network, plan)
    pieces = [step_rows(step) for step in steps]
    kinds = [[row for piece in one for row in piece] for one in pieces]
    seconds = np.stack([_seconds(system, plan, rows) for rows in kinds], axis=1)
    memory = max(map(memory_of_step, steps), key=lambda one: one["total"])
    del memory["total"]
    times = _times(_Walk(pieces[0], seconds, system))
    return NetworkEstimate(network, plan, system, times, memory)


def _seconds(system: System, plan: NetworkPlan, rows: Sequence[Row]) -> Floats:
    """Price the rows of a kind of rank; float64, shape (rows,)."""
    assert system.compute.device is not None
    operations = amounts_of_works([row.work for row in rows]).operations
    found = np.maximum(price(operations, system.compute.device).duration, 0) / 1e9
    ranks = tuple(range(plan.ranks))
    known: dict[tuple[str, int], float] = {}
    for number, row in enumerate(rows):
        key = row.comm_type, row.comm_bytes
        if row.work is None:
            if key not in known:
                known[key] = collective_time(system, *key, group=ranks) / 1e9
            found[number] = known[key]
    return found


class _Walk:
    """Rows on the streams of a rank of each kind.

    Of the rows that wait for no other, computations go first, in the order of the program; then
    the collective that all kinds come to first, as collectives have the links one by one.

    Attributes
    ----------
    rows, seconds
        The rows of a step, and what each takes alone: shape (rows, kinds).
    waits
        Of each row, the rows before it for which it waits, those of its stream among them.
    start, end
        Seconds, shape (rows, kinds).
    """

    def __init__(self, pieces: Sequence[Sequence[Row]], seconds: Floats, system: System) -> None:
        self.rows = [row for piece in pieces for row in piece]
        self.seconds = seconds
        self.waits = _waits(pieces)
        self.start, self.end = np.zeros((2, *seconds.shape))
        left = list(range(len(self.rows)))
        done: set[int] = set()
        entry = system.collectives.start_time / 1e9  # before a collective comes to the links
        links = 0.0  # which collectives use one after the other, in the order in which they come
        while left:
            able = [number for number in left if done.issuperset(self.waits[number])]
            works = [number for number in able if self.rows[number].work is not None]
            number = works[0] if works else min(able, key=lambda one: self._ready(one).max())
            ready = self._ready(number)
            if not works:
                ready = np.full(ready.size, max(ready.max(), links - entry))
            self.start[number], self.end[number] = ready, ready + seconds[number]
            links = links if works else float(self.end[number].max())
            left.remove(number)
            done.add(number)

    def _ready(self, number: int) -> Floats:
        waits = self.waits[number]
        found: Floats = self.end[waits].max(0) if waits else np.zeros(self.seconds.shape[1])
        return found


def _waits(pieces: Sequence[Sequence[Row]]) -> list[list[int]]:
    """Return for which rows of a step each row waits."""
    found: list[list[int]] = []
    last: dict[int, int] = {}  # row of each stream
    for number, piece in enumerate(pieces):
        first, before = len(found), last.get(COMPUTE, -1)
        for row in piece:
            waits = [before if one == BEFORE else first + one for one in row.waits]
            waits.append(last.get(row.stream, -1))
            if number == 2 and len(found) == first:  # the optimizer waits for all gradients
                waits.append(last.get(STREAM_OF["dp"], -1))
            last[row.stream] = len(found)
            found.append(sorted({one for one in waits if one >= 0}))
    return found


def _times(walk: _Walk) -> dict[str, float]:
    """Give the parts of a step, of a rank of the kind that computes longest."""
    rows = walk.rows
    works = [number for number, row in enumerate(rows) if row.work is not None]
    kind = int(np.argmax(walk.seconds[works].sum(0)))
    end = walk.end[:, kind]
    found: dict[str, float] = {}

    def took(name: str, value: float) -> None:
        if value > 0:
            found[name] = found.get(name, 0.0) + value

    free = 0.0
    for number in works:
        work, moved = rows[number].work, [n for n in walk.waits[number] if rows[n].work is None]
        if moved:
            latest = max(moved, key=lambda one: end[one])
            took(_EXPOSED[rows[latest].role], float(walk.start[number, kind]) - free)
        assert work is not None
        name = _PARTS.get(work.op_class, "other operations")
        took(name, float(walk.seconds[number, kind]))
        free = float(end[number])
    # ranks with more of the tables can end later than the one that computes longest
    role = rows[int(np.argmax(walk.end.max(1)))].role or "tables"
    took(_EXPOSED[role], float(walk.end.max()) - free)
    return found


def network_estimate(
    network: str | Path | NeuralNetwork, system: str | Path, **plan: Any
) -> NetworkEstimate:
    """Estimate a step without simulating it; network and plan as for :func:`network_job`.

    Raises
    ------
    UsageError, InputError, FormatError
        As for :func:`network_job`, and if there is no such system.
    """
    found, checked = planned_network(network, plan)
    return estimate_network(found, checked, load_system(system, checked.ranks))
