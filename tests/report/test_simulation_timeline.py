"""Simulated jobs for viewers: timelines, and the lines of Chakra's visualizer."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

import nadi
from nadi.errors import PairError, UsageError
from nadi.systems.memory_tiers import remote_tier
from nadi.systems.system import Compute, Dimension, Network
from tests.amounts import examples
from tests.conftest import NOT_HERE, SHARED
from tests.reference.issue_lines import Bar, read_lines
from tests.reference.perfetto_import import load as load_perfetto
from tests.simulator.cases import Node, collective, compute, jobs, system_of, systems, trace_of

SETTINGS = settings(
    max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck)
)
RING = nadi.systems.System(Network((Dimension("ring", 3, 10.0, 100.0),)))


def message(number: int, kind: str, src: int, dst: int, **more: Any) -> Node:
    return {
        "id": number, "type": f"COMM_{kind}_NODE", "is_cpu_op": False, "comm_src": src,
        "comm_dst": dst, "comm_tag": 1, "comm_size": 5000, **more,
    }  # fmt: skip


@pytest.fixture(scope="module")
def pipeline() -> nadi.simulation.Simulation:
    """Simulate: rank 0 computes and sends to 1, 1 to 2, which computes; then all reduce."""
    ranks = [
        [compute(0, 5), message(1, "SEND", 0, 1, data_deps=[0])],
        [compute(0, 1), message(1, "RECV", 0, 1), message(2, "SEND", 1, 2, data_deps=[1])],
        [compute(0, 2), message(1, "RECV", 1, 2), compute(2, 1, data_deps=[1])],
    ]
    for nodes in ranks:
        nodes.append(collective(5, "all_reduce", 3000, data_deps=[nodes[-1]["id"]]))
        nodes.append(compute(9, 1, is_cpu_op=True))
    return nadi.simulate([trace_of(nodes) for nodes in ranks], RING)


def json_slices(path: Path) -> tuple[list[tuple[Any, ...]], dict[int, str]]:
    """Give process, track, name, start, end and mark of each slice; and names of processes."""
    events = json.loads(path.read_text())["traceEvents"]
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    found = [
        (processes[e["pid"]], tracks[e["pid"], e["tid"]], e["name"], round(1000 * e["ts"]),
         round(1000 * (e["ts"] + e["dur"])), e["args"].get("critical", False))
        for e in events if e["ph"] == "X"
    ]  # fmt: skip
    return found, processes


def perfetto_slices(path: Path) -> list[tuple[Any, ...]]:
    timeline = load_perfetto(path.read_bytes())
    found = []
    for s in timeline.slices:
        track = timeline.tracks[s.track]
        process = timeline.tracks[track.parent_uuid].name
        found.append((process, track.name, s.name, s.start, s.end, s.notes.get("critical") == 1))
    return found


def test_a_timeline_has_a_process_for_each_rank_and_a_track_for_each_lane(
    pipeline: nadi.simulation.Simulation, tmp_path: Path
) -> None:
    issues = nadi.simulation.write_simulated_timeline(pipeline, tmp_path / "job.trace.json")
    found, processes = json_slices(tmp_path / "job.trace.json")
    assert issues.is_empty()
    assert processes == {0: "rank 0", 1: "rank 1", 2: "rank 2"}
    operations = [s for s in found if s[1] != "critical path"]
    lanes = {(process, name): lane for process, lane, name, *_ in operations}
    assert lanes["rank 0", "n0"] == "compute"
    assert lanes["rank 0", "n1"] == "communication"
    assert lanes["rank 1", "n1"] == "receive"
    assert lanes["rank 2", "n9"] == "host"
    times = {(p, name, start, end) for p, _, name, start, end, _ in operations}
    table = pipeline.schedule.table
    ids = [trace.nodes["id"].to_list() for trace in pipeline.program.traces]
    assert times == {
        (f"rank {rank}", f"n{ids[rank][row]}", start, end)
        for rank, row, start, end in table.select("rank", "node", "start", "end").rows()
    }
    shown = [(start, end) for _, track, _, start, end, _ in found if track == "critical path"]
    assert sum(end - start for start, end in shown) == pipeline.makespan
    marked = {(process, name) for process, _, name, *_, critical in operations if critical}
    assert {("rank 0", "n0"), ("rank 0", "n1"), ("rank 1", "n2")} <= marked
    assert ("rank 2", "n0") not in marked


def test_threads_and_streams_are_tracks_and_the_others_lie_beside_them(tmp_path: Path) -> None:
    nodes = [
        compute(0, 5, is_cpu_op=True, thread=12),
        compute(1, 3, stream=7, data_deps=[0]),
        compute(2, 4, stream=1, data_deps=[0]),
        compute(3, 2, data_deps=[0]),
        collective(4, "all_reduce", 900, stream=20, data_deps=[1]),
        collective(5, "all_reduce", 900, data_deps=[4]),
    ]
    done = nadi.simulate([trace_of(nodes)] * 3, RING)
    nadi.simulation.write_simulated_timeline(done, tmp_path / "job.trace.json")
    found, _ = json_slices(tmp_path / "job.trace.json")
    tracks = {name: track for _, track, name, *_ in found if track != "critical path"}
    assert tracks == {
        "n0": "thread 12", "n1": "device 0 stream 7", "n2": "device 0 stream 1", "n3": "compute",
        "n4": "device 0 stream 20", "n5": "communication",
    }  # fmt: skip
    of_kinds = nadi.simulation.simulated_path(done).by_kind()
    assert (of_kinds["host op"], of_kinds["kernel"]) == (5000, 3000)


def test_both_formats_show_the_same(pipeline: nadi.simulation.Simulation, tmp_path: Path) -> None:
    nadi.simulation.write_simulated_timeline(pipeline, tmp_path / "job.trace.json")
    nadi.simulation.write_simulated_timeline(pipeline, tmp_path / "job.pftrace")
    found, _ = json_slices(tmp_path / "job.trace.json")
    other = perfetto_slices(tmp_path / "job.pftrace")

    def operations(slices: list[tuple[Any, ...]]) -> Counter[Any]:
        return Counter(s for s in slices if s[1] != "critical path")

    assert operations(found) == operations(other)


def test_arrows_lead_from_rank_to_rank_along_the_path(
    pipeline: nadi.simulation.Simulation, tmp_path: Path
) -> None:
    nadi.simulation.write_simulated_timeline(pipeline, tmp_path / "job.trace.json")
    events = json.loads((tmp_path / "job.trace.json").read_text())["traceEvents"]
    ends = {phase: {e["id"]: e["pid"] for e in events if e["ph"] == phase} for phase in "sf"}
    ways = {(rank, ends["f"][number]) for number, rank in ends["s"].items()}
    assert {(0, 1), (1, 2)} <= ways


def test_of_ranks_that_are_alike_one_is_drawn(tmp_path: Path) -> None:
    done = nadi.simulate([trace_of([collective(0, "all_reduce", 900)])] * 3, RING)
    nadi.simulation.write_simulated_timeline(done, tmp_path / "job.trace.json")
    found, processes = json_slices(tmp_path / "job.trace.json")
    assert processes == {0: "rank 0 and 2 more with the same schedule"}
    assert [s[2:5] for s in found if s[1] == "communication"] == [("n0", 0, done.makespan)]


# lines


def bars_of(done: nadi.simulation.Simulation, path: Path) -> list[Bar]:
    assert nadi.simulation.write_issue_lines(done, path).is_empty()
    return read_lines(path.read_text())


@SETTINGS
@given(data=st.data())
def test_the_visualizer_reads_every_operation_of_every_rank(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    case = data.draw(systems(), label="case")
    nodes = data.draw(jobs(case), label="nodes")
    try:
        done = nadi.simulate([trace_of(nodes[rank]) for rank in sorted(nodes)], system_of(case))
    except (PairError, UsageError):
        assume(False)
    bars = bars_of(done, tmp_path_factory.getbasetemp() / "random.log")
    table = done.schedule.table.select("rank", "node", "start", "end")
    assert sorted((b.rank, b.node, b.begin, b.end) for b in bars) == table.sort(pl.all()).rows()
    assert [b.end for b in bars] == sorted(b.end for b in bars)
    for bar in bars:
        node = nodes[bar.rank][bar.node]
        assert bar.lane == ("compute" if node["type"] == "COMP_NODE" else "communication")
        assert bar.name == f"{node['type']}_n{bar.node}"


NAMES = {
    "a,b=c\nd": "COMP_NODE_a_b_c_d",
    "COMP_NODE_layer": "COMP_NODE_layer",
    "COMM_COLL_NODE_x": "COMP_NODE_COMM_COLL_node_x",
    "MEM_LOAD_NODE_LOCAL_MEMORY": "COMP_NODE_MEM_LOAD_node_LOCAL_memory",
    "über": "COMP_NODE_über",
    "": "COMP_NODE_",
}


def test_names_are_such_that_the_visualizer_takes_them(tmp_path: Path) -> None:
    trace = trace_of([compute(number, 1) for number in range(len(NAMES))])
    names = pl.Series(list(NAMES)).cast(trace.nodes.schema["name"])
    named = nadi.Trace(
        trace.nodes.with_columns(name=names), trace.deps, trace.groups, trace.issues,
        trace.provenance,
    )  # fmt: skip
    one = nadi.systems.System(Network((Dimension("ring", 1, 1.0),)))
    bars = bars_of(nadi.simulate([named], one), tmp_path / "job.log")
    assert {(bar.name, bar.lane) for bar in bars} == {(name, "compute") for name in NAMES.values()}


def test_what_has_no_lane_is_left_out_and_told(tmp_path: Path) -> None:
    kinds = ["METADATA", "COMP", "MEM_LOAD", "MEM_STORE"]
    nodes = [compute(k, 1, tensor_size=10) | {"type": f"{kind}_NODE"}
             for k, kind in enumerate(kinds)]  # fmt: skip
    memory = remote_tier("per-rank", 5, 1)
    one = nadi.systems.System(Network((Dimension("ring", 1, 1.0),)), Compute(), memory)
    done = nadi.simulate([trace_of(nodes)], one)
    issues = nadi.simulation.write_issue_lines(done, tmp_path / "job.log.gz")
    assert issues.select("code", "count").rows() == [("lines.metadata", 1)]
    bars = read_lines(gzip.decompress((tmp_path / "job.log.gz").read_bytes()).decode())
    assert [bar.lane for bar in sorted(bars, key=lambda bar: bar.node)] == [
        "compute", "remote memory", "remote memory",
    ]  # fmt: skip


def test_the_parser_takes_what_chakra_wrote_down() -> None:
    golden = SHARED / "golden" / "chakra" / "text_converter"
    if not golden.is_dir():
        pytest.skip(NOT_HERE)
    drawn = json.loads((golden / "tl.json").read_text())["traceEvents"]
    bars = read_lines((golden / "tl.csv").read_text())
    assert [(b.rank, b.name) for b in bars] == [(e["pid"], e["name"]) for e in drawn]
    scale = drawn[0]["dur"] / (bars[0].end - bars[0].begin)
    assert [e["ts"] for e in drawn] == pytest.approx([b.begin * scale for b in bars])
