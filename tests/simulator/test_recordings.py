"""Recordings that are simulated as they are."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

import nadi
from nadi.cli import main
from nadi.errors import InputError, PairError
from nadi.recordings.jobs import read_job
from nadi.simulation.runs.simulate import simulate
from nadi.systems import System
from nadi.systems.system import Compute, Dimension, Network
from nadi.trace.trace import Job
from tests.conftest import PairWriter
from tests.simulator.cases import collective, trace_of

pytestmark = pytest.mark.usefixtures("demo_read_once")

REPLAYED = Compute(replay_only=True)


def switch(ranks: int, **more: object) -> System:
    return System(Network((Dimension("switch", ranks, 50.0, 500.0),)), **more)  # type: ignore[arg-type]


def measured(job: nadi.Job) -> int:
    graph = nadi.build_graph(job)
    return int(graph.time[: 2 * graph.num_ops].max())


@pytest.mark.parametrize(
    "name", ["cpu_mlp", "cpu_ddp4", "gpu_resnet_pair", "gpu_dlrm8", "gpu_simple_add_pair"]
)
def test_recorded_times_come_out_again_to_the_nanosecond(name: str, shared_traces: Path) -> None:
    job = nadi.load_job(shared_traces / name)
    done = simulate(job, switch(len(job.traces), compute=REPLAYED))
    assert done.makespan == measured(job)


def test_it_agrees_with_what_the_replayed_graph_predicts(shared_traces: Path) -> None:
    run = nadi.run(shared_traces / "cpu_ddp4", system="dgx-h100")
    assert run.prediction is not None
    done = simulate(run.job, run.prediction.change.system)
    # the graph knows of threads that go on before gloo's range ends, a node waits for all of it
    assert done.makespan == pytest.approx(run.prediction.what_if.window_ns, rel=0.015)
    assert run.prediction.what_if.window_ns < 0.9 * run.measured_ns


def test_with_slots_it_is_what_is_written_for_astra_sim(demo_folder: Path, tmp_path: Path) -> None:
    job = nadi.load_job(demo_folder)
    written = nadi.simulation.write_for_astra_sim(job, tmp_path / "out")
    names = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    network = {"topology": ["Switch"], "npus_count": [4], "bandwidth": [10.0], "latency": [900.0]}
    settings = {"preferred-dataset-splits": 2} | {
        f"{name}-implementation": ["ring"] for name in names
    }
    groups = json.loads(written.comm_groups.read_bytes())
    system = nadi.systems.astra_sim_system(network, settings, None, groups)
    from_files = simulate(tmp_path / "out", system)
    done = simulate(job, msgspec.structs.replace(system, groups={}))
    assert done.cycles.tolist() == from_files.cycles.tolist()
    assert (done.end == from_files.end).all()


def test_all_kinds_of_files_give_the_job(
    demo_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    system = switch(4)
    expected = simulate(demo_folder, system).cycles.tolist()
    assert expected == simulate(nadi.load_job(demo_folder), system).cycles.tolist()
    nadi.link_files(demo_folder, output=tmp_path / "nadi", to="nadi")
    assert simulate(tmp_path / "nadi", system).cycles.tolist() == expected
    assert simulate(nadi.load_job(demo_folder).traces, system).cycles.tolist() == expected
    assert main(["simulate", str(demo_folder), "--system", "dgx-h100", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    on_node = simulate(demo_folder, nadi.load_system("dgx-h100", 4))
    assert found["makespan_ns"] == on_node.makespan


def test_chakra_traces_in_json_are_a_rank_each(tmp_path: Path) -> None:
    attributes = (
        '[{"name": "is_cpu_op", "boolVal": false}, {"name": "comm_type", "int64Val": "0"},'
        '{"name": "comm_size", "int64Val": "1048576"}]'
    )
    for rank in (0, 1, 10, 2, 3, 4, 5, 6, 7, 8, 9):
        (tmp_path / f"work.{rank}.json").write_text(
            '{"globalMetadata": {"version": "0.0.4"}, "nodes": [{"id": "0", "name": "sum",'
            f'"type": "COMM_COLL_NODE", "attr": {attributes}}}]}}'
        )
    found = read_job(tmp_path)
    assert isinstance(found, list)
    assert [Path(one.provenance.sources[0].path).name for one in found] == [
        f"work.{rank}.json" for rank in range(11)
    ]
    by_prefix = simulate(tmp_path / "work", switch(11))
    assert by_prefix.cycles.tolist() == simulate(tmp_path, switch(11)).cycles.tolist()
    (tmp_path / "again.3.json").write_bytes((tmp_path / "work.3.json").read_bytes())
    with pytest.raises(PairError, match=r"again.3.json and work.3.json both have rank 3"):
        read_job(tmp_path)
    (tmp_path / "again.3.json").rename(tmp_path / "again.json")
    with pytest.raises(PairError, match="does not state its rank"):
        read_job(tmp_path)


def test_groups_may_lie_beside_the_traces_that_they_are_for(tmp_path: Path) -> None:
    for rank in range(2):
        nadi.write(trace_of([collective(0, "all_reduce", 1 << 20)]), tmp_path / f"work.{rank}.et")
    (tmp_path / "work.json").write_text('{"1": [0, 1]}')  # as workload generators name them
    for path in (tmp_path, tmp_path / "work"):
        found = read_job(path)
        assert isinstance(found, list)
        assert len(found) == 2


def test_what_is_no_job_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="contains no trace that Nadi reads"):
        read_job(tmp_path)
    with pytest.raises(InputError):
        read_job(tmp_path / "nowhere")


def test_a_thread_that_only_waits_takes_no_time_of_others(pair: PairWriter) -> None:
    pair.event("threading.py: run", 0, 900, "python_function", tid=5)
    pair.event("threading.py: wait", 1, 899, "python_function", tid=5)
    pair.op("aten::mm", 50, 40)
    pair.op("aten::add", 110, 40)
    job = nadi.load_job(*pair.write())
    done = simulate(job, switch(1, compute=REPLAYED))
    assert done.makespan == 100_000
    names = set(done.program.traces[0].nodes["name"].to_list())
    assert names == {"aten::mm", "(no operation)", "aten::add"}


def test_nodes_are_on_their_threads_and_streams(pair: PairWriter) -> None:
    pair.op("aten::mm", 0, 100)
    for number, (stream, start) in enumerate([(7, 10), (20, 12)]):
        pair.event("cudaLaunchKernel", 2 + 3 * number, 2, "cuda_runtime", correlation=number + 1)
        pair.event(
            f"gemm{stream}", start, 80, "kernel", tid=stream, pid=0, correlation=number + 1,
            stream=stream, device=0,
        )  # fmt: skip
    job = nadi.load_job(*pair.write())
    done = simulate(job, switch(1))
    assert done.makespan == 100_000
    resources = set(done.schedule.table["resource"].to_list())
    assert {"stream 7", "stream 20"} < resources
    names = done.program.traces[0].nodes["name"].cast(str).to_list()
    ends = dict(zip(names, done.end.tolist(), strict=True))
    assert (ends["gemm7"], ends["gemm20"]) == (90_000, 92_000)


def test_communication_whose_others_are_absent_takes_its_measured_time(
    demo_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = nadi.load_job(demo_folder)
    alone = Job(whole.traces[:1], whole.matches.clear(), whole.issues.clear())
    played = simulate(alone, switch(1)).program
    is_comm = played.kind == 7  # COMM_COLL
    assert is_comm.any()
    done = simulate(alone, switch(1))
    took = (done.end - done.start)[is_comm]
    assert (took == played.duration[is_comm]).all()
    assert np.median(took) > 1000


def test_missing_ranks_are_told_of(shared_traces: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(shared_traces / "gpu_resnet_pair"), "--system", "dgx-h100"]) == 0
    page = capfd.readouterr().out
    assert "1 of 2 ranks have no trace" in page
