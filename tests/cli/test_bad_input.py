"""Input that a user may well give, and that must end in one clear line, or in a right answer."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nadi
from nadi.cli import main
from tests.amounts import examples
from tests.conftest import PairWriter

pytestmark = pytest.mark.usefixtures("demo_read_once")

NADI = [sys.executable, "-m", "nadi"]


def complaint(capfd: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """Run ``nadi run``, which must fail, and give its one line."""
    code = main(["run", *map(str, arguments)])
    captured = capfd.readouterr()
    assert code == 2
    assert captured.out == ""
    assert captured.err.endswith("\n")
    assert captured.err.count("\n") == 1
    assert len(captured.err) < 1_100
    return captured.err


Edit = Callable[[dict[str, Any], dict[str, Any]], None]


def edited(pair: PairWriter, edit: Edit) -> tuple[Path, Path]:
    """Write a small pair, changed by ``edit(host, device)``."""
    pair.op("ProfilerStep#1", 0, 100, cat="user_annotation")
    pair.op("c10d::allreduce_", 10, 20)
    host, device = pair.write()
    contents = [json.loads(path.read_text()) for path in (host, device)]
    edit(*contents)
    for path, content in zip((host, device), contents, strict=True):
        path.write_text(json.dumps(content))
    return host, device


def tensor(elements: Any, size: Any = 4) -> dict[str, Any]:
    return {"values": [[1, 2, 0, elements, size, "cpu"]]}


REFUSED: dict[str, Edit] = {
    "host id": lambda h, d: h["nodes"][0].update(id=2**63 - 1),
    "host parent": lambda h, d: h["nodes"][0].update(ctrl_deps=2**64),
    "nodes not a list": lambda h, d: h.update(nodes={}),
    "events not a list": lambda h, d: d.update(traceEvents={}),
    "group of 10^30": lambda h, d: h["nodes"].append(
        {"id": 90, "name": "## process_group:init ##", "ctrl_deps": 1,
         "inputs": {"values": ['[{"pg_name": "0", "ranks": [1e30]}]']}}
    ),
}  # fmt: skip
# of which one value cannot be used
ODD: dict[str, Edit] = {
    "ts missing": lambda h, d: d["traceEvents"][0].pop("ts"),
    "dur missing": lambda h, d: d["traceEvents"][0].pop("dur"),
    "ts an object": lambda h, d: d["traceEvents"][0].update(ts={"\n": 1}),
    "ts long": lambda h, d: d["traceEvents"][0].update(ts="x" * 100_000),
    "ts far off": lambda h, d: d["traceEvents"][0].update(ts=9.3e15),
    "dur far too long": lambda h, d: d["traceEvents"][1].update(dur=9223372036854775),
    "elements": lambda h, d: d["traceEvents"][0]["args"].update({"In msg nelems": 2**62}),
    "rank": lambda h, d: d.update(distributedInfo={"rank": 2**63}),
    "group ranks": lambda h, d: d.update(distributedInfo={"pg_config": [{"ranks": [2**63]}]}),
    "base time a text": lambda h, d: d.update(baseTimeNanoseconds="1"),
}  # fmt: skip
ACCEPTED: dict[str, Edit] = {
    "thread with a name": lambda h, d: d["traceEvents"][0].update(tid="main"),
    "thread id of 64 bits": lambda h, d: d["traceEvents"][0].update(tid=2**63),
    "process with a name": lambda h, d: d["traceEvents"][0].update(pid="python"),
    "no process": lambda h, d: d["traceEvents"][0].pop("pid"),
    "args null": lambda h, d: d["traceEvents"].append(
        {"ph": "X", "cat": "cpu_op", "name": "x", "pid": 7, "tid": 1, "ts": 1, "dur": 1,
         "args": None}
    ),
    "no distributedInfo": lambda h, d: d.update(distributedInfo=None),
    "elements a text": lambda h, d: h["nodes"][2].update(inputs=tensor("a")),
    "elements null": lambda h, d: h["nodes"][2].update(inputs=tensor(None)),
    "elements a fraction": lambda h, d: h["nodes"][2].update(inputs=tensor(1.5)),
    "elements beyond memory": lambda h, d: h["nodes"][2].update(inputs=tensor(2**39, 2**39)),
    "sequence of 64 bits": lambda h, d: h["nodes"][2]["attrs"].append(
        {"name": "seq_id", "type": "int64", "value": 2**64}
    ),
    "a step of 5000 digits": lambda h, d: d["traceEvents"].append(
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{'9' * 5000}", "pid": 7,
         "tid": 1, "ts": 1, "dur": 1}
    ),
    "a parent that is its own child": lambda h, d: h["nodes"][2].update(ctrl_deps=3),
    "a parent that is not there": lambda h, d: h["nodes"][2].update(ctrl_deps=77),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_one_line(
    case: str, pair: PairWriter, capfd: pytest.CaptureFixture[str]
) -> None:
    host, device = edited(pair, REFUSED[case])
    line = complaint(capfd, host, device)
    assert "host.json" in line or "device.json" in line


@pytest.mark.parametrize("case", ODD)
def test_an_odd_value_is_counted_and_stops_nothing(case: str, pair: PairWriter) -> None:
    run = nadi.run(*edited(pair, ODD[case]))
    (trace,) = run.job.traces
    assert trace.issues.filter(code="kineto.odd-field")["count"].to_list() == [1]
    assert run.measured_ns == run.replayed_ns == run.path.length


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepted_with_a_consistent_answer(case: str, pair: PairWriter) -> None:
    run = nadi.run(*edited(pair, ACCEPTED[case]))
    assert run.measured_ns == run.replayed_ns == run.path.length == 100_000


def test_no_events_at_all(pair: PairWriter, capfd: pytest.CaptureFixture[str]) -> None:
    host, device = edited(pair, lambda h, d: d.update(traceEvents=[]))
    assert "nothing can be matched" in complaint(capfd, host, device)


def test_nested_5000_deep(pair: PairWriter, capfd: pytest.CaptureFixture[str]) -> None:
    host, device = edited(pair, lambda h, d: None)
    text = host.read_text().replace('"nodes": [', '"nodes": [{"id": 99, "name": "deep", "inputs": '
                                    + "[" * 5000 + "]" * 5000 + "}, ")  # fmt: skip
    host.write_text(text)
    assert "nested too deeply" in complaint(capfd, host, device)


def test_invalid_utf8_is_placed(pair: PairWriter, capfd: pytest.CaptureFixture[str]) -> None:
    host, device = edited(pair, lambda h, d: None)
    content = device.read_bytes()
    at = content.index(b"allreduce")
    device.write_bytes(content[:at] + b"\xff" + content[at:])
    assert f"byte {at:,}" in complaint(capfd, host, device)


def test_gzip_that_swells(pair: PairWriter, capfd: pytest.CaptureFixture[str]) -> None:
    host, device = edited(pair, lambda h, d: None)
    blanks = gzip.compress(b" " * (300 << 20), compresslevel=1)
    device.write_bytes(gzip.compress(device.read_bytes()[:-1]) + blanks + gzip.compress(b"}"))
    assert "over 200 times its gzip size" in complaint(capfd, host, device)


def test_a_byte_order_mark_is_no_matter(pair: PairWriter) -> None:
    host, device = edited(pair, lambda h, d: None)
    device.write_bytes(b"\xef\xbb\xbf" + device.read_bytes())
    assert nadi.run(host, device).measured_ns == 100_000


def test_a_pipe_is_not_waited_for(pair: PairWriter, capfd: pytest.CaptureFixture[str]) -> None:
    host, _ = edited(pair, lambda h, d: None)
    os.mkfifo(pair.folder / "pipe")
    assert "not a regular file" in complaint(capfd, host, pair.folder / "pipe")


def test_a_name_that_no_file_can_have(capfd: pytest.CaptureFixture[str]) -> None:
    assert "cannot be read" in complaint(capfd, "a" * 300)


def test_host_work_that_the_device_trace_lacks(demo_folder: Path, tmp_path: Path) -> None:
    content = json.loads(gzip.decompress((demo_folder / "device_0.json.gz").read_bytes()))
    events = content["traceEvents"]
    events.remove(next(e for e in events if e["name"].startswith("gloo:")))
    (tmp_path / "device.json").write_text(json.dumps(content))
    run = nadi.run(demo_folder / "host_0.json.gz", tmp_path / "device.json")
    assert run.measured_ns == run.replayed_ns == run.path.length


def test_communication_earlier_than_its_call(demo_folder: Path, tmp_path: Path) -> None:
    content = json.loads(gzip.decompress((demo_folder / "device_0.json.gz").read_bytes()))
    for event in content["traceEvents"]:
        if event["name"].startswith("gloo:"):
            event["ts"] -= 200
    (tmp_path / "device.json").write_text(json.dumps(content))
    run = nadi.run(demo_folder / "host_0.json.gz", tmp_path / "device.json")
    assert run.measured_ns == run.replayed_ns == run.path.length
    assert (run.graph.weight >= 0).all()


def test_a_copy_that_takes_no_time(pair: PairWriter) -> None:
    pair.op("aten::copy_", 0, 50)
    pair.event("cudaMemcpyAsync", 10, 5, "cuda_runtime", correlation=1)
    pair.event("Memcpy DtoH (Device -> Pageable)", 15, 0, "gpu_memcpy", pid=0, tid=7, stream=7,
               device=0, correlation=1)  # fmt: skip
    run = nadi.run(*pair.write())
    assert run.measured_ns == run.replayed_ns == 50_000


def test_copies_of_annotations_on_a_device(demo_folder: Path, tmp_path: Path) -> None:
    content = json.loads(gzip.decompress((demo_folder / "device_2.json.gz").read_bytes()))
    for event in list(content["traceEvents"]):
        if event["name"].startswith("gloo:"):
            args = {"stream": 7, "device": 0, "Record function id":
                    event["args"]["Record function id"]}  # fmt: skip
            copy = {**event, "cat": "gpu_user_annotation", "pid": 0, "tid": 7, "args": args}
            content["traceEvents"].append(copy)
    (tmp_path / "device.json").write_text(json.dumps(content))
    run = nadi.run(demo_folder / "host_2.json.gz", tmp_path / "device.json")
    assert run.measured_ns == run.replayed_ns == run.path.length


def test_ranks_in_containers_are_told_by_names_or_folders(pair: PairWriter, tmp_path: Path) -> None:
    pair.op("op", 0, 10)
    for layout in (
        "rank{}.et.json rank{}.17000000001{}3.pt.trace.json",
        "{}/host.json {}/dev.json",
    ):
        files = []
        for rank in (0, 1, 2):
            pair.device_keys["distributedInfo"] = {"rank": rank, "world_size": 3}
            for made, name in zip(pair.write(), layout.split(), strict=True):
                target = tmp_path / "job" / name.format(rank, 9 - rank)
                target.parent.mkdir(parents=True, exist_ok=True)
                files.append(made.rename(target))
        job = nadi.load_job(*files)
        assert job.ranks == (0, 1, 2)
        shutil.rmtree(tmp_path / "job")


def test_a_terminal_that_cannot_show_a_name(pair: PairWriter) -> None:
    pair.op("日本\x1b[31m\n", 0, 10)
    pair.write()
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    code = (
        "import sys\n"
        "from nadi.cli import main\n"
        "given = ['run'], ['run', '--json'], ['info'], ['info', '--check']\n"
        "sys.exit(any([main([*one, sys.argv[1]]) for one in given]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(pair.folder)], env=environment, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\x1b" not in done.stdout
    assert done.stdout.count(b"\\u65e5\\u672c") >= 2


def test_files_of_two_ranks_are_refused_unless_forced(
    demo_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    files = [demo_folder / "host_2.json.gz", demo_folder / "device_3.json.gz"]
    told = complaint(capfd, *files)
    assert "different ranks" in told
    assert "--force" in told
    job = nadi.load_job(*files, force=True)
    assert "link.process" in job.traces[0].issues["code"].to_list()
    # where names say nothing, process ids may differ: of a container and its host, say
    pair = [shutil.copy(file, tmp_path / f"{file.name[:4]}.json.gz") for file in files]
    assert "link.process" in nadi.load_job(*pair).traces[0].issues["code"].to_list()


def test_a_copy_of_another_rank_is_refused(
    demo_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("host_0", "device_0", "device_1"):
        shutil.copy(demo_folder / f"{name}.json.gz", tmp_path)
    shutil.copy(demo_folder / "host_0.json.gz", tmp_path / "host_1.json.gz")
    assert "do not pair up" in complaint(capfd, tmp_path)


def test_other_files_in_a_folder_are_named(demo_folder: Path, tmp_path: Path) -> None:
    for name in ("host_0", "device_0"):
        shutil.copy(demo_folder / f"{name}.json.gz", tmp_path)
    (tmp_path / "config.json").write_text('{"schema": "x", "traceEvents_of": 3}')
    (tmp_path / "host_1.json.gz").write_bytes(b"")
    (tmp_path / "notes.tar.gz").write_bytes(b"\x1f\x8b junk")
    issues = nadi.bottlenecks.summarize(nadi.run(tmp_path))["issues"]
    (ignored,) = [issue for issue in issues if issue["code"] == "job.files-ignored"]
    assert ignored["count"] == 2
    assert "config.json, host_1.json.gz" in ignored["detail"]


def test_results_may_lie_beside_the_traces(demo_folder: Path, tmp_path: Path) -> None:
    for name in ("host_0", "device_0"):
        shutil.copy(demo_folder / f"{name}.json.gz", tmp_path)
    assert main(["run", str(tmp_path), "-o", str(tmp_path)]) == 0
    (tmp_path / "timeline.json.gz").rename(tmp_path / "renamed.json.gz")
    assert main(["run", str(tmp_path), "-o", str(tmp_path)]) == 2  # summary.json exists
    assert main(["run", str(tmp_path), "-o", str(tmp_path), "--overwrite"]) == 0


@pytest.mark.parametrize("blocked", ["summary.json", "critical_path.csv", "timeline.json.gz"])
def test_all_results_are_written_or_none(
    demo_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], blocked: str
) -> None:
    (tmp_path / blocked).mkdir()
    assert blocked in complaint(capfd, demo_folder, "-o", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [blocked]


@pytest.mark.parametrize(
    "change", ["scale . 1e300", "scale . 3e12", "scale a{99999999999999999999} 1",
               "scale " + "(" * 5000 + ")" * 5000 + " 1"],
)  # fmt: skip
def test_changes_beyond_reason(
    demo_folder: Path, capfd: pytest.CaptureFixture[str], change: str
) -> None:
    assert "change 'scale " in complaint(capfd, demo_folder, "--what-if", change)


def test_flipped_bytes_end_in_an_answer_or_one_line(
    pair: PairWriter, capfd: pytest.CaptureFixture[str]
) -> None:
    host, device = edited(pair, lambda h, d: None)
    contents = {path: path.read_bytes() for path in (host, device)}
    chance = random.Random(3)
    for _ in range(examples(150)):
        path = chance.choice((host, device))
        content = bytearray(contents[path])
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
        code = main(["run", str(host), str(device), "--json"])
        captured = capfd.readouterr()
        if code == 0:
            summary = json.loads(captured.out)
            assert summary["measured_ns"] == summary["replayed_ns"]
            assert summary["measured_ns"] == sum(summary["critical_path_by_kind"].values())
        else:
            assert (code, captured.err.count("\n")) == (2, 1), captured.err
        path.write_bytes(contents[path])


def test_closed_and_full_output(demo_folder: Path) -> None:
    pair = [str(demo_folder / f"{name}_0.json.gz") for name in ("host", "device")]
    command = " ".join(f"'{word}'" for word in [*NADI, "run", *pair])
    for redirection, code in ((">&-", 0), ("> /dev/full", 2)):
        done = subprocess.run(["bash", "-c", f"{command} {redirection}"], stderr=subprocess.PIPE)
        assert done.returncode == code, redirection
        assert b"Traceback" not in done.stderr
    reader, writer = os.pipe()
    os.close(reader)  # as head does when it has enough, but surely before anything is written
    try:
        done = subprocess.run([*NADI, "run", *pair], stdout=writer, stderr=subprocess.PIPE)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_interruption_is_no_success(tmp_path: Path) -> None:
    code = (
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # what starts it may ignore it
        "import nadi.graph.load_graph\n"
        "def stop(*a, **k): signal.raise_signal(signal.SIGINT)\n"
        "nadi.graph.load_graph.load_ranks = stop\n"
        "from nadi.cli import main\n"
        "sys.exit(main(['run', '.']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=tmp_path)
    assert done.returncode in (130, -signal.SIGINT)
    assert b"Traceback" not in done.stderr


def test_more_than_the_memory_is_refused_in_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    ranks = 10**15
    given = ["collective", "all_reduce", "1MB", "--system", "dgx-h100", "--ranks", str(ranks)]
    assert main(given) == 2
    told = capfd.readouterr().err
    assert told.startswith("nadi: memory: Unable to allocate")
    assert told.count("\n") == 1
