"""Flame graphs: sums by path of calls are those that a plain walk gives."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import nadi
from nadi.analyses.recorded.call_stacks import describe_flame, module_frames
from nadi.analyses.recorded.events import events_of
from nadi.cli import main
from tests.analyze.test_compared_runs import recording
from tests.conftest import PairWriter
from tests.report.page_numbers import read_page

_FOREVER = 2**62


def plain_sums(trace: nadi.Trace) -> Counter[tuple[str, ...]]:
    """Sum self times by path, event by event."""
    nodes = trace.nodes.select("name", "category", "start", "duration", "parent").to_dicts()
    sums: Counter[tuple[str, ...]] = Counter()
    host = ("annotation", "python", "operator", "runtime", "driver")
    paths: dict[int, tuple[str, ...]] = {}
    for row, node in enumerate(nodes):
        if node["category"] not in host or node["start"] < 0:
            continue
        name = "ProfilerStep" if node["name"].startswith("ProfilerStep#") else node["name"]
        above = paths.get(node["parent"], ())
        paths[row] = (*above, name)
        sums[paths[row]] += node["duration"]
        if above:
            sums[above] -= node["duration"]
    return sums


def test_self_times_are_those_of_a_plain_walk(pair: PairWriter) -> None:
    for step in (1, 2):
        begin = 1000.0 * step
        pair.event(f"ProfilerStep#{step}", begin, 900, "user_annotation")
        for k in range(3):
            pair.op("aten::linear", begin + 100 + 200 * k, 150 + k)
            pair.op("aten::mm", begin + 110 + 200 * k, 50)
            pair.op("aten::add", begin + 180 + 200 * k, 20)
    trace = nadi.load_job(*pair.write()).traces[0]
    frames = describe_flame([events_of(trace)], (-1, _FOREVER))
    around: list[str] = []
    found: Counter[tuple[str, ...]] = Counter()
    totals: dict[tuple[str, ...], int] = {}
    for frame in frames:
        around = [*around[: frame["depth"]], frame["name"]]
        found[tuple(around)] += frame["self_ns"]
        totals[tuple(around)] = frame["total_ns"]
    assert found == plain_sums(trace)
    for path, total in totals.items():
        inside = sum(time for other, time in found.items() if other[: len(path)] == path)
        assert total == inside
    assert [frame["name"] for frame in frames][:2] == ["ProfilerStep", "aten::linear"]
    assert frames[0]["calls"] == 2


def test_modules_are_frames_of_their_sums(demo_run: nadi.bottlenecks.Run) -> None:
    found = nadi.graph.time_by_module(demo_run.graph, demo_run.window, demo_run.path)
    frames = module_frames(found)
    table = found.table.filter(found.table["module"] != "(outside of modules)")
    assert len(frames) == table.height
    whole = sum(table[name].sum() for name in table.columns if name.endswith("_host"))
    inside = sum(frame["total_ns"] for frame in frames)
    assert inside == whole
    tops = [frame for frame in frames if frame["depth"] == 0]
    assert sum(frame["self_ns"] for frame in frames) == sum(top["total_ns"] for top in tops)


def test_the_page_has_the_frames(tmp_path: Path) -> None:
    page, folder = tmp_path / "page.html", recording(tmp_path / "recording", extra=True)
    assert main(["report", str(folder), "--step", "4", "-o", str(page)]) == 0
    run = nadi.run(folder, step=4)
    begin, end = (moment + run.job.origin for moment in
                  (run.window.start(run.graph.time), run.window.end(run.graph.time)))  # fmt: skip
    frames = describe_flame(map(events_of, run.job.traces), (begin, end))
    shown = [text for text in read_page(page.read_text()).words if "\taten::" in text]
    lines = [line.split("\t") for line in shown[0].split("\n")]
    expected = [[str(value) for key, value in frame.items() if key != "name"] + [frame["name"]]
                for frame in frames]  # fmt: skip
    assert lines == expected
    assert min(frame["total_ns"] + frame["device_ns"] for frame in frames) > 0
