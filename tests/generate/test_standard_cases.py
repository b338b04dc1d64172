"""The cases: what they hold, that they are valid, and that a simulator ends with them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest

import nadi
from nadi.cli import main
from nadi.errors import InputError, UsageError
from nadi.models import cases
from nadi.models.standard_cases import CASES
from nadi.recordings import read_job
from nadi.simulation import results_of
from nadi.systems import Collectives, Dimension, Network, System, read_comm_groups, remote_tier
from nadi.trace import Trace, validate_trace
from nadi.trace.protobuf_values import VALUE_TYPES
from tests.amounts import some

MICRO = 1000  # ns
MESSAGE = 500 + 1024 // 50  # ns: of 1,024 bytes over one link
MEMORY = 100 + 1024 // 10


def machine(ranks: int) -> System:
    """Make a system in which every pair has a link: 50 bytes per ns, 500 ns."""
    return System(
        Network((Dimension("fully-connected", ranks, 50.0, 500.0),)),
        collectives=Collectives(
            all_reduce=("ring",), all_gather=("ring",), reduce_scatter=("ring",),
            all_to_all=("direct",), broadcast=("direct",), reduce=("direct",), chunks=1,
            endpoint_delay=0,
        ),
        remote_memory=remote_tier("per-rank", 100, 10),
    )  # fmt: skip


def expected(ranks: int) -> dict[str, int]:
    """Return how long each case takes, where links are not shared; by hand."""
    part, whole = 65_536 / ranks, 65_536
    step, full = int(500 + part / 50), int(500 + whole / 50)
    around = ranks - 1
    halves = sorted(((ranks + 1) // 2, ranks // 2))
    reduces = [2 * (n - 1) * int(500 + whole / n / 50) for n in halves]
    return {
        "one_metadata_node_all_types": 0,
        "one_remote_mem_load_node": MEMORY,
        "one_remote_mem_store_node": MEMORY,
        "one_comp_node": 5 * MICRO,
        "two_comp_nodes_independent": 10 * MICRO,  # a rank has one slot for computation
        "two_comp_nodes_dependent": 10 * MICRO,
        "ALL_REDUCE": 2 * around * step,
        "ALL_TO_ALL": step,
        "ALL_GATHER": around * full,
        "REDUCE_SCATTER": around * step,
        "BROADCAST": full,
        "BARRIER": 2 * around * 500,
        "one_comm_send_node": MESSAGE,
        "one_comm_recv_node": MESSAGE,
        "REDUCE": full,
        "GATHER": full,
        "SCATTER": step,
        "send_recv_ring": MESSAGE,
        "process_groups": max(reduces) + 2 * around * step,
        "one_comp_node_per_attribute_type": 150 * MICRO,
    }


@pytest.fixture(scope="module", params=[2, 8, 16])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cases") / str(request.param)
    cases(folder, request.param)
    return folder


def job_of(written: Path, name: str) -> list[Trace]:
    job = read_job(written / name)
    assert isinstance(job, list)
    assert len(job) == int(written.name)
    return job


@pytest.mark.parametrize("name", some(CASES, of=4))
def test_a_case_is_valid_and_takes_its_time(written: Path, name: str) -> None:
    job = job_of(written, name)
    ranks = len(job)
    for rank, trace in enumerate(job):
        assert (trace.rank, trace.world_size) == (rank, ranks)
        assert validate_trace(trace).is_empty()
        assert trace.issues.is_empty()
        assert trace.column("id").tolist() == list(range(trace.nodes.height))
    done = nadi.simulate(job, machine(ranks))
    assert done.makespan == expected(ranks)[name]
    assert results_of(done).rank_times.height == ranks


def test_messages_match_and_groups_are_listed(written: Path) -> None:
    for name in CASES:
        sent, received = Counter[tuple[int, ...]](), Counter[tuple[int, ...]]()
        for rank, trace in enumerate(job_of(written, name)):
            columns = trace.nodes.select("kind", "src", "dst", "tag", "comm_bytes").iter_rows()
            for kind, src, dst, tag, size in columns:
                if kind in ("COMM_SEND", "COMM_RECV"):
                    assert rank == (src if kind == "COMM_SEND" else dst)
                    side = sent if kind == "COMM_SEND" else received
                    side[src, dst, tag, size] += 1
        assert sent == received
        groups = read_comm_groups(written / name / "comm_group.json")
        assert bool(groups) == (name == "process_groups")
        if groups:
            assert sorted(rank for ranks in groups.values() for rank in ranks) == list(
                range(int(written.name))
            )


def test_there_is_an_attribute_of_each_type(written: Path) -> None:
    trace = job_of(written, "one_metadata_node_all_types")[0]
    stated = [(name, kind) for node, name, kind, _ in trace.attributes.items() if node == 0]
    assert {(name, name) for name in VALUE_TYPES} < set(stated)
    trace = job_of(written, "one_comp_node_per_attribute_type")[0]
    assert trace.nodes.height == len(VALUE_TYPES)
    for row, type_name in enumerate(VALUE_TYPES):
        assert type_name in trace.attributes.of(row)


def test_the_feeder_issues_every_node(written: Path) -> None:
    for name in CASES:
        feeder = nadi.ETFeeder(str(written / name / f"{name}.1.et"))
        issued = 0
        while feeder.has_nodes_to_issue():
            batch = feeder.drain()
            issued += len(batch)
            feeder.release(batch)
        assert issued == nadi.read(written / name / f"{name}.1.et").nodes.height


def test_existing_cases_are_replaced_only_if_asked(tmp_path: Path) -> None:
    found = cases(tmp_path, 3)
    assert list(found) == list(CASES)
    one = found["SCATTER"].traces[2]
    content = one.read_bytes()
    one.write_bytes(b"")
    with pytest.raises(InputError, match="exists already; give another name, or overwrite=True"):
        cases(tmp_path, 3)
    assert one.read_bytes() == b""
    cases(tmp_path, 3, overwrite=True)
    assert one.read_bytes() == content
    cases(tmp_path, 2, overwrite=True)
    assert not one.exists()
    with pytest.raises(InputError, match="is a file, but each case becomes a folder"):
        cases(found["SCATTER"].comm_groups)


@pytest.mark.parametrize("ranks", [-1, 0, 1, 4097])
def test_a_number_of_ranks_out_of_range_is_refused(tmp_path: Path, ranks: int) -> None:
    with pytest.raises(UsageError, match=r"there must be 2 to 4,096 ranks"):
        cases(tmp_path / "there", ranks)
    assert not (tmp_path / "there").exists()


def test_the_command_writes_and_other_commands_take_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "cases")
    assert main(["generate", "cases", "-o", folder, "--ranks", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == list(CASES)
    assert lines[-1].startswith("20 cases of 4 ranks, ")
    for name in CASES:
        assert main(["info", "--check", f"{folder}/{name}"]) == 0
        if "_mem_" not in name:  # for which the system needs remote memory
            capsys.readouterr()
            arguments = ["simulate", f"{folder}/{name}", "--system", "tpu-v4", "--json"]
            assert main(arguments) == 0
            assert msgspec.json.decode(capsys.readouterr().out)["ranks"] == 4
    assert main(["convert", f"{folder}/REDUCE/REDUCE.0.et", f"{folder}/reduce.json"]) == 0
    capsys.readouterr()
    assert main(["generate", "cases", "-o", folder]) == 2
    assert capsys.readouterr().err.endswith("exists already; give another name, or --overwrite\n")
    assert main(["generate", "cases", "-o", folder, "--ranks", "1", "--overwrite"]) == 2
    assert "--ranks 1: there must be 2 to 4,096" in capsys.readouterr().err
    assert main(["generate"]) == 2
    assert "nadi generate --help lists" in capsys.readouterr().err
