"""What record_param_comms says, against figures worked out from the files one by one."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import nadi
from nadi.files.pytorch.record_param_comms import GROUP_INIT, NODE_NAME, PARAM_COMMS, param_comms
from nadi.trace.attributes import AttributeBuilder, Attributes
from tests.amounts import ALL

Node = dict[str, Any]


def attributes_of(nodes: list[Node]) -> Attributes:
    builder = AttributeBuilder()
    for row, node in enumerate(nodes):
        for side in ("inputs", "outputs"):
            lists = node.get(side, {})
            if isinstance(lists, list):
                lists = {"values": lists, "types": node[f"{side[:-1]}_types"]}
            for kind, values in lists.items():
                builder.add(row, f"{side}.{kind}", "operand", json.dumps(values))
        for attr in node.get("attrs", []):
            builder.add(row, attr["name"], attr["type"], attr["value"])
    return builder.build()


def read(nodes: list[Node]) -> pl.DataFrame:
    def rows(name: str) -> list[int]:
        return [row for row, node in enumerate(nodes) if node["name"] == name]

    found = param_comms(
        np.array(rows(NODE_NAME), dtype=np.int64), attributes_of(nodes), rows(GROUP_INIT)
    )
    assert dict(found.schema) == dict(PARAM_COMMS)
    return found


def recorded(path: Path) -> list[Node]:
    nodes: list[Node] = json.loads(gzip.decompress(path.read_bytes()))["nodes"]
    return nodes


def sums(found: pl.DataFrame) -> dict[str, tuple[int, int]]:
    """Give how many communications of each kind there are, and their bytes together."""
    table = found.group_by("collective").agg(pl.len(), pl.col("comm_bytes").sum())
    return {name: (count, total) for name, count, total in table.rows()}


def slow_sums(nodes: list[Node]) -> dict[str, tuple[int, int]]:
    """Work the same out from the values alone: the only string, and every tensor's bytes."""

    def tensor_bytes(value: Any) -> int:
        if not isinstance(value, list):
            return 0
        if len(value) == 6 and isinstance(value[5], str):
            return int(value[3] * value[4])
        return sum(tensor_bytes(item) for item in value)

    totals: dict[str, tuple[int, int]] = {}
    for node in nodes:
        if node["name"] == NODE_NAME:
            inputs = node["inputs"]
            values = inputs if isinstance(inputs, list) else inputs["values"]
            (name,) = (value for value in values if isinstance(value, str))
            sent = -1 if name == "wait" else sum(tensor_bytes(value) for value in values)
            count, total = totals.get(name, (0, 0))
            totals[name] = count + 1, total + sent
    return totals


def test_every_recording_gives_what_its_values_say(shared_traces: Path) -> None:
    names = set()
    paths = [*shared_traces.glob("gpu_*/host*.json.gz"), *shared_traces.glob("et_only/*.gz")]
    if not ALL:  # the largest takes as long as all others
        paths.remove(max(paths, key=lambda path: path.stat().st_size))
    for path in paths:
        nodes = recorded(path)
        found = sums(read(nodes))
        assert found == slow_sums(nodes), path
        names |= set(found)
    assert names >= {"allreduce", "all_to_allv", "all_gather", "broadcast", "wait"}


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("et_only/resnet_2gpu_1.1.0.json.gz", ("0", 2, [0, 1])),
        ("gpu_resnet_pair/host.json.gz", ("0", 1, [0])),
        # its group is a number, which the node that sets it up names
        ("et_only/nccl_1.0.2.json.gz", ("0", 2, [0, 1])),
        # nothing but a number, and no size
        ("gpu_dlrm8/host_3.json.gz", ("", -1, [])),
    ],
)
def test_groups_of_recordings(
    shared_traces: Path, file: str, expected: tuple[str, int, list[int]]
) -> None:
    found = read(recorded(shared_traces / file)).filter(pl.col("comm_type") != "none")
    assert found.height
    for row in found.select("group", "group_size", "ranks").iter_rows():
        assert row == expected


def test_the_figures_of_two_gpus(shared_traces: Path) -> None:
    found = read(recorded(shared_traces / "et_only/resnet_2gpu_1.1.0.json.gz"))
    broadcasts = found.filter(collective="broadcast")
    assert broadcasts["src"].unique().to_list() == [0]  # recorded by rank 1
    reduced = found.filter(collective="allreduce")
    assert reduced["src"].unique().to_list() == reduced["dst"].unique().to_list() == [-1]
    assert reduced["group_rank"].unique().to_list() == [1]
    assert reduced["comm_bytes"][0] == 2049000 * 4
    assert found["tag"].unique().to_list() == [-1]


def call(name: str, rank: int, *rest: Any, group: Any = ("3", "pair"), **attrs: Any) -> Node:
    """Make a node as schema 1.1 has it; ``rest`` comes after the splits."""
    group = list(group) if isinstance(group, tuple) else group
    types = {list: "Tuple[String,String]", str: "String", int: "Int"}
    rest_types = ["Bool" if isinstance(value, bool) else "Int" for value in rest]
    return {
        "name": NODE_NAME,
        "inputs": {
            "values": [[[1, 2, 0, 10, 2, "cuda:0"]], [7, False], group, rank, name, [5], [], *rest],
            "types": ["GenericList[Tensor(c10::Half)]", "Tuple[Int,Bool]", types[type(group)],
                      "Int", "String", "GenericList[Int]", "GenericList[]", *rest_types],
        },
        "attrs": [{"name": name, "type": "uint64" if isinstance(value, int) else "string",
                   "value": value} for name, value in attrs.items()],
    }  # fmt: skip


def init(**group: Any) -> Node:
    return {"name": GROUP_INIT, "inputs": {"values": [json.dumps([group])], "types": ["String"]}}


@pytest.mark.parametrize(
    ("name", "comm_type", "src", "dst"),
    [("send", "send", -1, 6), ("recv", "recv", 6, -1), ("recv_any_source", "recv", -1, -1),
     ("_broadcast_oop", "broadcast", 6, -1), ("scatter", "scatter", 6, -1),
     ("reduce", "reduce", -1, 6), ("gather", "gather", -1, 6), ("allreduce", "all_reduce", -1, -1),
     ("_reduce_scatter_base", "reduce_scatter", -1, -1), ("barrier", "barrier", -1, -1)],
)  # fmt: skip
def test_ranks_within_the_group_become_global(
    name: str, comm_type: str, src: int, dst: int
) -> None:
    row = read([call(name, 1, 4, 2, 3, True)]).row(0, named=True)
    assert (row["comm_type"], row["src"], row["dst"]) == (comm_type, src, dst)
    assert (row["ranks"], row["group_size"], row["group_rank"]) == ([4, 6, 8], 3, 1)
    assert (row["group"], row["comm_bytes"], row["is_async"]) == ("3", 20, True)


def test_attributes_come_first() -> None:
    node = call(
        "allreduce", 0, 0, 1, 2, collective_name="allgather", in_msg_nelems=7, dtype="Double",
        pg_name="9", pg_size=4, global_rank_start=1, global_rank_stride=3, is_asynchronized_op="1",
    )  # fmt: skip
    row = read([node]).row(0, named=True)
    assert row["collective"] == "allgather"
    assert (row["comm_bytes"], row["group"], row["ranks"]) == (56, "9", [1, 4, 7, 10])
    assert row["is_async"]


def test_a_dtype_of_unknown_size_leaves_the_tensors() -> None:
    node = call("allreduce", 0, 0, 1, 2, in_msg_nelems=7, dtype="Float4")
    assert read([node])["comm_bytes"].to_list() == [20]


def test_ranks_that_are_not_regular_come_from_where_the_group_is_set_up() -> None:
    setup = init(pg_name="3", ranks=[0, 1, 5], group_size=3)
    row = read([setup, call("send", 2, 0, -1, 3)]).row(0, named=True)
    assert (row["ranks"], row["dst"]) == ([0, 1, 5], 5)
    # not if that is another group
    row = read([setup, call("send", 1, 0, -1, 2)]).row(0, named=True)
    assert (row["ranks"], row["dst"], row["group_rank"]) == ([], -1, 1)


def test_older_ways_to_name_a_group() -> None:
    setup = init(pg_name="0", backend_id=777, ranks=[], group_size=2)
    nodes = [setup, call("send", 1, 2, group=777), call("send", 1, group="0"),
             call("send", 1, group=778)]  # fmt: skip
    found = read(nodes)
    assert found["group"].to_list() == ["0", "0", ""]
    assert found["ranks"].to_list() == [[0, 1], [0, 1], []]
    assert found["dst"].to_list() == [1, 1, -1]
    assert found["group_size"].to_list() == [2, 2, -1]


def test_what_says_nothing_is_no_communication() -> None:
    found = read([{"name": NODE_NAME}, call("wait", 0, -1, -1, 1), {"name": GROUP_INIT}])
    assert found["comm_type"].to_list() == ["none", "none"]
    assert found["comm_bytes"].to_list() == [-1, -1]
    assert read([]).is_empty()


def test_a_host_trace_says_its_communications_once(shared_traces: Path) -> None:
    trace = nadi.read(shared_traces / "gpu_resnet_pair/host.json.gz")
    counts = trace.nodes.filter(pl.col("comm_type") != "none").group_by("name", "comm_type").len()
    found = {(name, kind): count for name, kind, count in counts.rows()}
    assert found == {(NODE_NAME, "all_reduce"): 15, (NODE_NAME, "broadcast"): 6}
    records = trace.nodes.filter(pl.col("name") == NODE_NAME, pl.col("comm_type") != "none")
    assert set(records["group"].to_list()) == {0}
    assert (records["comm_bytes"] > 0).all()
    broadcast = records.filter(pl.col("comm_type") == "broadcast")
    assert set(broadcast["src"].to_list()) == {0}
