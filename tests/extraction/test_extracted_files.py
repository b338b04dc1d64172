"""The files of parts: recordings stay recordings, and say what crosses their border."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import nadi
from nadi.errors import InputError, UsageError
from nadi.files.trace_files import read
from nadi.models.job_files import write_job
from nadi.recordings import read_job
from nadi.recordings.jobs import read_ranks
from nadi.trace import validate_trace
from nadi.whatif import PartOf, part_operations
from tests.conftest import PairWriter
from tests.whatif.programs import kernel, launch, ranks_that_meet

pytestmark = pytest.mark.usefixtures("demo_read_once")

MODULES = Path(__file__).resolve().parents[1] / "recordings" / "cpu_mlp4_modules"


def content(file: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(gzip.decompress(file.read_bytes()))
    return read


def events_by_name(file: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for event in content(file)["traceEvents"]:
        found.setdefault(event["name"], []).append(event)
    return found


def two_layers(pair: PairWriter) -> None:
    """Write two operators with a launch each, whose kernels follow each other on a stream."""
    outer = pair.op("layer.0", 0, 100)
    inner = pair.op("aten::mm", 10, 50, parent=outer)
    assert (outer, inner) == (2, 3)
    launch(pair, 1, 20, 5)
    pair.op("layer.1", 110, 60)
    launch(pair, 2, 120, 5)
    kernel(pair, 1, "k0", 30, 140)
    kernel(pair, 2, "k1", 142, 160)
    pair.events += [
        {"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "python"}},
        {"ph": "s", "id": 1, "cat": "ac2g", "name": "ac2g", "pid": 7, "tid": 1, "ts": 20},
        {"ph": "f", "id": 1, "cat": "ac2g", "name": "ac2g", "pid": 0, "tid": 7, "ts": 30},
        {"ph": "s", "id": 2, "cat": "ac2g", "name": "ac2g", "pid": 7, "tid": 1, "ts": 120},
        {"ph": "f", "id": 2, "cat": "ac2g", "name": "ac2g", "pid": 0, "tid": 7, "ts": 142},
        {"ph": "i", "name": "[memory]", "pid": 7, "tid": 1, "ts": 50, "args": {"Bytes": 4}},
    ]


def test_a_pair_stays_a_pair(pair: PairWriter, tmp_path: Path) -> None:
    two_layers(pair)
    part = nadi.extract(*pair.write(), output=tmp_path / "part", under="layer.1")
    host, device, waits, tensors = part.files
    assert [file.name for file in part.files] == [
        "host_0.json.gz", "device_0.json.gz", "waits.csv", "tensors.csv",
    ]  # fmt: skip
    names = [node["name"] for node in content(host)["nodes"]]
    assert names == ["[pytorch|profiler|execution_trace|process]", "layer.1"]
    assert content(host)["nodes"][1]["ctrl_deps"] == 1
    events = events_by_name(device)
    assert sorted(events) == ["ac2g", "cudaLaunchKernel", "k1", "layer.1", "process_name"]
    assert [event["id"] for event in events["ac2g"]] == [2, 2]
    assert events["k1"][0]["args"]["correlation"] == 2
    assert (events["k1"][0]["ts"], events["k1"][0]["dur"]) == (142, 18)
    assert tensors.read_text().count("\n") == 1
    rows = list(csv.DictReader(io.StringIO(waits.read_text())))
    assert [(row["name"], row["moment"], row["kind"], row["waits_for"], row["at_ns"],
             row["after_ns"]) for row in rows] == [
        ("layer.1", "start", "host_gap", "layer.0", "100000", "10000"),
        ("k1", "start", "stream", "k0", "140000", "2000"),
    ]  # fmt: skip
    stated = content(device)["nadi_part"]
    assert (stated["part_of"], stated["ranks"], stated["nodes_by"]) == (
        "under layer.1", [0], "event",
    )  # fmt: skip
    assert stated["waits"]["at_ns"] == [100_000, 140_000]
    places = [content(device)["traceEvents"][n]["name"] for n in stated["waits"]["node"]]
    assert places == ["layer.1", "k1"]


def test_a_device_trace_alone_stays_alone(pair: PairWriter, tmp_path: Path) -> None:
    two_layers(pair)
    _, device = pair.write()
    part = nadi.extract(device, output=tmp_path / "part", window="0ns:141us")
    assert [file.name for file in part.files] == ["device_0.json.gz", "waits.csv", "tensors.csv"]
    names = nadi.read(part.files[0]).nodes["name"].cast(str).to_list()
    assert names == ["layer.0", "aten::mm", "cudaLaunchKernel", "k0", "cudaLaunchKernel"]


def test_groups_shrink_to_the_chosen_ranks(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    graph = ranks_that_meet(whole, [10, 20, 60, 40])
    part = nadi.extract(whole, output=tmp_path / "part", ranks="1,3")
    assert part.ranks == (1, 3)
    assert part.num_cut_collectives == 1
    ends = part.waits.filter(kind="communication")
    # ranks 1 and 3 wait for rank 2, which enters last, 62 us after the first event
    assert ends["at_ns"].to_list() == [62_000 + graph.job.origin] * 2
    assert ends["after_ns"].to_list() == [10_000] * 2
    job = nadi.load_job(tmp_path / "part")
    assert [trace.groups["ranks"].to_list() for trace in job.traces] == [[[1, 3]], [[1, 3]]]
    assert (job.ranks, job.world_size, job.num_collectives) == ((1, 3), 2, 1)
    assert job.issues.height == 0
    # files keep what the events refer to: places in the recorded group
    recorded = content(tmp_path / "part" / "device_1.json.gz")["distributedInfo"]
    assert recorded["world_size"] == 2
    assert recorded["pg_config"][0]["ranks"] == [0, 1, 2, 3]


def test_a_collective_that_is_cut_between_ranks_is_outside(demo_run: nadi.bottlenecks.Run) -> None:
    graph = demo_run.graph
    meetings = graph.job.matches.group_by("collective", maintain_order=True).agg("rank", "node")
    ops = [graph.ops_of_rows(number) for number in range(4)]
    of_all = next(row for row in meetings.rows() if len(row[1]) == 4)
    members = np.array([ops[rank][node] for rank, node in zip(*of_all[1:], strict=True)])
    starts = graph.time[2 * members]
    # after the first two ranks have entered, so that their members are not in the window
    window = f"{np.sort(starts)[1] + 1}ns:{graph.time[2 * members + 1].max() + 50_000_000}ns"
    chosen = part_operations(graph, PartOf(window=window))
    assert np.unique(graph.op_trace[chosen]).size == 4
    assert not chosen[members].any()
    alone = part_operations(graph, PartOf(window=window, ranks=str(np.argmax(starts))))
    assert alone[members].sum() == 1


def test_a_module_has_its_backward_and_its_optimizer(tmp_path: Path) -> None:
    part = nadi.extract(MODULES, output=tmp_path / "part", module="Linear_2")
    names = {
        event["name"] for event in content(tmp_path / "part" / "device_0.json.gz")["traceEvents"]
    }
    assert {"nn.Module: Linear_2", "aten::addmm", "AddmmBackward0"} <= names
    assert "nn.Module: Linear_1" not in names
    run = nadi.run(tmp_path / "part", by="module")
    assert run.graph.num_ops == part.num_operations
    assert run.modules is not None
    assert part.tensors.filter("is_output").height > 0


@pytest.mark.parametrize("kind", ["nadi", "chakra"])
def test_linked_traces_stay_in_their_format(demo_folder: Path, tmp_path: Path, kind: str) -> None:
    nadi.link_files(demo_folder, output=tmp_path / "linked", to=kind)
    part = nadi.extract(tmp_path / "linked", output=tmp_path / "part", ranks="2-3", step=1)
    assert part.ranks == (2, 3)
    suffix = {"nadi": "nadi", "chakra": "et"}[kind]
    first = {"nadi": 2, "chakra": 0}[kind]  # simulators number ranks from 0
    assert [file.name for file in part.files[:2]] == [
        f"rank{first}.{suffix}", f"rank{first + 1}.{suffix}",
    ]  # fmt: skip
    traces = [nadi.read(file) for file in part.files[:2]]
    assert [trace.rank for trace in traces] == [first, first + 1]
    for trace in traces:
        assert validate_trace(trace).height == 0
        stated = trace.attributes.of(-1)["nadi_part"]
        stated = json.loads(stated) if isinstance(stated, str) else stated
        assert stated["part_of"] == "step 1, ranks 2-3"
        ids = set(trace.column("id").tolist())
        assert ids >= set(stated["waits"]["node"])
    job = nadi.recordings.link_job(traces)
    assert job.num_collectives > 0
    if kind == "chakra":
        assert isinstance(read_job(tmp_path / "part"), list)


def test_tensors_cross_the_border(demo_folder: Path, tmp_path: Path) -> None:
    part = nadi.extract(demo_folder, output=tmp_path, ranks="0", under="^aten::linear$", step=1)
    given = part.tensors.filter(is_output=False)
    left = part.tensors.filter(is_output=True)
    assert given.height > 0 < left.height
    assert {"aten::linear"} & set(given["name"])
    first = given.row(0, named=True)
    assert first["bytes"] > 0
    assert first["dtype"]
    nodes = nadi.read(tmp_path / "device_0.json.gz").nodes
    names = dict(zip(nodes["event"], nodes["name"].cast(str), strict=True))
    assert all(names[node] == name for node, name in part.tensors.select("node", "name").rows())


BAD: list[tuple[dict[str, str], str]] = [
    (
        {"under": "aten::liner"},
        "matches none of the 153 operation names; did you mean aten::linear",
    ),
    ({"under": "("}, "is not a regular expression"),
    ({"module": "Linear"}, "module='Linear': the recording has no modules"),
    ({"step": "7"}, "step='7': the trace has no such step; the nearest is 2; there are: 1, 2"),
    (
        {"step": "x"},
        "step='x': the trace has no such step; give the number of one; there are: 1, 2",
    ),
    ({"ranks": "2-5"}, "ranks='2-5': there is no rank 4; the nearest is 3; the job has 4: 0-3"),
    ({"ranks": "9"}, "ranks='9': there is no rank 9; the nearest is 3"),
    ({"ranks": "3-1"}, "'3-1' is neither a rank nor a range; give ranks such as 0-3,6"),
    ({"ranks": "one"}, "'one' is neither a rank nor a range"),
    ({"window": "9s:10s"}, "no operation starts or ends there; the recording lasts from 0 to"),
    ({"window": "2ms:1ms"}, "the second time is not later"),
    ({"window": "5ms"}, "two times are needed"),
    ({"step": "1", "window": "300ms:400ms"}, "no operation meets all of these conditions"),
]


@pytest.mark.parametrize(("conditions", "message"), BAD, ids=[str(one[0]) for one in BAD])
def test_what_is_not_there_is_one_clear_line(
    demo_folder: Path, tmp_path: Path, conditions: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError) as error:
        nadi.extract(demo_folder, output=tmp_path / "part", **conditions)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "part").exists()


def test_a_module_that_is_not_there_is_told_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"matches none of \d+ modules; did you mean Linear_2"):
        nadi.extract(MODULES, output=tmp_path / "part", module="Liner_2")


def test_a_window_without_a_whole_operation_names_the_nearest(pair: PairWriter,
                                                              tmp_path: Path) -> None:  # fmt: skip
    two_layers(pair)
    with pytest.raises(UsageError, match=r"the nearest, cudaLaunchKernel, lasts from 120.0 us to"):
        nadi.extract(*pair.write(), output=tmp_path / "part", window="105us:118us")


def test_files_are_not_replaced_unasked(pair: PairWriter, tmp_path: Path) -> None:
    two_layers(pair)
    files = pair.write()
    nadi.extract(*files, output=tmp_path / "part", under="layer.1")
    with pytest.raises(InputError, match="exists already"):
        nadi.extract(*files, output=tmp_path / "part", under="layer.0")
    nadi.extract(*files, output=tmp_path / "part", under="layer.0", overwrite=True)
    assert nadi.run(tmp_path / "part").graph.op_names[0] == "layer.0"
    with pytest.raises(UsageError, match="the output would replace an input file"):
        nadi.extract(tmp_path / "part", output=tmp_path / "part", under="mm", overwrite=True)


def test_ranks_of_an_earlier_part_go(demo_folder: Path, tmp_path: Path) -> None:
    part, note = tmp_path / "part", tmp_path / "part" / "rank9.txt"
    nadi.extract(demo_folder, output=part, step="1")
    assert len(read_job(part).traces) == 4
    note.write_text("of the user")
    with pytest.raises(InputError, match="exists"):
        nadi.extract(demo_folder, output=part, step="1", ranks="0,2")
    assert len(read_job(part).traces) == 4
    nadi.extract(demo_folder, output=part, step="1", ranks="0,2", overwrite=True)
    assert read_job(part).ranks == (0, 2)
    assert note.exists()


def test_traces_without_times_are_refused(shared_traces: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="host traces without a device trace have no timestamps"):
        nadi.extract(shared_traces / "et_only", output=tmp_path / "part", under="aten")


def test_a_module_of_a_generated_job(tmp_path: Path) -> None:
    """Operations, their bytes and what they wait for are those of the module in the whole."""
    job = nadi.llm_job("gpt3-125m", tp=2, pp=2, global_batch=2)
    assert isinstance(job, nadi.Job)
    write_job(job, tmp_path / "whole")
    for module in ("layers.3", "layers.3.mlp", "attention"):
        part = nadi.extract(
            tmp_path / "whole", output=tmp_path / "part", module=module, overwrite=True
        )
        assert (part.start_ns, part.end_ns) == (-1, -1)
        expression = rf"(^|\.){re.escape(module)}(\.|$)"
        count = waits = 0
        traces = read_ranks(tmp_path / "whole")
        for position, rank in enumerate(part.ranks):
            whole = traces[rank]
            inside = whole.nodes["name"].cast(pl.String).str.contains(expression).to_numpy()
            made = read(tmp_path / "part" / f"rank{position}.et")
            for column in ("name", "flops", "bytes", "comm_bytes", "layer"):
                expected = whole.nodes[column].filter(pl.Series(inside))
                assert made.nodes[column].cast(pl.String).equals(expected.cast(pl.String))
            src, dst = whole.deps["src"].to_numpy(), whole.deps["dst"].to_numpy()
            assert made.deps.height == (inside[src] & inside[dst]).sum()
            waits += int((~inside[src] & inside[dst]).sum())
            count += int(inside.sum())
        assert (part.num_operations, part.waits.height) == (count, waits)
        assert waits > 0
    with pytest.raises(UsageError, match="no operation of the job has a timestamp"):
        nadi.extract(tmp_path / "whole", output=tmp_path / "part", window="1ms:2ms")
    with pytest.raises(UsageError, match="matches none of"):
        nadi.extract(tmp_path / "whole", output=tmp_path / "other", module="layers.99")
