"""Flame graphs and their tables used with mouse and keys; their sums against those of Python."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest

import nadi
from nadi.analyses.recorded.call_stacks import Frame, compared_frames, describe_flame
from nadi.analyses.recorded.events import events_of
from nadi.cli import main
from nadi.units import format_ns
from tests.analyze.test_compared_runs import recording
from tests.report.headless_browser import Browser

FRAMES = "return [...document.querySelectorAll('{} .frame')].map((f) => +f.dataset.frame)"
ROWS = (
    "return [...document.querySelectorAll('{} .frame-table tbody tr')].map((row) => "
    "[...row.cells].map((c) => c.querySelector('data') ? +c.querySelector('data').value"
    " : c.textContent))"
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    place = tmp_path_factory.mktemp("two")
    return recording(place / "before"), recording(place / "after", kernel=80, extra=True)


@pytest.fixture
def opened(browser: Browser, demo_folder: Path, tmp_path: Path) -> Browser:
    page = tmp_path / "page.html"
    assert main(["report", str(demo_folder), "-o", str(page)]) == 0
    browser.open(page)
    return browser


@pytest.fixture
def compared(browser: Browser, folders: tuple[Path, Path], tmp_path: Path) -> Browser:
    page = tmp_path / "page.html"
    assert main(["report", *map(str, folders), "-o", str(page)]) == 0
    browser.open(page)
    return browser


def pick(browser: Browser, section: str, value: str) -> None:
    browser.run("document.querySelector(arguments[0]).scrollIntoView()", f"{section} .flame")
    browser.run("scrollBy(0, -80)")
    selector = f"{section} .flame [data-value='{value}']"
    browser.driver.find_element("css selector", selector).click()


def by_name(frames: list[Frame], inside: int = -1) -> dict[str, Counter[str]]:
    """Sum frames, or those in one, by name; a name within itself counts in its total once."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    around: list[str] = []
    for at, frame in enumerate(frames):
        if inside >= 0 and at > inside and frame.depth <= frames[inside].depth:
            break
        around = [*around[: frame.depth], frame.name]
        if at < inside:
            continue
        above = around[frames[max(inside, 0)].depth : -1]
        sums = found[frame.name]
        sums["calls"] += frame.calls
        sums["self"] += frame.self_ns
        if frame.name not in above:
            sums["total"] += frame.total_ns
    return found


def test_a_table_sums_the_frames_that_are_zoomed_to(
    opened: Browser, demo_run: nadi.bottlenecks.Run
) -> None:
    from selenium.webdriver.common.keys import Keys

    between = tuple(
        moment + demo_run.job.origin
        for moment in (demo_run.window.start(demo_run.graph.time),
                       demo_run.window.end(demo_run.graph.time))
    )  # fmt: skip
    frames = [Frame(**one) for one in describe_flame(
        map(events_of, demo_run.job.traces), (between[0], between[1]))]  # fmt: skip
    box = opened.driver.find_element("css selector", "#flame .frames")
    for key in (Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER):
        box.send_keys(key)
    root = opened.run("return nadiFlames[0].root")
    assert frames[root].depth == 1
    pick(opened, "#flame", "names")
    rows = opened.run(ROWS.format("#flame"))
    expected = by_name(frames, root)
    assert len(rows) == len(expected) > 5
    for name, calls, total, alone in rows:
        assert [calls, total, alone] == [expected[name][key] for key in ("calls", "total", "self")]
    assert [row[3] for row in rows] == sorted((row[3] for row in rows), reverse=True)
    head = opened.driver.find_element("css selector", "#flame .frame-table th:nth-child(2) button")
    head.click()
    calls = [row[1] for row in opened.run(ROWS.format("#flame"))]
    assert calls == sorted(calls, reverse=True)
    opened.driver.find_element("css selector", "#flame [data-out]").click()
    whole = opened.run(ROWS.format("#flame"))
    assert {row[0]: row[3] for row in whole} == {
        name: sums["self"] for name, sums in by_name(frames).items()
    }
    pick(opened, "#flame", "paths")
    paths = opened.run(ROWS.format("#flame"))
    assert sum(row[3] for row in paths[:200]) <= sum(frame.self_ns for frame in frames)
    assert paths[0][3] == max(frame.self_ns for frame in frames)
    opened.driver.find_element("css selector", "#flame input[type=search]").send_keys("/mm$/")
    found = opened.run(ROWS.format("#flame"))
    assert found
    assert all(row[0].endswith("mm") for row in found)
    assert opened.complaints() == []


def test_callers_turn_the_frames_over(opened: Browser, demo_run: nadi.bottlenecks.Run) -> None:
    frames = opened.run("return nadiFlames[0].frames.map((f) => [f.name, f.sides[0].self])")
    alone: Counter[str] = Counter()
    for name, time in frames:
        alone[name] += time
    pick(opened, "#flame", "callers")
    tops = opened.run(
        "const f = nadiFlames[0]; return f.roots().map((at) => [f.frames[at].name, f.value(at)])"
    )
    assert Counter(dict(tops)) == alone
    first = opened.run(FRAMES.format("#flame"))[0]
    told = opened.run("return nadiFlames[0].frames[arguments[0]].name", first)
    assert told == alone.most_common(1)[0][0]
    inside = opened.run(
        "const f = nadiFlames[0]; return f.frames.map((one, at) => one.parent < 0 ? 0 : "
        "f.value(one.parent) - f.frames[one.parent].inner.reduce((s, i) => s + f.value(i), 0))"
    )
    assert min(inside) >= 0


def test_two_recordings_are_one_picture(compared: Browser, folders: tuple[Path, Path]) -> None:
    found = nadi.bottlenecks.diff(*folders)
    calls = found.calls.to_dicts()
    pick(compared, "#diff", "names")
    rows = {row[0]: row[1:] for row in compared.run(ROWS.format("#diff"))}
    expected: dict[str, Counter[str]] = defaultdict(Counter)
    for row in calls:
        for key in ("count_before", "count_after", "before_ns", "after_ns"):
            expected[row["path"].split(" > ")[-1]][key] += row[key]
    for name, (before, after, *_, was, became, change) in rows.items():
        sums = expected[name]
        assert [before, after] == [round(sums["count_before"]), round(sums["count_after"])]
        assert (was, became) == pytest.approx((sums["before_ns"], sums["after_ns"]), abs=4)
        assert change == became - was
    assert set(rows) == {name for name, sums in expected.items() if any(sums.values())}
    pick(compared, "#diff", "graph")
    look = (
        "const f = nadiFlames[0]; return f.frames.map((one, at) => [one.name, f.value(at, 0), "
        "f.value(at, 1), f.change(at)])"
    )
    for _, was, became, color in compared.run(look):
        assert ("--flame-more" in color) == (became > was)
        if became == was:
            assert " 0%" in color
    at = compared.run(FRAMES.format("#diff"))[0]
    compared.driver.find_element("css selector", f"#diff .frame[data-frame='{at}']").click()
    told = compared.driver.find_element("css selector", "#diff .frame-details").text
    name, was, became, _ = compared.run(look)[at]
    assert told.startswith(f"{name}: {format_ns(was)} → {format_ns(became)} (")
    pick(compared, "#diff", "device")
    device = sum(row["device_before_ns"] for row in calls)
    assert compared.run("return nadiFlames[0].roots().reduce((s, at) => s + nadiFlames[0].value("
                        "at, 0), 0)") == pytest.approx(device, abs=4)  # fmt: skip
    assert compared.complaints() == []


def test_paths_go_into_each_other_whatever_names_have_in_them() -> None:
    def row(path: str, before: float, after: float) -> dict[str, float | str]:
        return {"path": path, "count_before": 1, "count_after": 2, "before_ns": before,
                "after_ns": after, "device_before_ns": 5, "device_after_ns": 0}  # fmt: skip

    rows = [row("a > f<b > > > c", 30, 1), row("a > f<b > >", 200, 50), row("a", 1000, 2000)]
    frames = compared_frames(rows, "path", " > ")
    assert [one[0].name for one in frames] == ["a", "f<b > >", "c"]
    assert [one[0].depth for one in frames] == [0, 1, 2]
    assert [one[0].total_ns for one in frames] == [1230, 230, 30]
    assert [one[1].total_ns for one in frames] == [2051, 51, 1]
    assert [one[0].device_ns for one in frames] == [15, 10, 5]
    assert frames[0][1].calls == 2
    assert compared_frames([], "path", " > ") == []
