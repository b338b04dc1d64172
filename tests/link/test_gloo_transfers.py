"""Sends and receives of gloo are beside the thread that issued them."""

from __future__ import annotations

from pathlib import Path

import pytest

import nadi
from tests.conftest import PairWriter
from tests.link.test_rank_communication import GROUP, asked

MAIN = 1


def transfer(pair: PairWriter, name: str, ts: float, end: float, rank: int) -> None:
    """Write a call of 3 us, and the transfer that gloo does for it until a time."""
    peer = "dst" if name == "send" else "src"
    call = "c10d::send" if name == "send" else "c10d::recv_"
    types = ["GenericList[Tensor(float)]", "Object", "Int", "Int"]
    schema = f"{call}(Tensor[] tensors, {GROUP}, int {peer}, int tag) -> Work"
    asked(pair, call, ts, [[[1, 1, 0, 256, 4, "cpu"]], "<Object>", 1 - rank, 0], types, schema,
          dur=3)  # fmt: skip
    asked(pair, f"gloo:{name}", ts + 1, [[1, 1, 0, 256, 4, "cpu"]], ["Tensor(float)"],
          dur=end - ts - 1, cat="user_annotation")  # fmt: skip


def stage(folder: Path, rank: int) -> PairWriter:
    """Give a rank that sends, computes meanwhile, receives, and then waits for both."""
    writer = PairWriter(folder)
    writer.device_keys["distributedInfo"] = {
        "rank": rank, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}],
    }  # fmt: skip
    transfer(writer, "send", 10, 220, rank)
    writer.op("aten::mm", 20, 100)
    transfer(writer, "recv", 130, 200, rank)
    writer.op("aten::add", 230, 10)
    for node in writer.nodes:
        node["pid"] = rank
    return writer


@pytest.mark.parametrize("with_host", [True, False])
def test_what_a_thread_does_meanwhile_is_not_nested_in_a_transfer(
    tmp_path: Path, with_host: bool
) -> None:
    host, device = stage(tmp_path, 0).write()
    trace = (
        nadi.link_pair(nadi.read(host), nadi.read(device))
        if with_host
        else nadi.recordings.link_device(nadi.read(device))
    )
    row = {str(name): number for number, name in enumerate(trace.nodes["name"])}
    threads = {name: trace.column("thread")[at] for name, at in row.items()}
    assert threads["aten::mm"] == threads["aten::add"] == threads["c10d::send"] == MAIN
    assert threads["gloo:recv"] == MAIN  # which does nothing else meanwhile
    assert threads["gloo:send"] != MAIN
    within = trace.column("parent")[[row["aten::mm"], row["c10d::recv_"], row["aten::add"]]]
    assert not {row["gloo:send"], row["gloo:recv"]} & set(within.tolist())
    assert trace.column("exclusive")[row["gloo:send"]] == 209_000
    deps = {
        (trace.nodes["name"][src], trace.nodes["name"][dst])
        for kind, src, dst in trace.deps.select("kind", "src", "dst").iter_rows()
        if kind in ("launch", "thread", "sync")
    }
    assert deps == {("c10d::send", "gloo:send"), ("gloo:send", "aten::add")}


def test_a_transfer_within_its_call_stays_there(pair: PairWriter) -> None:
    number = pair.op("c10d::send", 0, 50)
    pair.op("gloo:send", 10, 30, parent=number, cat="user_annotation")
    host, device = pair.write()
    trace = nadi.link_pair(nadi.read(host), nadi.read(device))
    assert set(trace.column("thread")[trace.column("start") >= 0].tolist()) == {MAIN}


def test_computation_beside_a_transfer_is_simulated(tmp_path: Path) -> None:
    for rank in range(2):
        stage(tmp_path, rank).write(f"_{rank}")
    result = nadi.simulate(tmp_path, "dgx-h100")
    assert "export.comm-alone" not in result.issues["code"].to_list()
    assert result.makespan >= 110_000  # of aten::mm and aten::add
    assert nadi.simulation.link_use(result)["bytes"].sum() > 0
