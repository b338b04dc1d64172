"""Clocks of ranks: intervals against a slow oracle, and shifts only where they are needed."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, strategies as st

import nadi
from nadi.recordings.ranks.clock_skew import align_clocks
from nadi.trace.issues import IssueLog
from nadi.trace.schema import COMM_TYPES, UNBOUNDED
from tests.reference.clocks import components, distances

Part = dict[str, Any]
SCHEMA = {
    "collective": pl.Int64, "rank": pl.Int64, "comm_type": pl.Enum(COMM_TYPES),
    "comm_bytes": pl.Int64, "src": pl.Int64, "dst": pl.Int64, "is_cpu": pl.Boolean,
    "start": pl.Int64, "end": pl.Int64,
}  # fmt: skip
KINDS = ("all_reduce", "barrier", "broadcast", "reduce", "gather", "scatter", "send", "other")


def align(num_ranks: int, parts: list[Part]) -> tuple[list[dict[str, Any]], dict[str, int]]:
    log = IssueLog()
    frame = pl.DataFrame(parts, schema=SCHEMA)
    clocks = align_clocks(list(range(num_ranks)), frame, log).to_dicts()
    return clocks, dict(log.table().select("code", "count").iter_rows())


def part(collective: int, rank: int, start: int, end: int, **given: Any) -> Part:
    return {
        "collective": collective, "rank": rank, "comm_type": "all_reduce", "comm_bytes": 4,
        "src": -1, "dst": -1, "is_cpu": True, "start": start, "end": end,
    } | given  # fmt: skip


def play(
    num_ranks: int, num_meetings: int, offsets: list[int], chance: random.Random
) -> list[Part]:
    """Run communications that wait as they should, and record them with clocks that are off."""
    parts = []
    for number in range(num_meetings):
        kind = chance.choice(KINDS)
        size = 2 if kind == "send" else chance.randint(2, num_ranks)
        ranks = chance.sample(range(num_ranks), min(size, num_ranks))
        root = chance.choice(ranks)
        begin = {rank: 1_000 * number + chance.randrange(500) for rank in ranks}
        for rank in ranks:
            waits = {
                "broadcast": rank != root, "scatter": rank != root, "reduce": rank == root,
                "gather": rank == root, "send": rank != root, "other": False,
            }.get(kind, True)  # fmt: skip
            awaited = [begin[root]] if kind in ("broadcast", "scatter", "send") else begin.values()
            end = max([begin[rank], *(awaited if waits else [])]) + chance.randrange(300)
            ends = {"src": root} if kind in ("broadcast", "scatter") else {"dst": root}
            name = "recv" if kind == "send" and rank != root else kind
            if kind in ("all_reduce", "barrier", "other", "send"):
                ends = {}
            parts.append(
                part(number, rank, begin[rank] - offsets[rank], end - offsets[rank],
                     comm_type=name, comm_bytes=chance.choice([4, 4, -1]), **ends)
            )  # fmt: skip
    return parts


jobs = st.tuples(
    st.integers(2, 6), st.integers(0, 8), st.sampled_from([0, 200, 5_000]),
    st.randoms(use_true_random=False),
)  # fmt: skip


@given(jobs)
def test_intervals_are_those_of_the_oracle_and_hold_the_truth(job: Any) -> None:
    num_ranks, num_meetings, spread, chance = job
    offsets = [chance.randint(-spread, spread) for _ in range(num_ranks)]
    parts = play(num_ranks, num_meetings, offsets, chance)
    clocks, issues = align(num_ranks, parts)
    bound, reference = distances(num_ranks, parts), components(num_ranks, parts)
    assert [clock["reference"] for clock in clocks] == reference
    needed = any(bound[i][j] < 0 for i in range(num_ranks) for j in range(num_ranks))
    for rank, clock in enumerate(clocks):
        there = reference[rank]
        high, low = bound[there][rank], -bound[rank][there]
        assert clock["high"] == (UNBOUNDED if high == math.inf else high)
        assert clock["low"] == (-UNBOUNDED if low == -math.inf else low)
        assert clock["low"] <= offsets[rank] - offsets[there] <= clock["high"]
    shift = [clock["shift"] for clock in clocks]
    assert any(shift) == needed == ("job.clocks" in issues)
    assert "job.clocks-contradict" not in issues
    for i in range(num_ranks):
        for j in range(num_ranks):
            assert shift[j] - shift[i] <= bound[i][j]


def test_work_on_devices_is_shifted_by_the_median_difference_of_its_ends() -> None:
    late = 10_000
    parts = [
        part(number, rank, 100 * number + rank * late, 100 * number + 50 + rank * (late + number),
             is_cpu=False)
        for number in range(3) for rank in range(2)
    ]  # fmt: skip
    clocks, issues = align(2, parts)
    assert clocks[1]["shift"] == -(late + 1)
    assert issues == {"job.clocks": 1}


def test_a_rank_is_shifted_by_what_it_shares_with_lower_ranks() -> None:
    parts = [part(0, rank, 0, 50, is_cpu=False) for rank in (0, 2)]
    parts += [part(0, 1, 10_000, 10_050, is_cpu=False), part(1, 1, 10_100, 10_150, is_cpu=False)]
    clocks, _ = align(3, [*parts, part(1, 2, 100, 150, is_cpu=False)])
    assert [clock["shift"] for clock in clocks] == [0, -10_000, 0]


def test_work_on_hosts_is_shifted_to_the_middle() -> None:
    clocks, _ = align(2, [part(0, 0, 0, 100), part(0, 1, 1_000, 1_040)])
    assert (clocks[1]["low"], clocks[1]["high"]) == (-1_040, -900)
    assert clocks[1]["shift"] == -970


@pytest.mark.parametrize(("sender", "low", "high"), [(0, 960, UNBOUNDED), (1, -UNBOUNDED, -960)])
def test_a_rank_that_only_sends_or_receives_is_shifted_no_further_than_it_must(
    sender: int, low: int, high: int
) -> None:
    sent = part(0, sender, 1_000, 1_100, comm_type="send")
    clocks, _ = align(2, [sent, part(0, 1 - sender, 0, 40, comm_type="recv")])
    assert (clocks[1]["low"], clocks[1]["high"]) == (low, high)
    assert clocks[1]["shift"] == (low if sender == 0 else high)


def test_a_rank_that_is_bound_by_others_only_is_shifted_with_them() -> None:
    # ranks 1 and 2 meet, both meet rank 0 in something that says nothing
    loose = [part(0, rank, 0, 10, comm_type="other") for rank in range(3)]
    clocks, _ = align(3, [*loose, part(1, 1, 0, 100), part(1, 2, 1_000, 1_100)])
    assert [clock["reference"] for clock in clocks] == [0, 0, 0]
    assert -1_100 <= clocks[2]["shift"] - clocks[1]["shift"] <= -900
    assert clocks[1]["low"] == -UNBOUNDED


def test_what_no_shift_makes_possible_is_reported() -> None:
    # rank 1 ends 50 ns before rank 0 begins, then rank 0 before rank 1: together 70 too early
    parts = [
        part(0, 0, 100, 200), part(0, 1, 0, 50),
        part(1, 0, 300, 320), part(1, 1, 340, 400),
    ]  # fmt: skip
    clocks, issues = align(2, parts)
    assert issues["job.clocks-contradict"] == 2
    assert clocks[1]["low"] == clocks[1]["high"] == clocks[1]["shift"]
    apart = [{**p, "start": p["start"] * 10**6, "end": p["end"] * 10**6} for p in parts]
    clocks, issues = align(2, apart)
    assert issues == {"job.clocks-contradict": 2}
    assert (clocks[1]["shift"], clocks[1]["low"], clocks[1]["high"]) == (0, -UNBOUNDED, UNBOUNDED)


def test_many_ranks_that_contradict_end_soon() -> None:
    chance = random.Random(1)
    offsets = [chance.randrange(10**6) for _ in range(200)]
    parts = []
    for number in range(30):
        drift = [number * rank % 7 for rank in range(200)]
        begin = [10_000 * number + chance.randrange(1_000) for _ in range(200)]
        end = max(begin) + 1
        parts += [
            part(number, rank, b - offsets[rank] + drift[rank], end - offsets[rank] + drift[rank])
            for rank, b in enumerate(begin)
        ]
    clocks, issues = align(200, parts)
    assert "job.clocks-contradict" in issues
    for rank, clock in enumerate(clocks):
        assert abs(clock["shift"] - (offsets[rank] - offsets[0])) < 100


def test_hostile_times_do_not_overflow() -> None:
    clocks, issues = align(2, [part(0, 0, 0, 1), part(0, 1, 2**63 - 10, 2**63 - 1)])
    assert issues == {"job.clocks-apart": 1}
    assert clocks[1]["shift"] == 0


def test_the_demo_needs_no_shift(demo_run: nadi.bottlenecks.Run) -> None:
    """The intervals are narrower than between pairs: ranks are compared by way of others too."""
    found = {row["rank"]: (row["low"], row["high"]) for row in demo_run.job.clocks.to_dicts()}
    assert not demo_run.job.clocks["shift"].to_numpy().any()
    parts = demo_parts(demo_run)
    bound = distances(4, parts)
    assert found == {rank: (-bound[rank][0], bound[0][rank]) for rank in range(4)}


def test_whole_group_collectives_alone_give_the_intervals_of_pairs(
    demo_run: nadi.bottlenecks.Run,
) -> None:
    """Worked out by hand from the recording, in us, without broadcasts and other ranks."""
    parts = [p for p in demo_parts(demo_run) if p["comm_type"] not in ("broadcast", "send", "recv")]
    sizes = [p["collective"] for p in parts]
    for rank, expected in {1: (-174, 968), 2: (-653, 867), 3: (-224, 330)}.items():
        both = [
            {**p, "rank": min(p["rank"], 1)}
            for p in parts
            if sizes.count(p["collective"]) == 4 and p["rank"] in (0, rank)
        ]
        clock = align(2, both)[0][1]
        assert (round(clock["low"] / 1_000), round(clock["high"] / 1_000)) == expected


def demo_parts(run: nadi.bottlenecks.Run) -> list[Part]:
    parts = []
    for collective, rank, node in run.job.matches.iter_rows():
        row = run.job.traces[rank].nodes.row(node, named=True)
        chosen = {name: row[name] for name in ("comm_type", "comm_bytes", "src", "dst", "is_cpu")}
        parts.append(part(collective, rank, row["start"], row["start"] + row["duration"], **chosen))
    return parts


@pytest.mark.parametrize("late", [-50_000_000, 50_000_000])
def test_a_rank_of_a_recording_with_another_clock_is_shifted_back(
    demo_run: nadi.bottlenecks.Run, late: int
) -> None:
    moved = []
    for trace in demo_run.job.traces:
        start = trace.nodes["start"]
        by = pl.when(start >= 0).then(start + late * (trace.rank == 2)).otherwise(start)
        moved.append(replace(trace, nodes=trace.nodes.with_columns(start=by)))
    job = nadi.recordings.link_job(moved)
    clock = job.clocks.row(2, named=True)
    low, high = demo_run.job.clocks.row(2, named=True)["low"], demo_run.job.clocks["high"][2]
    assert (clock["low"], clock["high"]) == (low - late, high - late)
    assert clock["shift"] == (low + high) // 2 - late
    assert job.issues.filter(pl.col("code") == "job.clocks")["count"].to_list() == [1]
    assert (job.traces[2].column("start") - moved[2].column("start"))[-1] == clock["shift"]
    assert nadi.trace.validate_job(job).is_empty()
    assert all(nadi.trace.validate_trace(trace).is_empty() for trace in job.traces)
    graph = nadi.build_graph(job)
    assert (nadi.graph.replay_graph(graph).time == graph.time).all()


def test_gpu_dlrm8_needs_no_shift(shared_traces: Path) -> None:
    job = nadi.load_job(*sorted((shared_traces / "gpu_dlrm8").glob("device_*.json.gz")))
    assert job.matches["collective"].value_counts()["count"].to_list() == [8] * 8
    assert not job.clocks["shift"].to_numpy().any()
    assert (job.clocks["high"] - job.clocks["low"]).max() < 300_000  # kernels of 0.1 ms


@pytest.mark.parametrize(("missing", "is_shifted"), [(1_000_000, True), (1_000_001, False)])
def test_up_to_a_millisecond_of_contradiction_is_tolerated(
    missing: int, *, is_shifted: bool
) -> None:
    # in turn each rank ends so much before the other begins
    later = 10_000_000
    parts = [
        part(0, 0, missing, missing), part(0, 1, 0, 0),
        part(1, 0, later, later), part(1, 1, later + missing, later + missing),
    ]  # fmt: skip
    clocks, issues = align(2, parts)
    assert issues == {"job.clocks-contradict": 2}
    assert (clocks[1]["low"] > -UNBOUNDED) == is_shifted


@pytest.mark.parametrize("missing", [(1000, 1000), (1000, 1001), (7, 0), (50_000, 33_333)])
def test_no_more_contradiction_is_tolerated_than_there_is(missing: tuple[int, int]) -> None:
    later = 10_000_000
    parts = [
        part(0, 0, missing[0], missing[0]), part(0, 1, 0, 0),
        part(1, 0, later, later), part(1, 1, later + missing[1], later + missing[1]),
    ]  # fmt: skip
    clocks, _ = align(2, parts)
    # both clocks are given half, in whole ns: nothing is left, or 1 ns
    assert clocks[1]["high"] - clocks[1]["low"] == sum(missing) % 2
