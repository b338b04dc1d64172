"""Finding the files of a job."""

from __future__ import annotations

import gzip
import json
import pickle
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import nadi
from nadi.analyses.analyses import analyze, analyze_all
from nadi.cli import main
from nadi.recordings.discover import TraceIdentity, list_files, with_ranks
from nadi.recordings.job_of_files import load_devices, load_job
from tests.formats.foreign_files import memory_snapshot


def test_folders_of_ranks_with_equal_file_names_are_one_job(
    demo_folder: Path, tmp_path: Path
) -> None:
    for rank in range(4):
        folder = tmp_path / f"rank{rank}"
        folder.mkdir()
        for kind in ("host", "device"):
            shutil.copy(demo_folder / f"{kind}_{rank}.json.gz", folder / f"{kind}.json.gz")
    job = load_job(tmp_path)
    expected = load_job(demo_folder)
    assert job.ranks == expected.ranks
    for mine, other in zip(job.traces, expected.traces, strict=True):
        assert mine.nodes.equals(other.nodes)
        assert mine.deps.equals(other.deps)
    assert job.matches.equals(expected.matches)


def test_ranks_that_no_trace_states_are_told_by_the_folder(
    demo_folder: Path, tmp_path: Path
) -> None:
    text = '{"traceEvents":[{"ph":"X","cat":"cpu_op","name":"%s","ts":1,"dur":2}]}'
    for rank in (3, 11):
        folder = tmp_path / f"node_{rank}"
        folder.mkdir()
        (folder / "trace_0.json").write_text(text % f"op {rank}")
    traces = load_devices(tmp_path)
    assert [(t.rank, t.nodes["name"][0]) for t in traces] == [(3, "op 3"), (11, "op 11")]


def test_subfolders_of_several_jobs_are_not_one(demo_folder: Path, tmp_path: Path) -> None:
    for name, file in (("a", "host_0.json.gz"), ("b", "device_0.json.gz")):
        (tmp_path / name).mkdir()
        shutil.copy(demo_folder / file, tmp_path / name)
    with pytest.raises(nadi.errors.InputError, match="its subfolders are a, b"):
        list_files([tmp_path])


def test_a_job_behind_an_address(demo_folder: Path) -> None:
    from upath import UPath

    for name in ("host_0", "device_0", "host_1", "device_1"):
        content = (demo_folder / f"{name}.json.gz").read_bytes()
        UPath(f"memory://discover/job/{name}.json.gz").write_bytes(content)
    run = nadi.run("memory://discover/job")
    assert run.job.ranks == (0, 1)
    local = load_devices(*(demo_folder / f"device_{rank}.json.gz" for rank in (0, 1)))
    for mine, other in zip(load_devices("memory://discover/job"), local, strict=True):
        assert mine.nodes.equals(other.nodes)


@pytest.fixture
def server(demo_folder: Path) -> Iterator[str]:
    """Serve the demo's files; gives the address."""
    pytest.importorskip("aiohttp", reason="http:// needs an optional package")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=demo_folder)) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()
        thread.join()


def test_files_on_a_web_server(
    server: str, demo_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ["host_0.json.gz", "device_0.json.gz"]
    assert main(["run", *(f"{server}/{file}" for file in files)]) == 0
    served = capsys.readouterr().out
    assert main(["run", *(str(demo_folder / file) for file in files)]) == 0
    assert served == capsys.readouterr().out
    assert nadi.run(server).job.ranks == (0, 1, 2, 3)  # from the list that the server makes
    assert main(["run", f"{server}/nothing.json"]) == 2
    assert "nothing.json: cannot be read: No such file" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "what-if", "critical-path", "info"])
def test_commands_take_addresses(
    command: str, demo_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from upath import UPath

    content = (demo_folder / "device_2.json.gz").read_bytes()
    UPath("memory://commands/job/device_2.json.gz").write_bytes(content)
    assert main([command, "memory://commands/job"]) == 0
    assert capsys.readouterr().out


def write_steps(folder: Path, begins: dict[str, float], **keys: object) -> None:
    """Write device traces of one operation each, which begins at a time in us."""
    for name, begin in begins.items():
        event = {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": begin,
                 "dur": 5}  # fmt: skip
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps({"traceEvents": [event], **keys}))


@pytest.mark.parametrize(
    ("begins", "read"),
    [
        ({"step12.json": 0, "step13.json": 10}, ["step13.json"]),
        (
            {"rank0_step12.json": 0, "rank0_step13.json": 10, "rank1_step12.json": 1,
             "rank1_step13.json": 11},
            ["rank0_step13.json", "rank1_step13.json"],
        ),
        # tensorboard_trace_handler: worker, then nanoseconds
        (
            {"gpu7_4711.1700000000000000001.pt.trace.json": 0,
             "gpu7_4711.1700000000000000055.pt.trace.json": 50},
            ["gpu7_4711.1700000000000000055.pt.trace.json"],
        ),
        # a recording more on one rank: the one that begins nearest is of the same step
        (
            {"r0/trace_1.json": 0, "r0/trace_2.json": 10, "r1/trace_1.json": 1,
             "r1/trace_2.json": 11, "r1/trace_3.json": 90},
            ["trace_2.json", "trace_2.json"],
        ),
    ],
    ids=["steps", "ranks", "workers", "folders"],
)  # fmt: skip
def test_of_a_file_per_step_one_is_read(
    tmp_path: Path, begins: dict[str, float], read: list[str]
) -> None:
    write_steps(tmp_path, begins)
    job = load_job(tmp_path)
    assert [Path(trace.provenance.sources[0].path).name for trace in job.traces] == read
    assert job.ranks == tuple(range(len(read)))
    (issue,) = job.issues.filter(code="job.step-files").to_dicts()
    assert issue["count"] == len(begins) - len(read)
    assert issue["detail"].endswith(f"{', '.join(read)} {'are' if len(read) > 1 else 'is'} read")
    assert len(load_devices(tmp_path)) == len(read)


@pytest.mark.parametrize(
    "begins",
    [
        {"step12.json": 0, "step13.json": 4},  # at the same time
        {"a_1.json": 0, "b_2.json": 10},  # of other names
        {"x1_y1.json": 0, "x2_y2.json": 10},  # two numbers differ
    ],
    ids=["overlap", "names", "numbers"],
)
def test_other_traces_of_one_rank_are_refused(tmp_path: Path, begins: dict[str, float]) -> None:
    write_steps(tmp_path, begins, distributedInfo={"rank": 3})
    with pytest.raises(nadi.errors.PairError, match="2 device traces have rank 3"):
        load_job(tmp_path)


def _without_rank(demo_folder: Path, rank: int) -> bytes:
    content = gzip.decompress((demo_folder / f"device_{rank}.json.gz").read_bytes())
    return content.replace(b"distributedInfo", b"otherInfo")


@pytest.mark.parametrize("given", [".", "profiling", "profiling/traces"])
def test_folders_of_iterations_are_recordings_of_which_the_last_is_read(
    demo_folder: Path, tmp_path: Path, given: str
) -> None:
    for iteration in (2, 10):
        for rank in range(2):
            place = tmp_path / f"profiling/traces/iteration_{iteration}/rank{rank}_trace.json"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(_without_rank(demo_folder, rank))
    (tmp_path / "profiling/memory_snapshot").mkdir()
    found = list_files([tmp_path / given])
    assert {path.parent.name for path in found.devices} == {"iteration_10"}
    job = nadi.load_job(tmp_path / given)
    assert [trace.rank for trace in job.traces] == [0, 1]
    (said,) = job.issues.filter(job.issues["code"] == "job.iterations")["detail"].to_list()
    assert said.endswith(": iteration_2")


@pytest.mark.parametrize("with_traces", [True, False])
def test_memory_snapshots_of_a_job_are_found_beside_its_traces(
    demo_folder: Path, tmp_path: Path, with_traces: bool
) -> None:
    snapshots = tmp_path / "profiling/memory_snapshot"
    for step in ("000000000010", "000000000020_exit"):
        for rank in range(2):
            place = snapshots / f"step_{step}/{rank:06}_step_{step[:12].lstrip('0')}.pickle"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(pickle.dumps(memory_snapshot(), 4))
    if with_traces:
        for rank in range(2):
            place = tmp_path / f"profiling/traces/iteration_10/rank{rank}_trace.json"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(_without_rank(demo_folder, rank))
    expected = analyze("memory-holders", snapshots / "step_000000000020_exit")
    assert set(expected["rank"]) == {0, 1}
    assert analyze("memory-holders", tmp_path).equals(expected)
    found = list_files([tmp_path])
    assert found.snapshots == ([snapshots] if with_traces else [])
    codes = found.issues["code"].to_list()
    assert ("job.snapshots" in codes) == with_traces


def test_broken_memory_snapshots_cost_no_other_analysis(demo_folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "job/profiling/memory_snapshot/step_000000000010/000000_step_10.pickle"
    traces = tmp_path / "job/traces"
    traces.mkdir(parents=True)
    for rank in range(2):
        shutil.copy(demo_folder / f"device_{rank}.json.gz", traces / f"rank{rank}.json.gz")
    alone = analyze_all(tmp_path / "job")
    assert str(alone["memory-holders"]).endswith("record with profile_memory=True")
    place.parent.mkdir(parents=True)
    place.write_bytes(pickle.dumps(memory_snapshot(), 4)[:-20])
    found = analyze_all(tmp_path / "job")
    assert "the pickle is broken or was cut off" in str(found["memory-holders"])
    assert found["annotations"].equals(alone["annotations"])  # type: ignore[union-attr,arg-type]


@pytest.mark.parametrize("below", ["profile_traces/iteration_5", "torch_profile"])
def test_traces_of_training_are_found_beside_settings_and_logs(
    demo_folder: Path, tmp_path: Path, below: str
) -> None:
    for other in ("config.json", "logs/args.json", "checkpoint/step-10/state.pkl"):
        (tmp_path / other).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / other).write_text("{}")
    for rank in range(2):
        place = tmp_path / below / f"rank-{rank}.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(_without_rank(demo_folder, rank))
    found = list_files([tmp_path])
    assert [path.name for path in found.devices] == ["rank-0.json", "rank-1.json"]
    assert found.issues.is_empty()
    assert [trace.rank for trace in nadi.load_job(tmp_path).traces] == [0, 1]


def test_an_iteration_that_a_job_did_not_finish_is_not_read(
    demo_folder: Path, tmp_path: Path
) -> None:
    for iteration, count in ((2, 3), (3, 2), (4, 1)):
        for rank in range(count):
            place = tmp_path / f"traces/iteration_{iteration}/rank{rank}_trace.json"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(_without_rank(demo_folder, rank))
    found = list_files([tmp_path])
    assert [path.parent.name for path in found.devices] == ["iteration_3"] * 2
    said = dict(found.issues.select("code", "detail").iter_rows())
    assert said["job.iterations"].endswith(": iteration_2")
    assert said["job.iterations-cut-off"].endswith(": iteration_4")


def test_ranks_of_serving_engines_are_in_their_names() -> None:
    names = [f"171-TP-{tp}-DP-0-PP-{pp}-EP-0.trace.json.gz" for pp in (0, 1) for tp in (0, 1)]
    names += ["171-TP-1-EP-0-decode.trace.json.gz", "rank-12.json.gz", "000004_step_20.pickle"]
    names.append("dp0_pp0_tp3_dcp0_ep0_rank3.1773.pt.trace.json.gz")
    ranked = with_ranks([TraceIdentity(name, -1, -1) for name in names])
    assert [one.rank for one in ranked] == [0, 1, 2, 3, 1, 12, 4, 3]
