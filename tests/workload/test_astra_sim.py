"""What is written for ASTRA-sim, read and played by tests/reference/feeder.py."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import nadi
from nadi.simulation.workload.astra_sim_files import write_for_astra_sim
from tests.amounts import examples, some
from tests.conftest import PairWriter
from tests.reference.feeder import (
    COLL,
    COMP,
    RECV,
    SEND,
    Feeder,
    FeederError,
    FeederNode,
    read_job,
    replay,
    slot_of,
)  # fmt: skip
from tests.reference.machine import Machine, play
from tests.reference.programs import Description, descriptions, of_all_ranks, program_of
from tests.reference.recorder import record
from tests.workload.test_activities import STATEMENTS, traces_of

# the played step against the measured one, in per cent: what one thread, one stream and one
# transfer at a time change; docs/simulators.md has the figures and the reasons
RECORDINGS = {
    "cpu_mlp": 0.01,
    "cpu_ddp4": 2.0,
    "gpu_resnet_pair": 0.01,
    "gpu_dlrm8": 0.2,
    "alexnet": 0.01,
    "simple_add": 0.01,
    "cuda_event_sync": 0.1,
    "cuda_event_sync_multi_stream": 0.01,
    "ns_resolution": 0.01,
    "triton": 0.05,
    "cpu_only": 0.01,
    "timeline_analysis": 0.01,
}


def makespan(job: nadi.Job) -> int:
    graph = nadi.build_graph(job)
    return int(graph.time[: 2 * graph.num_ops].max())


@pytest.mark.parametrize("name", some(RECORDINGS, of=4))
def test_recordings(name: str, shared_traces: Path, tmp_path: Path) -> None:
    job = nadi.load_job(traces_of(shared_traces, name))
    done = write_for_astra_sim(job, tmp_path)
    ranks, groups = read_job(tmp_path)
    assert [len(nodes) for nodes in ranks] == list(done.nodes)
    for nodes in ranks:
        assert [node.id for node in nodes] == list(range(len(nodes)))
        # no node waits for one with a higher id: all are handed out in the order of the file
        assert [node.id for node in Feeder(nodes).drain()] == list(range(len(nodes)))
    measured = makespan(job)
    for slots in (False, True):
        error = replay(ranks, groups, slots=slots).makespan / measured - 1
        assert abs(error) < RECORDINGS[name] / 100, f"{100 * error:.3f} %"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory, demo_folder: Path) -> Path:
    """The demo's four ranks, written."""
    folder = tmp_path_factory.mktemp("demo")
    write_for_astra_sim(nadi.load_job(demo_folder), folder)
    return folder


def test_the_demo(demo: Path, demo_folder: Path) -> None:
    ranks, groups = read_job(demo)
    assert sorted(file.name for file in demo.glob("[!.]*")) == [
        "comm_group.json", *(f"trace.{rank}.et" for rank in range(4)),
    ]  # fmt: skip
    assert [0, 1, 2, 3] in groups.values()
    job = nadi.load_job(demo_folder)
    played = replay(ranks, groups)
    assert played.makespan == pytest.approx(makespan(job), rel=0.02)
    # every node is played, and those of one slot one after the other
    for nodes, start, end in zip(ranks, played.start, played.end, strict=True):
        assert set(start) == set(end) == {node.id for node in nodes}
        for slot in ("cpu", "gpu", "comm"):
            own = sorted(node.id for node in nodes if slot_of(node) == slot)
            times = sorted((start[number], end[number]) for number in own)
            assert all(a[1] <= b[0] for a, b in pairwise(times))


def test_what_is_lost_without_waits(demo: Path) -> None:
    """Ranks that do not wait for each other are not what was measured: the check can fail."""
    ranks, groups = read_job(demo)
    true = replay(ranks, groups).makespan
    for nodes in ranks:
        comm = {node.id for node in nodes if node.type == COLL}
        for node in nodes:
            node.data_deps = [other for other in node.data_deps if other not in comm]
    assert replay(ranks, groups).makespan < 0.98 * true


def test_communication(demo: Path, demo_folder: Path) -> None:
    """Types and sizes are those of the recording, but for what ASTRA-sim does not play."""
    job = nadi.load_job(demo_folder)
    ranks, groups = read_job(demo)
    numbers = {"all_reduce": 0, "all_gather": 2, "broadcast": 5, "all_to_all": 6,
               "reduce_scatter": 7, "barrier": 0}  # fmt: skip
    for trace, nodes in zip(job.traces, ranks, strict=True):
        matched = job.matches.filter(job.matches["rank"] == trace.rank)["node"].to_list()
        types = trace.nodes["comm_type"].cast(str)
        of_collectives = [row for row in matched if types[row] in numbers]
        recorded = Counter(
            (numbers[types[row]], 4 if types[row] == "barrier" else trace.column("comm_bytes")[row])
            for row in of_collectives
        )
        written = Counter(
            (node.attrs["comm_type"], node.attrs["comm_size"]) for node in nodes
            if node.type == COLL and len(groups[node.attrs["pg_name"]]) > 1
        )  # fmt: skip
        assert written == recorded
        assert sum(written.values()) == len(of_collectives) > 0


def test_send_and_receive(shared_traces: Path, tmp_path: Path) -> None:
    write_for_astra_sim(nadi.load_job(shared_traces / "cpu_ddp4"), tmp_path)
    ranks, _ = read_job(tmp_path)
    pairs = [[node for node in nodes if node.type in (SEND, RECV)] for nodes in ranks]
    assert [[node.type for node in nodes] for nodes in pairs] == [[SEND] * 2, [RECV] * 2, [], []]
    assert [node.attrs["comm_tag"] for node in pairs[0]] == [0, 1]


def test_absent_ranks(demo_folder: Path, tmp_path: Path) -> None:
    """One rank of four: it does not wait for the others, and the issues say so."""
    traces = tmp_path / "one"
    traces.mkdir()
    for kind in ("host", "device"):
        shutil.copy(demo_folder / f"{kind}_2.json.gz", traces)
    job = nadi.load_job(traces)
    done = write_for_astra_sim(job, tmp_path / "out")
    ranks, groups = read_job(tmp_path / "out")
    assert list(groups.values()) == [[0]] * len(groups) != []
    alone = [node for node in ranks[0] if node.type == COLL]
    assert {node.attrs["comm_type"] for node in alone} == {5}
    assert "all_reduce" in {node.attrs.get("recorded_comm_type") for node in alone}
    issues = {row["code"]: row for row in done.issues.iter_rows(named=True)}
    assert issues["export.comm-alone"]["count"] == len(alone)
    assert "3 of 4 ranks have no trace" in issues["export.comm-alone"]["detail"]
    assert issues["export.ranks"]["severity"] == "warning"
    # ASTRA-sim refuses a single rank
    assert done.nodes[1:] == (1,)
    assert [(node.type, node.micros, slot_of(node)) for node in ranks[1]] == [(COMP, 0, "cpu")]
    assert issues["export.idle-rank"]["count"] == 1
    assert replay(ranks, groups).makespan == pytest.approx(makespan(job), rel=0.001)


def test_a_rank_that_begins_later(demo_folder: Path, tmp_path: Path) -> None:
    job = nadi.load_job(demo_folder)
    write_for_astra_sim(job, tmp_path)
    ranks, _ = read_job(tmp_path)
    for trace, nodes in zip(job.traces, ranks, strict=True):
        start = trace.column("start")
        late = (int(start[start >= 0].min()) - job.origin) / 1000
        names = [node.name for node in nodes if not node.data_deps]
        if late == 0:
            assert "(before the recording)" not in names
        else:
            assert names == ["(before the recording)"]
            assert nodes[0].micros == pytest.approx(late, abs=1)


def test_what_is_there_is_kept(demo: Path, demo_folder: Path, tmp_path: Path) -> None:
    job = nadi.load_job(demo_folder)
    (tmp_path / "comm_group.json").write_text("mine")
    with pytest.raises(
        nadi.errors.InputError, match="exists already; give another name, or overwrite=True"
    ):
        write_for_astra_sim(job, tmp_path)
    assert [file.name for file in tmp_path.glob("[!.]*")] == ["comm_group.json"]
    write_for_astra_sim(job, tmp_path, overwrite=True)
    for file in demo.iterdir():
        assert (tmp_path / file.name).read_bytes() == file.read_bytes()
    with pytest.raises(nadi.errors.InputError, match="is a file, but the traces of ranks"):
        write_for_astra_sim(job, tmp_path / "comm_group.json")


def test_a_written_trace_is_valid(demo: Path) -> None:
    for file in demo.glob("*.et"):
        trace = nadi.read(file)
        assert nadi.trace.validate_trace(trace).is_empty()
        assert set(trace.deps["kind"].unique()) == {"data"}


def test_nothing_but_host_work(pair: PairWriter, tmp_path: Path) -> None:
    """Times by hand: 10 us, of which 4 nested; 3 us between operations; 5 us."""
    outer = pair.op("outer", 100, 10)
    pair.op("inner", 103, 4, parent=outer)
    pair.op("next", 113, 5)
    pair.write()
    write_for_astra_sim(nadi.load_job(pair.folder), tmp_path / "out")
    ((nodes, _), groups) = read_job(tmp_path / "out")  # beside an idle rank
    assert groups == {}
    found = [(node.name, node.micros, node.data_deps) for node in nodes if node.micros]
    assert [(name, micros) for name, micros, _ in found] == [
        ("outer", 6), ("inner", 4), ("(no operation)", 3), ("next", 5),
    ]  # fmt: skip


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow])
@given(descriptions(STATEMENTS, together=("all_reduce",), num_ranks=2))
def test_random_programs(description: Description) -> None:
    program = program_of(of_all_ranks(description))
    with tempfile.TemporaryDirectory() as folder:
        record(program, play(program, Machine()), Path(folder))
        job = nadi.load_job(folder)
        write_for_astra_sim(job, Path(folder) / "out")
        ranks, groups = read_job(Path(folder) / "out")
    replay(ranks, groups)  # to the end
    graph = nadi.build_graph(job)
    error = replay(ranks, groups, slots=False).makespan - makespan(job)
    # left out: 3 us of latency before each collective; added: transfers one after the other
    num_collectives = job.matches["collective"].n_unique()
    # rounded: each thread and stream is less than 1 us off, and a path may change between them
    rounding = 1_000 * int(graph.gather("stream").n_unique() + graph.gather("thread").n_unique())
    assert -3_500 * num_collectives - rounding <= error <= time_at_once(graph) + rounding


def time_at_once(graph: nadi.EventGraph) -> int:
    """Give the time of all transfers that overlap others of their rank."""
    ops = np.flatnonzero((graph.gather("kind") == "COMM_COLL").to_numpy()).tolist()
    spans = [(graph.op_trace[op], *graph.time[2 * op : 2 * op + 2]) for op in ops]
    return sum(
        int(end - start)
        for number, (rank, start, end) in enumerate(spans)
        if any(
            other != number and r == rank and s < end and start < e
            for other, (r, s, e) in enumerate(spans)
        )
    )


def nodes_of(*data_deps: list[int], ids: list[int] | None = None) -> list[FeederNode]:
    return [
        FeederNode(number, "", COMP, 1, deps, {"is_cpu_op": True})
        for number, deps in zip(ids or range(len(data_deps)), data_deps, strict=True)
    ]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nodes_of([], [], ids=[1, 1]), "id 1 stands twice"),
        (lambda: nodes_of([], [], ids=[2, 1]), "id 1 comes after 2"),
        (lambda: nodes_of([], [7]), "node 1 depends on 7, which is not there"),
        (lambda: nodes_of([], [0, 0]), "node 1 has a dependency twice"),
        (lambda: nodes_of([1], [0]), "2 nodes wait for each other in a circle"),
    ],
)
def test_the_feeder_refuses(make: Callable[[], list[FeederNode]], message: str) -> None:
    with pytest.raises(FeederError, match=message):
        Feeder(make()).drain()


def test_the_feeder_hands_out_the_lowest_id_first() -> None:
    nodes = nodes_of([], [4], [0], [], [3])
    assert [node.id for node in Feeder(nodes).drain()] == [0, 2, 3, 4, 1]


def test_groups_in_the_file(demo: Path) -> None:
    groups = json.loads((demo / "comm_group.json").read_text())
    assert min(int(name) for name in groups) == 1  # 0 stands for all ranks
