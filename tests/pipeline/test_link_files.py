"""`nadi.link_files`: ranks side by side, in whatever runs them, are what `load_job` gives."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import polars as pl
import pytest

import nadi
from nadi.errors import InputError
from nadi.recordings.discover import peek, recording_of
from nadi.results.terminal.workers import worker_processes
from nadi.sharing.conversion import link_files as linking
from nadi.sharing.conversion.link_files import _communication
from tests.conftest import PairWriter


class Recorder(Executor):
    """An executor of somebody else: does the work at once, elsewhere as far as values go."""

    def __init__(self) -> None:
        self.submitted = 0

    def submit(self, work: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        self.submitted += 1
        work, arguments = pickle.loads(pickle.dumps((work, arguments)))
        future: Future[Any] = Future()
        try:
            future.set_result(pickle.loads(pickle.dumps(work(*arguments, **named))))
        except nadi.NadiError as error:
            future.set_exception(pickle.loads(pickle.dumps(error)))
        return future


@pytest.fixture(scope="module")
def job(demo_folder: Path) -> nadi.Job:
    return nadi.load_job(demo_folder, tensors=True)


def assert_same_files(done: nadi.sharing.Linking, job: nadi.Job) -> None:
    assert [file.rank for file in done.files] == list(job.ranks)
    for file, trace in zip(done.files, job.traces, strict=True):
        assert Path(file.target).name == f"rank{trace.rank}.nadi"
        assert (file.nodes, file.deps) == (trace.nodes.height, trace.deps.height)
        nadi.read(file.target).assert_equals(trace)
    assert done.num_collectives == job.num_collectives > 0
    assert done.issues.equals(job.issues)


def test_in_any_executor(demo_folder: Path, tmp_path: Path, job: nadi.Job) -> None:
    executor = Recorder()
    linking = nadi.link_files(demo_folder, output=tmp_path, to="nadi", executor=executor)
    assert executor.submitted == 4
    assert_same_files(linking, job)


def test_in_threads(demo_folder: Path, tmp_path: Path, job: nadi.Job) -> None:
    with ThreadPoolExecutor(2) as executor:
        linking = nadi.link_files(demo_folder, output=tmp_path, to="nadi", executor=executor)
    assert_same_files(linking, job)


@pytest.mark.parametrize("cores", [2, 3])  # threads, and processes
def test_on_all_cores(
    cores: int, demo_folder: Path, tmp_path: Path, job: nadi.Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = []
    for name in ("ThreadPoolExecutor", "worker_processes"):
        made = getattr(linking, name)
        monkeypatch.setattr(linking, name, lambda *a, made=made: used.append(made) or made(*a))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    assert_same_files(nadi.link_files(demo_folder, output=tmp_path, to="nadi"), job)
    assert (worker_processes in used) == (cores == 3)


@pytest.mark.parametrize(("suffix", "to"), [("et", "chakra"), ("json", "chakra-json")])
def test_raw_args_are_let_go_of_where_they_are_not_written(
    suffix: str, to: str, demo_folder: Path, tmp_path: Path, job: nadi.Job
) -> None:
    target, whole = tmp_path / f"two.{suffix}", tmp_path / f"whole.{suffix}"
    left_out = nadi.write(job.traces[2], whole, to=to)
    files = (demo_folder / "host_2.json.gz", demo_folder / "device_2.json.gz")
    (file,) = nadi.link_files(*files, output=target, to=to).files
    assert target.read_bytes() == whole.read_bytes()
    counted = {
        code: table.filter(pl.col("code") == code)["count"].to_list()
        for code, table in (("link.args", file.issues), ("chakra.args", left_out))
    }
    assert counted["link.args"] == counted["chakra.args"] != []


def test_what_is_sent_back_is_small(demo_folder: Path, tmp_path: Path, job: nadi.Job) -> None:
    for trace in job.traces:
        assert len(pickle.dumps(_communication(trace))) < 30_000
        assert trace.nodes.estimated_size() > 500_000


def test_one_rank_as_a_file(demo_folder: Path, tmp_path: Path, job: nadi.Job) -> None:
    files = (demo_folder / "device_2.json.gz", demo_folder / "host_2.json.gz")
    linking = nadi.link_files(*files, output=tmp_path / "two.nadi")
    (file,) = linking.files
    assert file.rank == 2
    assert [Path(source).name for source in file.sources] == ["host_2.json.gz", "device_2.json.gz"]
    nadi.read(tmp_path / "two.nadi").assert_equals(job.traces[2])


@pytest.mark.parametrize(
    ("output", "to", "expected"),
    [
        ("one.et", "", "one.et"),
        ("one.graphml.gz", "", "one.graphml.gz"),
        ("one", "", "one/rank1.et"),
        ("one", "nadi", "one"),
        (".", "nadi", "rank1.nadi"),
        ("one.et", "kineto", "one.et"),
    ],
)
def test_names(output: str, to: str, expected: str, demo_folder: Path, tmp_path: Path) -> None:
    files = (demo_folder / "host_1.json.gz", demo_folder / "device_1.json.gz")
    linking = nadi.link_files(*files, output=tmp_path / output, to=to)
    assert Path(linking.files[0].target) == tmp_path / expected
    assert (tmp_path / expected).is_file()


def test_a_folder_with_one_rank_and_a_format_is_a_folder(demo_folder: Path, tmp_path: Path) -> None:
    for name in ("host_1", "device_1"):
        shutil.copy(demo_folder / f"{name}.json.gz", tmp_path)
    nadi.link_files(tmp_path, output=tmp_path / "out", to="nadi")
    assert (tmp_path / "out" / "rank1.nadi").is_file()


def test_nothing_is_replaced_unless_asked_for(pair: PairWriter) -> None:
    pair.op("op", 0, 5)
    files, target = pair.write(), pair.folder / "out.nadi"
    nadi.link_files(*files, output=target)
    with pytest.raises(InputError, match="exists already; give another name, or overwrite=True"):
        nadi.link_files(*files, output=target)
    nadi.link_files(*files, output=target, overwrite=True)
    with pytest.raises(nadi.errors.UsageError, match="the output would replace an input file"):
        nadi.link_files(*files, output=files[0], to="nadi", overwrite=True)


def test_ranks_need_a_folder(demo_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file.et").write_text("")
    with pytest.raises(InputError, match="ranks are written into a folder"):
        nadi.link_files(demo_folder, output=tmp_path / "file.et")


def test_the_error_of_a_rank_is_told(demo_folder: Path, tmp_path: Path) -> None:
    for file in demo_folder.iterdir():
        shutil.copy(file, tmp_path)
    content = (tmp_path / "host_2.json.gz").read_bytes()
    (tmp_path / "host_2.json.gz").write_bytes(content[:-5000])
    with pytest.raises(InputError, match=r"host_2\.json\.gz") as error:
        nadi.link_files(tmp_path, output=tmp_path / "out", executor=Recorder())
    assert error.value.remedy


def test_a_pair_of_different_programs_needs_force(pair: PairWriter) -> None:
    for number in range(10):
        pair.op(f"op{number}", 10 * number, 5)
        pair.events[-1]["name"] = "other"
    files = pair.write()
    with pytest.raises(nadi.errors.PairError, match="0 of 10 operations"):
        nadi.link_files(*files, output=pair.folder / "out.et")
    linking = nadi.link_files(*files, output=pair.folder / "out.et", force=True)
    assert "link.forced" in linking.files[0].issues["code"].to_list()


def test_device_traces_alone(demo_folder: Path, tmp_path: Path) -> None:
    devices = sorted(demo_folder.glob("device_*"))
    linking = nadi.link_files(*devices, output=tmp_path, to="nadi", executor=Recorder())
    assert [file.rank for file in linking.files] == [0, 1, 2, 3]
    assert all("link.no-host" in file.issues["code"].to_list() for file in linking.files)


def test_the_beginning_of_a_file_tells_whose_it_is(
    demo_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = {file: recording_of(nadi.read(file)) for file in demo_folder.glob("*.json.gz")}
    monkeypatch.setattr("nadi.recordings.discover.read", None)  # it is enough
    assert {file: peek(file) for file in expected} == expected


def test_where_the_beginning_does_not_tell_the_file_is_read(pair: PairWriter) -> None:
    pair.op("op", 0, 5)
    host, device = pair.write()
    assert peek(device) == recording_of(nadi.read(device))
    assert peek(host).process == 7


def test_communication_alone_gives_the_same_collectives(shared_traces: Path) -> None:
    job = nadi.load_job(shared_traces / "cpu_ddp4")
    alone = nadi.recordings.link_job([_communication(trace) for trace in job.traces])
    ids = [
        pl.concat(
            [
                part.join(trace.nodes.select("id", node=pl.int_range(pl.len())), on="node").select(
                    "collective", "rank", "id"
                )
                for trace, part in zip(
                    one.traces, one.matches.partition_by("rank", maintain_order=True), strict=True
                )
            ]
        ).sort("rank", "collective")
        for one in (job, alone)
    ]
    assert ids[0].equals(ids[1])
    assert job.issues.equals(alone.issues)


def test_clocks_that_had_to_be_shifted_are_shifted_in_the_files(
    demo_folder: Path, tmp_path: Path
) -> None:
    traces = tmp_path / "traces"
    shutil.copytree(demo_folder, traces)
    late = traces / "device_2.json.gz"
    device = json.loads(gzip.decompress(late.read_bytes()))
    device["baseTimeNanoseconds"] = device.get("baseTimeNanoseconds", 0) + 50_000_000
    late.write_bytes(gzip.compress(json.dumps(device).encode()))
    job = nadi.load_job(traces, tensors=True)
    assert job.clocks["shift"].to_list() != [0] * 4
    executor = Recorder()
    linking = nadi.link_files(traces, output=tmp_path / "out", to="nadi", executor=executor)
    assert 4 < executor.submitted <= 8
    assert_same_files(linking, job)


@pytest.fixture
def four(demo_folder: Path, tmp_path: Path) -> Path:
    """A copy of the demo, whose files a test may change."""
    return Path(shutil.copytree(demo_folder, tmp_path / "four"))


def test_what_was_linked_before_an_error_is_not_linked_again(
    four: Path, tmp_path: Path, job: nadi.Job
) -> None:
    file, out, executor = four / "device_3.json.gz", tmp_path / "out", Recorder()
    content = file.read_bytes()
    file.write_bytes(content[:1000])
    with pytest.raises(InputError, match=r"device_3\.json\.gz: gzip data is truncated"):
        nadi.link_files(four, output=out, to="nadi", resume=True, executor=executor)
    assert [path.name for path in out.iterdir()] == [".nadi-kept"]
    with pytest.raises(InputError, match="contains no trace"):
        nadi.load_job(out)  # what is kept is no job
    file.write_bytes(content)
    executor = Recorder()
    done = nadi.link_files(four, output=out, to="nadi", resume=True, executor=executor)
    assert executor.submitted == 1
    assert_same_files(done, job)
    whole = nadi.link_files(four, output=tmp_path / "whole", to="nadi", executor=Recorder())
    for one, other in zip(done.files, whole.files, strict=True):
        assert Path(one.target).read_bytes() == Path(other.target).read_bytes()
        assert one.issues.equals(other.issues)
    assert not (out / ".nadi-kept").exists()


def test_a_rank_whose_files_or_format_changed_is_linked_again(four: Path, tmp_path: Path) -> None:
    file, out = four / "device_3.json.gz", tmp_path / "out"
    content = file.read_bytes()
    for to, changed, again in (("nadi", "", 4), ("nadi", "device_0.json.gz", 2), ("chakra", "", 4)):
        file.write_bytes(content[:1000])
        if changed:
            os.utime(four / changed, ns=(0, 0))
        executor = Recorder()
        with pytest.raises(InputError, match="truncated"):
            nadi.link_files(four, output=out, to=to, resume=True, executor=executor)
        assert executor.submitted == again
    (out / ".nadi-kept" / "rank0.et.kept.json").write_text("[")
    with pytest.raises(InputError, match=r"rank0\.et\.kept\.json.*leave out --resume"):
        nadi.link_files(four, output=out, to="chakra", resume=True)


@contextmanager
def server(folder: Path, port: int, stops: Callable[[], bool]) -> Iterator[str]:
    """Serve files until it stops, as one that is killed: it closes connections and says nothing."""

    class Stopping(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            if stops():
                self.close_connection = True
            else:
                with suppress(OSError):  # who peeks does not read all
                    super().do_GET()

    made = partial(Stopping, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", port), made) as serving:
        thread = Thread(target=serving.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()
        thread.join()


def test_a_server_that_stops_is_one_line_and_the_rest_is_linked_later(
    demo_folder: Path, tmp_path: Path, job: nadi.Job
) -> None:
    pytest.importorskip("aiohttp", reason="http:// needs an optional package")
    out, executor = tmp_path / "out", Recorder()
    second = out / ".nadi-kept" / "rank1.nadi.kept.json"
    with server(demo_folder, 0, second.exists) as address:
        with pytest.raises(InputError, match=r"_[23]\.json\.gz: cannot be read") as met:
            nadi.link_files(address, output=out, to="nadi", resume=True, executor=executor)
        assert "\n" not in str(met.value)
    executor = Recorder()
    with server(demo_folder, int(address.rpartition(":")[2]), lambda: False) as again:
        assert again == address
        done = nadi.link_files(address, output=out, to="nadi", resume=True, executor=executor)
    assert executor.submitted == 2
    assert_same_files(done, job)


def test_nothing_is_kept_where_a_link_in_the_folder_leads(
    tmp_path: Path, demo_folder: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".nadi-kept").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="a link to another place"):
        linking.link_files(demo_folder, output=tmp_path / "out", resume=True)
    assert not list((tmp_path / "elsewhere").iterdir())
