"""`nadi simulate` as a user has it."""

from __future__ import annotations

import csv
import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import nadi
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
    "local-mem-bw": 1600, "color": "blue",
}  # fmt: skip


class Command:
    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capfd = folder, capfd
        (folder / "net.yml").write_text(NETWORK)
        (folder / "sys.json").write_text(json.dumps(SYSTEM))

    def write(self, *ranks: list[Node]) -> None:
        for rank, nodes in enumerate(ranks):
            nadi.write(trace_of(nodes), self.folder / f"work.{rank}.et")

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
    assert "2 ranks, 3 nodes on sys.json: " in out
    assert "rank 0 finishes last; its time: transfer 87.8 %, compute 12.2 %" in out
    assert "1.000 MiB  21.54 us   3.000 us        48.7      90.7 %" in out
    assert "live tensors: unknown" in out
    assert "ignored settings: color" in out
    # two steps of half the bytes after the later rank, and the reduction of one
    step = int(500 + (1 << 19) / (50 * 2**30 / 1e9)) + 10
    assert f"{3000 + 10 + 2 * step + 3 * ((1 << 19) // 1600):,}" in out


def test_the_endpoint_delay_may_be_scaled_by_a_fraction(command: Command) -> None:
    command.write(*2 * [[collective(0, "all_reduce", 1 << 20)]])
    found = []
    for scale in ("1", "0.59"):
        code, out, _ = command("--injection-scale", scale, "--json")
        assert code == 0
        found.append(json.loads(out)["makespan_ns"])
    # three packets, of 10 ns and of 5
    assert found[0] - found[1] == 3 * (10 - 5)
    code, _, err = command("--injection-scale", "nan")
    assert code == 2
    assert "injection" in err


def test_a_node_may_have_a_collective_of_its_own(command: Command, tmp_path: Path) -> None:
    """The first of two collectives is one message of 1000 bytes: 18 ns after the latency."""
    node = collective(0, "all_reduce", 1 << 20)
    command.write(*2 * [[node, node | {"id": 1, "data_deps": [0]}]])
    code, out, _ = command("--json")
    assert code == 0
    both = json.loads(out)["makespan_ns"]
    for rank, kind in enumerate(("SEND", "RECV")):
        nadi.write(trace_of([send(0, 1, 1000, kind)]), tmp_path / f"own.{rank}.et")
    (tmp_path / "nodes.yml").write_text(f"0: {tmp_path / 'own'}\n")
    path = tmp_path / "sys.json"
    settings = {"per-node-custom-implementation": str(tmp_path / "nodes.yml")}
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    code, out, _ = command("--json")
    assert code == 0
    assert json.loads(out)["makespan_ns"] == both // 2 + 500 + 18


def test_json_holds_the_same(command: Command) -> None:
    command.write([compute(0, 3)], [compute(0, 5)])
    code, out, _ = command("--json")
    found: dict[str, Any] = json.loads(out)
    assert code == 0
    assert found["finish_ns"] == [3000, 5000]
    assert found["compute_ns"] == [3000, 5000]
    assert found["not_compute_ns"] == [0, 0]
    assert found["makespan_ns"] == 5000
    assert [row["computing_ns"] for row in found["per_rank"]] == [3000, 5000]
    assert found["slowest_rank"]["rank"] == 1
    assert found["collectives_by_type"] == found["collectives_by_group"] == []
    assert found["live_memory"] is None


def waiting_job(command: Command) -> None:
    command.write(
        [compute(0, 3), collective(1, "all_reduce", 1 << 20, data_deps=[0])],
        [collective(0, "all_reduce", 1 << 20), compute(1, 2, data_deps=[0])],
    )


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_a_json_file_holds_everything(command: Command, suffix: str) -> None:
    waiting_job(command)
    path = command.folder / f"out{suffix}"
    code, out, _ = command("-o", str(path))
    assert code == 0
    assert f"wrote {path}" in out
    content = gzip.decompress(path.read_bytes()) if suffix.endswith("gz") else path.read_bytes()
    found = json.loads(content)
    (one,) = found["per_collective"]
    assert one["type"] == "all_reduce"
    assert (one["first_entry_ns"], one["last_entry_ns"], one["last_rank"]) == (0, 3000, 0)
    assert one["end_ns"] == max(found["finish_ns"]) == one["last_entry_ns"] + one["time_ns"]
    assert 0 < one["fraction"] < 1
    assert found["settings"]["network"]["dimensions"][0]["size"] == 2
    waited = found["per_rank"][1]["awaiting_members_ns"]
    assert waited == 3000 == one["waiting_ns"] == found["collectives_by_group"][0]["waiting_ns"]


def test_a_csv_file_is_the_schedule_with_names(command: Command) -> None:
    waiting_job(command)
    path = command.folder / "out.csv"
    assert command("-o", str(path))[0] == 0
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [(row["rank"], row["id"], row["name"], row["kind"]) for row in rows] == [
        ("0", "0", "n0", "COMP"), ("0", "1", "n1", "COMM_COLL"),
        ("1", "0", "n0", "COMM_COLL"), ("1", "1", "n1", "COMP"),
    ]  # fmt: skip
    assert [row["cause"] for row in rows] == ["", "0", "", "0"]
    assert [row["resource"] for row in rows] == [
        "compute", "communication", "communication", "compute",
    ]  # fmt: skip
    assert (rows[0]["start"], rows[0]["end"], rows[1]["start"]) == ("0", "3000", "3000")


def test_nadis_own_file_holds_the_tables(command: Command) -> None:
    waiting_job(command)
    path = command.folder / "out.nadi"
    code, out, _ = command("-o", str(path), "--json")
    assert code == 0
    summary = json.loads(out)  # and nothing else
    with zipfile.ZipFile(path) as members:
        tables = {
            name.removesuffix(".arrow"): pl.read_ipc(members.read(name))
            for name in members.namelist() if name.endswith(".arrow")
        }  # fmt: skip
        told = json.loads(members.read("simulation.json"))
    assert sorted(tables) == ["collective_times", "issues", "rank_times", "schedule"]
    assert tables["schedule"].height == 4
    assert tables["rank_times"]["finish"].to_list() == summary["finish_ns"]
    assert told["makespan_ns"] == summary["makespan_ns"]
    assert told["settings"]["network"]["dimensions"][0]["topology"] == "ring"


def test_a_file_that_is_there_is_replaced_only_if_asked(command: Command) -> None:
    waiting_job(command)
    path = command.folder / "out.csv"
    path.write_text("mine")
    code, out, err = command("-o", str(path))
    assert (code, out) == (2, "")
    assert "exists already; give another name, or --overwrite" in err
    assert path.read_text() == "mine"
    assert command("-o", str(path), "--overwrite")[0] == 0
    assert path.read_text().startswith("rank,node,id,name,kind,start,end,resource,cause")


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("out.png", "use one of"),
        ("sys.json", "the output would replace an input file"),
        ("net.yml/out.json", "is not a folder"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_done(
    command: Command, name: str, part: str
) -> None:
    code, out, err = command("-o", str(command.folder / name), "--overwrite")  # there is no job
    assert (code, out) == (2, "")
    assert part in err


def test_a_recording_is_never_replaced(command: Command) -> None:
    command.write([compute(0, 1)])
    path = command.folder / "work.0.json"
    nadi.write(nadi.read(command.folder / "work.0.et"), path)
    before = path.read_bytes()
    (command.folder / "work.0.et").unlink()
    options = ("--system", "dgx-h100", "-o", str(path), "--overwrite")
    for job in (path, command.folder / "work", command.folder):
        assert main(["simulate", str(job), *options]) == 2
        assert "the output would replace an input file" in command.capfd.readouterr().err
        assert path.read_bytes() == before


def test_a_folder_without_traces_says_what_it_may_hold(command: Command) -> None:
    folder = command.folder / "empty"
    for number in range(10):
        (folder / f"run{number}").mkdir(parents=True)
    assert main(["simulate", str(folder), "--system", "dgx-h100"]) == 2
    err = command.capfd.readouterr().err
    assert "run6, run7 and 2 more; pass a folder with an .et for each rank, or recordings" in err
    assert err.count("\n") == 1


def test_ranks_that_did_the_same_share_a_row(command: Command) -> None:
    (command.folder / "net.yml").write_text(NETWORK.replace("[ 2 ]", "[ 24 ]"))
    alike = [[compute(0, 5)]] * 3 + [
        [compute(0, 9 if rank == 20 else 7 - rank % 2)] for rank in range(21)
    ]
    command.write(*alike)
    code, out, _ = command()
    assert code == 0
    assert "rank 23 finishes last; its time: compute 100.0 %" in out
    lines = out.splitlines()
    assert "0-2   5.000 us  5.000 us" in lines
    assert "3     7.000 us  7.000 us" in lines
    assert lines[3] == "ranks (the first 8 rows and the slowest)"
    assert [line.split()[0] for line in lines[5:-2]] == [
        "0-2", "3", "4", "5", "6", "7", "8", "9", "23",
    ]  # fmt: skip
    assert "and 13 more ranks; --json prints all" in out


def test_a_message_that_nobody_sends_ends_with_who_waits_for_whom(command: Command) -> None:
    command.write([send(0, 1, 100, "SEND")], [send(0, 1, 101, "RECV")])
    code, out, err = command()
    assert code == 2
    assert out == ""
    assert "rank 1 node 0 (n0) waits to receive from rank 0 101 bytes with tag 7" in err
    assert "tag 7, where rank 0 node 0 (n0) sends 100 bytes with tag 7" in err


def test_a_collective_without_a_member_says_whom_it_waits_for(command: Command) -> None:
    command.write([collective(0, "all_gather", 100)], [send(0, 0, 8, "RECV")])
    code, _, err = command()
    assert code == 2
    told = "rank 0 node 0 (n0), all_gather of 100 bytes, waits in group all ranks for rank 1, "
    assert told + "rank 1 node 0 (n0) waits to receive from rank 0 8 bytes with tag 7" in err


def test_collectives_that_differ_do_not_meet(command: Command) -> None:
    command.write([collective(0, "all_gather", 100)], [collective(0, "all_gather", 101)])
    code, _, err = command()
    assert code == 2
    assert "differ in type or size" in err
    assert (
        "rank 1 node 0 (n0): its all_gather of 101 bytes is matched with all_gather of 100" in err
    )


def test_a_negative_size_is_refused(command: Command) -> None:
    command.write([collective(0, "all_gather", 77777)], [compute(0, 1)])
    file = command.folder / "work.0.et"
    # as protobuf has them: a message's length, an attribute, 77,777, and -5 in 7 bytes more
    name, size = b"\x0a\x09comm_size\x48", bytes.fromhex("d1df04")
    begin, content = b"\x12\x02n0", file.read_bytes()
    at = content.index(begin) - 1
    content = content[:at] + bytes([content[at] + 7]) + content[at + 1 :]
    negative = b"\x16" + name + b"\xfb" + b"\xff" * 8 + b"\x01"
    content = content.replace(b"\x0f" + name + size, negative)
    file.write_bytes(content)
    code, _, err = command()
    assert code == 2
    assert "rank 0 node 0 (n0): its comm_size is negative, or no integer; write its bytes" in err


@pytest.mark.parametrize(
    ("file", "content", "part"),
    [
        ("net.yml", NETWORK.replace("Ring", "Moebius"), "there is no 'Moebius'"),
        ("net.yml", NETWORK.replace("[ 2 ]", "[ 3 ]"), "it has 3 ranks, but the job has 2"),
        ("net.yml", NETWORK.replace("50.0", "tbd"), "$.bandwidth[0]: expected a number, got str"),
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
        assert "exists already" in err
        assert command("-o", str(path), "--overwrite", "--json")[0] == 0
        assert path.read_bytes() == written
    lines = (command.folder / "job.log").read_text().splitlines()
    assert lines[0] == "issue,npu_id=0,curr_cycle=0,node_id=0,node_name=COMP_NODE_n0"
    code, _, err = command("-o", str(command.folder / "job.png"))
    assert code == 2
    assert ".pftrace" in err
    assert not (command.folder / "job.png").exists()


def grouped_job(command: Command) -> None:
    """Let two pairs of ranks sum up, in groups whose members the traces do not state."""
    command.write(*(
        [collective(0, "all_reduce", 1 << 20, pg_name=f"{rank // 2 + 5}")] for rank in range(4)
    ))  # fmt: skip


def on_system(command: Command, *options: str) -> tuple[int, str, str]:
    code = main(["simulate", str(command.folder / "work"), "--system", "dgx-h100", *options])
    captured = command.capfd.readouterr()
    return code, captured.out, captured.err


def test_groups_may_come_with_any_system(command: Command) -> None:
    grouped_job(command)
    code, _, err = on_system(command)
    assert code == 2
    assert "the ranks of group '5' are unknown; list its ranks in --comm-group or groups" in err
    path = command.folder / "groups.json"
    path.write_text(json.dumps({"5": [0, 1], "6": [2, 3]}))
    code, out, _ = on_system(command, "--comm-group", str(path), "--json")
    assert code == 0
    groups = json.loads(out)["collectives_by_group"]
    assert [(group["group"], group["members"]) for group in groups] == [("5", [2]), ("6", [2])]
    code, _, err = on_system(command, "--comm-group", str(path), "-o", str(path), "--overwrite")
    assert code == 2
    assert "the output would replace an input file" in err


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ('{"5": [0, 1', "groups.json: not a file of process groups: input data was truncated;"),
        ("groups: 5", "groups.json: not a file of process groups: JSON is malformed: "),
        ("[[0, 1]]", "expected `object`, got `array`"),
        ('{"5": ["a"]}', "expected `int`, got `str`"),
        ('{"5": [0, 9], "6": [2, 3]}', "must be distinct and from 0 to 3; correct --com"),
        ('{"5": [0, 0], "6": [2, 3]}', "[0, 0] must be distinct and from 0 to 3"),
        ('{"5": [0, 1]}', "the ranks of group '6' are unknown"),
    ],
)
def test_groups_that_cannot_be_are_refused(command: Command, content: str, part: str) -> None:
    grouped_job(command)
    path = command.folder / "groups.json"
    path.write_text(content)
    out_path = command.folder / "out.json"
    code, out, err = on_system(command, "--comm-group", str(path), "-o", str(out_path))
    assert (code, out) == (2, "")
    assert part in err
    assert err.count("\n") == 1
    assert not out_path.exists()


def one_rank(*nodes: Node) -> list[list[Node]]:
    return [list(nodes), [compute(0, 1)]]


@pytest.mark.parametrize(
    ("ranks", "part"),
    [
        (one_rank(send(1, 0, 100, "RECV")), "rank 0 node 0 (n0) waits to receive from rank 1"),
        (one_rank(send(0, 7, 100, "SEND")), "its other rank is 7, but the job has 2 ranks"),
        (one_rank(collective(0, "all_gather", 8)), "waits in group all ranks for rank 1"),
        (one_rank(compute(0, 1, data_deps=[1]), compute(1, 1, data_deps=[0])), "depends on itself"),
        (one_rank(), "work.0.et: it has no nodes"),
        ([[compute(0, 1)]] * 9, "system dgx-h100: it does not fit 9 ranks"),
    ],
)
def test_a_job_that_cannot_be_is_one_line_and_nothing_written(
    command: Command, ranks: list[list[Node]], part: str
) -> None:
    command.write(*ranks)
    out_path = command.folder / "out.nadi"
    code, out, err = on_system(command, "-o", str(out_path))
    assert (code, out) == (2, "")
    assert part in err
    assert err.count("\n") == 1
    assert not out_path.exists()


def test_files_that_cannot_be_read_are_one_line_and_nothing_written(command: Command) -> None:
    out_path = command.folder / "out.nadi"

    def refused(part: str) -> None:
        code, out, err = on_system(command, "-o", str(out_path), "--json")
        assert (code, out) == (2, "")
        assert part in err
        assert err.count("\n") == 1
        assert not out_path.exists()

    refused("work: no file or folder has this name, and no file name begins with it; pass a folde")
    command.write(*[[compute(0, 1), collective(1, "all_gather", 100)]] * 4)
    path = command.folder / "work.2.et"
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    refused("work.2.et: byte")
    path.write_bytes(b"")
    refused("work.2.et: the file is empty")
    path.unlink()
    refused("rank 2 has no file, but rank 3 has one; provide the traces of all ranks")
    path.write_bytes(whole)
    assert on_system(command, "-o", str(out_path))[0] == 0
