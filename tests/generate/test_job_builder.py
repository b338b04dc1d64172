"""The builder: what becomes of its calls, and what it refuses, with the line that made it."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from polars.testing import assert_frame_equal

import nadi
from nadi.errors import UsageError
from nadi.models import BuiltNode, Lane, RankBuilder, write_job
from nadi.recordings import read_job
from nadi.simulation import results_of
from nadi.systems import Collectives, Compute, Dimension, Network, System, remote_tier
from nadi.trace import Job, Trace, validate_job, validate_trace

HERE = Path(__file__)
TABLES = ("nodes", "deps", "groups", "issues", "operands", "tensors")


def ring(ranks: int, **options: Any) -> System:
    """Make a system of one ring: 50 bytes per ns and 500 ns for each link."""
    return System(Network((Dimension("ring", ranks, 50.0, 500.0),)), **options)


def built(ranks: int, write: Callable[[nadi.JobBuilder], object]) -> Job:
    with nadi.JobBuilder(ranks) as job:
        write(job)
    return job.job


def of_one(write: Callable[[RankBuilder], object]) -> Trace:
    """Return the trace of a single rank."""
    return built(1, lambda job: write(job.ranks[0])).traces[0]


def deps_of(trace: Trace) -> set[tuple[int, int]]:
    assert set(trace.deps["kind"].to_list()) <= {"data"}
    return set(trace.deps.select("src", "dst").iter_rows())


def row(trace: Trace, number: int) -> dict[str, Any]:
    return trace.nodes.row(number, named=True)


def next_line(offset: int = 1) -> str:
    """Return how an error names a line after the caller's."""
    return re.escape(f"{HERE}, line {sys._getframe(1).f_lineno + offset}: ")


# what becomes of calls


def test_each_call_is_a_node_with_its_columns() -> None:
    with nadi.JobBuilder(world_size=2) as job:
        pair = job.group("7", [1, 0])
        for rank in job.ranks:
            rank.compute("gemm", flops=2e12, bytes="1 MiB", duration="1.5 us")
            rank.load("weights", "2 KiB")
            rank.store("out", 100)
            rank.collective("all_gather", 4096, group=pair)
            rank.collective("broadcast", 64, root=1, name="parameters")
            rank.collective("barrier")
            rank.thread(3).compute("aten::mm", duration=10)
        first, second = job.ranks
        first.send(1, 300, tag=9)
        second.recv(0, 300, tag=9)
    assert pair == nadi.models.Group("7", (0, 1))
    trace = job.job.traces[0]
    missing = {"start": -1, "duration": -1, "flops": -1, "bytes": -1, "comm_bytes": -1, "group": -1,
               "src": -1, "dst": -1, "tag": -1, "thread": -1, "stream": 0, "is_cpu": False,
               "category": "kernel", "comm_type": "none"}  # fmt: skip
    expected: list[dict[str, Any]] = [
        {"name": "gemm", "kind": "COMP", "flops": 2 * 10**12, "bytes": 2**20, "duration": 1500},
        {"name": "weights", "kind": "MEM_LOAD", "bytes": 2048, "category": "memcpy"},
        {"name": "out", "kind": "MEM_STORE", "bytes": 100, "category": "memcpy"},
        {"name": "all_gather", "kind": "COMM_COLL", "comm_type": "all_gather", "comm_bytes": 4096,
         "group": 0},
        {"name": "parameters", "kind": "COMM_COLL", "comm_type": "broadcast", "comm_bytes": 64,
         "src": 1},
        {"name": "barrier", "kind": "COMM_COLL", "comm_type": "barrier", "comm_bytes": 0},
        {"name": "aten::mm", "kind": "COMP", "duration": 10, "thread": 3, "stream": -1,
         "is_cpu": True, "category": "operator"},
        {"name": "send", "kind": "COMM_SEND", "comm_type": "send", "comm_bytes": 300, "src": 0,
         "dst": 1, "tag": 9},
    ]  # fmt: skip
    assert trace.nodes.height == len(expected)
    for number, columns in enumerate(expected):
        found = row(trace, number)
        wanted = missing | columns
        assert found["id"] == number
        assert {name: found[name] for name in wanted} == wanted
    assert deps_of(trace) == {(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 7)}
    assert trace.groups.select("name", "ranks").rows() == [("7", [0, 1])]
    received = row(job.job.traces[1], 7)
    assert (received["kind"], received["src"], received["dst"]) == ("COMM_RECV", 0, 1)
    assert job.job.ranks == (0, 1)
    assert job.job.world_size == 2


def test_lanes_are_in_order_and_beside_each_other() -> None:
    def write(rank: RankBuilder) -> None:
        first = rank.compute("a", duration=1)  # 0
        rank.stream(1).compute("b", duration=1)
        rank.stream(0).compute("c", duration=1)  # after a: the same stream
        rank.stream(1).compute("d", duration=1, after=first)
        rank.thread(1).compute("e", duration=1)  # a thread is no stream
        rank.unordered.compute("f", duration=1)
        rank.unordered.compute("g", duration=1, after=[first, first])
        rank.thread(1).collective("barrier")
        rank.metadata("h")  # in no lane
        rank.compute("i", duration=1)

    trace = of_one(write)
    assert deps_of(trace) == {(0, 2), (1, 3), (0, 3), (0, 6), (4, 7), (2, 9)}
    assert row(trace, 8)["category"] == "metadata"


def test_tensors_order_their_readers_and_writers() -> None:
    def write(rank: RankBuilder) -> None:
        x, y = rank.tensor((4, 8), "bfloat16"), rank.tensor(bytes="1 KiB")
        lane = rank.unordered
        lane.compute("read unwritten", duration=1, inputs=x)
        lane.compute("write", duration=1, outputs=[x, y])  # 1: after the reader of x
        lane.compute("read", flops=1, inputs=[x, y])  # 2
        lane.compute("read too", flops=1, inputs=(one for one in (x,)))  # 3
        lane.compute("in place", flops=1, inputs=x, outputs=x)  # 4: after 1, 2 and 3
        lane.store("y", inputs=y)  # 5

    trace = of_one(write)
    assert deps_of(trace) == {(0, 1), (1, 2), (1, 3), (1, 4), (2, 4), (3, 4), (1, 5)}
    assert trace.column("bytes").tolist() == [64, 64 + 1024, 64 + 1024, 64, 128, 1024]
    assert trace.tensors.select("elements", "itemsize", "dtype", "shape").rows() == [
        (32, 2, "c10::BFloat16", [4, 8]), (1024, 1, "unsigned char", [1024]),
    ]  # fmt: skip
    uses = trace.operands.select("node", "is_output", "tensor").rows()
    assert uses == [(0, False, 0), (1, True, 0), (1, True, 1), (2, False, 0), (2, False, 1),
                    (3, False, 0), (4, False, 0), (4, True, 0), (5, False, 1)]  # fmt: skip


def test_live_memory_follows_from_tensors() -> None:
    def write(rank: RankBuilder) -> None:
        weights, hidden, out = (rank.tensor(bytes=size) for size in (1000, 500, 200))
        rank.compute("up", duration=10, inputs=weights, outputs=hidden)
        rank.compute("down", duration=10, inputs=hidden, outputs=out)

    job = built(2, lambda job: [write(rank) for rank in job.ranks])
    live = results_of(nadi.simulate(job, ring(2))).live_memory
    assert live is not None
    assert live["peak"].to_list() == [1500, 1500]


def test_loops_name_the_nodes_in_them() -> None:
    def write(rank: RankBuilder) -> None:
        for step in rank.loop("step", 2):
            for _ in rank.loop("layer", 2):
                rank.compute("mm", duration=step)
            rank.compute("adam", duration=1)
        for _ in rank.loop("left", 3):
            break
        rank.compute("end", duration=1)

    names = of_one(write).nodes["name"].cast(str).to_list()
    of_step = ["layer[0].mm", "layer[1].mm", "adam"]
    assert names == [f"step[{k}].{name}" for k in range(2) for name in of_step] + ["end"]


def test_attributes_have_the_type_of_their_value_or_the_stated_one() -> None:
    def write(rank: RankBuilder) -> None:
        node = rank.compute("a", duration=1).attribute("comm_priority", 3)
        node.attribute("rate", 0.5, "float", "GB/s").attribute("name", "x").attribute("is", True)
        node.attribute("many", [1, 2]).attribute("raw", b"\x00").attribute("dim", (True, False))
        node.attribute("empty", [], "string_list")

    trace = of_one(write)
    assert trace.attrs.select("node", "name", "type", "value").rows() == [
        (0, "comm_priority", "int64", "3"), (0, "rate", "float", "0.5"),
        (0, "rate", "doc_string", "GB/s"), (0, "name", "string", "x"), (0, "is", "bool", "true"),
        (0, "many", "int64_list", "[1,2]"), (0, "raw", "bytes", "AA=="),
        (0, "dim", "bool_list", "[true,false]"), (0, "empty", "string_list", "[]"),
    ]  # fmt: skip


def test_ranks_that_do_the_same_share_a_trace() -> None:
    def write(job: nadi.JobBuilder) -> None:
        for rank in job.ranks:
            rank.compute("a", duration=5 if rank.number < 3 else 6)
            rank.collective("all_reduce", 1000)

    job = built(4, write)
    assert job.traces[0] is job.traces[1] is job.traces[2]
    assert (job.traces[0].rank, job.traces[3].rank) == (-1, 3)
    assert job.ranks == (0, 1, 2, 3)
    assert job.num_nodes == 8
    assert all(trace.world_size == 4 for trace in job.traces)
    assert validate_job(job).is_empty()
    unknown = replace(job.traces[0], world_size=-1)  # as of a recording that states no rank
    assert replace(job, traces=(unknown,)).ranks == (-1,)


def test_one_program_for_all_ranks_is_the_same_as_one_for_each() -> None:
    def write(rank: Lane) -> None:
        rank.collective("all_reduce", 1 << 20, after=rank.compute("a", duration=1000))

    together = built(16, lambda job: write(job.all_ranks))
    apart = built(16, lambda job: [write(rank) for rank in job.ranks])
    halves = built(16, lambda job: [write(job.together(range(k, k + 8))) for k in (0, 8)])
    assert len({*together.traces}) == len({*apart.traces}) == len({*halves.traces}) == 1
    together.traces[0].assert_equals(apart.traces[0])
    # in a ring of n, each message is 1/n of the bytes, and there are 2(n-1) steps
    expected = 1000 + 30 * (500 + (1 << 20) // 16 // 50)
    for job in (together, apart, halves):
        assert (
            nadi.simulate(
                job, ring(16, collectives=Collectives(chunks=1, endpoint_delay=0))
            ).makespan
            == expected
        )


def test_a_large_job_of_equal_ranks_is_one_trace() -> None:
    job = built(100_000, lambda job: job.all_ranks.collective("all_reduce", 8))
    assert len(set(map(id, job.traces))) == 1
    assert job.num_nodes == 100_000


# simulation, against what the rules say


def test_a_chain_takes_the_sum_and_streams_the_maximum() -> None:
    def write(rank: RankBuilder) -> None:
        for k in range(4):
            rank.compute("a", duration=10)
            rank.stream(1).compute("b", duration=7 * k)
        rank.thread(0).compute("c", duration="1 us")

    job = built(3, lambda job: [write(rank) for rank in job.ranks])
    done = nadi.simulate(job, ring(3))
    assert done.cycles.tolist() == [1000] * 3
    ends = done.schedule.table.filter(rank=0)["end"].to_list()
    assert ends == [10, 0, 20, 7, 30, 21, 40, 42, 1000]


def test_work_without_a_time_is_priced_by_a_roofline() -> None:
    system = ring(1, compute=Compute(roofline=True, peak=1e12, memory_bandwidth=1e11))
    trace = of_one(lambda rank: [
        rank.compute("compute bound", flops=5e6, bytes=1000), rank.compute("copy", bytes=10_000),
    ])  # fmt: skip
    assert trace.column("duration").tolist() == [-1, -1]
    assert trace.column("flops").tolist() == [5_000_000, 0]
    assert nadi.simulate([trace], system).makespan == 5000 + 100


def test_remote_memory_takes_its_latency_and_bytes() -> None:
    trace = of_one(lambda rank: [rank.load("a", 1000), rank.store("b", 2000)])
    system = ring(1, remote_memory=remote_tier("per-rank", 10, 100))
    assert nadi.simulate([trace], system).makespan == (10 + 1000 // 100) + (10 + 2000 // 100)


def test_messages_of_equal_tags_arrive_in_order() -> None:
    def write(job: nadi.JobBuilder) -> None:
        first, second = job.ranks
        for size in (100, 200, 100):
            first.unordered.send(1, size, tag=4)
            second.unordered.recv(0, size, tag=4)
        first.unordered.send(1, 7)
        second.unordered.recv(0, 7)

    job = built(2, write)
    assert deps_of(job.traces[0]) == deps_of(job.traces[1]) == {(0, 1), (1, 2)}
    assert job.traces[1].column("tag").tolist() == [4, 4, 4, 0]
    assert nadi.simulate(job, ring(2)).makespan > 0


# files


def test_a_job_reads_back_as_it_was_written(tmp_path: Path) -> None:
    def write(job: nadi.JobBuilder) -> None:
        job.group("1", [0, 2])
        for rank in job.ranks:
            x = rank.tensor((3, 5), "int64", device="cpu")
            rank.compute("a", flops=3, inputs=x).attribute("comm_priority", 5)
            rank.thread(2).compute("b", duration=1234567)
            if rank.number != 1:
                rank.stream(4).collective("reduce", 99, group="1", root=2)
            rank.collective("all_to_all", 77)
            rank.unordered.load("c", 5)
            rank.metadata("d")
            rank.send((rank.number + 1) % 3, 10)
            rank.recv((rank.number - 1) % 3, 10)

    job = built(3, write)
    files = write_job(job, tmp_path / "job", name="work")
    assert [path.name for path in files.traces] == ["work.0.et", "work.1.et", "work.2.et"]
    assert files.comm_groups.read_text() == '{"1":[0,2]}'
    assert files.nodes == job.num_nodes
    together = read_job(tmp_path / "job")
    assert isinstance(together, list)
    for rank, (made, path, other) in enumerate(
        zip(job.traces, files.traces, together, strict=True)
    ):
        assert validate_trace(made).is_empty()
        read = nadi.read(path)
        read.assert_equals(other)
        assert (read.rank, read.world_size) == (rank, 3)
        for name in TABLES:
            assert_frame_equal(getattr(made, name), getattr(read, name), categorical_as_str=True)
        assert read.attributes.of(0)["comm_priority"] == 5
        nadi.write(read, tmp_path / "again.et")
        assert (tmp_path / "again.et").read_bytes() == path.read_bytes()
    system = ring(3, remote_memory=remote_tier("per-rank", 10, 100))
    done, again = nadi.simulate(job, system), nadi.simulate(tmp_path / "job", system)
    assert done.schedule.table.equals(again.schedule.table)


def test_nodes_without_any_duration_read_back_without_one(tmp_path: Path) -> None:
    job = built(2, lambda job: job.all_ranks.collective("all_reduce", 5))
    files = write_job(job, tmp_path)
    for traces in (read_job(tmp_path), [nadi.read(path) for path in files.traces]):
        assert isinstance(traces, list)
        assert [trace.column("duration").tolist() for trace in traces] == [[-1], [-1]]


def test_files_are_replaced_only_if_asked_and_then_all(tmp_path: Path) -> None:
    def write(ranks: int, **options: Any) -> None:
        job = built(ranks, lambda job: job.all_ranks.collective("all_reduce", 5))
        write_job(job, tmp_path, **options)

    write(4)
    (tmp_path / "other.3.et").touch()
    with pytest.raises(nadi.errors.InputError, match=r"exists already; give another.*overwrite"):
        write(2)
    write(2, overwrite=True)
    names = ["comm_group.json", "other.3.et", "trace.0.et", "trace.1.et"]
    assert sorted(path.name for path in tmp_path.glob("[!.]*")) == names
    (tmp_path / "trace.0.et").unlink()
    (tmp_path / "trace.1.et").rename(tmp_path / "trace.7.et")
    (tmp_path / "comm_group.json").unlink()
    with pytest.raises(nadi.errors.InputError, match=r"trace.7.et: exists already"):
        write(2)  # it would become a rank of the job
    with pytest.raises(UsageError, match="must not end with a digit"):
        write(2, name="work.1")
    with pytest.raises(nadi.errors.InputError, match="name a folder"):
        write_job(built(1, lambda job: job.all_ranks.metadata("a")), tmp_path / "trace.7.et")


# errors, each with its line


BAD: list[tuple[Callable[[RankBuilder], object], str]] = [
    (lambda rank: rank.compute("a", duration=-1), "duration is -1; it must be a whole number of 0"),
    (lambda rank: rank.compute("a", duration="5 parsecs"), "duration: '5 parsecs' is not a time"),
    (lambda rank: rank.compute("a", duration=1.5), "duration is 1.5; it must be a whole number"),
    (lambda rank: rank.compute("a", duration=True), "duration is True; it must be a whole"),
    (lambda rank: rank.compute("a", bytes="1 GB/s"), "bytes: '1 GB/s' is not a size such as 80 GB"),
    (lambda rank: rank.compute("a", flops=float("nan")), "flops is nan; it must be a whole"),
    (lambda rank: rank.compute("a", flops=1e30), "flops is 1e.30; .* up to 9223372036854775807"),
    (lambda rank: rank.compute("a"), "'a' has neither a duration nor any work, .*give duration="),
    (lambda rank: rank.compute("a", flops=3), "'a' states flops, not bytes, .*or flops= and byt"),
    (lambda rank: rank.compute("", duration=3), "name is ''; it must be a text"),
    (lambda rank: rank.compute("\ud800", duration=3), "name is .*; it must be a text"),
    (lambda rank: rank.compute("a", duration=3, after=3),  # type: ignore[arg-type]
     "after is 3; it must be a node, or several; give what rank.compute"),
    (lambda rank: rank.compute("a", duration=3, after=["b"]),  # type: ignore[list-item]
     "after has 'b', which is not a node"),
    (lambda rank: rank.compute("a", duration=3, inputs=3),  # type: ignore[arg-type]
     "inputs is 3; it must be tensors; make them: rank.tensor"),
    (lambda rank: rank.load("a"), "load states no size; give bytes=, or .* outputs="),
    (lambda rank: rank.store("a", inputs=()), "store states no size; give bytes=, or .* inputs="),
    (lambda rank: rank.send(5, 1), "to is 5, but the job has 3 ranks; name another rank"),
    (lambda rank: rank.send(0, 1), "rank 0 cannot exchange messages with itself"),
    (lambda rank: rank.recv(-1, 1), "source is -1; it must be a whole number of 0 or more"),
    (lambda rank: rank.send(1, 0), "bytes is 0; it must be a whole number of 1 or more"),
    (lambda rank: rank.send(1, 1, tag=2**31), "tag is 2147483648; .* up to 2147483647"),
    (lambda rank: rank.collective("allreduce", 1), "unknown type of collective 'allreduce'; one o"),
    (lambda rank: rank.collective("all_reduce"), "all_reduce states no size; give bytes="),
    (lambda rank: rank.collective("barrier", 8), "a barrier has no bytes; leave out bytes"),
    (lambda rank: rank.collective("all_reduce", 8, root=0), "all_reduce has no root; leave out"),
    (lambda rank: rank.collective("gather", 8, root=3), "root is 3, which is not in the group"),
    (lambda rank: rank.collective("all_reduce", 8, group="dp"),
     r"unknown group 'dp'; known are tp; make it: job.group\("),
    (lambda rank: rank.collective("all_reduce", 8, group="tp"), "rank 0 is not in group 'tp'"),
    (lambda rank: rank.tensor((2, -3)), "a length of the shape is -3; it must be a whole number"),
    (lambda rank: rank.tensor(2, "float31"), "unknown dtype 'float31'; one of bool, uint8"),
    (lambda rank: rank.tensor(2, bytes=3), "a shape or a number of bytes, not both; state one"),
    (lambda rank: rank.tensor((2**31, 2**31)), "exceeds 2.62 bytes; correct its shape"),
    (lambda rank: rank.stream(-1), "the stream is -1; it must be a whole number of 0 or more"),
    (lambda rank: list(rank.loop("a", 1.5)),  # type: ignore[arg-type]
     "count is 1.5; it must be a whole number"),
    (lambda rank: rank.metadata("a").attribute("comm_size", 3), "has an attribute 'comm_size' alr"),
    (lambda rank: rank.metadata("a").attribute("b", 3).attribute("b", 4), "attribute 'b' already"),
    (lambda rank: rank.metadata("a").attribute("b", 300, "int8"), "int8 is no type of Chakra's; o"),
    (lambda rank: rank.metadata("a").attribute("b", {}), "{} is no type of Chakra's; one of"),
    (lambda rank: rank.metadata("a").attribute("b", 2**63),
     "'9223372036854775808' is not a valid int64; give int64 from -9223372036854775808 to"),
    (lambda rank: rank.metadata("a").attribute("b", 3, "int32_list"), "give int32 from"),
]  # fmt: skip


@pytest.mark.parametrize(("write", "message"), BAD, ids=range(len(BAD)))
def test_a_bad_value_is_refused_where_it_is_given(
    write: Callable[[RankBuilder], object], message: str
) -> None:
    job = nadi.JobBuilder(3)
    job.group("tp", [1, 2])
    line = write.__code__.co_firstlineno
    with pytest.raises(UsageError, match=message) as caught:
        write(job.ranks[0])
    file, number = re.fullmatch(r"(.*), line (\d+)", caught.value.where).groups()  # type: ignore[union-attr]
    assert file == str(HERE)
    assert line <= int(number) <= line + 1  # a lambda of two lines


@pytest.mark.parametrize(("write", "message"), [
    (lambda job: job.group("a", []), "ranks is empty; name at least one rank"),
    (lambda job: job.group("a", [0, 0]), "ranks has a rank twice; name each once"),
    (lambda job: job.group("a", [3]), "there is no rank 3: the job has 3, counted from 0; name"),
    (lambda job: job.group("a", "01"), "ranks is '01'; it must be numbers"),
    (lambda job: job.group("0", [1]), "the name '0' means all ranks; choose another name"),
    (lambda job: (job.group("a", [1]), job.group("a", [2])), "there is a group 'a' already"),
    (lambda job: job.together([7]), "there is no rank 7"),
    (lambda job: job.job, "the job is not finished; read it after the with block"),
    (lambda job: job.all_ranks.number, "the program of 3 ranks, which have no number in common"),
    (lambda job: nadi.JobBuilder(0), "world_size is 0; it must be a whole number of 1 or more"),
], ids=range(10))  # fmt: skip
def test_a_bad_group_or_rank_is_refused(
    write: Callable[[nadi.JobBuilder], object], message: str
) -> None:
    job = nadi.JobBuilder(3)
    with pytest.raises(UsageError, match=f"^{re.escape(str(HERE))}, line \\d+: .*{message}"):
        write(job)


def test_a_node_or_tensor_of_another_rank_is_refused() -> None:
    job = nadi.JobBuilder(2)
    first, second = job.ranks
    node, tensor = first.compute("a", duration=1), first.tensor(3)
    error = r"a node cannot wait for 'a' of another rank \(.*, line \d+\); let that rank send"
    with pytest.raises(UsageError, match=next_line() + error):
        second.compute("b", duration=1, after=node)
    error = "inputs has Tensor.*not a tensor of this rank; make it with"
    with pytest.raises(UsageError, match=next_line() + error):
        second.compute("b", duration=1, inputs=tensor)
    equal = second.tensor(3)  # a tensor is one thing, whatever its number
    assert equal == tensor
    second.compute("b", duration=1, inputs=equal)


def refused(message: str, write: Callable[[nadi.JobBuilder], object], ranks: int = 3) -> UsageError:
    """Return the error at the end of the block, and check that there is no job."""
    job = nadi.JobBuilder(ranks)
    with pytest.raises(UsageError, match=message) as caught, job:
        write(job)
    with pytest.raises(UsageError, match="not finished"):
        _ = job.job
    with pytest.raises(UsageError, match="the job is finished: its with block has ended"):
        job.ranks[0].metadata("a")
    with pytest.raises(UsageError, match="the job is finished; make another"):
        job.__enter__()
    return caught.value


def test_an_unmatched_message_is_refused_with_its_line() -> None:
    def send(job: nadi.JobBuilder) -> None:
        for rank in job.ranks:
            rank.metadata("here")
        job.ranks[0].send(1, 64)

    line = f"^{re.escape(str(HERE))}, line {send.__code__.co_firstlineno + 3}: "
    refused(
        f"{line}the send of 64 bytes from rank 0 to rank 1 with tag 0 has no receive; "
        r"add to rank 1: rank.recv\(0, 64\)", send,
    )  # fmt: skip

    def receive(job: nadi.JobBuilder) -> None:
        for rank in job.ranks:
            rank.metadata("here")
        job.ranks[0].send(1, 64, tag=2)
        job.ranks[1].recv(0, 64, tag=1)

    line = f"^{re.escape(str(HERE))}, line {receive.__code__.co_firstlineno + 3}: "
    refused(f"{line}.*has no receive; rank 1 'recv' .*line .* has tag 1; add", receive)

    def sizes(job: nadi.JobBuilder) -> None:
        job.ranks[0].recv(2, 65)
        job.ranks[1].metadata("here")
        job.ranks[2].send(0, 64)

    line = f"^{re.escape(str(HERE))}, line {sizes.__code__.co_firstlineno + 3}: "
    refused(f"{line}64 bytes are sent, but rank 0 'recv' .* receives 65; make both", sizes)

    def alone(job: nadi.JobBuilder) -> None:
        job.together([1, 2]).recv(0, 3)
        job.ranks[0].send(1, 3)

    refused("the receive of 3 bytes from rank 0 on rank 2 with tag 0 has no send", alone)


def test_collectives_that_do_not_match_are_refused_with_their_line() -> None:
    def fewer(job: nadi.JobBuilder) -> None:
        group = job.group("g", [0, 2])
        job.ranks[0].collective("all_reduce", 8, group=group)
        job.ranks[1].metadata("here")
        job.ranks[2].metadata("here")

    line = f"^{re.escape(str(HERE))}, line {fewer.__code__.co_firstlineno + 2}: "
    refused(
        f"{line}all_reduce of 8 bytes in group 'g' lacks rank 2, which has fewer .*; add", fewer
    )

    def other(job: nadi.JobBuilder) -> None:
        job.together([0, 1]).collective("all_reduce", 8)
        job.ranks[2].collective("all_reduce", 16)

    line = f"^{re.escape(str(HERE))}, line {other.__code__.co_firstlineno + 2}: "
    refused(
        f"{line}all_reduce of 16 bytes in the group of all ranks meets all_reduce of 8 bytes of "
        "rank 0 'all_reduce' .*; all members must run the same", other,
    )  # fmt: skip

    def named(job: nadi.JobBuilder) -> None:
        everybody = job.group("e", range(3))
        for rank in job.ranks:
            for group in (None, everybody)[:: -1 if rank.number else 1]:
                rank.unordered.collective("all_reduce", 8 if group else 16, group=group)

    refused("all_reduce of 8 bytes in the group of all ranks meets all_reduce of 16 bytes", named)

    def roots(job: nadi.JobBuilder) -> None:
        for rank in job.ranks:
            rank.collective("broadcast", 8, root=min(rank.number, 1))

    refused("broadcast of 8 bytes, root 1, .*meets broadcast of 8 bytes, root 0, of", roots)


def test_ranks_that_wait_in_a_circle_are_refused_with_lines() -> None:
    def receive_first(job: nadi.JobBuilder) -> None:
        for rank in job.ranks:
            rank.recv((rank.number - 1) % 3, 8)
            rank.send((rank.number + 1) % 3, 8)

    line = receive_first.__code__.co_firstlineno
    error = refused("in a circle: .*; let all ranks run .*, and send before", receive_first)
    assert error.where in {f"{HERE}, line {line + 2}", f"{HERE}, line {line + 3}"}
    for rank in range(3):
        assert f"rank {rank} 'recv'" in str(error)

    def crossed(job: nadi.JobBuilder) -> None:
        first, second = job.group("a", [0, 1]), job.group("b", [0, 1])
        for rank in job.ranks[:2]:
            order = (first, second) if rank.number else (second, first)
            for group in order:
                rank.collective("all_reduce", 8, group=group, name=group.name)
        job.ranks[2].metadata("here")

    refused("in a circle: rank . '[ab]' .*, rank . '[ab]'", crossed)

    def crossed_on_streams(job: nadi.JobBuilder) -> None:
        groups = [job.group("a", [0, 1]), job.group("b", [0, 1])]
        for rank in job.ranks[:2]:
            for group in groups[:: 1 if rank.number else -1]:
                stream = rank.stream(int(group.name == "a"))
                stream.collective("all_reduce", 8, group=group)
        job.ranks[2].metadata("here")

    job = built(3, crossed_on_streams)  # nobody waits on a stream of its own
    assert nadi.simulate(job, ring(3)).makespan > 0


def test_a_rank_needs_a_node_and_one_program() -> None:
    where = next_line(3)
    with (
        pytest.raises(UsageError, match=f"{where}rank 1 has no node; give it one"),
        nadi.JobBuilder(2) as job,
    ):
        job.ranks[0].metadata("a")

    def twice(job: nadi.JobBuilder) -> None:
        job.ranks[2].metadata("a")
        job.all_ranks.metadata("b")

    line = twice.__code__.co_firstlineno
    with pytest.raises(UsageError, match="rank 2 has another program, which begins at") as caught:
        twice(nadi.JobBuilder(3))
    assert caught.value.where == f"{HERE}, line {line + 2}"
    assert f"begins at {HERE}, line {line + 1}" in str(caught.value)


def test_an_error_in_the_block_is_not_replaced() -> None:
    def write() -> None:
        with nadi.JobBuilder(2) as job:
            job.ranks[0].send(1, 1 // (job.world_size - 2))

    with pytest.raises(ZeroDivisionError):
        write()


def test_the_line_is_that_of_the_users_function() -> None:
    def attention(rank: RankBuilder, size: int) -> BuiltNode:
        return rank.collective("all_reduce", size)

    job = nadi.JobBuilder(1)
    with pytest.raises(UsageError) as caught:
        attention(job.ranks[0], -5)
    assert caught.value.where == f"{HERE}, line {attention.__code__.co_firstlineno + 1}"


def test_numbers_of_numpy_are_numbers() -> None:
    trace = of_one(lambda rank: rank.compute(
        "a", duration=np.int32(5), flops=np.float64(8), bytes=np.uint8(7)  # type: ignore[arg-type]
    ))  # fmt: skip
    found = row(trace, 0)
    assert [found[name] for name in ("duration", "flops", "bytes")] == [5, 8, 7]


def test_ten_thousand_nodes_on_each_of_eight_ranks() -> None:
    def write(rank: RankBuilder) -> None:
        for k in itertools.chain(rank.loop("layer", 2500)):
            rank.compute("a", duration=k)
            rank.stream(1).compute("b", duration=1)

    job = built(8, lambda job: [write(rank) for rank in job.ranks])
    assert nadi.simulate(job, ring(8)).makespan == sum(range(2500))
