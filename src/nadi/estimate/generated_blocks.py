"""What one block of a generated model costs, and its ends: the default for ``block_costs``.

Programs of distinct ways are made once; all their operations are priced at once, and programs with
the same structure go through their streams at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from nadi.estimate.block_costs import BlockCosts, StageCosts
from nadi.estimate.estimated_model import ModelDescription
from nadi.estimate.execution import Executions
from nadi.estimate.layer_programs import (
    PartProgram,
    Programs,
    Variant,
    layer_shares,
    programs_of,
    variants_of,
)
from nadi.estimate.layer_sizes import distinct
from nadi.estimate.machine_description import MachineDescription
from nadi.estimate.nested_collectives import RankGroup
from nadi.estimate.row_prices import RowPrices, row_prices
from nadi.estimate.stream_times import StreamTimes, stream_times
from nadi.estimate.tensor_exchanges import Exchange
from nadi.generate.job_rows import COMPUTE, Row
from nadi.model.arrays import Floats, Ints

__all__ = ["EndCosts", "GeneratedCosts", "generated_costs"]

_FIELDS = (*Variant._fields, "tensor_par_overlap", "tensor_par_net", "data_par_net")
_TP, _EP = "tp", "ep"
_GRADIENT = 4.0  # bytes of a weight's gradient


class EndCosts(NamedTuple):
    """The embedding or the head of one micro-batch, float64 of shape (ways,)."""

    seconds: Floats  # forward and backward, with what is exposed
    flops: Floats
    kept: Floats  # bytes


class GeneratedCosts(NamedTuple):
    """What one micro-batch costs, float64 of shape (ways,)."""

    block: BlockCosts
    lead: Floats  # seconds of a block's backward until its first communication
    first: EndCosts  # the embedding
    last: EndCosts  # the last norm, the head and the loss


class _Sums(NamedTuple):
    """One direction of one part, shape (ways,)."""

    flops: dict[str, Floats]
    matrix_seconds: dict[str, Floats]
    bytes: dict[str, Floats]
    times: StreamTimes


def generated_costs(
    model: ModelDescription, machine: MachineDescription, executions: Executions
) -> tuple[Ints, GeneratedCosts]:
    """Give each execution's way, and the costs of a block and of both ends in each.

    A block is the mean over the model's layers, where they differ.
    """
    number, ways = distinct(executions, _FIELDS)
    ways = ways._replace(tensor_par=np.broadcast_to(ways.tensor_par, ways.num_executions))
    variants = variants_of(ways)
    programs = [programs_of(model.language_model, one) for one in variants]
    groups = {
        _TP: RankGroup(ways.tensor_par, np.ones(1, dtype=np.int64), ways.tensor_par_net),
        _EP: RankGroup(ways.expert_par, np.ones(1, dtype=np.int64), ways.data_par_net),
    }
    table = _Table(machine, ways, groups)
    kinds = len(programs[0].layers)
    forwards = [table.add([one.layers[k].forward for one in programs]) for k in range(kinds)]
    backwards = [table.add([one.layers[k].backward for one in programs]) for k in range(kinds)]
    ends = [
        [table.add([part.forward for part in parts]), table.add([part.backward for part in parts])]
        for parts in ([one.first for one in programs], [one.last for one in programs])
    ]
    sums = table.sums()
    shares = list(layer_shares(model.language_model).values())
    return number, _costs(
        programs, shares, [sums[k] for k in forwards], [sums[k] for k in backwards],
        [[sums[k] for k in pair] for pair in ends], machine,
    )  # fmt: skip


def _costs(
    programs: Sequence[Programs], shares: Sequence[float], forwards: Sequence[_Sums],
    backwards: Sequence[_Sums], ends: Sequence[Sequence[_Sums]], machine: MachineDescription,
) -> GeneratedCosts:  # fmt: skip
    rate = machine.mem1.GBps * 1e9
    num = len(programs)

    def stage(directions: Sequence[_Sums], phase: str) -> StageCosts:
        total = [np.zeros(num) for _ in range(5)]
        for share, one in zip(shares, directions, strict=True):
            moved = one.bytes.get(phase, 0.0)
            values = (
                one.flops.get(phase, 0.0), one.matrix_seconds.get(phase, 0.0), moved,
                moved / rate, one.times.computed.get(phase, 0.0),
            )  # fmt: skip
            for sum_, value in zip(total, values, strict=True):
                sum_ += share * value
        return StageCosts(*total)

    def exchange(directions: Sequence[_Sums], phase: str) -> tuple[Exchange, Exchange]:
        total = [np.zeros(num) for _ in range(2)]
        for share, one in zip(shares, directions, strict=True):
            for sum_, found in zip(total, (one.times.moved, one.times.exposed), strict=True):
                sum_ += share * sum(
                    (value for key, value in found.items() if key[0] == phase), np.zeros(num)
                )
        found_one = Exchange(np.zeros(num), total[0], total[1])
        return found_one, found_one

    def mean(name: str) -> Floats:
        return _mean_of_layers(programs, shares, name)

    element = np.array([float(one.element) for one in programs])
    boundary = np.array([float(one.boundary) for one in programs])
    weights, experts = mean("weight"), mean("expert_weight")
    first, last = (
        _end(pair, [getattr(one, name) for one in programs])
        for pair, name in zip(ends, ("first", "last"), strict=True)
    )
    gradient = weights + experts
    block = BlockCosts(
        stage(forwards, "forward"), stage(backwards, "backward"),
        StageCosts(*np.zeros((5, num))), stage(backwards, "recompute"),
        exchange(forwards, "forward"), exchange(backwards, "backward"),
        exchange(backwards, "recompute"),
        np.zeros(num), gradient * element, mean("kept"), mean("stored"),
        boundary * np.array([one.checkpoints for one in programs]),
        _GRADIENT * gradient, boundary, boundary,
    )  # fmt: skip
    lead = sum(
        (share * one.times.lead for share, one in zip(shares, backwards, strict=True)),
        np.zeros(num),
    )
    return GeneratedCosts(block, lead, first, last)


def _mean_of_layers(programs: Sequence[Programs], shares: Sequence[float], name: str) -> Floats:
    """Give the mean of a number of the layers, in each way."""
    sizes = np.array([[getattr(part, name) for part in one.layers] for one in programs])
    found: Floats = sizes.astype(np.float64) @ np.array(shares)
    return found


def _end(pair: Sequence[_Sums], parts: Sequence[PartProgram]) -> EndCosts:
    num = len(parts)
    seconds, flops = np.zeros(num), np.zeros(num)
    for one in pair:
        for found in (one.times.computed, one.times.exposed):
            for value in found.values():
                seconds = seconds + value
        for value in one.flops.values():
            flops = flops + value
    return EndCosts(seconds, flops, np.array([float(part.kept) for part in parts]))


class _Table:
    """Programs of many ways: collects their operations, and prices them at once."""

    def __init__(
        self, machine: MachineDescription, ways: Executions, groups: dict[str, RankGroup]
    ) -> None:
        self.machine, self.ways, self.groups = machine, ways, groups
        self.programs: list[tuple[int, Sequence[Row]]] = []  # way, rows
        self.sets = 0

    def add(self, programs: Sequence[Sequence[Row]]) -> int:
        """Add a program per way; gives the number of the set."""
        self.programs += enumerate(programs)
        self.sets += 1
        return self.sets - 1

    def sums(self) -> list[_Sums]:
        """Work out all sets."""
        prices = row_prices(self.machine, self.ways, self.groups, self.programs)
        num = len(self.programs) // self.sets
        return [
            _set_sums(self.programs[k * num : (k + 1) * num], prices, k * num)
            for k in range(self.sets)
        ]


def _set_sums(
    programs: Sequence[tuple[int, Sequence[Row]]], prices: RowPrices, first: int
) -> _Sums:
    """Work out one set: programs with the same structure at once."""
    num = len(programs)
    found = _Sums({}, {}, {}, StreamTimes({}, {}, {}, np.zeros(num)))
    for members in _alike(programs):
        rows = programs[members[0]][1]
        if not rows:
            continue
        begin = prices.first[first + np.array(members)]
        places = begin[None, :] + np.arange(len(rows))[:, None]
        times = stream_times(rows, prices.seconds[places])
        for whole, part in (
            (found.times.exposed, times.exposed),
            (found.times.moved, times.moved),
        ):
            for key, value in part.items():
                whole.setdefault(key, np.zeros(num))[members] += value
        found.times.lead[members] = times.lead
        for phase, value in times.computed.items():
            found.times.computed.setdefault(phase, np.zeros(num))[members] += value
        sums = zip(found[:3], (prices.flops, prices.matrix_seconds, prices.bytes), strict=True)
        for whole_sum, column in sums:
            for phase in {row.phase for row in rows}:
                chosen = np.array([
                    row.phase == phase and row.stream == COMPUTE for row in rows
                ])  # fmt: skip
                whole_sum.setdefault(phase, np.zeros(num))[members] += column[places[chosen]].sum(0)
    return found


def _alike(programs: Sequence[tuple[int, Sequence[Row]]]) -> Iterator[list[int]]:
    """Give the programs with the same operations and waits, as positions."""
    found: dict[tuple[object, ...], list[int]] = {}
    for place, (_, rows) in enumerate(programs):
        key = tuple((row.name, row.waits, row.stream) for row in rows)
        found.setdefault(key, []).append(place)
    yield from found.values()
