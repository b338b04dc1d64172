"""What ranks did with their time: against plain Python, and the laws that it keeps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

import nadi
from nadi.errors import PairError, UsageError
from nadi.simulation import Simulation
from nadi.simulation.accounts.times import PARTITION
from nadi.simulation.runs.simulate import simulate
from nadi.systems.memory_tiers import remote_tier
from nadi.systems.system import Compute, Dimension, Network, System
from nadi.trace.schema import RANK_TIMES
from nadi.trace.trace import Provenance
from tests.amounts import examples
from tests.reference.accounts import account, live_bytes
from tests.simulator.cases import (
    Node,
    collective,
    compute,
    jobs,
    run_each,
    system_of,
    systems,
    trace_of,
)

pytestmark = pytest.mark.usefixtures("demo_read_once")

SETTINGS = settings(
    max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck)
)


@st.composite
def accesses(draw: st.DrawFn, nodes: dict[int, list[Node]]) -> dict[int, list[Node]]:
    """Let some computation be the host's, and add loads from remote memory, to any job."""
    for own in nodes.values():
        for node in own:
            if node["type"] == "COMP_NODE":
                node["is_cpu_op"] = draw(st.booleans())
        for _ in range(draw(st.integers(0, 2))):
            deps = draw(st.lists(st.sampled_from(own), max_size=1))
            own.append({
                "id": len(own), "type": "MEM_LOAD_NODE", "is_cpu_op": False, "tensor_size": 8,
                "data_deps": [node["id"] for node in deps], "ctrl_deps": [],
            })  # fmt: skip
    return nodes


def simulated(
    nodes: dict[int, list[Node]], system: System
) -> tuple[Simulation, dict[int, dict[int, tuple[int, int]]]]:
    done = simulate([trace_of(nodes[rank]) for rank in sorted(nodes)], system)
    pairs = list(zip(done.start.tolist(), done.end.tolist(), strict=True))
    first, like = done.program.first, done.like
    spans = {rank: slice(first[like[rank]], first[like[rank] + 1]) for rank in nodes}
    return done, {rank: dict(enumerate(pairs[own])) for rank, own in spans.items()}


@SETTINGS
@given(st.data())
def test_they_are_those_of_looking_at_every_moment(data: st.DataObject) -> None:
    case = data.draw(systems(), label="case")
    nodes = data.draw(accesses(data.draw(jobs(case))), label="nodes")
    latency = data.draw(st.integers(1, 5000))
    case["remote_memory"] = {"memory-type": "MEMORY_POOL", "remote-mem-latency": latency}
    compat: Any = data.draw(st.sampled_from(["astra-sim", ""]))
    slots: Any = "astra-sim" if compat else data.draw(st.sampled_from(["astra-sim", "device"]))
    try:
        system = msgspec.structs.replace(system_of(case, compat=compat), slots=slots)
        done, times = simulated(nodes, system)
    except (UsageError, PairError):
        assume(False)
    rendezvous = case["cli"].get("rendezvous-protocol") == "true"
    expected = account(nodes, times, rendezvous=rendezvous, service=latency)
    columns = [column.name for column in RANK_TIMES.columns[1:]]
    for row in nadi.simulation.rank_times(done).iter_rows(named=True):
        wanted = expected[row["rank"]]
        assert {name: row[name] for name in columns} == {
            name: wanted.get(name, 0) for name in columns
        }
    assert nadi.simulation.compute_times(done).tolist() == [
        expected[rank].get("computing", 0) for rank in sorted(nodes)
    ]
    assert_laws(done)


def assert_laws(done: Simulation) -> None:
    table = nadi.simulation.rank_times(done)
    assert table["rank"].to_list() == list(range(done.cycles.size))
    assert table["finish"].to_list() == done.cycles.tolist()
    assert table.select(pl.sum_horizontal(PARTITION)).to_series().equals(table["finish"])
    sums = table["exposed"] + table["overlapped"]
    assert sums.equals(table["communicating"].rename("exposed"))
    assert table.select(pl.min_horizontal(pl.all()) >= 0).to_series().all()
    waits = table.select(pl.sum_horizontal(pl.col("transferring", "^awaiting_[^m].*$")))
    assert (waits.to_series() <= table["exposed"]).all()


def test_each_kind_of_time_is_told_apart() -> None:
    """One rank computes, then all meet; the other waits, and its slot is taken meanwhile."""
    ends = {"comm_src": 0, "comm_dst": 1, "comm_tag": 0, "comm_size": 1000, "is_cpu_op": False}
    late: list[Node] = [
        compute(0, 7),
        collective(1, "all_gather", 1000, data_deps=[0]),
        {"id": 2, "type": "COMM_SEND_NODE", "data_deps": [3], **ends},
        compute(3, 2, is_cpu_op=True, data_deps=[1]),
    ]
    early: list[Node] = [
        collective(0, "all_gather", 1000),
        {"id": 1, "type": "COMM_RECV_NODE", "data_deps": [0], **ends},
        {"id": 2, "type": "MEM_LOAD_NODE", "is_cpu_op": False, "tensor_size": 8},
        compute(3, 1, data_deps=[1]),
    ]
    memory = remote_tier("pool", latency=300)
    system = System(
        Network((Dimension("ring", 2, 1.0, 50),)), remote_memory=memory, slots="astra-sim"
    )
    done, times = simulated({0: late, 1: early}, system)
    length = {rank: [end - start for start, end in own.values()] for rank, own in times.items()}
    there, gather, sent = length[0][1], length[1][0] - 7000, length[0][2]
    first, second = nadi.simulation.rank_times(done).iter_rows(named=True)
    told = {name: first[name] for name in PARTITION if first[name]}
    assert told == {"computing": 7000, "transferring": there + sent, "hosting": 2000}
    assert first["exposed"] == first["communicating"] == there + sent
    assert (first["overlapped"], first["blocked"]) == (0, 0)
    told = {name: second[name] for name in PARTITION if second[name]}
    assert told == {
        "awaiting_members": 7000, "transferring": gather + sent, "accessing": 300,
        "awaiting_sender": there + 2000 - gather - 300, "computing": 1000,
    }  # fmt: skip
    # the load was ready from the start, and the collective in its slot
    assert second["blocked"] == 7000 + gather
    assert second["exposed"] == second["communicating"] == 7000 + there + 2000 + sent


def test_a_rank_that_stands_for_all_gives_all_the_same() -> None:
    nodes = [compute(0, 3), collective(1, "all_reduce", 1 << 20, data_deps=[0]), compute(2, 9)]
    trace = trace_of(nodes)
    system = System(Network((Dimension("switch", 4, 50.0, 500),)))
    alike = simulate([trace] * 4, system)
    assert alike.program.num_ranks == 1
    each = run_each([trace] * 4, system)
    assert nadi.simulation.rank_times(alike).equals(nadi.simulation.rank_times(each))
    assert nadi.simulation.collective_times(alike).equals(nadi.simulation.collective_times(each))
    assert alike.schedule.table.equals(each.schedule.table)
    assert_laws(alike)


def test_computation_side_by_side_counts_once() -> None:
    """Two streams of a device, and a third kernel later; each rank's sum would be 16 us."""
    nodes = [compute(0, 6, stream=7), compute(1, 4, stream=20), compute(2, 6, stream=7)]
    done = simulate([trace_of(nodes)], System(Network((Dimension("switch", 1, 1.0),))))
    assert done.cycles.tolist() == [12_000]
    assert nadi.simulation.compute_times(done).tolist() == [12_000]
    assert nadi.simulation.exposed_times(done).tolist() == [0]


@pytest.mark.parametrize(("compat", "expected"), [("astra-sim", 2_000), ("", 9_000)])
def test_what_is_only_replayed_is_exposed_by_the_rules(compat: Any, expected: int) -> None:
    """ASTRA-sim counts all that the device replays as computation, but not what the host does."""
    nodes = [
        compute(0, 5), collective(1, "all_reduce", 64, data_deps=[0], duration_micros=7),
        compute(2, 2, data_deps=[1]) | {"is_cpu_op": True},
    ]  # fmt: skip
    system = System(
        Network((Dimension("switch", 2, 1.0),)), Compute(replay_only=True), slots="astra-sim",
        compat=compat,
    )  # fmt: skip
    done = simulate([trace_of(nodes)] * 2, system)
    assert done.cycles.tolist() == [14_000] * 2
    assert nadi.simulation.exposed_times(done).tolist() == [expected] * 2
    assert nadi.simulation.compute_times(done).tolist() == [5_000] * 2


# memory


def of_memory(trace: nadi.Trace, num_ranks: int = 1) -> Simulation:
    """Replay a host trace with times of its own."""
    durations = np.random.default_rng(3).integers(1, 50, trace.nodes.height)
    nodes = trace.nodes.with_columns(duration=pl.Series(durations))
    deps = trace.deps.clear()  # as a simulator is given it, without the edges of a recording
    timed = nadi.Trace(
        nodes, deps, trace.groups, trace.issues, Provenance("", ()),
        given_attributes=trace.attributes,
    )  # fmt: skip
    network = Network((Dimension("switch", num_ranks, 50.0, 500),))
    return simulate([timed] * num_ranks, System(network, compute=Compute(replay_only=True)))


@pytest.mark.parametrize("rank", [0, 1])
def test_live_memory_is_that_of_looking_at_every_life(demo_folder: Path, rank: int) -> None:
    trace = nadi.read(demo_folder / f"host_{rank}.json.gz")
    done = of_memory(trace, 2)
    row = done.program.row
    times = dict(zip(row.tolist(), zip(done.start.tolist(), done.end.tolist(), strict=True),
                     strict=True))  # fmt: skip
    uses = uses_of(trace)
    assert uses
    expected = {device: live_bytes(of_device, times) for device, of_device in uses.items()}
    live = nadi.simulation.live_memory(done)
    assert live is not None
    assert live["rank"].unique().sort().to_list() == [0, 1]
    for found in live.iter_rows(named=True):
        assert (found["peak"], found["at"]) == expected[found["device"]]


def uses_of(trace: nadi.Trace) -> dict[str, list[Any]]:
    """List by device what :func:`live_bytes` takes."""
    tensors = list(trace.tensors.iter_rows(named=True))
    uses: dict[str, list[Any]] = {}
    for node, is_output, _, _, _, number, _ in trace.operands.iter_rows():
        if number < 0:
            continue
        tensor = tensors[number]
        last = sum((n - 1) * step for n, step in zip(tensor["shape"], tensor["strides"],
                                                     strict=False))  # fmt: skip
        reach = last + 1 if tensor["strides"] else tensor["elements"]
        size = (tensor["offset"] + reach) * tensor["itemsize"] if tensor["elements"] else 0
        if size:
            uses.setdefault(tensor["device"], []).append(
                (node, tensor["storage_id"], is_output, size)
            )
    return uses


@pytest.mark.parametrize("name", ["cpu_mlp", "cpu_ddp4", "cpu_transformer4", "gpu_resnet_pair"])
def test_a_recording_takes_as_much_as_it_was_measured_to(name: str, shared_traces: Path) -> None:
    """Replayed with recorded times: the peak is that of looking at the recorded times."""
    job = nadi.load_job(shared_traces / name)
    network = Network((Dimension("switch", len(job.traces), 50.0, 500.0),))
    live = nadi.simulation.live_memory(
        simulate(job, System(network, compute=Compute(replay_only=True)))
    )
    assert live is not None
    told = {(row["rank"], row["device"]): row for row in live.iter_rows(named=True)}
    peaks = {}
    for rank, trace in enumerate(job.traces):
        starts, lengths = (trace.nodes[column].to_list() for column in ("start", "duration"))
        times = {
            row: (start - job.origin, start - job.origin + length)
            for row, (start, length) in enumerate(zip(starts, lengths, strict=True))
        }
        for device, uses in uses_of(trace).items():
            peaks[rank, device] = live_bytes(uses, times)[0]
    assert {key: row["peak"] for key, row in told.items()} == peaks


@pytest.mark.parametrize("slots", ["device", "astra-sim"])
def test_operators_of_a_recording_use_tensors_at_the_simulated_times(
    demo_folder: Path, slots: Any
) -> None:
    job = nadi.load_job(demo_folder)
    done = simulate(job, msgspec.structs.replace(nadi.load_system("dgx-h100", 4), slots=slots))
    live = nadi.simulation.live_memory(done)
    assert live is not None
    for rank, played in enumerate(done.recorded):
        row = done.program.row[done.program.first[rank] :]
        order = np.argsort(row[: done.program.first[rank + 1] - done.program.first[rank]])
        start, end = (
            column[done.program.first[rank] :][order].tolist() for column in (done.start, done.end)
        )
        assert played.trace.nodes.height == order.size
        times = {
            number: (start[first], end[last])
            for number, (first, last) in enumerate(zip(played.first, played.last, strict=True))
            if first >= 0
        }
        assert all(begin <= until for begin, until in times.values())
        (uses,) = uses_of(job.traces[rank]).values()
        told = live.row(rank, named=True)
        assert (told["peak"], told["at"]) == live_bytes(uses, times)


def test_what_does_not_fit_is_told(demo_folder: Path) -> None:
    """Where all tensors are of the host, it stands for the system's device; else it does not."""
    system = nadi.load_system("dgx-h100", 4)
    assert system.memory_capacity == 80 * 10**9
    done = simulate(demo_folder, system)
    assert nadi.simulation.results_of(done).beyond_capacity.is_empty()
    live = nadi.simulation.live_memory(done)
    assert live is not None
    peaks = live["peak"].to_list()
    capacity = sorted(peaks)[1]
    small = replace(done, system=msgspec.structs.replace(system, memory_capacity=capacity))
    assert nadi.simulation.results_of(small).beyond_capacity["peak"].to_list() == [
        n for n in peaks if n > capacity
    ]
    beside = live.with_columns(
        device=pl.Series(["cuda:0", "cpu", "cpu", "cpu"], dtype=live.schema["device"])
    )
    found = replace(nadi.simulation.results_of(small), live_memory=beside)
    assert found.beyond_capacity["rank"].to_list() == ([0] if peaks[0] > capacity else [])
    assert replace(found, live_memory=None).beyond_capacity.is_empty()
    unknown = replace(done, system=msgspec.structs.replace(system, memory_capacity=0))
    assert nadi.simulation.results_of(unknown).beyond_capacity.is_empty()


def test_without_operands_live_memory_is_not_known() -> None:
    done, _ = simulated({0: [compute(0, 1)]}, System(Network((Dimension("switch", 1, 1.0, 1),))))
    assert nadi.simulation.live_memory(done) is None
