"""What a machine may have, said in Nadi's file and in ASTRA-sim's: the command takes both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nadi
from nadi.cli import main
from tests.simulator.cases import Node, collective, compute, trace_of

OWN: dict[str, Any] = {
    "compat": "astra-sim",
    "compute": {"peak": "2 TFLOP/s"},
    "memory": {"bandwidth": "50 GB/s"},
    "network": {
        "dimensions": [
            {"topology": "torus", "size": 2, "bandwidth": "30 GiB/s", "latency": "700 ns"},
            {"topology": "switch", "bandwidth": "20 GiB/s", "latency": "900 ns"},
        ]
    },
    "collectives": {"chunks": 5, "endpoint_delay": "13 ns"},
}
SYSTEM: dict[str, Any] = {
    "endpoint-delay": 13, "preferred-dataset-splits": 5, "peak-perf": 2, "local-mem-bw": 50,
    "collective-optimization": "localBWAware",
    **{f"{name}-implementation": ["ring"] * 2 for name in
       ("all-reduce", "all-gather", "reduce-scatter")},
    "all-to-all-implementation": ["direct"] * 2,
}  # fmt: skip
NETWORK = """
topology: [Ring, Switch]
npus_count: [2, 2]
bandwidth: [30, 20]
latency: [700, 900]
"""
_POOL = {"memory-type": "MEMORY_POOL", "remote-mem-latency": 100, "remote-mem-bw": 7}
_OWN_POOL = {"bandwidth": "7 GB/s", "latency": "100 ns"}
# by name: what is added to Nadi's file, to ASTRA-sim's of the system and of remote memory, options
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], list[str]]] = {
    "roofline": ({"compute": {"time": "roofline"}}, {"roofline-enabled": 1}, {}, []),
    "replay-only": ({"scheduling": {"replay_only": True}}, {"replay-only": 1}, {}, []),
    "rendezvous": ({"network": {"rendezvous": True}}, {}, {}, ["--rendezvous"]),
    "queues": ({"scheduling": {"queues": 2}}, {}, {}, ["--queues", "2"]),
    "active": ({"scheduling": {"active_chunks": 2}}, {"active-chunks-per-dimension": 2}, {}, []),
    "injection scale": (
        {"collectives": {"injection_scale": 40}}, {}, {}, ["--injection-scale", "40"]
    ),
    "bus": (
        {"bus": {"latency": "40 ns", "overhead": "90 ns", "pause": "3 ns", "bandwidth": "50 GB/s",
                 "reduction": "2 ns"}},
        {"model-shared-bus": 1, "L": 40, "o": 90, "g": 3, "G": 0.02, "local-reduction-delay": 2},
        {}, [],
    ),
    "memory of each rank": (
        {"memory": {"remote": {"kind": "per-rank", **_OWN_POOL}}},
        {}, _POOL | {"memory-type": "PER_NPU_MEMORY_EXPANSION"}, [],
    ),
    "memory pool": ({"memory": {"remote": {"kind": "pool", **_OWN_POOL}}}, {}, _POOL, []),
    "memory of nodes": (
        {"memory": {"remote": {"kind": "per-node", "ranks_per_node": 2, **_OWN_POOL}}},
        {}, _POOL | {"memory-type": "PER_NODE_MEMORY_EXPANSION", "num-npus-per-node": 2}, [],
    ),
}  # fmt: skip


def write_job(folder: Path, *, with_memory: bool) -> Path:
    for rank in range(4):
        access = {"type": "MEM_LOAD_NODE", "is_cpu_op": False, "tensor_size": 90_000}
        nodes: list[Node] = [
            compute(0, 3 + rank, num_ops=10_000_000, tensor_size=1_000_000),
            collective(1, "all_reduce", 1 << 20, data_deps=[0]),
            {"id": 2, "data_deps": [1], **(access if with_memory else compute(2, 1) | {"id": 2})},
            {"id": 3, "type": "COMM_SEND_NODE" if rank % 2 == 0 else "COMM_RECV_NODE",
             "is_cpu_op": False, "comm_src": rank - rank % 2, "comm_dst": rank - rank % 2 + 1,
             "comm_tag": rank // 2, "comm_size": 5000, "data_deps": [2]},
        ]  # fmt: skip
        nodes[2] = {"num_ops": 1000, "tensor_size": 1000} | nodes[2]
        nadi.write(trace_of(nodes), folder / f"work.{rank}.et")
    return folder


def merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return one | {
        key: merged(one[key], value) if isinstance(one.get(key), dict) else value
        for key, value in other.items()
    }


def simulated(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> list[int]:
    assert main(["simulate", *arguments, "--json"]) == 0
    found: list[int] = json.loads(capfd.readouterr().out)["finish_ns"]
    return found


def both(
    folder: Path, own: dict[str, Any], system: dict[str, Any], memory: dict[str, Any],
    options: list[str],
) -> tuple[list[str], list[str]]:  # fmt: skip
    """Write the files of either kind; gives the options that name them."""
    (folder / "own.json").write_text(json.dumps(merged(OWN, own)))
    (folder / "net.yml").write_text(NETWORK)
    (folder / "system.json").write_text(json.dumps(SYSTEM | system))
    (folder / "memory.json").write_text(json.dumps(memory))
    theirs = ["--network", str(folder / "net.yml"), "--system-config", str(folder / "system.json")]
    theirs += ["--remote-memory", str(folder / "memory.json")] if memory else []
    return ["--system", str(folder / "own.json")], [*theirs, *options]


@pytest.mark.parametrize("name", CASES)
def test_both_kinds_of_files_say_the_same(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    own, system, memory, options = CASES[name]
    (tmp_path / "job").mkdir()
    job = str(write_job(tmp_path / "job", with_memory=bool(memory)))
    ours, theirs = both(tmp_path, own, system, memory, options)
    found = simulated([job, *ours], capfd)
    assert found == simulated([job, *theirs], capfd)
    if memory:  # another kind takes another time
        other = {"memory": {"remote": {"kind": "per-rank", "bandwidth": "9 GB/s"}}}
        plain, _ = both(tmp_path, other, {}, {}, [])
    else:
        plain, _ = both(tmp_path, {}, {}, {}, [])
    assert found != simulated([job, *plain], capfd)


def test_without_remote_memory_an_access_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job").mkdir()
    job = str(write_job(tmp_path / "job", with_memory=True))
    none = {"memory-type": "NO_MEMORY_EXPANSION"}
    ours, theirs = both(tmp_path, {"memory": {"remote": {"kind": "none"}}}, {}, none, [])
    for options in (ours, theirs):
        assert main(["simulate", job, *options]) == 2
        assert "it uses remote memory, but the system has none" in capfd.readouterr().err
