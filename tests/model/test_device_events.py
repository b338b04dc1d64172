"""The events of a device file with the operations of the host file behind them."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import nadi
from nadi.trace.schema import DEVICE_EVENTS
from tests.conftest import PairWriter

DEVICE = {"pid": 0, "tid": 7, "stream": 7, "device": 0}


@pytest.fixture
def trace(pair: PairWriter) -> nadi.Trace:
    outer = pair.op("aten::linear", 0, 50)
    inner = pair.op("aten::mm", 10, 30, parent=outer)
    pair.nodes[inner - 1] |= {
        "inputs": {"values": [1], "shapes": [[4, 4]], "types": ["Tensor(float)"]},
        "outputs": {"values": [], "shapes": [], "types": []},
    }
    pair.nodes[inner - 1]["attrs"].append(
        {"name": "op_schema", "type": "string", "value": "aten::mm(Tensor self) -> Tensor"}
    )
    pair.nodes[outer - 1]["attrs"].append({"name": "op_schema", "type": "string", "value": ""})
    # the profiler saw this one, the observer did not
    pair.event("unseen", 15, 20)
    pair.event("cudaLaunchKernel", 20, 2, "cuda_runtime", correlation=1)
    pair.event("cudaLaunchKernel", 44, 2, "cuda_runtime", correlation=2)
    pair.event("cudaLaunchKernel", 60, 2, "cuda_runtime", correlation=3)
    for number, at in enumerate((25, 46, 62), start=1):
        pair.event(f"kernel{number}", at, 3, "kernel", correlation=number, **DEVICE)
    host, device = pair.write()
    return nadi.link_pair(nadi.read(host), nadi.read(device))


def test_events_have_the_operations_behind_them(trace: nadi.Trace) -> None:
    frame = trace.device_frame()
    DEVICE_EVENTS.check(frame)
    found = {
        (row["name"], row["correlation"]): (row["et_node"], row["et_node_name"])
        for row in frame.iter_rows(named=True)
    }
    assert found["aten::mm", -1] == (3, "aten::mm")
    assert found["unseen", -1] == (-1, "")
    assert found["cudaLaunchKernel", 1] == (-1, "")
    # launched in an operation that the host file does not know: the next one around it does
    assert found["kernel1", 1] == (3, "aten::mm")
    assert found["kernel2", 2] == (2, "aten::linear")
    assert found["kernel3", 3] == (-1, "")


def test_shapes_and_types_are_as_recorded(trace: nadi.Trace) -> None:
    frame = trace.device_frame()
    assert frame["event"].to_list() == list(range(frame.height))
    (row,) = frame.filter(pl.col("name") == "kernel1").to_dicts()
    assert row["op_schema"] == "aten::mm(Tensor self) -> Tensor"
    assert (row["input_shapes"], row["input_types"]) == ("[[4, 4]]", '["Tensor(float)"]')
    assert trace.nodes["name"].cast(str)[row["node"]] == "kernel1"


def test_a_device_file_alone_has_none(demo_folder: Path) -> None:
    trace = nadi.read(demo_folder / "device_0.json.gz")
    frame = nadi.recordings.link_device(trace).device_frame()
    assert frame.height == trace.nodes.height
    assert set(frame["et_node"]) == {-1}


def test_a_host_file_alone_has_no_events(demo_folder: Path) -> None:
    frame = nadi.read(demo_folder / "host_0.json.gz").device_frame()
    DEVICE_EVENTS.check(frame)
    assert frame.is_empty()
