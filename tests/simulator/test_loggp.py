"""The LogGP model: a slow oracle, laws, and jobs whose collectives are taken apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import nadi
from nadi.errors import FormatError, InputError, PairError, UsageError
from nadi.files import Action, MessageProgram, goal as goal_text
from nadi.files.files import RawFile
from nadi.simulation import LogGP, loggp_times, messages_of_job
from nadi.simulation.loggp.loggp import member_messages, time_per_byte
from tests.amounts import examples
from tests.reference.loggp import Costs, Operation, finish_times

MACHINE = LogGP(latency=2500, overhead=1500, gap=1000, gap_per_byte=6000)


def read(text: str) -> MessageProgram:
    content = np.frombuffer(text.encode(), dtype=np.uint8).copy()
    return goal_text.decode(RawFile("job.goal", content, content))


def written(program: MessageProgram) -> str:
    return b"".join(goal_text.encode(program)).decode()


def program_of(ranks: list[list[Operation]]) -> MessageProgram:
    lines = [f"num_ranks {len(ranks)}"]
    for rank, operations in enumerate(ranks):
        lines.append(f"rank {rank} {{")
        for k, one in enumerate(operations):
            if one.kind == "calc":
                lines.append(f"l{k}: calc {one.size}")
            else:
                way = "to" if one.kind == "send" else "from"
                lines.append(f"l{k}: {one.kind} {one.size}b {way} {one.peer} tag {one.tag}")
            lines += [f"l{k} requires l{other}" for other in one.awaited]
        lines.append("}")
    return read("\n".join(lines))


@st.composite
def rank_lists(draw: st.DrawFn) -> list[list[Operation]]:
    """Draw ranks that send to each other; most of what is sent is received."""
    ranks: list[list[Operation]] = [[] for _ in range(draw(st.integers(2, 4)))]

    def add(rank: int, kind: str, size: int, peer: int = -1, tag: int = 0) -> None:
        before = list(range(len(ranks[rank])))
        awaited = draw(st.lists(st.sampled_from(before), max_size=2, unique=True)) if before else []
        ranks[rank].append(Operation(kind, size, peer, tag, tuple(sorted(awaited))))

    for tag in range(draw(st.integers(1, 5))):
        src, dst = draw(st.permutations(range(len(ranks))))[:2]
        size = draw(st.sampled_from([0, 1, 8, 100, 5000]))
        add(src, "send", size, dst, draw(st.sampled_from([tag, 0])))
        add(src, "calc", draw(st.sampled_from([0, 10, 3000])))
        if draw(st.integers(0, 9)):
            add(
                dst, "recv", size, draw(st.sampled_from([src, -1])), draw(st.sampled_from([tag, 0]))
            )
    return ranks


costs = st.builds(
    Costs, st.integers(0, 3000), st.integers(0, 2000), st.integers(0, 4000), st.integers(0, 9),
    st.integers(0, 2), st.sampled_from([0, 99, 100, 10_000]),
)  # fmt: skip


@given(rank_lists(), costs)
@settings(max_examples=examples(300))
def test_finish_times_equal_a_slow_reading_of_the_rules(
    ranks: list[list[Operation]], stated: Costs
) -> None:
    machine = LogGP(
        stated.latency, stated.overhead, stated.gap, stated.per_byte * 1000,
        stated.overhead_per_byte * 1000, stated.limit,
    )  # fmt: skip
    expected = finish_times(ranks, stated)
    program = program_of(ranks)
    if expected is None:
        with pytest.raises(PairError, match=r"never comes|no receive takes it"):
            loggp_times(program, machine)
        return
    found = loggp_times(program, machine)
    assert found.finish.tolist() == expected
    computing = [sum(o.size for o in operations if o.kind == "calc") for operations in ranks]
    assert found.computing.tolist() == computing
    assert (found.start <= found.end).all()
    assert (found.end[program.awaited] <= found.end[program.waiting]).all()


@given(rank_lists())
@settings(max_examples=examples(60))
def test_a_written_program_is_read_back(ranks: list[list[Operation]]) -> None:
    program = program_of(ranks)
    again = read(written(program))
    for name in ("first", "action", "size", "peer", "tag", "cpu", "interface"):
        assert (getattr(again, name) == getattr(program, name)).all(), name
    assert written(again) == written(program)


def test_a_dependency_between_processors_holds() -> None:
    text = """num_ranks 2
    rank 0 {
    a: calc 10000 cpu 1
    b: send 1b to 1 // on processor 0
    b requires a
    c: calc 5 cpu 2
    c irequires a
    }
    rank 1 {
    recv 1b from 0
    }"""
    times = loggp_times(read(text), MACHINE)
    assert times.start.tolist() == [0, 10_000, 0, 0]
    # o and L of the send, then o of the receiver
    assert times.finish.tolist() == [11_500, 10_000 + 1500 + 2500 + 1500]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "line 1: it is empty"),
        ("rank 0 {\n}", "line 1: 'rank 0 {' is not a number of ranks"),
        ("num_ranks 1\ncalc 1", "line 2: 'calc 1' is outside of a rank"),
        ("num_ranks 1\nrank 0 {", "the last rank has no end"),
        ("num_ranks 1\nrank 1 {\n}", "line 2: 'rank 1 {' exceeds num_ranks 1"),
        ("num_ranks 1\nrank 0 {\n}\nrank 0 {\n}", "line 4: 'rank 0 {' occurs twice"),
        ("num_ranks 1\nrank 0 {\njump\n}", "line 3: 'jump' is neither"),
        (
            "num_ranks 1\nrank 0 {\na: calc 1\na: calc 2\n}",
            "line 4: the label of 'a: calc 2' occurs twice",
        ),
        (
            "num_ranks 1\nrank 0 {\na: calc 1\na requires b\n}",
            "line 4: 'a requires b' names a label that its rank does not have",
        ),
        ("num_ranks 1\nrank 0 {\nsend 1b to 1\n}", "line 3: 'send 1b to 1' names no rank"),
        ("num_ranks 1\nrank 0 {\nsend 1b to 0 tag -1\n}", "names no rank, or no tag"),
        ("num_ranks 2\nrank 0 {\nsend 1b from 1\n}", "write send to, recv from"),
        ("num_ranks 1\nrank 0 {\ncalc 99999999999999999999\n}", "too large"),
    ],
    ids=range(13),
)
def test_text_that_is_not_a_program_is_refused(text: str, what: str) -> None:
    with pytest.raises(FormatError, match=r"job\.goal") as caught:
        read(text)
    assert what in str(caught.value)


def test_what_never_ends_is_named() -> None:
    circle = "num_ranks 1\nrank 0 {\na: calc 1\nb: calc 1\na requires b\nb requires a\n}"
    with pytest.raises(InputError, match="cycle"):
        loggp_times(read(circle), MACHINE)
    with pytest.raises(InputError, match="53 days"):
        loggp_times(read("num_ranks 1\nrank 0 {\ncalc 4700000000000000\n}"), MACHINE)


@pytest.mark.parametrize(
    ("text", "ps"), [("6 ns", 6000), ("20ps", 20), ("50 GB/s", 20), ("400 Gb/s", 20)]
)
def test_times_per_byte(text: str, ps: int) -> None:
    assert time_per_byte(text) == ps


def test_what_is_no_quantity_is_refused() -> None:
    with pytest.raises(ValueError, match="time per byte"):
        time_per_byte("6")
    with pytest.raises(UsageError, match="gap"):
        LogGP.of_texts("1us", "1us", "one", "6ns")
    with pytest.raises(UsageError, match="negative"):
        LogGP(-1, 0, 0, 0)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
@pytest.mark.parametrize(
    "comm_type",
    ["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "barrier", "broadcast", "reduce",
     "gather", "scatter"],
)  # fmt: skip
def test_what_one_member_sends_another_receives(comm_type: str, size: int) -> None:
    root, num_bytes = size // 2, 1000
    sent, received = [], []
    for member in range(size):
        found = member_messages(comm_type, size, member, root)
        sizes = found.shares * -(-num_bytes // found.parts)
        for action, peer, bytes_ in zip(found.action, found.peer, sizes, strict=True):
            if action == Action.SEND:
                sent.append((member, int(peer), int(bytes_)))
            elif action == Action.RECEIVE:
                received.append((int(peer), member, int(bytes_)))
    assert sorted(sent) == sorted(received)
    part = -(-num_bytes // size)
    n = size - 1
    total = {
        "all_reduce": 2 * n * size * part, "reduce_scatter": n * size * part,
        "all_to_all": n * size * part, "all_gather": n * size * num_bytes,
        "broadcast": n * num_bytes, "reduce": n * num_bytes,
    }.get(comm_type)  # fmt: skip
    assert total is None or sum(bytes_ for *_, bytes_ in sent) == total


def test_an_unknown_collective_is_refused() -> None:
    with pytest.raises(UsageError, match="multicast"):
        member_messages("multicast", 4, 0)


def test_a_ring_has_the_time_of_its_closed_form() -> None:
    with nadi.JobBuilder(world_size=4) as job:
        job.all_ranks.collective("all_reduce", bytes=4096)
    program = messages_of_job(job.job)
    machine = LogGP(latency=700, overhead=30, gap=20, gap_per_byte=3000)
    # each of 6 rounds: a send's overhead, the way, and the time to take 1,024 bytes
    each = 30 + 700 + 30 + 1023 * 3
    times = loggp_times(program, machine)
    assert times.makespan == 6 * each
    assert (times.sending == 6 * 30).all()


def test_the_demo_takes_what_the_simulator_says(demo_folder: Path) -> None:
    job = nadi.load_job(demo_folder)
    program = messages_of_job(job)
    times = loggp_times(program, LogGP(2000, 1000, 0, 20))
    simulated = nadi.simulate(job, nadi.load_system("dgx-h100", 4))
    assert times.makespan == pytest.approx(simulated.makespan, rel=0.01)
    matched = sorted(program.size[program.action == Action.SEND].tolist())
    assert matched == sorted(program.size[program.action == Action.RECEIVE].tolist())
