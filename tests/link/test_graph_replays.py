"""Kernels of graphs get the operators of the capture: made pairs with known truth."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest

import nadi
from nadi import analyses as analyze
from nadi.cli import main
from nadi.recordings import load_devices
from nadi.trace.trace import Trace
from nadi.trace.validate import validate_trace
from nadi.whatif.selection import Selection, select


class Work(NamedTuple):
    """A kernel, and the operator and module that launch it."""

    kernel: str
    operator: str
    module: str


LAYER = [Work("gemm", "aten::mm", "Linear_0"), Work("rms", "aten::norm", "Norm_0")]
MODEL = [
    Work("embed", "aten::embedding", "Embedding_0"),
    *LAYER,
    Work("gemm", "aten::mm", "Linear_1"),
]


def event(cat: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    place = {"pid": 0, "tid": 7} if cat in ("kernel", "gpu_memcpy") else {"pid": 5, "tid": 5}
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, **place, "args": args}


def capture(
    graphs: Sequence[Sequence[Work]], size: int = -1, names: bool = True, label: str = ""
) -> list[dict[str, Any]]:
    """Return the events of a recording in which graphs are captured, one after the other."""
    events, now = [], 1000.0
    for graph in graphs:
        begin = now
        events.append(event("cuda_runtime", "cudaStreamBeginCapture", now, 1.0))
        for number, work in enumerate(graph):
            now += 100
            dims = [[size if size > 0 else 4, 16], [16, 32]]
            stated = {"kernel": work.kernel} if names else {}
            events += [
                event("python_function", f"nn.Module: {work.module}", now, 50.0),
                event("cpu_op", work.operator, now + 1, 40.0, **{
                    "Input Dims": dims, "Input type": ["float", "float"],
                    "Concrete Inputs": ["", ""],
                }),
                event("cpu_op", "aten::view", now + 2, 5.0),
                event("cuda_runtime", "cudaLaunchKernel", now + 10, 5.0,
                      correlation=number + 1, **stated),
            ]  # fmt: skip
        now += 100
        events.append(event("cuda_runtime", "cudaStreamEndCapture", now, 1.0))
        if label:
            events.append(event("user_annotation", label, begin - 10, now - begin + 20))
        now += 100
    return events


def replay(
    graphs: Sequence[Sequence[str]], steps: Sequence[str] = (), lasts: float = 20.0,
    streams: Sequence[int] = (), nodes: Sequence[int] = (),
) -> list[dict[str, Any]]:  # fmt: skip
    """Return the events of a recording in which graphs are launched."""
    events, now = [event("cpu_op", "aten::empty", 1.0, 1.0)], 10.0
    for number, graph in enumerate(graphs):
        call = 100 + number
        events.append(event("cuda_runtime", "cudaGraphLaunch", now, lasts, correlation=call))
        if steps:
            events.append(event("user_annotation", steps[number], now - 1, 30.0))
        for at, kernel in enumerate(graph):
            args: dict[str, Any] = {"correlation": call, "device": 0, "stream": 7}
            if streams:
                args["stream"] = streams[at]
            if nodes:
                args |= {"graph id": 3, "graph node id": (9 << 32) + nodes[at]}
            events.append(event("kernel", kernel, now + 5 + 3 * at, 2.0, **args))
        now += 100
    return events


def write(path: Path, events: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


def found(trace: Trace) -> list[Work]:
    """Return kernel, operator and module of all device work, in order of start."""
    events = analyze.events_of(trace)
    names = events.table["name"].cast(pl.String)
    operator = events.around(events.launcher[events.work], events.is_of("operator"))
    module = events.around(events.launcher[events.work], events.is_of("python"))
    text = ["", *names.to_list()]
    return [
        Work(text[work + 1], text[one + 1], text[other + 1].removeprefix("nn.Module: "))
        for work, one, other in zip(events.work, operator, module, strict=True)
    ]


def issues(trace: Trace) -> dict[str, int]:
    rows = trace.issues.filter(pl.col("code").str.starts_with("graphs."))
    return dict(rows.select("code", "count").iter_rows())


def names(graph: Sequence[Work]) -> list[str]:
    return [work.kernel for work in graph]


def joined(tmp_path: Path, replayed: list[dict[str, Any]], *captured: Any, **given: Any) -> Trace:
    for number, events in enumerate(captured):
        write(tmp_path / "capture_traces" / f"graph_{number}.json", events)
    (trace,) = load_devices(write(tmp_path / "step.json", replayed), **given)
    assert validate_trace(trace).is_empty()
    return trace


def test_kernels_get_operators_modules_and_shapes_by_name(tmp_path: Path) -> None:
    trace = joined(tmp_path, replay([names(MODEL)] * 3), capture([MODEL], label="capture_4_FULL"))
    assert found(trace) == MODEL * 3
    assert issues(trace) == {"graphs.joined": 12}
    (mm,) = analyze.operator_rates(trace).filter(operator="aten::mm").iter_rows(named=True)
    assert (mm["count"], mm["sum_ns"], mm["shape"]) == (6, 12_000, "4 x 32 x 16")


def test_a_replayed_graph_is_one_launch_and_its_operators_stand_first(tmp_path: Path) -> None:
    trace = joined(tmp_path, replay([names(MODEL)] * 3, lasts=3.0), capture([MODEL]))
    summary = analyze.launch_summary(trace)
    (row,) = summary.select("call", "count", "call_ns", "work_ns", "delay_ns", "short").rows()
    assert row == ("cudaGraphLaunch", 3, 3_000, 8_000, 2_000, 0)
    assert set(analyze.launches(trace)["call"]) == {"cudaGraphLaunch"}
    operators = analyze.operator_times(trace).select("name", "self_device_ns")
    assert operators.rows()[:2] == [("aten::mm", 12_000), ("cudaGraphLaunch", 0)]


def test_nothing_that_was_measured_changes(tmp_path: Path) -> None:
    file = write(tmp_path / "step.json", replay([names(MODEL)] * 2))
    before = nadi.load_job(file).traces[0].nodes
    write(tmp_path / "capture.json", capture([MODEL]))
    run = nadi.run(file)
    after = run.job.traces[0].nodes
    kept = ("name", "start", "duration")
    recorded = before.filter(pl.col("category") != "metadata").select(kept)
    assert recorded.join(after.select(kept), on=kept, how="anti").is_empty()
    assert run.replayed_ns == run.measured_ns
    added = after.join(before.select(kept), on=kept, how="anti")
    # each takes a nanosecond for every call in it: less than 1 % of the launch
    assert added["duration"].max() < 200


def operator(name: str, ts: float, dur: float, *dims: Any, values: Any = ()) -> dict[str, Any]:
    stated = {"Input Dims": dims, "Concrete Inputs": values, "Input type": ["c10::BFloat16"] * 8}
    return event("cpu_op", name, ts, dur, **stated)


@pytest.mark.parametrize("routed", [True, False])
def test_experts_and_attention_have_rates_from_the_capture_and_the_step(
    tmp_path: Path, routed: bool
) -> None:
    captured = [
        event("cuda_runtime", "cudaStreamBeginCapture", 1, 1),
        operator("vllm::moe_forward", 5, 60, [4, 16], [4, 8], []),
        operator("aten::view", 10, 2, [8, 16, 64], []),
        operator("aten::view", 20, 2, [8, 32, 16], []),
        event("cuda_runtime", "cudaLaunchKernel", 30, 5, kernel="experts"),
        operator("vllm::unified_attention_with_output", 70, 20, [4, 8, 32], [4, 2, 32], [4, 2, 32]),
        event("cuda_runtime", "cudaLaunchKernel", 75, 5, kernel="attention"),
        event("cuda_runtime", "cudaStreamEndCapture", 99, 1),
    ]
    kernels = ["experts", "attention"]
    if routed:
        captured.append(operator("aten::topk", 12, 6, [4, 8], [], values=["", "2"]))
        captured.append(event("cuda_runtime", "cudaLaunchKernel", 14, 2, kernel="topk"))
        kernels = ["topk", *kernels]
    sums = "sq4sk90sqsq4sqsk90"
    steps = [f"execute_4_context_0(sq0sk0sqsq0sqsk0)_generation_4({sums})", "step[DECODE bs=4]"]
    trace = joined(tmp_path, replay([kernels] * 2, steps), captured)
    rates = {row["shape"]: row for row in analyze.operator_rates(trace).to_dicts()}
    flops = {shape: row["flops"] for shape, row in rates.items()}
    experts = {"4 tokens, 8 experts of 16 x 32": 2 * 4 * 2 * 16 * 32 * 3}
    assert flops == {
        **(experts if routed else {"unknown: how many experts a token goes to": None}),
        "8 heads, 4 of 90, 32": 2 * 8 * 64 * 90,
        "unknown: lengths of the step's sequences": None,
    }
    assert all(row["sum_ns"] in (2000, 4000, 8000) for row in rates.values())


def test_without_names_kernels_are_paired_by_position(tmp_path: Path) -> None:
    trace = joined(tmp_path, replay([names(MODEL)]), capture([MODEL], names=False))
    assert found(trace) == MODEL
    assert issues(trace) == {"graphs.by-position": 4}


@pytest.mark.parametrize(("tokens", "size"), [(3, 4), (4, 4), (5, 16), (16, 16)])
def test_the_least_batch_size_that_holds_the_step_is_taken(
    tmp_path: Path, tokens: int, size: int
) -> None:
    step = f"execute_context_0(0)_generation_{tokens}({tokens})"
    sizes = [capture([MODEL], size=one, label=f"capture_{one}_FULL") for one in (64, 16, 4)]
    trace = joined(tmp_path, replay([names(MODEL)] * 2, [step] * 2), *sizes)
    rates = analyze.operator_rates(trace).filter(operator="aten::mm")
    assert rates["shape"].to_list() == [f"{size} x 32 x 16"]


def test_the_size_of_a_capture_without_a_label_is_what_inputs_begin_with(tmp_path: Path) -> None:
    sizes = [capture([MODEL], size=one) for one in (64, 16)]
    trace = joined(tmp_path, replay([names(MODEL)], ["step[DECODE bs=20]"]), *sizes)
    assert analyze.operator_rates(trace)["shape"].to_list() == ["64 x 32 x 16"]


def test_a_size_that_nothing_tells_is_said_to_be_a_guess(tmp_path: Path) -> None:
    sizes = [capture([MODEL], size=one) for one in (64, 16)]
    trace = joined(tmp_path, replay([names(MODEL)] * 2), *sizes)
    assert issues(trace) == {"graphs.joined": 8, "graphs.size": 8}
    shapes = analyze.operator_rates(trace)["shape"].to_list()
    assert shapes == ["64 x 32 x 16"]  # the same one for both


def test_pieces_of_equal_kernels_follow_each_other(tmp_path: Path) -> None:
    layers = [[work._replace(module=f"Layer_{number}") for work in LAYER] for number in range(3)]
    trace = joined(tmp_path, replay([names(LAYER)] * 6), capture(layers))
    assert found(trace) == [work for layer in layers * 2 for work in layer]


def test_node_ids_tell_the_order_of_streams_that_run_beside_each_other(tmp_path: Path) -> None:
    mixed = [MODEL[3], MODEL[0], MODEL[2], MODEL[1]]  # both gemms in the other order
    nodes = [8, 5, 7, 6]
    by_name = replay([names(mixed)], streams=[7, 8, 7, 8])
    trace = joined(tmp_path, by_name, capture([MODEL]))
    wrong = [one._replace(module=other.module) for one, other in zip(mixed, mixed, strict=True)]
    wrong[0], wrong[3] = wrong[3], wrong[0]
    assert found(trace) == wrong  # by name the first gemm is that of the capture
    told = replay([names(mixed)], streams=[7, 8, 7, 8], nodes=nodes)
    assert found(joined(tmp_path, told)) == mixed


def test_what_does_not_match_is_counted_and_stays(tmp_path: Path) -> None:
    graphs = [names(MODEL), ["other"] * 4, ["gemm"]]
    trace = joined(tmp_path, replay(graphs), capture([MODEL]))
    assert found(trace)[:4] == MODEL
    assert found(trace)[4:] == [Work(name, "", "") for name in ["other"] * 4 + ["gemm"]]
    rows = trace.issues.filter(pl.col("code") == "graphs.unmatched")
    assert sorted(rows["count"]) == [1, 4]


def test_without_a_capture_the_recording_says_what_it_lacks(tmp_path: Path) -> None:
    trace = joined(tmp_path, replay([names(MODEL)]))
    assert issues(trace) == {"graphs.no-capture": 4}


def test_a_launch_that_is_too_short_for_its_operators_stays_as_it_is(tmp_path: Path) -> None:
    trace = joined(tmp_path, replay([names(MODEL)], lasts=0.01), capture([MODEL]))
    assert issues(trace) == {"graphs.unmatched": 4}
    assert found(trace) == [Work(name, "", "") for name in names(MODEL)]


def test_an_earlier_recording_without_graphs_serves(tmp_path: Path) -> None:
    eager = [one for one in capture([[*MODEL[:1], *MODEL]]) if "Capture" not in one["name"]]
    eager += [
        event("kernel", work.kernel, 1115.0 + 100 * at, 2.0, correlation=at + 1, device=0, stream=7)
        for at, work in enumerate([*MODEL[:1], *MODEL])
    ]
    file = write(tmp_path / "eager.json", eager)
    trace = joined(tmp_path, replay([names(MODEL)] * 2), capture=file)
    assert found(trace) == MODEL * 2
    assert issues(trace) == {"graphs.earlier": 8}


def test_modules_are_selected_and_timed(tmp_path: Path) -> None:
    write(tmp_path / "graph_capture_rank_0.json", capture([MODEL]))
    file = write(tmp_path / "step.json", replay([names(MODEL)] * 2))
    run = nadi.run(file, by="module")
    assert run.modules is not None
    times = dict(run.modules.table.select("module", "forward_device").iter_rows())
    assert times["Linear_0"] == times["Linear_1"] == 4_000
    chosen = select(run.graph, Selection(kinds=("kernel",), inside="Linear"))
    assert chosen.sum() == 4


def test_the_recording_of_the_capture_may_be_the_recording_itself(tmp_path: Path) -> None:
    later = [one | {"ts": one["ts"] + 5000} for one in replay([names(MODEL)])]
    assert found(joined(tmp_path, capture([MODEL]) + later)) == MODEL


def test_the_option_of_run_takes_a_file_and_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "here" / "step.json", replay([names(MODEL)]))
    elsewhere = write(tmp_path / "there" / "graphs.json", capture([MODEL]))
    for place in (elsewhere, elsewhere.parent):
        folder = tmp_path / place.name / "results"
        assert main(["run", str(file), "--capture", str(place), "-o", str(folder)]) == 0
        summary = json.loads((folder / "summary.json").read_text())
        counts = {one["code"]: one["count"] for one in summary["issues"]}
        assert counts["graphs.joined"] == 4
        assert "matched by name and order [4x]" in capsys.readouterr().out
    assert main(["run", str(file)]) == 0
    assert "nadi run TRACE --capture FILE" in capsys.readouterr().out


def test_all_commands_take_captures_from_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(write(tmp_path / "here" / "step.json", replay([names(MODEL)] * 2)))
    given = ["--capture", str(write(tmp_path / "there" / "graphs.json", capture([MODEL])))]
    page = tmp_path / "page.html"
    for words in (
        ["analyze", "rates", file], ["what-if", file, "remove in=Norm_0"], ["waits", file],
        ["critical-path", file], ["diff", file, file], ["report", file, "-o", str(page)],
        ["analyze", "rates", file, "--window", "0us:50us"],
    ):  # fmt: skip
        assert main([*words, *given]) == 0
        if words[0] == "analyze":
            assert "4 x 32 x 16" in capsys.readouterr().out
    assert "Norm_0" in page.read_text()
    assert main(["what-if", file, "remove in=Norm_0"]) == 2  # nothing tells the module


def test_ranks_that_are_analysed_one_after_the_other_are_joined(tmp_path: Path) -> None:
    for rank in range(2):
        events = replay([names(MODEL)])
        place = write(tmp_path / f"rank_{rank}.json", events)
        content = {"traceEvents": events, "distributedInfo": {"rank": rank, "world_size": 2}}
        place.write_text(json.dumps(content))
    write(tmp_path / "capture_traces" / "graph.json", capture([MODEL]))
    rates = analyze.analyze("rates", tmp_path)
    assert rates.select("rank", "count", "sum_ns").rows() == [(0, 2, 4000), (1, 2, 4000)]
