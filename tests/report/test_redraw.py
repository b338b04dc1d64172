"""Schedules before and after changes, drawn side by side, read back in both formats."""

from __future__ import annotations

import gzip
import json
import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import pytest
from hypothesis import HealthCheck, example, given, settings

import nadi
from nadi.cli import main
from nadi.files.timeline.timeline_values import find_lanes
from nadi.graph.replay import Replay
from tests.amounts import ALL, examples
from tests.conftest import PairWriter
from tests.graph.test_graph_laws import EVERY_KIND, QUEUED, Description, jobs, load as load_job
from tests.reference.perfetto_import import load as load_perfetto

pytestmark = pytest.mark.usefixtures("demo_read_once")

CHANGES = (
    "scale . 0.5", "scale kind=device 0", "scale aten 3", "remove aten::mm", "remove kind=kernel",
    "move gemm to 99", "fuse kind=kernel", "no-overhead", "remove kind=communication",
)  # fmt: skip


@pytest.fixture(scope="module")
def two_ranks(demo_folder: Path) -> nadi.bottlenecks.Run:
    return nadi.run(*demo_folder.glob("*_[01].json.gz"))


class Drawn(NamedTuple):
    """One slice; times in ns."""

    process: str
    track: str
    category: str
    name: str
    start: int
    end: int
    node: int = -1
    critical: bool = False
    longest: str = ""


@dataclass
class Drawing:
    """A file, whatever its format."""

    title: str
    processes: list[str] = field(default_factory=list)
    slices: list[Drawn] = field(default_factory=list)
    arrows: list[tuple[tuple[str, str, int], tuple[str, str, int]]] = field(default_factory=list)

    def of_process(self, process: str) -> list[Drawn]:
        return [s for s in self.slices if s.process == process and not s.longest]

    def path(self, suffix: str) -> list[Drawn]:
        """Give the slices of a path through all processes of one part."""
        found = (s for s in self.slices if s.longest and s.process.endswith(suffix))
        return sorted(found, key=lambda s: s.start)


def read_json(path: Path) -> Drawing:
    content = path.read_bytes()
    content = gzip.decompress(content) if path.name.endswith(".gz") else content
    data = json.loads(content, parse_float=Decimal)
    drawing = Drawing(data["otherData"]["title"])
    said: dict[str, dict[Any, Any]] = defaultdict(dict)
    ends: dict[str, dict[int, Any]] = {"s": {}, "f": {}}
    for e in data["traceEvents"]:
        if e["ph"] == "M":
            key = e["pid"] if e["name"].startswith("process") else (e["pid"], e["tid"])
            (said[e["name"]][key],) = e["args"].values()
    for e in data["traceEvents"]:
        if e["ph"] == "M":
            continue
        process, track = said["process_name"][e["pid"]], said["thread_name"][e["pid"], e["tid"]]
        start = int(e["ts"] * 1000)
        if e["ph"] != "X":
            ends[e["ph"]][e["id"]] = (process, track, start)
            continue
        args = e["args"]
        assert ("cname" in e) == ("critical" in args or "longest operation" in args)
        drawing.slices.append(Drawn(
            process, track, e["cat"], e["name"], start, start + int(e["dur"] * 1000),
            args.get("node", -1), "cname" in e, args.get("longest operation", ""),
        ))  # fmt: skip
    order = said["process_sort_index"]
    drawing.processes = [said["process_name"][pid] for pid in sorted(order, key=order.get)]
    assert ends["s"].keys() == ends["f"].keys()
    drawing.arrows = [(tail, ends["f"][number]) for number, tail in ends["s"].items()]
    return drawing


def read_perfetto(path: Path) -> Drawing:
    timeline = load_perfetto(path.read_bytes())
    of_all, *others = timeline.tracks.values()
    drawing = Drawing(of_all.name)
    processes = [t for t in others if t.parent_uuid == of_all.uuid]
    assert of_all.child_ordering == 3
    assert all(process.child_ordering == 3 for process in processes)
    processes.sort(key=lambda t: t.sibling_order_rank)
    drawing.processes = [process.name for process in processes]

    def place(number: int) -> tuple[str, str]:
        track = timeline.tracks[number]
        return timeline.tracks[track.parent_uuid].name, track.name

    for s in timeline.slices:
        drawing.slices.append(Drawn(
            *place(s.track), s.category, s.name, s.start, s.end, s.notes.get("node", -1),
            s.notes.get("critical") == 1, s.notes.get("longest operation", ""),
        ))  # fmt: skip
    drawing.arrows = [
        ((*place(tail.track), tail.start), (*place(head.track), head.start))
        for tail, head in timeline.flows
    ]
    return drawing


READERS = {"drawing.json": read_json, "drawing.pftrace": read_perfetto}


def expected_operations(replay: Replay, path: nadi.graph.CriticalPath, title: str) -> list[Drawn]:
    """Give the slices of a replay, operation by operation, on the first lane of its track."""
    graph = replay.graph
    columns = ("id", "name", "category", "is_cpu", "thread", "device", "duration")
    nodes = [trace.nodes.select(columns).rows() for trace in graph.job.traces]
    ranks = graph.job.ranks
    on_path = set(path.segments.select("rank", "node").rows())
    found = []
    for op in range(graph.num_ops):
        trace, row = int(graph.op_trace[op]), int(graph.op_row[op])
        number, name, category, is_host, thread, device, duration = nodes[trace][row]
        start, end = int(replay.time[2 * op]), int(replay.time[2 * op + 1])
        if duration and start == end:
            continue
        rank, stream = ranks[trace], graph.op_stream[op]
        track = f"thread {thread}" if is_host else f"device {device} stream {stream}"
        found.append(Drawn(
            f"rank {rank} {title}".strip(), track, category, name, start, end, number,
            (rank, row) in on_path,
        ))  # fmt: skip
    return sorted(found)


def without_lanes(slices: Iterable[Drawn]) -> list[Drawn]:
    plain = (s._replace(track=s.track.partition(" (")[0]) for s in slices)
    return sorted(plain)


def check_part(drawing: Drawing, replay: Replay, path: nadi.graph.CriticalPath, title: str) -> None:
    found = [s for s in drawing.slices if not s.longest and s.process.endswith(title)]
    assert without_lanes(found) == expected_operations(replay, path, title)
    shown = drawing.path(title)
    assert {s.track for s in shown} <= {"critical path"}
    for one, other in pairwise(shown):
        assert one.end == other.start
    by_kind: Counter[str] = Counter()
    for s in shown:
        by_kind[s.name] += s.end - s.start
    assert by_kind == Counter({kind: time for kind, time in path.by_kind().items() if time})
    assert sum(by_kind.values()) == path.length


def check_drawing(drawing: Drawing, answer: nadi.whatif.WhatIf) -> None:
    ranks = answer.graph.job.ranks
    assert drawing.processes == [f"rank {r} {t}" for r in ranks for t in ("before", "after")]
    measured = nadi.graph.replay_graph(answer.graph)
    path = nadi.critical_path(measured, answer.window)
    assert measured.time.tolist() == answer.graph.time.tolist()
    check_part(drawing, measured, path, "before")
    check_part(drawing, answer.replay, answer.path, "after")
    assert answer.path.length == answer.window_ns
    assert path.length == answer.measured_ns
    starts = {(s.process, s.track, s.start) for s in drawing.slices if not s.longest}
    for tail, head in drawing.arrows:
        assert tail in starts
        assert head in starts
        assert tail[2] <= head[2]
        assert tail[0].split()[-1] == head[0].split()[-1]  # no arrow leads from before to after


def check_redraw(answer: nadi.whatif.WhatIf, folder: Path) -> dict[str, Drawing]:
    drawings = {}
    for name, read in READERS.items():
        issues = dict(nadi.redraw(answer, folder / name).select("code", "count").iter_rows())
        drawing = drawings[name] = read(folder / name)
        check_drawing(drawing, answer)
        vanished = 2 * answer.graph.num_ops - sum(not s.longest for s in drawing.slices)
        assert issues.get("timeline.no-time", 0) == vanished
        assert issues.keys() <= {"timeline.no-time", "perfetto.arrow"}
        drawing.arrows.sort()
        if "perfetto.arrow" not in issues:
            assert drawing.arrows == drawings["drawing.json"].arrows
    one, other = drawings.values()
    assert one.title == other.title
    assert sorted(one.slices, key=str) == sorted(other.slices, key=str)
    return drawings


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow])
@given(jobs)
@example(EVERY_KIND)
@example(QUEUED)
def test_random_jobs_come_back_from_both_formats(description: Description) -> None:
    graph = nadi.build_graph(load_job(description))
    # the whole list for each job of long runs; here others for each job
    changes = CHANGES if ALL else random.Random(repr(description)).sample(CHANGES, 3)
    with tempfile.TemporaryDirectory() as folder:
        for change in changes:
            try:
                answer = nadi.what_if(graph, change)
            except nadi.errors.UsageError:  # there is nothing of this kind in this job
                continue
            check_redraw(answer, Path(folder))


@pytest.mark.parametrize(
    "changes", [["remove gloo", "scale aten 2"], ["scale aten::copy_ 0.5"]][: 2 if ALL else 1]
)
def test_the_demo_comes_back_from_both_formats(
    changes: list[str], two_ranks: nadi.bottlenecks.Run, tmp_path: Path
) -> None:
    answer = nadi.what_if(two_ranks.graph, *changes, window=two_ranks.window)
    drawings = check_redraw(answer, tmp_path)
    for drawing in drawings.values():
        assert drawing.title == f"{two_ranks.window.name}: {'; '.join(changes)}"
        assert len(drawing.arrows) > 100


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("gpu_simple_add_pair", ["scale kind=kernel 10"]),
        ("gpu_hta/cuda_event_sync_multi_stream.json.gz", ["move kind=kernel to 5", "no-gaps"]),
        ("gpu_dlrm8", ["remove kind=communication"]),
    ],
)
def test_real_jobs_come_back_from_both_formats(
    name: str, changes: list[str], shared_traces: Path, tmp_path: Path
) -> None:
    graph = nadi.build_graph(nadi.load_job(shared_traces / name))
    drawings = check_redraw(nadi.what_if(graph, *changes), tmp_path)
    assert all(drawing.arrows for drawing in drawings.values())


def test_a_change_of_nothing_shows_the_same_twice(
    two_ranks: nadi.bottlenecks.Run, tmp_path: Path
) -> None:
    answer = nadi.what_if(two_ranks.graph, "scale aten::copy_ 1", window=two_ranks.window)
    for name, read in READERS.items():
        nadi.redraw(answer, tmp_path / name)
        drawing = read(tmp_path / name)
        for rank in range(2):
            before, after = (
                [s._replace(process="") for s in drawing.of_process(process)]
                for process in (f"rank {rank} before", f"rank {rank} after")
            )
            assert len(before) > 1000
            assert sorted(before, key=str) == sorted(after, key=str)


def test_without_changes_the_job_is_drawn_once(
    two_ranks: nadi.bottlenecks.Run, tmp_path: Path
) -> None:
    answer = nadi.what_if(two_ranks.graph, window=two_ranks.window)
    for name, read in READERS.items():
        issues = nadi.redraw(answer, tmp_path / name)
        drawing = read(tmp_path / name)
        assert issues.is_empty() or issues["code"].to_list() == ["perfetto.arrow"]
        assert drawing.processes == [f"rank {rank}" for rank in range(2)]
        check_part(drawing, two_ranks.replay, two_ranks.path, "")


def two_streams(pair: PairWriter) -> nadi.EventGraph:
    pair.op("aten::mm", 0, 200)
    for number, (name, stream, start) in enumerate(
        [("gemm", 7, 20), ("relu", 7, 60), ("tanh", 8, 30), ("gemm", 7, 100)], start=1
    ):
        pair.event("cudaLaunchKernel", 4 * number, 2, "cuda_runtime", correlation=number)
        pair.event(name, start, 40, "kernel", pid=0, tid=stream, stream=stream, device=0,
                   correlation=number)  # fmt: skip
    return nadi.build_graph(nadi.load_job(*pair.write()))


def streams(graph: nadi.EventGraph) -> dict[str, set[int]]:
    found: dict[str, set[int]] = defaultdict(set)
    for name, stream in zip(graph.op_names, graph.op_stream.tolist(), strict=True):
        found[name].add(stream)
    return {name: found[name] for name in ("gemm", "relu", "tanh")}


def test_moved_work_is_on_its_new_stream(pair: PairWriter, tmp_path: Path) -> None:
    graph = two_streams(pair)
    answer = nadi.what_if(graph, "move relu to 9")
    for drawing in check_redraw(answer, tmp_path).values():
        tracks = {s.name: s.track for s in drawing.of_process("rank 0 after")}
        assert (tracks["relu"], tracks["gemm"]) == ("device 0 stream 9", "device 0 stream 7")
        before = {s.name: s.track for s in drawing.of_process("rank 0 before")}
        assert before["relu"] == "device 0 stream 7"
    segments = answer.path.segments.filter(name="relu")
    assert set(segments["stream"]) <= {9}
    table = answer.replay.schedule().table
    assert "device 0 stream 9" in table["resource"].to_list()


def test_work_that_was_moved_stays_there_in_further_changes(pair: PairWriter) -> None:
    graph = two_streams(pair)
    answer = nadi.what_if(graph, "move relu to 9", "move tanh to 10")
    assert streams(answer.replay.graph) == {"gemm": {7}, "relu": {9}, "tanh": {10}}
    assert streams(graph) == {"gemm": {7}, "relu": {7}, "tanh": {8}}
    by_stream = nadi.what_if(graph, "move relu to 9", "scale stream=9 0.5")
    by_name = nadi.what_if(graph, "move relu to 9", "scale relu 0.5")
    assert by_stream.replay.time.tolist() == by_name.replay.time.tolist()
    assert (
        by_name.replay.time.tolist() != nadi.what_if(graph, "move relu to 9").replay.time.tolist()
    )


def test_work_of_a_stream_does_not_overlap_after_it_moved(shared_traces: Path) -> None:
    graph = nadi.build_graph(nadi.load_job(shared_traces / "gpu_resnet_pair"))
    answer = nadi.what_if(graph, "move gemm kind=device to 99")
    works = graph.gather("category").is_in(["kernel", "memcpy", "memset"]).to_numpy()
    time = answer.replay.time[: 2 * graph.num_ops].reshape(-1, 2)[works]
    stream = answer.replay.graph.op_stream[works]
    assert (stream == 99).any()
    for number in {7, 99}:
        rows = time[stream == number]
        rows = rows[rows[:, 0].argsort(kind="stable")]
        assert (rows[:-1, 1] <= rows[1:, 0]).all()


def test_what_was_removed_is_not_drawn(pair: PairWriter, tmp_path: Path) -> None:
    graph = two_streams(pair)
    path = tmp_path / "drawing.json"
    answer = nadi.what_if(graph, "remove gemm")
    issues = nadi.redraw(answer, path)
    drawing = read_json(path)
    assert sum(s.name == "gemm" for s in drawing.of_process("rank 0 before")) == 2
    after = Counter(s.name for s in drawing.of_process("rank 0 after"))
    assert (after["gemm"], after["cudaLaunchKernel"], after["relu"]) == (0, 2, 1)
    assert issues.select("code", "count").rows() == [("timeline.no-time", 4)]
    part = nadi.graph.TimelinePart.of_replay(answer.replay, answer.path, "again")
    issues = nadi.graph.write_timelines(path, [part, part])
    assert issues.select("code", "count").rows() == [("timeline.no-time", 8)]


def test_an_edit_that_lets_work_end_before_it_begins_is_counted(
    pair: PairWriter, tmp_path: Path
) -> None:
    graph = two_streams(pair)
    edited: nx.DiGraph = nadi.to_networkx(graph)
    gemm = graph.op_names.to_list().index("gemm")
    edited.remove_edge(2 * gemm, 2 * gemm + 1)
    replay = nadi.graph.replay_graph(nadi.from_networkx(edited))
    assert replay.time[2 * gemm + 1] < replay.time[2 * gemm]
    window = nadi.graph.choose_window(graph, [])
    issues = nadi.graph.write_timeline(
        tmp_path / "drawing.json", replay, nadi.critical_path(replay, window)
    )
    assert dict(issues.select("code", "count").iter_rows()) == {"timeline.backwards": 1}
    assert all(s.start <= s.end for s in read_json(tmp_path / "drawing.json").slices)


def test_schedules_without_a_path_are_drawn_too(
    two_ranks: nadi.bottlenecks.Run, tmp_path: Path
) -> None:
    schedule = two_ranks.replay.schedule()
    parts = [
        nadi.graph.TimelinePart(schedule, two_ranks.job, title="simulated"),
        nadi.graph.TimelinePart.of_replay(two_ranks.replay, two_ranks.path, "measured"),
    ]
    for name, read in READERS.items():
        nadi.graph.write_timelines(tmp_path / name, parts, "both")
        drawing = read(tmp_path / name)
        assert drawing.processes[:2] == ["rank 0 simulated", "rank 0 measured"]
        plain = [s for s in drawing.slices if s.process.endswith("simulated")]
        assert len(plain) == schedule.table.height
        assert not any(s.critical or s.longest for s in plain)
        assert not any("simulated" in end[0] for arrow in drawing.arrows for end in arrow)
    with pytest.raises(nadi.errors.UsageError, match="nothing to draw"):
        nadi.graph.write_timelines(tmp_path / "none.json", [])


def test_suffixes_and_addresses(demo_run: nadi.bottlenecks.Run, tmp_path: Path) -> None:
    nadi.graph.write_timeline(tmp_path / "t.pftrace", demo_run.replay, demo_run.path)
    nadi.graph.write_timeline(tmp_path / "t.perfetto-trace.gz", demo_run.replay, demo_run.path)
    nadi.graph.write_timeline("memory://drawings/t.pftrace", demo_run.replay, demo_run.path)
    content = (tmp_path / "t.pftrace").read_bytes()
    assert gzip.decompress((tmp_path / "t.perfetto-trace.gz").read_bytes()) == content
    with pytest.raises(nadi.errors.UsageError, match=r"use \.json, \.pftrace"):
        nadi.graph.write_timeline(tmp_path / "t.svg", demo_run.replay, demo_run.path)
    nadi.graph.write_timeline(tmp_path / "t.trace.json.gz", demo_run.replay, demo_run.path)
    assert read_json(tmp_path / "t.trace.json.gz").processes[0] == "rank 0"


def test_slices_of_a_timeline_need_no_more_lanes(demo_run: nadi.bottlenecks.Run) -> None:
    from nadi.graph.timeline.schedule_timeline import draw_timeline
    from nadi.trace.issues import IssueLog

    part = nadi.graph.TimelinePart.of_replay(demo_run.replay, demo_run.path)
    slices = draw_timeline([part], "", IssueLog()).slices
    track, start, end = (slices[name].to_numpy() for name in ("track", "start", "end"))
    assert not find_lanes(track, start, end)[0].any()


def test_the_command_writes_all_changes_together_and_replaces_nothing(
    demo_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "after.json"
    changes = ["scale aten::copy_ 0.5", "remove gloo"]
    arguments = ["what-if", str(demo_folder), *changes, "--redraw", str(path)]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert f"wrote {path}" in out.replace("\n", "")
    assert "operations without a duration are not drawn" in out
    drawing = read_json(path)
    assert drawing.title.endswith("; ".join(changes))
    path.write_bytes(b"older")
    assert main(arguments) == 2
    assert "exists already" in capsys.readouterr().err
    assert path.read_bytes() == b"older"
    assert main([*arguments, "--overwrite", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    together = read_json(path)
    assert together.slices == drawing.slices
    length = sum(s.end - s.start for s in together.path("after"))
    assert length == data["together"]["window_ns"]


def test_the_command_writes_to_addresses(
    demo_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = "memory://redrawn/measured.pftrace"
    assert main(["what-if", str(demo_folder), "--redraw", address]) == 0
    assert f"wrote {address}" in capsys.readouterr().out.replace("\n", "")
    assert main(["what-if", str(demo_folder), "--redraw", address]) == 2
    assert "exists already" in capsys.readouterr().err


def test_the_command_draws_the_measured_path_without_changes(
    demo_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "measured.pftrace"
    assert main(["what-if", str(demo_folder), "--step", "2", "--redraw", str(path)]) == 0
    drawing = read_perfetto(path)
    assert (drawing.title, drawing.processes[0]) == ("step 2", "rank 0")
    assert "no communication" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--redraw", "after.svg"], "names no timeline format"),
        (["--redraw", "/dev/null/after.json"], "cannot be written"),
        (["scale aten {}", "--sweep", "1,2", "--redraw", "after.json"], "draws one result"),
    ],
)
def test_what_cannot_be_drawn_is_said_before_anything_is_read(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["what-if", "no-such-folder", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
