"""Communication matched across ranks: against what a random job truly did, and what is said."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings, strategies as st

import nadi
from nadi.recordings.join_ranks import as_in_job
from nadi.trace.schema import COMMUNICATION_KINDS, DEPS, GROUPS, ISSUES, NODES
from nadi.trace.trace import Provenance, Source
from tests.amounts import examples

Operation = dict[str, Any]


def job_of(
    ranks: dict[int, list[Operation]], groups: dict[str, list[int]], *, world_size: int = 0
) -> nadi.Job:
    """Link ranks that communicate; an operation has columns of the nodes, and its truth."""
    traces = []
    for rank, operations in ranks.items():
        names = [name for name, members in groups.items() if rank in members]
        row_of = {name: row for row, name in enumerate(names)}
        columns: dict[str, Any] = {
            "id": [100 * rank + row for row in range(len(operations))],
            "name": [op.get("name", "ncclDevKernel") for op in operations],
            "kind": [{"send": "COMM_SEND", "recv": "COMM_RECV"}.get(op["comm_type"], "COMM_COLL")
                     for op in operations],
            "category": ["annotation" if op.get("is_cpu") else "kernel" for op in operations],
            "group": [row_of.get(op["group"], -1) for op in operations],
        }  # fmt: skip
        defaults = {"comm_bytes": 8, "src": -1, "dst": -1, "tag": -1, "is_cpu": False, "rf_id": -1,
                    "thread": -1, "start": 0, "duration": 10, "comms_id": -1}  # fmt: skip
        for name, default in defaults.items():
            columns[name] = [op.get(name, default) for op in operations]
        columns["comm_type"] = [op["comm_type"] for op in operations]
        traces.append(
            nadi.Trace(
                NODES.build(len(operations), columns),
                DEPS.empty(),
                GROUPS.build(len(names), {"name": names, "ranks": [groups[n] for n in names]}),
                ISSUES.empty(),
                Provenance("0", (Source(f"rank {rank}", "test", 0, ""),)),
                rank=rank,
                world_size=world_size or len(ranks),
            )
        )
    return nadi.recordings.link_job(traces)


def found(job: nadi.Job) -> set[frozenset[tuple[int, int]]]:
    parts = job.matches.group_by("collective").agg("rank", "node")
    return {
        frozenset(zip(row["rank"], row["node"], strict=True)) for row in parts.iter_rows(named=True)
    }


def issues(job: nadi.Job) -> dict[str, int]:
    return dict(job.issues.select("code", "count").iter_rows())


def detail(job: nadi.Job, code: str) -> str:
    return str(job.issues.filter(pl.col("code") == code)["detail"].item())


def play(
    num_ranks: int, groups: dict[str, list[int]], length: int, chance: random.Random
) -> tuple[dict[int, list[Operation]], set[frozenset[tuple[int, int]]]]:
    """Let ranks communicate at random; gives what they did, and which belongs together."""
    ranks: dict[int, list[Operation]] = {rank: [] for rank in range(num_ranks)}
    truth = set()
    for number in range(length):
        time, size = 1_000 * number, chance.choice([8, 16])
        name = chance.choice(list(groups))
        members = groups[name]
        if len(members) > 1 and chance.random() < 0.4:
            src, dst = chance.sample(members, 2)
            ends = {"src": src, "dst": dst, "tag": chance.choice([0, 1]), "group": name}
            kinds = {src: "send", dst: "recv"}
        else:
            kind = chance.choice(["all_reduce", "all_gather", "barrier", "all_to_all"])
            ends, kinds = {"group": name}, dict.fromkeys(members, kind)
        parts = []
        for rank, kind in kinds.items():
            parts.append((rank, len(ranks[rank])))
            ranks[rank].append(
                {"comm_type": kind, "comm_bytes": size, "start": time + chance.randrange(300),
                 "duration": 500, **ends}
            )  # fmt: skip
        if len(kinds) > 1:
            truth.add(frozenset(parts))
    return ranks, truth


def are_together(ranks: dict[int, list[Operation]]) -> bool:
    """Tell whether no rank begins when all that began before it have ended: it would be refused."""
    spans = sorted(
        (min(one["start"] for one in ops), max(one["start"] + one["duration"] for one in ops))
        for ops in ranks.values()
        if ops
    )
    ends = [max(end for _, end in spans[: number + 1]) for number in range(len(spans))]
    return all(start <= end for (start, _), end in zip(spans[1:], ends, strict=False))


@settings(max_examples=examples(60))
@given(st.integers(2, 6), st.integers(0, 25), st.randoms(use_true_random=False))
def test_what_ranks_truly_did_together_is_found(
    num_ranks: int, length: int, chance: random.Random
) -> None:
    groups = {"all": list(range(num_ranks))}
    for number in range(3):
        members = chance.sample(range(num_ranks), chance.randint(1, num_ranks))
        groups[str(number)] = sorted(members)
    ranks, truth = play(num_ranks, groups, length, chance)
    assume(are_together(ranks))
    job = job_of(ranks, groups)
    assert found(job) == truth
    assert job.issues.is_empty()
    assert nadi.trace.validate_job(job).is_empty()
    starts = [
        min(job.traces[rank].nodes["start"][node] for rank, node in part)
        for part in (
            list(zip(p["rank"], p["node"], strict=True))
            for p in job.matches.partition_by("collective", maintain_order=True)
        )
    ]
    assert starts == sorted(starts)  # numbered in order of time


def repeated(count: int, first: int = 0, **given: Any) -> list[Operation]:
    return [
        {"comm_type": "all_reduce", "group": "all", "start": 100 * number, **given}
        for number in range(first, count)
    ]


def test_a_recording_that_began_later_is_matched_from_its_end() -> None:
    ranks = {0: repeated(10), 1: repeated(10, first=3), 2: repeated(10, first=1)}
    job = job_of(ranks, {"all": [0, 1, 2]})
    assert found(job) == {frozenset([(0, k + 3), (1, k), (2, k + 2)]) for k in range(7)}
    assert issues(job) == {"job.unmatched-collective": 5}


def test_recordings_of_equal_length_that_began_at_another_place() -> None:
    sizes = [8, 16, 32, 64] * 3
    ranks = {
        rank: [{"comm_type": "all_reduce", "group": "all", "comm_bytes": sizes[k], "start": 100 * k}
               for k in range(rank, rank + 8)]
        for rank in range(2)
    }  # fmt: skip
    job = job_of(ranks, {"all": [0, 1]})
    assert found(job) == {frozenset([(0, k + 1), (1, k)]) for k in range(7)}
    assert issues(job) == {"job.unmatched-collective": 2}


def test_a_recording_that_ended_sooner_is_matched_from_its_start() -> None:
    job = job_of({0: repeated(10), 1: repeated(6)}, {"all": [0, 1]})
    assert found(job) == {frozenset([(0, k), (1, k)]) for k in range(6)}
    assert detail(job, "job.unmatched-collective").endswith(
        "collective 6 of group 'all': rank 0 has node 6 (ncclDevKernel), all_reduce of 8 bytes, "
        "but rank 1 has no further collective"
    )


def test_one_that_a_rank_lacks_in_between_costs_no_others() -> None:
    kinds = ["all_reduce", "broadcast", "all_gather", "reduce", "barrier"] * 3
    whole = [{**op, "comm_type": kind} for op, kind in zip(repeated(15), kinds, strict=True)]
    job = job_of({0: whole, 1: whole[:7] + whole[8:], 2: whole}, {"all": [0, 1, 2]})
    assert job.matches["collective"].n_unique() == 14
    assert issues(job) == {"job.unmatched-collective": 2}
    assert detail(job, "job.unmatched-collective").endswith(
        "collective 7 of group 'all': rank 0 has node 7 (ncclDevKernel), all_gather of 8 bytes, "
        "but rank 1 has node 107 (ncclDevKernel), reduce of 8 bytes"
    )


def test_of_collectives_alone_in_an_unknown_group_three_are_named() -> None:
    job = job_of({0: repeated(5, group=""), 1: repeated(1, group="")}, {})
    assert issues(job) == {"job.unmatched-collective": 4}
    assert detail(job, "job.unmatched-collective").endswith(
        ": "
        + "; ".join(
            f"rank 0 has node {k} (ncclDevKernel), all_reduce of 8 bytes, of an unknown group"
            for k in (1, 2, 3)
        )
    )


def test_another_size_is_reported_with_both_ranks() -> None:
    ranks = {0: repeated(3), 1: repeated(3)}
    ranks[1][2] = {**ranks[1][2], "comm_bytes": 4096, "name": "odd"}
    job = job_of(ranks, {"all": [0, 1]})
    assert job.matches["collective"].n_unique() == 3
    assert issues(job) == {"job.collective-size": 1}
    assert detail(job, "job.collective-size").endswith(
        "rank 0 has node 2 (ncclDevKernel), all_reduce of 8 bytes, but rank 1 has node 102 (odd), "
        "all_reduce of 4,096 bytes"
    )
    uneven = {0: repeated(1, comm_type="all_to_all"), 1: repeated(1, comm_type="all_to_all")}
    uneven[1][0]["comm_bytes"] = 64
    assert job_of(uneven, {"all": [0, 1]}).issues.is_empty()


def test_a_rank_that_is_absent_is_no_mismatch() -> None:
    job = job_of({0: repeated(2), 1: repeated(2)}, {"all": [0, 1, 2]}, world_size=3)
    assert job.matches.is_empty()
    assert issues(job) == {"job.group-incomplete": 4}
    unnamed = job_of({0: repeated(2, group=""), 1: repeated(2, group="")}, {}, world_size=3)
    assert unnamed.matches.is_empty()
    assert issues(unnamed) == {"job.group-incomplete": 4}


def pair_of(kind: str, start: int, **given: Any) -> Operation:
    return {"comm_type": kind, "group": "all", "src": 0, "dst": 1, "tag": 0, "start": start} | given


def test_gloo_goes_by_tag_and_nccl_by_order() -> None:
    for is_cpu, partner in ((True, {0: 1, 1: 0}), (False, {0: 0, 1: 1})):
        given: dict[str, Any] = {"is_cpu": is_cpu, "duration": 500}
        ranks = {
            0: [pair_of("send", 0, tag=1, rf_id=1, **given), pair_of("send", 9, rf_id=2, **given)],
            1: [pair_of("recv", 0, rf_id=1, **given), pair_of("recv", 9, tag=1, rf_id=2, **given)],
        }
        job = job_of(ranks, {"all": [0, 1]})
        assert found(job) == {frozenset([(0, k), (1, partner[k])]) for k in range(2)}


def test_sends_and_receives_alone_are_reported() -> None:
    ranks = {
        0: [pair_of("send", 0, comm_bytes=4), pair_of("send", 20), pair_of("send", 40, dst=2)],
        1: [pair_of("recv", 0, src=-1), pair_of("recv", 1)],
    }
    job = job_of(ranks, {"all": [0, 1]}, world_size=3)
    assert found(job) == {frozenset([(0, 0), (1, 1)])}
    assert issues(job) == {
        "job.point-to-point-unknown": 1, "job.point-to-point-absent": 1,
        "job.unmatched-point-to-point": 1, "job.point-to-point-size": 1,
    }  # fmt: skip
    assert detail(job, "job.unmatched-point-to-point").endswith(
        "rank 0 has node 1 (ncclDevKernel), send of 8 bytes from rank 0 to 1, tag 0, without a "
        "counterpart on the peer"
    )


def gloo(rank: int, kinds: str, *, told: bool) -> list[Operation]:
    """Give gloo's work: a letter each, upper case in group all, lower case in half0 or half1."""
    sizes = {"A": 8, "B": 16, "a": 8, "c": 32}
    half = "half0" if rank < 2 else "half1"
    return [
        {"comm_type": "all_reduce", "comm_bytes": sizes[letter], "is_cpu": True, "rf_id": number,
         "start": 100 * number, "duration": 100, "name": "gloo:all_reduce",
         "group": ("all" if letter.isupper() else half) if told else ""}
        for number, letter in enumerate(kinds, 1)
    ]  # fmt: skip


def test_groups_that_nothing_tells_take_what_their_ranks_have_in_common() -> None:
    groups = {"all": [0, 1, 2, 3], "half0": [0, 1], "half1": [2, 3]}
    sequences = {0: "ABcA", 1: "ABcA", 2: "ABA", 3: "ABA"}
    ranks = {rank: gloo(rank, kinds, told=False) for rank, kinds in sequences.items()}
    job = job_of(ranks, groups)
    members = [sorted(rank for rank, _ in parts) for parts in found(job)]
    assert sorted(members) == [[0, 1], *[[0, 1, 2, 3]] * 3]
    assert job.issues.is_empty()
    # what was found out is told of the nodes, and orders them
    names = [job.traces[0].groups["name"][row] for row in job.traces[0].nodes["group"]]
    assert names == ["all", "all", "half0", "all"]
    assert job.traces[0].deps.select("src", "dst").rows() == [(0, 1), (1, 3)]


def test_threads_that_tell_the_wrong_groups_are_not_believed() -> None:
    groups = {"all": [0, 1, 2, 3], "half0": [0, 1], "half1": [2, 3]}
    ranks = {rank: gloo(rank, "ABA", told=True) for rank in range(4)}
    for operation, name in zip(ranks[3], ("half1", "all", "half1"), strict=True):
        operation["group"] = name
    job = job_of(ranks, groups)
    assert found(job) == {frozenset((rank, k) for rank in range(4)) for k in range(3)}
    assert job.traces[3].nodes["group"].to_list() == [0, 0, 0]


@pytest.mark.parametrize(
    ("kinds", "more_of_rank_0", "told_wrongly", "believed"),
    [
        ("ABABAB", "", [5], False),  # without groups all of them match, though most did before
        ("ABAB", "c", [0, 1], False),  # 9 of 17 do not match, and 1 without groups
        ("ABABA", "cccc", [0, 1], True),  # 12 of 24 do not match, and 4 without groups
    ],
)
def test_threads_are_believed_if_half_of_what_they_tell_matches_and_not_all_does_without(
    kinds: str, more_of_rank_0: str, told_wrongly: list[int], *, believed: bool
) -> None:
    groups = {"all": [0, 1, 2, 3], "half0": [0, 1], "half1": [2, 3]}
    ranks = {rank: gloo(rank, kinds, told=True) for rank in range(4)}
    ranks[0] = gloo(0, kinds + more_of_rank_0, told=True)
    for number in told_wrongly:
        ranks[3][number]["group"] = "half1"
    found = [trace.nodes["group"].to_list() for trace in job_of(ranks, groups).traces]
    whole = [0] * len(kinds)
    if believed:
        told = [int(number in told_wrongly) for number in range(len(kinds))]
        assert found == [whole + [1] * len(more_of_rank_0), whole, whole, told]
    else:
        assert found == [whole + [-1] * len(more_of_rank_0), whole, whole, whole]


def test_what_a_rank_lacks_is_not_made_up_for_by_groups_of_fewer() -> None:
    half = {rank: gloo(rank, "ABABABABAB", told=True) for rank in range(4)}
    del half[3][2]
    groups = {"all": [0, 1, 2, 3], "half0": [0, 1], "half1": [2, 3]}
    job = job_of(half, groups)
    assert all(len(parts) == 4 for parts in found(job))
    assert job.matches["collective"].n_unique() == 9
    assert issues(job) == {"job.unmatched-collective": 3}


def test_a_job_of_many_ranks() -> None:
    num_ranks, length = 256, 50
    groups = {"all": list(range(num_ranks))}
    groups |= {f"row{n}": list(range(16 * n, 16 * n + 16)) for n in range(16)}
    ranks = {
        rank: [{"comm_type": "all_reduce", "group": name, "start": 1_000 * k + rank,
                "duration": 900}
               for k in range(length) for name in ("all", f"row{rank // 16}")]
        for rank in range(num_ranks)
    }  # fmt: skip
    job = job_of(ranks, groups)
    assert job.matches.height == 2 * length * num_ranks
    assert job.matches["collective"].n_unique() == length * 17
    assert job.issues.is_empty()


def test_collectives_with_an_id_are_matched_by_it_alone() -> None:
    def collective(number: int, start: int) -> Operation:
        return {"comm_type": "all_reduce", "group": "0", "comms_id": number, "start": start}

    # equally many of one size on both ranks: nothing but the id tells that rank 1 began later
    ranks = {
        0: [collective(number, 100 * k) for k, number in enumerate([7, 5, 9, 3])],
        1: [collective(number, 100 * k) for k, number in enumerate([5, 9, 3, 2])],
    }
    assert found(job_of(ranks, {"0": [0, 1]})) == {
        frozenset({(0, k + 1), (1, k)}) for k in range(3)
    }  # fmt: skip
    without = {rank: [op | {"comms_id": -1} for op in ops] for rank, ops in ranks.items()}
    assert frozenset({(0, 0), (1, 0)}) in found(job_of(without, {"0": [0, 1]}))
    # if one has no id, none count
    ranks[1][2]["comms_id"] = -1
    assert frozenset({(0, 0), (1, 0)}) in found(job_of(ranks, {"0": [0, 1]}))


def test_ids_that_ranks_do_not_share_are_none() -> None:
    """As of a backend that counts the calls of a process in all of its groups."""

    def collective(number: int, start: int) -> Operation:
        return {"comm_type": "all_reduce", "group": "0", "comms_id": number, "start": start}

    ranks = {
        rank: [collective(10 * k + rank if k else 3, 100 * k) for k in range(4)]
        for rank in range(2)
    }  # fmt: skip
    assert found(job_of(ranks, {"0": [0, 1]})) == {frozenset({(0, k), (1, k)}) for k in range(4)}


def test_coalesced_collectives_of_one_id_are_matched_in_order() -> None:
    def collective(number: int, start: int) -> Operation:
        return {"comm_type": "all_gather", "group": "0", "comms_id": number, "start": start}

    ranks = {rank: [collective(4, 0), collective(4, 100), collective(6, 200)] for rank in range(3)}
    assert found(job_of(ranks, {"0": [0, 1, 2]})) == {
        frozenset((rank, k) for rank in range(3)) for k in range(3)
    }  # fmt: skip


def test_rank_0_is_a_known_peer() -> None:
    ranks = {
        0: [pair_of("recv", 0, src=2, dst=0)],
        1: [pair_of("send", 0, src=1, dst=0), pair_of("send", 20, src=1, dst=-1)],
    }
    assert issues(job_of(ranks, {"all": [0, 1]}, world_size=3)) == {
        "job.point-to-point-unknown": 1, "job.point-to-point-absent": 1,
        "job.unmatched-point-to-point": 1,
    }  # fmt: skip


def test_codes_of_words_are_those_of_the_tables(demo_folder: Path) -> None:
    # each step tells the next what it knows of them, and does not read them from the table
    job = nadi.load_job(demo_folder)
    for trace in (*job.traces, *map(as_shifted, job.traces)):
        for name in ("kind", "category", "comm_type"):
            of_table = trace.nodes[name].to_physical().to_list()
            assert trace.codes(name).tolist() == of_table, name
            assert trace.compact().codes(name).tolist() == of_table, name


def as_shifted(trace: nadi.Trace) -> nadi.Trace:
    rows = np.flatnonzero(trace.nodes["kind"].is_in(COMMUNICATION_KINDS).to_numpy())
    return as_in_job(trace, trace.column("group")[rows].tolist(), 7)
