"""`nadi simulate` as a user has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nadi.cli import main
from tests.simulator.cases import Node, collective, compute, trace_of

NETWORK = """topology: [ Ring ]  # one dimension
npus_count: [ 2 ]
bandwidth: [ 50.0 ]
latency:
- 500.0
"""
SYSTEM = {
    "scheduling-policy": "LIFO", "endpoint-delay": 10, "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 1, "all-reduce-implementation": ["ring"],
    "all-gather-implementation": ["ring"], "reduce-scatter-implementation": ["ring"],
    "all-to-all-implementation": ["ring"], "collective-optimization": "localBWAware",
    "local-mem-bw": 1600, "colour": "blue",
}  # fmt: skip


class Command:
    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capfd = folder, capfd
        (folder / "net.yml").write_text(NETWORK)
        (folder / "sys.json").write_text(json.dumps(SYSTEM))

    def write(self, *ranks: list[Node]) -> None:
        for rank, nodes in enumerate(ranks):
            trace_of(nodes).write(self.folder / f"work.{rank}.et")

    def __call__(self, *options: str) -> tuple[int, str, str]:
        files = [str(self.folder / name) for name in ("work", "net.yml", "sys.json")]
        code = main(
            ["simulate", files[0], "--network", files[1], "--system-config", files[2], *options]
        )
        captured = self.capfd.readouterr()
        return code, captured.out, captured.err


@pytest.fixture
def command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path, capfd)


def send(src: int, dst: int, size: int, kind: str) -> Node:
    return {
        "id": 0, "type": f"COMM_{kind}_NODE", "is_cpu_op": False, "comm_src": src,
        "comm_dst": dst, "comm_tag": 7, "comm_size": size,
    }  # fmt: skip


def test_it_prints_when_each_rank_has_finished(command: Command) -> None:
    command.write([compute(0, 3), collective(1, "all_reduce", 1 << 20, data_deps=[0])],
                  [collective(0, "all_reduce", 1 << 20)])  # fmt: skip
    code, out, _ = command()
    assert code == 0
    assert "2 ranks, 3 nodes" in out
    assert "settings without effect: colour" in out
    # two steps of half the bytes after the later rank, and the reduction of one
    step = int(500 + (1 << 19) / (50 * 2**30 / 1e9)) + 10
    assert f"{3000 + 10 + 2 * step + 3 * ((1 << 19) // 1600):,}" in out


def test_json_holds_the_same(command: Command) -> None:
    command.write([compute(0, 3)], [compute(0, 5)])
    code, out, _ = command("--json")
    found: dict[str, Any] = json.loads(out)
    assert code == 0
    assert found["finish_ns"] == [3000, 5000]
    assert found["compute_ns"] == [3000, 5000]
    assert found["not_compute_ns"] == [0, 0]
    assert found["makespan_ns"] == 5000


def test_a_message_that_nobody_sends_ends_with_who_waits_for_whom(command: Command) -> None:
    command.write([send(0, 1, 100, "SEND")], [send(0, 1, 101, "RECV")])
    code, out, err = command()
    assert code == 2
    assert out == ""
    assert "rank 1 node 0 (n0) waits to receive from rank 0 101 bytes with tag 7" in err


def test_a_collective_without_a_member_says_whom_it_waits_for(command: Command) -> None:
    command.write([collective(0, "all_gather", 100)], [compute(0, 1)])
    code, _, err = command()
    assert code == 2
    assert "rank 0 node 0 (n0) waits in group all ranks for rank 1" in err


def test_collectives_that_differ_do_not_meet(command: Command) -> None:
    command.write([collective(0, "all_gather", 100)], [collective(0, "all_gather", 101)])
    code, _, err = command()
    assert code == 2
    assert "differ in type or size" in err


@pytest.mark.parametrize(
    ("file", "content", "part"),
    [
        ("net.yml", NETWORK.replace("Ring", "Moebius"), "there is no 'Moebius'"),
        ("net.yml", NETWORK.replace("[ 2 ]", "[ 3 ]"), "it has 3 ranks, and the job 2"),
        ("net.yml", NETWORK.replace("50.0", "tbd"), "expected a number, got 'tbd'"),
        ("sys.json", "{", "sys.json"),
        ("sys.json", json.dumps(SYSTEM | {"all-gather-implementation": ["star"]}), "'star'"),
    ],
)
def test_a_system_that_cannot_be_is_refused(
    command: Command, file: str, content: str, part: str
) -> None:
    command.write(*[[collective(0, "all_gather", 100)]] * 2)
    (command.folder / file).write_text(content)
    code, _, err = command()
    assert code == 2
    assert part in err


def test_a_rank_that_is_absent_is_named(command: Command) -> None:
    command.write(*[[compute(0, 1)]] * 3)
    (command.folder / "work.1.et").unlink()
    code, _, err = command()
    assert code == 2
    assert "rank 1 has no file" in err


def test_it_writes_a_timeline_and_the_lines_of_chakra(command: Command) -> None:
    command.write([compute(0, 5), collective(1, "all_reduce", 9000)],
                  [compute(0, 2), collective(1, "all_reduce", 9000)])  # fmt: skip
    for name in ("job.trace.json", "job.pftrace", "job.log"):
        path = command.folder / name
        code, out, _ = command("-o", str(path))
        assert code == 0
        assert f"wrote {path}" in out.replace("\n", "")
        written = path.read_bytes()
        code, _, err = command("-o", str(path))
        assert code == 2
        assert "is there already" in err
        assert command("-o", str(path), "--force", "--json")[0] == 0
        assert path.read_bytes() == written
    lines = (command.folder / "job.log").read_text().splitlines()
    assert lines[0] == "issue,npu_id=0,curr_cycle=0,node_id=0,node_name=COMP_NODE_n0"
    code, _, err = command("-o", str(command.folder / "job.png"))
    assert code == 2
    assert ".pftrace" in err
    assert not (command.folder / "job.png").exists()
