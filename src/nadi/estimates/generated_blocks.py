"""What one block of a generated model costs, and its ends: the default for ``block_costs``.

Ways share programs, which differ in sizes alone, and many share their sizes, too. So sizes are
worked out and priced once, and all ways of a program go through its streams at once.

Seconds of operations on a rank's streams, for many sizes of the same program at once.

Each stream works in order, and an operation waits for those that it names. What computation waits
for is exposed.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from nadi.estimates.calculon.block_costs import BlockCosts, StageCosts, TensorExchange
from nadi.estimates.calculon.layer_sizes import distinct
from nadi.estimates.calculon.machine_description import MachineDescription
from nadi.estimates.estimated_model import ModelDescription
from nadi.estimates.execution import OVERLAP, Executions
from nadi.estimates.layer_programs import (
    PartSizes,
    Sizes,
    Variant,
    kept_of,
    layer_shares,
    moved_again,
    rows_of_parts,
    sizes_of,
    structures_of,
    variants_of,
)
from nadi.estimates.part_structures import (
    Amounts,
    PartProgram,
    count_moved_tensors,
    weight_uses,
)
from nadi.estimates.rings import RankGroup
from nadi.estimates.row_prices import ProgramWays, RowPrices, row_prices
from nadi.models.job_rows import COMPUTE, Row
from nadi.models.llm.language_model import LanguageModel
from nadi.models.llm.layer_pieces import Piece
from nadi.trace.arrays import Bools, Floats, Ints


class Awaited(NamedTuple):
    """A communication that computation waits for, in seconds of shape (ways,)."""

    start: Floats
    latest: Floats  # it could begin so late and nothing would wait longer
    end: Floats


class StreamTimes(NamedTuple):
    """Seconds of a program, float64 of shape (ways,)."""

    computed: dict[str, Floats]  # of computation, by phase
    exposed: dict[tuple[str, str], Floats]  # by which communication extends it, by phase and role
    moved: dict[tuple[str, str], Floats]  # of communication, exposed or not, by phase and role
    awaited: dict[str, list[Awaited]]  # by role
    begun: Floats  # until the first computation is done
    # the share of it until what leaves and comes back has left, and until it is used again
    again: tuple[Floats, Floats]


def stream_times(program: PartProgram, prices: RowPrices) -> StreamTimes:
    """Work out when operations of a program end, of which some go tile by tile."""
    rows, seconds = program.rows, prices.seconds
    num = seconds.shape[1]
    none = np.zeros(num)
    free: dict[int, Floats] = {}
    tiles = _TileTimes(program, prices)
    ends: list[Floats] = []
    found = StreamTimes({}, {}, {}, {}, none, (none, none))
    for place, (row, took) in enumerate(zip(rows, seconds, strict=True)):
        start = free.get(row.stream, none)
        waits = [wait for wait in row.waits if wait >= 0]
        ready = start
        for wait in waits:
            ready = np.maximum(ready, tiles.ready(place, wait, ends))
        end = tiles.end(place, ready, ends)
        ends.append(end)
        free[row.stream] = end
        if row.stream == COMPUTE:
            found = found._replace(begun=end) if not found.computed else found
            found.computed[row.phase] = found.computed.get(row.phase, none) + took
            moves = [wait for wait in waits if rows[wait].role]
            if moves:
                key = row.phase, rows[moves[-1]].role
                done, moved = ends[moves[-1]], seconds[moves[-1]]
                spare = end - tiles.due(place, moves[-1], ends)
                one = Awaited(done - moved, done - moved + spare, done)
                found.awaited.setdefault(key[1], []).append(one)
                found.exposed[key] = found.exposed.get(key, none) + (end - took - start)
        else:
            key = row.phase, row.role
            found.moved[key] = found.moved.get(key, none) + took
    # what follows the last computation, before the next program computes
    last = free.get(COMPUTE, none)
    for row, end in zip(rows, ends, strict=True):
        if row.stream != COMPUTE and row.waits:
            key = row.phase, row.role
            late = np.maximum(end - last, 0.0)
            found.exposed[key] = found.exposed.get(key, none) + late
            last = last + late
    if program.again.left < 0:
        return found._replace(again=(none + _LEFT, none + _BACK))
    left, back = ends[program.again.left], ends[program.again.back - 1]
    return found._replace(again=(left / last, np.maximum(left, back) / last))


class _TileTimes:
    """When operations end whose parts go along with those of others; seconds of shape (ways,).

    All parts of an operation take as long, so the first and the last of both say when they end.
    """

    def __init__(self, program: PartProgram, prices: RowPrices) -> None:
        self._seconds, self._parts = prices.seconds, prices.parts
        self._beside = program.beside if prices.parts.any() else {}
        self._gathers = {
            product: place for place, product in self._beside.items() if place < product
        }
        self._begun: dict[int, Floats] = {}  # when the first part of each operation could begin

    def _part(self, place: int) -> Floats:
        found: Floats = self._seconds[place] / np.maximum(self._parts[place], 1.0)
        return found

    def ready(self, place: int, wait: int, ends: Sequence[Floats]) -> Floats:
        """Give when an operation can begin that waits for another one."""
        if wait not in (self._beside.get(place), self._gathers.get(place)):
            return ends[wait]
        first = self._begun[wait] + self._part(wait)
        if self._gathers.get(place) == wait:  # of a ring, a rank's own tile is there before
            first = np.where(self._parts[wait] < self._parts[place], self._begun[wait], first)
        return np.where(self._parts[place] > 0, first, ends[wait])

    def end(self, place: int, ready: Floats, ends: Sequence[Floats]) -> Floats:
        """Give when an operation ends that can begin at some time."""
        self._begun[place] = ready
        end: Floats = ready + self._seconds[place]
        other = self._beside.get(place, self._gathers.get(place, place))
        if other >= place:
            return end
        # of a ring, nothing is sent of the last tile of a product, which is a rank's own
        is_own = self._parts[place] < self._parts[other]
        last = ends[other] + np.where(is_own, 0.0, self._part(place))
        return np.where(self._parts[place] > 0, np.maximum(end, last), end)

    def due(self, place: int, wait: int, ends: Sequence[Floats]) -> Floats:
        """Give when an operation ends if it waits for nothing but a communication."""
        whole: Floats = ends[wait] + self._seconds[place]
        if self._gathers.get(place) != wait:
            return whole
        first = self._begun[wait] + self._part(wait) + self._seconds[place]
        last = ends[wait] + self._part(place)
        is_own = self._parts[wait] < self._parts[place]
        cut = np.where(is_own, last, np.maximum(first, last))
        return np.where(self._parts[place] > 0, cut, whole)


_FIELDS = (*Variant._fields, "tensor_par_overlap", "tensor_par_net", "data_par_net")
_TP, _CP, _EP = "tp", "cp", "ep"
_Value = TypeVar("_Value")
_GRADIENT = 4.0  # bytes of a weight's gradient


class PartSeconds(NamedTuple):
    """One direction of a part, float64 of shape (ways,)."""

    whole: Floats  # with what is exposed
    begun: Floats  # until the first computation is done
    # communication of tensors, of tokens to experts, and of keys and values
    awaited: tuple[tuple[Awaited, ...], ...]


class VisitShares(NamedTuple):
    """Shares of a layer's passes until tensors leave the first tier; float64 of shape (ways,)."""

    # of a forward, until its input has been used; of a backward, until what leaves in it and comes
    # back has been used, and until it is used again: of operations, and of seconds
    used: Floats
    left: Floats
    back: Floats
    used_seconds: Floats
    left_seconds: Floats
    back_seconds: Floats


_LEFT, _BACK = 0.25, 0.75
EVEN_VISITS = VisitShares(*np.array([[_LEFT], [_LEFT], [_BACK]] * 2))  # where nothing leaves


class EndCosts(NamedTuple):
    """The embedding or the head of one micro-batch, float64 of shape (ways,)."""

    forward: PartSeconds
    backward: PartSeconds
    flops: Floats
    kept: Floats  # bytes

    @property
    def seconds(self) -> Floats:
        """Forward and backward."""
        return self.forward.whole + self.backward.whole


class OperationCounts(NamedTuple):
    """How many operations there are, float64 of shape (ways,)."""

    forward: Floats  # of a layer
    backward: Floats
    end: Floats  # of the last norm, the head and the loss, forward and backward
    # of these, computations
    forward_work: Floats
    backward_work: Floats
    end_work: Floats
    # shares of a layer's weights: what experts have, and of the others what the second half of its
    # forward uses
    expert_weights: Floats
    late_weights: Floats
    # of what a layer's forward keeps for the backward, the share that it has after each quarter
    kept_until_quarter: Floats
    kept_until_half: Floats
    kept_until_three_quarters: Floats
    # tensors of a layer that move: its weights, and what its forward keeps for the backward
    weight_tensors: Floats
    kept_tensors: Floats
    # operations of a layer before the first that uses its weights, and from the last on; of
    # experts these are apart
    before_forward: Floats
    after_forward: Floats
    before_backward: Floats
    after_backward: Floats
    experts_before_forward: Floats
    experts_after_forward: Floats
    experts_before_backward: Floats
    experts_after_backward: Floats


class GeneratedCosts(NamedTuple):
    """What one micro-batch costs, float64 of shape (ways,)."""

    block: BlockCosts
    forward: PartSeconds  # of a block
    backward: PartSeconds
    first: EndCosts  # the embedding
    last: EndCosts  # the last norm, the head and the loss
    cache: Floats  # bytes of keys and values of a sequence in a block, of inference
    counts: OperationCounts
    # bytes of a layer that are stored in a backward that computes it again, and loaded there: of
    # what is made then, or is there before, and needed once more when many operations have passed
    stored_again: Floats
    loaded_again: Floats
    visits: VisitShares
    looked_up: Floats  # bytes of rows of the embedding's table


class _Sums(NamedTuple):
    """One direction of one part, shape (ways,)."""

    flops: dict[str, Floats]
    matrix_seconds: dict[str, Floats]
    bytes: dict[str, Floats]
    times: StreamTimes


class _Ways(NamedTuple):
    """The distinct ways to run a model, and the sizes and programs of its parts in each."""

    columns: Executions  # fields of executions, shape (ways,) or (1,)
    sizes: Sequence[Sizes]  # those that differ
    entry: Ints  # of each way, which of them are its own: int64, shape (ways,)
    # bytes that each part keeps while it works, until its backward, and stores and loads in that:
    # shape (ways, parts, 4)
    kept: Floats
    # of each part, forward and then backward: those that differ, and which each way has
    programs: Sequence[tuple[Sequence[PartProgram], Ints]]
    rows: Sequence[tuple[Sequence[tuple[Row, ...]], Ints]]  # the same, tile by tile

    @property
    def trained(self) -> Bools:
        """Whether there are gradients: shape (ways,)."""
        return np.broadcast_to(self.columns.training == 1, self.entry.size)


def generated_costs(
    model: ModelDescription, machine: MachineDescription, executions: Executions
) -> tuple[Ints, GeneratedCosts]:
    """Give each execution's way, and the costs of a block and of both ends in each.

    A block is the mean over the model's layers, where they differ.
    """
    number, columns = distinct(executions, _FIELDS)
    num = columns.num_executions
    columns = columns._replace(tensor_par=np.broadcast_to(columns.tensor_par, num))
    ways = _ways(model.language_model, columns)
    sums = _sums(machine, ways)
    shares = np.array(list(layer_shares(model.language_model).values()))
    return number, _costs(ways, shares, sums, machine)


def _ways(model: LanguageModel, columns: Executions) -> _Ways:
    of_way, distinct_columns = distinct(columns, (*Variant._fields, "tensor_par_overlap"))
    variants = variants_of(distinct_columns)
    of_variants = [sizes_of(model, variant) for variant in variants]
    sizes, entry = _numbered(of_variants)
    overlaps = [OVERLAP[code] for code in distinct_columns.tensor_par_overlap.tolist()]
    if len(overlaps) == 1:
        overlaps *= len(variants)
    structures = [structures_of(model, variant) for variant in variants]
    rows = [rows_of_parts(model, *one) for one in zip(variants, overlaps, strict=True)]
    kept = [
        [
            (*moved_again(part.pieces, its.again), *kept_of(part.pieces, variant))
            for part, its in zip(found.parts, of_parts, strict=True)
        ]
        for found, variant, of_parts in zip(of_variants, variants, rows, strict=True)
    ]

    def by_part(found: Sequence[Sequence[Sequence[_Value]]]) -> list[tuple[list[_Value], Ints]]:
        listed = []
        for part, direction in itertools.product(range(len(sizes[0].parts)), range(2)):
            values, number = _numbered([one[part][direction] for one in found])
            listed.append((values, number[of_way]))
        return listed

    return _Ways(
        columns, sizes, entry[of_way], np.array(kept, dtype=np.float64)[of_way],
        by_part(structures), by_part([[its.ways for its in of_parts] for of_parts in rows]),
    )  # fmt: skip


def _numbered(values: Sequence[_Value]) -> tuple[list[_Value], Ints]:
    """Give values that differ, of which equal ones are one object, and the number of each."""
    numbers: dict[int, int] = {}
    for one in values:
        numbers.setdefault(id(one), len(numbers))
    number = np.array([numbers[id(one)] for one in values], dtype=np.int64)
    first = np.unique(number, return_index=True)[1]
    return [values[place] for place in first.tolist()], number


def _sums(machine: MachineDescription, ways: _Ways) -> list[list[_Sums]]:
    """Work out each part, forward and backward."""
    columns, num = ways.columns, ways.entry.size
    parts = [part.amounts for one in ways.sizes for part in one.parts]
    table = Amounts(*(np.concatenate(one) for one in zip(*parts, strict=True)))
    slots = np.array([part.flops.size for part in parts])
    begin = (np.cumsum(slots) - slots).reshape(len(ways.sizes), -1)[ways.entry]
    first_way = np.unique(ways.entry, return_index=True)[1]
    datatype = np.broadcast_to(columns.datatype, num)[first_way]
    datatype = np.repeat(np.repeat(datatype, begin.shape[1]), slots)
    programs = [
        [
            ProgramWays(program, members, begin[members, part // 2])
            for place, program in enumerate(of_part)
            if program.rows and (members := np.flatnonzero(number == place)).size
        ]
        for part, (of_part, number) in enumerate(ways.programs)
    ]
    prices = iter(row_prices(
        machine, columns, role_groups(columns), table, datatype,
        [one for group in programs for one in group],
    ))  # fmt: skip
    found = [
        _program_sums([(one, next(prices)) for one in group], num) for group in programs
    ]  # fmt: skip
    return [found[k : k + 2] for k in range(0, len(found), 2)]


def role_groups(columns: Executions) -> dict[str, RankGroup]:
    """Say where the members of each role stand, per way."""
    one = np.ones(1, dtype=np.int64)
    return {
        _TP: RankGroup(columns.tensor_par, one, columns.tensor_par_net),
        _CP: RankGroup(columns.context_par, columns.tensor_par, columns.data_par_net),
        _EP: RankGroup(columns.expert_par, columns.expert_shares, columns.data_par_net),
    }


def _program_sums(priced: Sequence[tuple[ProgramWays, RowPrices]], num: int) -> _Sums:
    """Work out one direction of a part."""
    none = np.zeros(num)
    again = none + _LEFT, none + _BACK
    found = _Sums({}, {}, {}, StreamTimes({}, {}, {}, {}, none, again))
    for (program, members, _), prices in priced:
        rows = program.rows
        times = stream_times(program, prices)
        for whole, part in (
            (found.times.exposed, times.exposed),
            (found.times.moved, times.moved),
        ):
            for key, value in part.items():
                whole.setdefault(key, np.zeros(num))[members] = value
        for phase, value in times.computed.items():
            found.times.computed.setdefault(phase, np.zeros(num))[members] = value
        for role, of_role in times.awaited.items():
            known = found.times.awaited.setdefault(role, [])
            known += [Awaited(*np.zeros((3, num))) for _ in of_role[len(known) :]]
            for one, values in zip(known, of_role, strict=False):
                for column, value in zip(one, values, strict=True):
                    column[members] = value
        found.times.begun[members] = times.begun
        for share, value in zip(again, times.again, strict=True):
            share[members] = value
        sums = zip(found[:3], (prices.flops, prices.matrix_seconds, prices.bytes), strict=True)
        for whole_sum, column in sums:
            for phase in {row.phase for row in rows}:
                chosen = np.array([
                    row.phase == phase and row.stream == COMPUTE for row in rows
                ])  # fmt: skip
                whole_sum.setdefault(phase, np.zeros(num))[members] = column[chosen].sum(0)
    return found


def _costs(
    ways: _Ways, shares: Floats, sums: Sequence[Sequence[_Sums]], machine: MachineDescription
) -> GeneratedCosts:
    num = ways.entry.size
    forwards, backwards = ([one[k] for one in sums[: shares.size]] for k in range(2))

    def stage(directions: Sequence[_Sums], phase: str) -> StageCosts:
        total = [np.zeros(num) for _ in range(5)]
        for share, one in zip(shares, directions, strict=True):
            moved = one.bytes.get(phase, 0.0)
            values = (
                one.flops.get(phase, 0.0), one.matrix_seconds.get(phase, 0.0), moved,
                moved / (machine.mem1.GBps * 1e9), one.times.computed.get(phase, 0.0),
            )  # fmt: skip
            for sum_, value in zip(total, values, strict=True):
                sum_ += share * value
        return StageCosts(*total)

    def exchange(directions: Sequence[_Sums], phase: str) -> tuple[TensorExchange, TensorExchange]:
        total = [np.zeros(num) for _ in range(2)]
        for share, one in zip(shares, directions, strict=True):
            for sum_, found in zip(total, (one.times.moved, one.times.exposed), strict=True):
                sum_ += share * sum(
                    (value for key, value in found.items() if key[0] == phase), np.zeros(num)
                )
        return (TensorExchange(np.zeros(num), *total),) * 2

    def of_sizes(numbers: Iterable[float]) -> Floats:
        return np.array(list(numbers), dtype=np.float64)[ways.entry]

    def weights(name: str) -> Floats:
        return of_sizes(
            np.dot([getattr(part, name) for part in one.parts[: shares.size]], shares)
            for one in ways.sizes
        )

    element, boundary, cache = (
        of_sizes(getattr(one, name) for one in ways.sizes)
        for name in ("element", "boundary", "cache")
    )
    again, later, kept, stored = (ways.kept[:, : shares.size, :4] * shares[:, None]).sum(1).T
    checkpoints = np.broadcast_to(ways.columns.is_named("activation_recompute", "full"), num)
    whole = weights("weight") + weights("expert_weight")
    gradient = weights("trained") + weights("trained_experts")
    block = BlockCosts(
        stage(forwards, "forward"), stage(backwards, "backward"),
        StageCosts(*np.zeros((5, num))), stage(backwards, "recompute"),
        exchange(forwards, "forward"), exchange(backwards, "backward"),
        exchange(backwards, "recompute"),
        np.zeros(num), whole * element, kept, stored, boundary * checkpoints,
        _GRADIENT * gradient * ways.trained, boundary * ways.trained, boundary,
    )  # fmt: skip
    there, back = _part_seconds(shares, forwards), _part_seconds(shares, backwards)
    counts = _counts(ways, shares)
    looked_up = of_sizes(_looked_up(one.parts[-2], one.element) for one in ways.sizes)
    ends = _ends(ways, sums)
    visits = _visits(ways, shares, sums)
    return GeneratedCosts(block, there, back, *ends, cache, counts, again, later, visits, looked_up)


def _visits(ways: _Ways, shares: Floats, sums: Sequence[Sequence[_Sums]]) -> VisitShares:
    """Give the mean over kinds of layers of when tensors leave and come back."""
    found = np.zeros((2, 2, 2, ways.entry.size))  # direction, operations or seconds, left or back
    for kind, share in enumerate(shares.tolist()):
        for direction, of_direction in enumerate(sums[kind]):
            programs, which = ways.programs[2 * kind + direction]
            of_rows = [
                (_LEFT, _BACK) if one.again.left < 0
                else ((one.again.left + 1) / len(one.rows), one.again.back / len(one.rows))
                for one in programs
            ]  # fmt: skip
            found[direction, 0] += share * np.array(of_rows)[which].T
            found[direction, 1] += share * np.array(of_direction.times.again)
    there, back = found
    return VisitShares._make([there[0, 0], *back[0], there[1, 0], *back[1]])


def _counts(ways: _Ways, shares: Floats) -> OperationCounts:
    def counted(part: int, *, works: bool) -> Floats:
        listed, which = ways.rows[part]
        rows = [[row.stream == COMPUTE or not works for row in one] for one in listed]
        return np.array([float(sum(one)) for one in rows])[which]

    def around(part: int) -> Floats:
        listed, which = ways.rows[part]
        return np.array([weight_uses(one) for one in listed], dtype=np.float64)[which].T

    found: list[Floats] = []
    for works in (False, True):
        found += [
            sum(
                share * np.maximum(counted(2 * kind + direction, works=works), 1)
                for kind, share in enumerate(shares.tolist())
            ) for direction in range(2)
        ]  # fmt: skip
        found.append(counted(-2, works=works) + counted(-1, works=works))

    def tensors(part: int) -> Floats:
        (forwards, there), (backwards, back) = ways.rows[part : part + 2]
        pairs, which = np.unique(np.stack([there, back]), axis=1, return_inverse=True)
        counted = [count_moved_tensors(forwards[one], backwards[other]) for one, other in pairs.T]
        return np.array(counted, dtype=np.float64)[which.reshape(-1)].T

    of_weights = [
        np.array([
            np.dot([share_of(part.pieces) for part in one.parts[: shares.size]], shares)
            for one in ways.sizes
        ])[ways.entry]
        for share_of in (_expert_weights, _late_weights)
    ]  # fmt: skip
    stored = (ways.kept[:, : shares.size, 3:] * shares[:, None]).sum(1).T
    of_kept = stored[1:] / np.maximum(stored[0], 1.0)
    there, back = (
        sum(share * around(2 * kind + direction) for kind, share in enumerate(shares.tolist()))
        for direction in range(2)
    )
    found += [*there[:2], *back[:2], *there[2:], *back[2:]]
    moved = sum(share * tensors(2 * kind) for kind, share in enumerate(shares.tolist()))
    return OperationCounts._make([*found[:6], *of_weights, *of_kept, *moved, *found[6:]])


def _late_weights(pieces: Sequence[Piece]) -> float:
    """Give the share of a part's weights without experts that its second half uses."""
    weights = [piece.weight for piece in pieces]
    return sum(weights[len(weights) // 2 :]) / max(sum(weights), 1)


def _expert_weights(pieces: Sequence[Piece]) -> float:
    """Give the share of a part's weights that experts have."""
    experts = sum(piece.expert_weight for piece in pieces)
    return experts / max(experts + sum(piece.weight for piece in pieces), 1)


def _looked_up(embedding: PartSizes, element: int) -> float:
    """Give the bytes of rows that a forward looks up: half of what it moves, and at most all."""
    moved = sum(piece.forward.bytes for piece in embedding.pieces if piece.forward)
    return float(min(moved // 2, embedding.weight * element))


def _ends(ways: _Ways, sums: Sequence[Sequence[_Sums]]) -> tuple[EndCosts, EndCosts]:
    """Give the embedding and the head."""
    return _end(sums[-2], ways.kept[:, -2, 2]), _end(sums[-1], ways.kept[:, -1, 2])


def _end(pair: Sequence[_Sums], kept: Floats) -> EndCosts:
    there, back = (_part_seconds(np.ones(1), [one]) for one in pair)
    flops = sum((value for one in pair for value in one.flops.values()), np.zeros(kept.size))
    return EndCosts(there, back, flops, kept)


def _part_seconds(shares: Floats, kinds: Sequence[_Sums]) -> PartSeconds:
    """Give the mean over kinds of a part in one direction, of which each has a share."""
    none = np.zeros(kinds[0].times.begun.size)
    whole, begun = none, none
    for share, one in zip(shares, kinds, strict=True):
        begun = begun + share * one.times.begun
        for value in (*one.times.computed.values(), *one.times.exposed.values()):
            whole = whole + share * value

    def awaited(role: str) -> Iterator[Awaited]:
        lists = [one.times.awaited.get(role, []) for one in kinds]
        for place in range(max(map(len, lists))):
            there = [(share, one[place]) for share, one in zip(shares, lists, strict=True)
                     if place < len(one)]  # fmt: skip
            all_shares = sum(share for share, _ in there)
            yield Awaited(
                *(
                    sum((share / all_shares * one[k] for share, one in there), none)
                    for k in range(3)
                )
            )

    return PartSeconds(whole, begun, tuple(tuple(awaited(role)) for role in (_TP, _EP, _CP)))
