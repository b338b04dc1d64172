"""The page of text and the files of a simulation."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import msgspec
import polars as pl
import pytest
from rich.console import Console

import nadi
from nadi.cli import main
from nadi.errors import FormatError, InputError, UsageError
from nadi.results.text import to_json
from nadi.simulation import Simulation, SimulationResults, results_of
from nadi.simulation.runs.result import SIMULATION
from nadi.simulation.runs.simulate import simulate
from nadi.simulation.runs.simulation_report import named_schedule, write_simulation
from nadi.systems import System
from nadi.systems.system import Compute, Dimension, Network
from tests.simulator.cases import Node, collective, compute, trace_of

pytestmark = pytest.mark.usefixtures("demo_read_once")

SWITCH = Dimension("switch", 4, 50.0, 500.0)
GROUPS = {"a": (0, 1), "b": (2, 3)}


def as_results(done: Simulation | SimulationResults) -> SimulationResults:
    return done if isinstance(done, SimulationResults) else results_of(done)


def page(done: Simulation | nadi.simulation.SavedSimulation) -> list[str]:
    file = io.StringIO()
    data = SIMULATION.data(as_results(done))
    SIMULATION.print(data, Console(file=file, width=100, highlight=False))
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_groups_that_did_the_same_share_a_row() -> None:
    nodes = {
        name: [collective(0, "all_reduce", 1 << 20, pg_name=name),
               collective(1, "all_gather", 1 << 10, data_deps=[0])]
        for name in "ab"
    }  # fmt: skip
    traces = [trace_of(nodes["a"])] * 2 + [trace_of(nodes["b"])] * 2
    done = simulate(traces, System(Network((SWITCH,)), groups=GROUPS))
    lines = page(done)
    at = lines.index("collectives by process group")
    groups = [line.split("  ")[0] for line in lines[at + 2 : -1]]
    assert groups == ["a and 1 identical", "all ranks"]
    at = lines.index("collectives by type")
    assert [line.split()[:3] for line in lines[at + 2 : at + 4]] == [
        ["all_reduce", "2", "2"], ["all_gather", "4", "1"],
    ]  # fmt: skip


def test_a_job_of_nothing_takes_no_time() -> None:
    nothing: list[Node] = [{"id": 0, "type": "METADATA_NODE", "is_cpu_op": False}]
    done = simulate([trace_of(nothing)], System(Network((Dimension("switch", 1, 1.0),))))
    assert page(done)[:2] == [
        "1 rank, 1 node: 0 ns (0 ns)", "rank 0 finishes last; its time: no node takes any time",
    ]  # fmt: skip


def test_live_memory_is_told_where_traces_say_of_tensors(demo_folder: Path, tmp_path: Path) -> None:
    nadi.write(nadi.read(demo_folder / "host_0.json.gz"), tmp_path / "job.0.et")
    network = Network((Dimension("switch", 1, 50.0),))
    done = simulate(tmp_path / "job", System(network, compute=Compute(replay_only=True)))
    assert nadi.simulation.live_memory(done) is not None
    (row,) = nadi.simulation.live_memory(done).iter_rows(named=True)
    (line,) = (line for line in page(done) if line.startswith("live tensors"))
    assert line.startswith(f"live tensors on {row['device']}: peak ")
    told = json.loads(to_json(SIMULATION.data(as_results(done))))["live_memory"]
    assert told == [{"rank": 0, "device": row["device"], "peak_bytes": row["peak"],
                     "at_ns": row["at"], "storages": row["storages"]}]  # fmt: skip


def test_the_schedule_has_the_names_of_every_rank() -> None:
    """Also of ranks that share a trace, and of those that another stands for."""
    first, second = (
        trace_of([compute(0, 3), compute(number, 1, data_deps=[0])]) for number in (5, 6)
    )
    system = System(Network((SWITCH,)))
    shared = named_schedule(simulate([first, second, first, second], system))
    assert shared["id"].to_list() == [0, 5, 0, 6] * 2
    assert shared["cause"].to_list() == [None, 0] * 4
    alike = simulate([first] * 4, system)
    assert alike.program.num_ranks == 1
    table = named_schedule(alike)
    assert table["rank"].to_list() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert table["id"].to_list() == [0, 5] * 4
    # rows of a trace whose ids do not ascend are named by their place in it
    turned = trace_of([compute(9, 1), compute(2, 4)])
    table = named_schedule(simulate([turned] * 4, system))
    assert table.select("node", "id").rows()[:2] == [(1, 2), (0, 9)]
    straight = trace_of([compute(2, 4), compute(9, 1)])
    table = named_schedule(simulate([straight, turned] * 2, system))
    assert table.select("node", "id").rows()[:4] == [(0, 2), (1, 9), (1, 2), (0, 9)]


def test_figures_that_are_not_known_are_null() -> None:
    done = simulate([trace_of([collective(0, "all_reduce", 0)])] * 4, System(Network((SWITCH,))))
    (row,) = json.loads(to_json(SIMULATION.data(as_results(done))))["collectives_by_type"]
    assert row["bandwidth_gb_per_s"] is None
    assert row["bound_ns"] == 0


@pytest.mark.parametrize("name", ["out", "out.nadi.gz", "out.et", "json"])
def test_a_suffix_that_says_of_nothing_is_refused(name: str, tmp_path: Path) -> None:
    done = simulate([trace_of([compute(0, 1)])] * 4, System(Network((SWITCH,))))
    with pytest.raises(UsageError, match="use one of"):
        write_simulation(done, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_the_same_result_is_the_same_file(tmp_path: Path) -> None:
    done = simulate([trace_of([compute(0, 1)])] * 4, System(Network((SWITCH,))))
    for suffix in (".json", ".csv", ".nadi"):
        one, other = tmp_path / f"one{suffix}", tmp_path / f"other{suffix}"
        assert write_simulation(done, one).is_empty()
        nadi.simulation.write_simulation(done, other)
        assert one.read_bytes() == other.read_bytes()
    assert pl.read_csv(tmp_path / "one.csv")["end"].to_list() == [1000] * 4


# Nadi's own file, read again


def test_what_was_written_comes_back(demo_folder: Path, tmp_path: Path) -> None:
    """Every table to the bit, and the page and the JSON are the same."""
    system = nadi.load_system("dgx-h100", 4)
    for number, done in enumerate([
        simulate(demo_folder, system),
        simulate([trace_of([compute(0, 3), collective(1, "all_reduce", 1 << 20)])] * 4, system),
        simulate([trace_of([compute(0, 3, num_ops=8, duration_micros=0)])] * 4, system),
    ]):  # fmt: skip
        path = tmp_path / f"{number}.nadi"
        nadi.simulation.write_simulation(done, path)
        found = nadi.simulation.read_simulation(path)
        assert isinstance(found, nadi.simulation.SavedSimulation)
        assert found.system == done.system
        assert found.schedule.equals(named_schedule(done))
        for name in ("rank_times", "collectives", "collective_types", "process_groups", "issues",
                     "beyond_capacity"):  # fmt: skip
            one, other = getattr(found, name), getattr(as_results(done), name)
            assert one.equals(other)
            assert one.schema == other.schema
        assert (found.live_memory is None) == (nadi.simulation.live_memory(done) is None)
        if nadi.simulation.live_memory(done) is not None:
            assert found.live_memory is not None
            assert found.live_memory.equals(nadi.simulation.live_memory(done))
        assert (found.makespan, found.num_nodes) == (done.makespan, done.num_nodes)
        assert page(found) == page(done)
        assert to_json(SIMULATION.data(as_results(found))) == to_json(
            SIMULATION.data(as_results(done))
        )


def test_info_shows_a_simulation(
    demo_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out.nadi"
    command = ["simulate", str(demo_folder), "--system", "dgx-h100"]
    assert main([*command, "-o", str(path)]) == 0
    told = capfd.readouterr().out.replace(f"wrote {path}\n", "")
    assert main(["info", str(path)]) == 0
    assert capfd.readouterr().out == f"{path}  (a simulated job)\n{told}"
    assert main([*command, "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert main(["info", str(demo_folder / "host_0.json.gz"), str(path), "--json"]) == 0
    host, found = json.loads(capfd.readouterr().out)
    assert host["nodes"] > 0
    assert found == told


def test_a_file_that_is_no_simulation_is_refused(demo_folder: Path, tmp_path: Path) -> None:
    done = simulate([trace_of([compute(0, 1)])], System(Network((Dimension("switch", 1, 1.0),))))
    path = tmp_path / "out.nadi"
    nadi.simulation.write_simulation(done, path)
    with pytest.raises(InputError, match=r"the result of a simulation, not a trace"):
        nadi.read(path)
    nadi.write(nadi.read(demo_folder / "host_0.json.gz"), tmp_path / "trace.nadi")
    for other in (tmp_path / "trace.nadi", demo_folder / "host_0.json.gz"):
        with pytest.raises(FormatError, match="not the result of a simulation"):
            nadi.simulation.read_simulation(other)
    with pytest.raises(InputError, match="nowhere"):
        nadi.simulation.read_simulation(tmp_path / "nowhere")
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"version": 1', b'"version": 2'))
    with pytest.raises(FormatError, match=r"member simulation\.json"):  # its checksum is another
        nadi.simulation.read_simulation(path)


@pytest.mark.parametrize("name", ["simulation.json", "schedule.arrow", "rank_times.arrow"])
@pytest.mark.parametrize("change", ["leave out", "other", "version"])
def test_a_damaged_file_is_refused(name: str, change: str, tmp_path: Path) -> None:
    done = simulate([trace_of([compute(0, 1)])], System(Network((Dimension("switch", 1, 1.0),))))
    path, changed = tmp_path / "out.nadi", tmp_path / "changed.nadi"
    nadi.simulation.write_simulation(done, path)
    with zipfile.ZipFile(path) as members:
        content = {member: members.read(member) for member in members.namelist()}
    if change == "leave out":
        del content[name]
    elif change == "other":
        content[name] = content["issues.arrow"]
    else:
        content["simulation.json"] = content["simulation.json"].replace(b": 1,", b": 2,", 1)
    with zipfile.ZipFile(changed, "w") as members:
        for member, bytes_ in content.items():
            members.writestr(member, bytes_)
    with pytest.raises(FormatError, match=r"changed\.nadi"):
        nadi.simulation.read_simulation(changed)
    cut = path.read_bytes()
    for size in (40, 400, len(cut) - 1):
        changed.write_bytes(cut[:size])
        with pytest.raises(FormatError):
            nadi.simulation.read_simulation(changed)


def test_tables_are_whole_where_lines_are_not_folded() -> None:
    nodes = [collective(0, "reduce_scatter", 1 << 33), compute(1, 1, data_deps=[0])]
    done = simulate([trace_of(nodes)] * 4, System(Network((SWITCH,))))
    file = io.StringIO()
    console = Console(file=file, width=40, highlight=False, soft_wrap=True)
    SIMULATION.print(SIMULATION.data(as_results(done)), console)
    assert "\nreduce_scatter      4      1  8.000 GiB" in file.getvalue()
    assert "…" not in file.getvalue()


# what is told beside the times


def issues_of(done: Simulation) -> list[tuple[str, int]]:
    return done.issues.select("code", "count").rows()


def test_computation_without_a_time_is_told_of() -> None:
    nodes = [compute(0, 0, num_ops=100), compute(1, 5, num_ops=100), compute(2, 0),
             compute(3, 0, num_ops=7, is_cpu_op=True)]  # fmt: skip
    roofline = Compute(roofline=True, peak=1e9, memory_bandwidth=1e9)
    for traces in ([trace_of(nodes)] * 4, [trace_of(nodes) for _ in range(4)]):
        done = simulate(traces, System(Network((SWITCH,))))
        assert issues_of(done) == [("simulate.no-time", 4)]
        assert "compute.peak" in " ".join(page(done)[-2:])
    estimated = [node | {"tensor_size": 1, "num_ops": 100} for node in nodes]
    done = simulate([trace_of(estimated)] * 4, System(Network((SWITCH,)), compute=roofline))
    assert issues_of(done) == []


def test_messages_that_nobody_receives_are_told_of() -> None:
    ends = {"comm_src": 0, "comm_dst": 1, "comm_tag": 0, "comm_size": 8, "is_cpu_op": False}
    sends: list[Node] = [{"id": n, "type": "COMM_SEND_NODE", **ends} for n in range(3)]
    receive: list[Node] = [{"id": 0, "type": "COMM_RECV_NODE", **ends}]
    system = System(Network((Dimension("switch", 2, 50.0, 500.0),)))
    done = simulate([trace_of(sends), trace_of(receive)], system)
    assert issues_of(done) == [("simulate.not-received", 2)]
    assert page(done)[-2].startswith("warning: messages are sent but never received")
    done = simulate([trace_of(sends[:1]), trace_of(receive)], system)
    assert issues_of(done) == []


def test_what_does_not_fit_is_told_on_the_page(demo_folder: Path) -> None:
    system = msgspec.structs.replace(nadi.load_system("dgx-h100", 4), memory_capacity=1 << 20)
    done = simulate(demo_folder, system)
    line = "warning: live tensors of 4 ranks exceed the 1.000 MiB memory of a rank's device"
    assert line in page(done)
    told = json.loads(to_json(SIMULATION.data(as_results(done))))
    assert told["memory_capacity_bytes"] == 1 << 20
    assert told["beyond_capacity"] == told["live_memory"]
    fits = msgspec.structs.replace(system, memory_capacity=1 << 30)
    lines = page(replace(done, system=fits))
    assert any(
        one.startswith("live tensors on cpu: peak 20.60 MiB of 1.000 GiB, on rank 3")
        for one in lines
    )
    assert not any("exceed the" in one for one in lines)
