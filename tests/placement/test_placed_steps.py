"""Laws of placed jobs, on steps made at random: one rank, some tensors, some operations."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import nadi
from nadi.memory.placed_tensors import TraceTensors
from nadi.memory.placement.placed_steps import PlacedStep, PlainStep, plain_step
from nadi.memory.placement.study import PlacementQuestion, study_placement
from nadi.memory.placement_choice import ByRules, parse_rules
from nadi.memory.staged_moves import Staging, staged_moves
from nadi.memory.tier_accounts import TieredJob, live_bytes
from nadi.models.job_rows import Operand, RowList, RowOperands
from nadi.models.row_traces import StepOrder, trace_of_rows
from nadi.simulation.accounts.memory_accounts import row_times
from nadi.systems.memory_tiers import second_tier
from nadi.systems.system import System
from nadi.trace.trace import Trace
from nadi.trace.work import Work
from tests.amounts import examples
from tests.reference.tier_moves import Access, moves_of_tensor

_PART = 1 << 20  # elements of a slice, which are bytes
_LARGE = 1 << 50


@st.composite
def steps(draw: st.DrawFn, least: int = 1) -> Trace:
    """Make a trace of one rank, whose tensors have one to three slices.

    An operation moves at least so many slices; one that moves fewer than it names accesses a part
    of each.
    """
    slices = draw(st.lists(st.integers(1, 3), min_size=1, max_size=5))
    rows = RowList("forward")
    for number in range(draw(st.integers(1, 14))):
        used = draw(st.lists(
            st.tuples(st.integers(0, len(slices) - 1), st.integers(0, 2), st.booleans(),
                      st.booleans()), min_size=1, max_size=3, unique_by=lambda use: use[:2],
        ))  # fmt: skip
        inputs, outputs = [], []
        for tensor, place, reads, writes in used:
            at = place % slices[tensor]
            operand = Operand(f"tensor.{tensor}", (_PART,), "uint8", at * _PART, True)
            inputs += [operand] if reads or not writes else []
            outputs += [operand] if writes else []
        outputs = outputs or [Operand(f"out.{number}", (_PART,), "uint8", 0, True)]
        work = Work("add", 0, draw(st.integers(least, 40)) * _PART)
        operands = RowOperands(tuple(dict.fromkeys(inputs)), tuple(dict.fromkeys(outputs)))
        rows.compute(f"operation{number}", -1, work, operands)
    order = StepOrder([rows.rows], np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64) - 1)
    return trace_of_rows(order, [], 1)


def system(rate: float = 64.0, latency: float = 250.0) -> System:
    machine = nadi.load_system("dgx-h100", 1)
    tier = second_tier(rate, latency=latency, outstanding=1e6)
    return msgspec.structs.replace(machine, tiers=(msgspec.structs.replace(tier, loaded=None),))


def plain_of(trace: Trace) -> tuple[PlainStep, TraceTensors]:
    plain = plain_step([trace], system())
    return plain, plain.tensors.traces[0]


def below(tensors: TraceTensors) -> np.ndarray:
    return np.ones(tensors.table.height, dtype=np.int64)


def in_the_first_tier(step: PlacedStep) -> TieredJob:
    """Give the job, as if nothing lived elsewhere, at the times that it has."""
    return replace(step.placed, tier=tuple(one * 0 for one in step.placed.tier))


def placed(plain: PlainStep, tier: np.ndarray, staging: Staging, machine: System) -> PlacedStep:
    return plain.placed((tier,), machine, staging)


@given(trace=steps(least=6), distance=st.integers(0, 5))  # the slow model counts whole slices
def test_moves_are_those_of_the_slow_model(trace: Trace, distance: int) -> None:
    _, tensors = plain_of(trace)
    moves = staged_moves(tensors, below(tensors), Staging(_LARGE, distance))
    wanted: dict[bool, dict[int, int]] = {False: defaultdict(int), True: defaultdict(int)}
    before = tensors.table["is_before"].to_list()
    for life in range(tensors.table.height):
        own = np.flatnonzero(tensors.life == life)
        accesses = [
            Access(int(tensors.turn[one, 0]), int(tensors.turn[one, 1]),
                   int(tensors.accesses.begin[one]) // _PART,
                   int(tensors.accesses.end[one]) // _PART,
                   bool(tensors.accesses.reads[one]), bool(tensors.accesses.writes[one]))
            for one in own.tolist()
        ]  # fmt: skip
        loads, stores = moves_of_tensor(accesses, is_before=before[life], distance=distance)
        for found, of_tensor in ((wanted[False], loads), (wanted[True], stores)):
            for turn, count in of_tensor.items():
                found[turn] += count * _PART
    for store, of_turn in wanted.items():
        total = int(moves.bytes[moves.is_store == store].sum())
        assert total == sum(of_turn.values())
        assert int((moves.is_store == store).sum()) == sum(1 for one in of_turn.values() if one)


@given(trace=steps(), distance=st.integers(0, 5), room=st.integers(1, 12))
def test_what_operations_use_is_in_buffers_of_their_size(
    trace: Trace, distance: int, room: int
) -> None:
    plain, tensors = plain_of(trace)
    step = placed(plain, below(tensors), Staging(room * _PART, distance), system())
    moves = step.placed.moves[0]
    start, end = row_times(step.simulation, 0)
    first = moves.first_part
    for life, row in zip(tensors.life.tolist(), tensors.accesses.first.tolist(), strict=True):
        mine = moves.life == life
        parts = [*range(int(first[row]), int(first[row]) + int(moves.parts[row]) - 1), row]
        for part in parts:
            low, high = start[moves.begin[mine]], end[moves.end[mine]]
            assert ((low <= start[part]) & (high >= end[part])).any()
    low, high = start[moves.begin], end[moves.end]
    for moment in low.tolist():
        assert moves.size[(low <= moment) & (high > moment)].sum() <= moves.most


@given(trace=steps(), chosen=st.integers(0, 2**32))
def test_bytes_live_in_one_tier_each_at_every_moment(trace: Trace, chosen: int) -> None:
    plain, tensors = plain_of(trace)
    tier = chosen >> np.arange(tensors.table.height) & 1
    step = placed(plain, tier, Staging(_LARGE, 2), system())
    times = row_times(step.simulation, 0)
    begin = np.where(tensors.table["is_before"], 0, times[0][tensors.column("first_use")])
    end = times[1][tensors.column("last_use")]
    live = live_bytes(step.placed, 0, times, (1, 1))
    for moment in np.unique(np.concatenate([begin, end])).tolist():
        there = 0
        for of_tier in live:
            at = int(np.searchsorted(of_tier.time, moment, side="right")) - 1
            there += int(of_tier.bytes[at, :-1].sum()) if at >= 0 else 0
        lives = (begin <= moment) & (moment < end)
        assert there == tensors.column("bytes")[lives].sum()
    peak = nadi.simulation.live_memory(step.simulation)
    assert peak is not None
    whole = live_bytes(in_the_first_tier(step), 0, times, (1,))[0]
    assert int(whole.bytes[:, :-1].sum(axis=1).max()) == peak["peak"][0]


@given(trace=steps())
def test_all_in_the_first_tier_is_the_plain_simulation(trace: Trace) -> None:
    plain, tensors = plain_of(trace)
    step = placed(plain, below(tensors) * 0, Staging(_PART), system())
    assert step.placed.job[0] is plain.tensors.traces[0].trace  # type: ignore[index]
    assert step.ns == plain.ns


@settings(max_examples=examples(60))
@given(
    trace=steps(), room=st.integers(1, 12), rates=st.tuples(st.integers(1, 200),
                                                           st.integers(1, 200)),
    latencies=st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)), in_place=st.booleans(),
)  # fmt: skip
def test_a_faster_tier_is_never_slower(
    trace: Trace, room: int, rates: tuple[int, int], latencies: tuple[int, int], in_place: bool
) -> None:
    plain, tensors = plain_of(trace)
    staging = Staging(room * _PART, 3, in_place)
    slow, fast = (
        placed(plain, below(tensors), staging, system(rate, latency)).ns
        for rate, latency in ((min(rates), max(latencies)), (max(rates), min(latencies)))
    )
    assert plain.ns <= fast <= slow


@given(trace=steps(), room=st.integers(1, 12))
def test_the_interval_of_work_in_place_holds_its_time(trace: Trace, room: int) -> None:
    plain, tensors = plain_of(trace)
    step = placed(plain, below(tensors), Staging(room * _PART, 3, in_place=True), system())
    assert plain.ns <= step.low <= step.ns <= step.high


def test_a_part_is_loaded_while_another_is_stored() -> None:
    """By hand: moves of a full duplex tier overlap in the update, those of half duplex do not."""
    plan = {"tp": 4, "dp": 2, "sequence": 1024, "global_batch": 2}
    job = nadi.llm_job("llama3-8b", **plan)
    plain = plain_step(job, nadi.load_system("dgx-h100", 8))
    rules = ByRules(parse_rules("optimizer=cxl"))
    exposed = {}
    for duplex in (True, False):
        for buffers in (2 << 30, 8 << 30):
            tier = msgspec.structs.replace(second_tier(32.0), duplex=duplex)
            system = msgspec.structs.replace(plain.system, tiers=(tier,))
            staging = plain.staging(system, buffers)
            step = plain.placed(plain.chosen(rules, system, staging), system, staging)
            exposed[duplex, buffers] = step.ns - plain.ns
            moves = step.placed.moves[0]
            moved = int(moves.bytes[~moves.is_store].sum())
    one_way = moved / 32.0  # ns
    assert exposed[True, 2 << 30] == pytest.approx(one_way, rel=0.06)
    assert exposed[False, 2 << 30] == pytest.approx(2 * one_way, rel=0.06)
    for duplex in (True, False):  # more buffers read further ahead
        assert exposed[duplex, 8 << 30] <= exposed[duplex, 2 << 30] * 1.001


def test_a_step_loads_weights_where_passes_turn_once_and_stores_what_it_updates() -> None:
    plan = {"sequence": 512, "global_batch": 1}
    plain = plain_step(nadi.llm_job("gpt3-125m", **plan), nadi.load_system("dgx-h100", 1))
    there = msgspec.structs.replace(plain.system, tiers=(second_tier(64.0, _LARGE),))
    staging = plain.staging(there)
    where = plain.chosen(ByRules(parse_rules("weights=cxl")), there, staging)
    (moves,) = plain.placed(where, there, staging).placed.moves
    table = plain.tensors.traces[0].table
    weights = int(table.filter(table["role"].cast(str) == "weights")["bytes"].sum())
    moved = moves.bytes.sum(axis=1)
    # the update has copies of all weights, so it writes each and reads none
    assert moved[moves.is_store].sum() == weights
    # a forward and a backward; the layers between both stay, and few rows of tables are looked up
    assert weights <= moved[~moves.is_store].sum() < 2 * weights


def test_a_job_of_one_node_that_shares_a_pool_is_simulated() -> None:
    """Its eight ranks wait for each other at the pool, so all of them are: 0.8 million nodes."""
    job = nadi.llm_job("llama3-70b", tp=8, global_batch=32)
    system = nadi.load_system("dgx-h100-cxl", 8)
    plain = plain_step(job, system)
    staging = plain.staging(system)
    placed = plain.chosen(ByRules(parse_rules("optimizer=cxl")), system, staging)
    step = plain.placed(placed, system, staging)
    assert step.simulation.program.num_ranks == 8
    assert step.simulation.num_nodes > 700_000
    assert step.ns > plain.ns


def test_the_bandwidth_that_pays_is_one_of_the_sweep_whose_step_costs_little() -> None:
    """Where two placements fit, the shorter step counts at each bandwidth, in both answers."""
    job = nadi.llm_job("gpt3-1.3b", tp=2, sequence=2048, global_batch=8)
    question = PlacementQuestion(bandwidths=(16.0,), memories=(10 << 30,))
    pays = study_placement(job, "dgx-h100", question).pays
    assert pays is not None
    assert 1 < pays.pays_from < 4096
    tried = (pays.pays_from, pays.below)
    points = study_placement(job, "dgx-h100", question._replace(bandwidths=tried)).points
    ratio = dict(zip(points["bandwidth"].to_list(), points["ratio"].to_list(), strict=True))
    assert ratio[pays.pays_from] <= 1.01 < ratio[pays.below] == pytest.approx(pays.ratio)
