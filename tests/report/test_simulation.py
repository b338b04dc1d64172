"""The page of text and the files of a simulation."""

from __future__ import annotations

import io
import json
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

import nadi
from nadi.errors import UsageError
from nadi.report.simulation import (
    describe_simulation,
    named_schedule,
    print_simulation,
    simulation_json,
    write_simulation,
)
from nadi.simulator import Simulation, System, simulate
from nadi.simulator.config import Compute, Dimension, Network
from tests.simulator.cases import Node, collective, compute, trace_of

SWITCH = Dimension("switch", 4, 50.0, 500.0)
GROUPS = {"a": (0, 1), "b": (2, 3)}


def page(done: Simulation) -> list[str]:
    file = io.StringIO()
    print_simulation(done, Console(file=file, width=100, highlight=False))
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
    assert [line.split("  ")[0] for line in lines[at + 2 : -1]] == ["a and 1 alike", "all ranks"]
    at = lines.index("collectives by type")
    assert [line.split()[:3] for line in lines[at + 2 : at + 4]] == [
        ["all_reduce", "2", "2"], ["all_gather", "4", "1"],
    ]  # fmt: skip


def test_a_job_of_nothing_takes_no_time() -> None:
    nothing: list[Node] = [{"id": 0, "type": "METADATA_NODE", "is_cpu_op": False}]
    done = simulate([trace_of(nothing)], System(Network((Dimension("switch", 1, 1.0),))))
    assert page(done)[:2] == [
        "1 rank, 1 node: 0 ns (0 ns)", "rank 0 finishes last: nothing takes any time",
    ]  # fmt: skip


def test_live_memory_is_told_where_traces_say_of_tensors(demo_folder: Path, tmp_path: Path) -> None:
    nadi.read(demo_folder / "host_0.json.gz").write(tmp_path / "job.0.et")
    network = Network((Dimension("switch", 1, 50.0),))
    done = simulate(tmp_path / "job", System(network, compute=Compute(replay_only=True)))
    assert done.live_memory is not None
    (row,) = done.live_memory.iter_rows(named=True)
    (line,) = (line for line in page(done) if line.startswith("live tensors"))
    assert line.startswith(f"live tensors on {row['device']}: at most ")
    told = json.loads(simulation_json(describe_simulation(done)))["live_memory"]
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
    (row,) = json.loads(simulation_json(describe_simulation(done)))["collectives_by_type"]
    assert row["bandwidth_gb_per_s"] is None
    assert row["bound_ns"] == 0


@pytest.mark.parametrize("name", ["out", "out.nadi.gz", "out.et", "json"])
def test_a_suffix_that_says_of_nothing_is_refused(name: str, tmp_path: Path) -> None:
    done = simulate([trace_of([compute(0, 1)])] * 4, System(Network((SWITCH,))))
    with pytest.raises(UsageError, match="let it end in one of"):
        write_simulation(done, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_the_same_result_is_the_same_file(tmp_path: Path) -> None:
    done = simulate([trace_of([compute(0, 1)])] * 4, System(Network((SWITCH,))))
    for suffix in (".json", ".csv", ".nadi"):
        one, other = tmp_path / f"one{suffix}", tmp_path / f"other{suffix}"
        assert write_simulation(done, one).is_empty()
        nadi.write_simulation(done, other)
        assert one.read_bytes() == other.read_bytes()
    assert pl.read_csv(tmp_path / "one.csv")["end"].to_list() == [1000] * 4
