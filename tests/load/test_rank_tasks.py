"""A job read by executors: the same answer as in this process, whoever fails and in what order."""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import nadi
from nadi.bottlenecks.steps.run_report import summarize
from nadi.cli import main
from nadi.errors import InputError, UsageError
from nadi.graph.windows import find_steps
from nadi.recordings import job_of_files
from nadi.results.terminal.workers import executor_named, worker_processes
from nadi.trace.schema import NODES
from tests.amounts import ALL
from tests.conftest import NOT_HERE, SHARED
from tests.load.lost_calls import killed, killed_once

TRACES = SHARED / "traces"
pytestmark = pytest.mark.skipif(not TRACES.exists(), reason=NOT_HERE)
MADE = 64 if ALL else 12


def make_ranks(folder: Path, count: int) -> None:
    file = Path(__file__).parents[2] / "benchmarks" / "many_ranks.py"
    spec = importlib.util.spec_from_file_location("many_ranks", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(file.parent))
        spec.loader.exec_module(module)
    module.make_ranks(folder, count)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies of eight ranks, with clocks and speeds of their own."""
    folder = tmp_path_factory.mktemp("made")
    make_ranks(folder, MADE)
    return folder


class InAnyOrder(Executor):
    """Calls end in a random order, each in a thread of its own, one at a time."""

    def __init__(self, seed: int = 0) -> None:
        self.random, self.turn = random.Random(seed), threading.Lock()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()

        def work() -> None:
            with self.turn:
                try:
                    done.set_result(fn(*args, **kwargs))
                except BaseException as error:
                    done.set_exception(error)

        threading.Timer(self.random.uniform(0, 0.3), work).start()
        return done


@pytest.mark.parametrize("name", ["cpu_ddp4", "gpu_dlrm8", "made"])
def test_any_executor_in_any_order_gives_the_answer_of_this_process(name: str, made: Path) -> None:
    folder = made if name == "made" else TRACES / name
    here = nadi.run(folder)
    there = nadi.run(folder, executor=InAnyOrder())
    assert summarize(there) == summarize(here)
    for one, other in zip(here.job.traces, there.job.traces, strict=True):
        one.assert_equals(other)  # with attributes, which are read again


def test_processes_give_the_answer_of_this_process() -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for name in ("cpu_ddp4", "gpu_dlrm8"):
            there = nadi.run(TRACES / name, executor=pool, what_if="scale nccl|gloo 0.5")
            here = nadi.run(TRACES / name, what_if="scale nccl|gloo 0.5")
            assert summarize(there) == summarize(here)


def test_a_large_job_in_this_process_keeps_no_bytes_of_files(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = nadi.run(made)
    assert type(here.job.traces[0].given_attributes).__name__ != "_AttributesInFiles"
    monkeypatch.setattr(job_of_files, "_IN_MEMORY", 0)
    large = nadi.run(made)
    assert summarize(large) == summarize(here)
    assert type(large.job.traces[0].given_attributes).__name__ == "_AttributesInFiles"


def test_ranks_share_what_they_have_in_common() -> None:
    one, *_ = nadi.load_job(TRACES / "gpu_dlrm8").traces
    compact, again = one.compact(), nadi.load_job(TRACES / "gpu_dlrm8").traces[0].compact()
    compact.assert_equals(one)
    assert compact.name_codes[1] is again.name_codes[1]
    assert (compact.name_codes[0] == one.name_codes[0]).all()
    empty = one.nodes.filter(pl.lit(False))
    assert NODES.compact(empty).equals(empty)
    layers = [made.nodes["layer"].to_numpy() for made in (compact, again)]
    assert np.shares_memory(*layers)


@pytest.mark.parametrize("name", ["gpu_dlrm8", "cpu_ddp4"])
def test_readers_tell_traces_the_names_of_their_nodes(name: str) -> None:
    files = sorted((TRACES / name).glob("*_0.json*"))
    read = [nadi.read(file) for file in files]
    alone = next(one for one in read if one.provenance.sources[0].format == "Kineto")
    linked = nadi.load_job(TRACES / name).traces
    for trace in (*read, nadi.recordings.link_device(alone), *linked):
        assert "name_codes" in vars(trace)
        which, texts = trace.name_codes
        assert list(texts) == sorted(set(texts))
        assert [texts[code] for code in which] == trace.nodes["name"].cast(pl.String).to_list()
        anew = replace(trace).name_codes
        assert set(anew[1]) <= set(texts)
        assert [anew[1][code] for code in anew[0]] == [texts[code] for code in which]


def test_steps_are_found_once_for_a_graph() -> None:
    graph = nadi.build_graph(nadi.load_job(TRACES / "gpu_dlrm8"))
    found, again = find_steps(graph), find_steps(graph)
    assert found
    assert all(one is other for one, other in zip(found, again, strict=True))
    found.clear()
    assert len(find_steps(graph)) == len(again)


def test_commands_take_an_executor(capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(TRACES / "gpu_dlrm8")
    for words in (
        ["run", folder], ["what-if", folder, "no-gaps"], ["analyze", "temporal", folder],
        ["waits", folder], ["critical-path", folder], ["diff", folder, folder],
        ["search", "llama3-8b", "hgx-h200", "--ranks", "2", "--global-batch", "4"],
        ["search", "llama3-8b", "hgx-h200", "--ranks", "2", "--global-batch", "4",
         "--sweep", "batch_size=2,4"],
    ):  # fmt: skip
        assert main(words) == 0
        here = capsys.readouterr().out
        assert main([*words, "--executor", "concurrent.futures:ThreadPoolExecutor"]) == 0
        assert capsys.readouterr().out == here


def test_rules_of_hta_take_no_executor(capsys: pytest.CaptureFixture[str]) -> None:
    job = str(TRACES / "gpu_dlrm8")
    words = ["critical-path", job, "--rules", "hta", "--executor", "processes"]
    assert main(words) == 2
    assert "--executor: applies to Nadi's rules only" in capsys.readouterr().err


def test_a_rank_whose_file_is_cut_off_is_left_out_and_named(tmp_path: Path) -> None:
    shutil.copytree(TRACES / "gpu_dlrm8", tmp_path, dirs_exist_ok=True)
    cut = tmp_path / "device_3.json.gz"
    cut.chmod(0o644)
    cut.write_bytes(cut.read_bytes()[:30_000])
    others = [file for file in tmp_path.iterdir() if "_3." not in file.name]
    alone = summarize(nadi.run(*others))
    for executor in (None, InAnyOrder()):
        found = nadi.run(tmp_path, executor=executor)
        assert found.job.ranks == (0, 1, 2, 4, 5, 6, 7)
        told = found.job.issues.filter(code="job.ranks-unread").row(0, named=True)
        assert told["severity"] == "warning"
        assert told["count"] == 1
        assert f"rank 3: {cut}" in told["detail"]
        assert {**summarize(found), "issues": None} == {**alone, "issues": None}


def test_without_a_whole_rank_the_error_is_that_of_a_file(tmp_path: Path) -> None:
    shutil.copytree(TRACES / "cpu_ddp4", tmp_path, dirs_exist_ok=True)
    for file in tmp_path.glob("device_*"):
        file.chmod(0o644)
        file.write_bytes(file.read_bytes()[:60_000])
    with pytest.raises(InputError, match=r"device_0\.json\.gz"):
        nadi.run(tmp_path, executor=InAnyOrder())


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_work_of_a_lost_process_is_repeated(tmp_path: Path) -> None:
    with worker_processes(2) as pool:
        done = [pool.submit(killed_once, number, tmp_path / "flag") for number in range(8)]
        assert [future.result() for future in done] == list(range(8))
    assert (tmp_path / "flag").exists()


def in_a_process(call: Callable[[int], int], count: int) -> list[int]:
    with worker_processes(1) as pool:
        return [done.result() for done in [pool.submit(call, number) for number in range(count)]]


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_call_that_ends_each_process_is_an_error() -> None:
    with pytest.raises(UsageError, match="a worker process ended early"):
        in_a_process(killed, 5)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("processes:0", "the number of processes is 1 to 4096"),
        ("processes:many", "the number of processes is 1 to 4096"),
        ("no_such_module:pool", "No module named 'no_such_module'"),
        ("json:nothing", "has no attribute 'nothing'"),
        ("json:dumps", "missing 1 required positional argument"),
        ("builtins:dict", "is of type dict, which has no method submit"),
    ],
)
def test_an_executor_that_is_none_is_refused(name: str, what: str) -> None:
    with pytest.raises(UsageError, match=what), executor_named(name):
        pass


def test_a_dask_cluster_that_loses_workers_gives_the_answer_of_this_process(made: Path) -> None:
    distributed = pytest.importorskip("distributed")
    here = summarize(nadi.run(made))
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as cluster,
        executor_named(cluster.scheduler_address.replace("tcp://", "dask://")) as executor,
    ):
        for turn in range(10 if ALL else 2):
            pids = [one.process.process.pid for one in cluster.workers.values() if one.process]
            moment = random.Random(turn).uniform(0.1, 2)
            lost = threading.Timer(moment, os.kill, (pids[0], signal.SIGKILL))
            lost.start()
            assert summarize(nadi.run(made, executor=executor)) == here
            lost.join()
            time.sleep(1)  # until the cluster has started another
