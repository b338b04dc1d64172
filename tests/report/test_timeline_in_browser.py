"""The page's timeline used with mouse and keys; its sums against those of Python."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import nadi
from nadi import analyses as analyze
from nadi.cli import main
from nadi.units import format_ns
from tests.conftest import PairWriter
from tests.report.headless_browser import Browser

KERNELS = [
    (
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
        "at::detail::Array<char*, 1> >(int, at::native::FillFunctor<float>)"
    ),
    (
        "void at::native::vectorized_elementwise_kernel<8, at::native::FillFunctor<float>, "
        "at::detail::Array<char*, 1> >(int, at::native::FillFunctor<float>)"
    ),
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)",
]


@pytest.fixture(scope="module")
def page(demo_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("timeline") / "page.html"
    assert main(["report", str(demo_folder), "-o", str(path)]) == 0
    return path


@pytest.fixture
def opened(browser: Browser, page: Path) -> Browser:
    browser.run("window.stop()")
    browser.open(page)
    return browser


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a recording of two streams: kernels, a collective, a copy; gives its folder."""
    folder = tmp_path_factory.mktemp("device")
    pair = PairWriter(folder)
    pair.event("ProfilerStep#1", 0, 1000, "user_annotation")
    pair.event("autograd::engine::evaluate_function: A", 500, 100, tid=2)
    for i in range(30):
        name, stream = KERNELS[i % 3], 20 if i % 3 == 2 else 7
        pair.event("aten::fill_", 10 + 20 * i, 15)
        pair.event("cudaLaunchKernel", 12 + 20 * i, 5, "cuda_runtime", correlation=i + 1)
        pair.event(name, 60 + 25 * i, 18 + i, "kernel", correlation=i + 1, device=0,
                   stream=stream, tid=stream, pid=0)  # fmt: skip
    copy = {"bytes": 4000, "memory bandwidth (GB/s)": 0.4}
    pair.event("cudaMemcpyAsync", 700, 5, "cuda_runtime", correlation=99)
    pair.event("Memcpy HtoD (Pageable -> Device)", 860, 10, "gpu_memcpy", correlation=99,
               device=0, stream=7, tid=7, pid=0, **copy)  # fmt: skip
    pair.write()
    return folder


@pytest.fixture
def of_device(browser: Browser, device: Path) -> Browser:
    path = device / "page.html"
    if not path.exists():
        assert main(["report", str(device / "device.json"), "-o", str(path)]) == 0
    browser.run("window.stop()")
    browser.open(path)
    return browser


def chain(browser: Browser) -> Any:
    from selenium.webdriver import ActionChains

    return ActionChains(browser.driver, duration=20)


def canvas(browser: Browser) -> Any:
    return browser.driver.find_element("id", "timeline-canvas")


def press(browser: Browser, *keys: str) -> None:
    from selenium.webdriver.common.keys import Keys

    for key in keys:
        canvas(browser).send_keys(getattr(Keys, key, key))


def drag(browser: Browser, begin: tuple[float, float], end: tuple[float, float]) -> None:
    """Drag with the mouse between two places of the canvas."""
    browser.run("document.getElementById('timeline').scrollIntoView()")
    # what stands beside the timeline may just have gone
    width, height = browser.run("T.view.resize(); return [T.view.width, T.view.height]")
    at = [(round(x - width / 2), round(y - height / 2)) for x, y in (begin, end)]
    moved = chain(browser).move_to_element_with_offset(canvas(browser), *at[0]).click_and_hold()
    moved.move_to_element_with_offset(canvas(browser), *at[1]).release().perform()


def line_of(browser: Browser, title: str, rank: int = 0) -> tuple[float, float, int]:
    """Give where a track is on the canvas, how tall, and its number."""
    found = browser.run(
        "const line = T.view.lines.find((l) => l.track.title.startsWith(arguments[0])"
        " && l.track.process === arguments[1]);"
        "return [...T.view.place([line.y, line.height, line.fixed]), line.track.number]",
        title, rank,
    )  # fmt: skip
    return found[0], found[1], found[2]


def area_sums(browser: Browser, way: str) -> Counter[tuple[str, str]]:
    rows = browser.run(
        "return [...T.controls.area.sums(T.view.areas.now, arguments[0]).values()]", way
    )
    return Counter({
        (row["title"], key): row[key] for row in rows for key in ("count", "time", "own")
    })  # fmt: skip


def expected_sums(schedule: pl.DataFrame, begin: int, end: int) -> Counter[tuple[str, str]]:
    """Sum the operations of a thread that overlap a range, call by call: slow, and plain."""
    found: Counter[tuple[str, str]] = Counter()
    rows = schedule.filter((pl.col("start") < end) & (pl.col("end") > begin))
    open_calls: list[tuple[int, str]] = []
    for name, start, stop in rows.sort(["start", "end"], descending=[False, True]).iter_rows():
        inside = min(stop, end) - max(start, begin)
        open_calls = [one for one in open_calls if one[0] >= stop and one[0] > start]
        found[name, "count"] += 1
        found[name, "time"] += inside
        found[name, "own"] += inside
        if open_calls:
            found[open_calls[-1][1], "own"] -= inside
        open_calls.append((stop, name))
    return found


def test_it_opens_below_the_verdict_with_the_blamed_rank(opened: Browser) -> None:
    titles = opened.run("return [...document.querySelectorAll('main > section')].map((s) => s.id)")
    assert titles[:2] == ["verdict", "timeline"]
    focus = opened.run("return T.data.focus")
    top = opened.run(
        "return T.view.heads.find((h) => h.process === T.data.focus).y - T.view.scroller.scrollTop"
    )
    assert 0 <= top < 200
    run = nadi.run(Path(nadi.__file__).parent / "data" / "demo")
    late = run.verdict.late
    by_rank = run.path.segments.group_by("rank").agg(t=(pl.col("end") - pl.col("start")).sum())
    blamed = by_rank.sort("t")["rank"][-1]
    if late is not None and run.verdict.bound_by == "straggler":
        blamed = late.rank
    assert run.job.ranks[focus] == blamed
    last = (
        "const head = T.view.heads.at(-1); return head.y - T.view.scroller.scrollTop - T.view.top"
    )
    assert opened.run(f"T.view.scroller.scrollTop = 1e6; {last}") == 0  # it would open there, too
    size = "return [T.view.width, T.view.height]"
    before = opened.run(size)
    press(opened, "m")
    after = opened.run_async(
        "requestAnimationFrame(() => requestAnimationFrame(() => done([T.view.width, "
        "T.view.height])))"
    )
    assert after[0] > before[0]
    assert after[1] > before[1]
    assert after[1] > 700
    press(opened, "m")
    assert opened.run("return T.controls.isMost") is False
    opened.driver.find_element("id", "timeline-most").click()
    assert opened.run("return T.controls.isMost") is True


def test_an_area_is_summed_as_in_python(opened: Browser, demo_run: nadi.bottlenecks.Run) -> None:
    press(opened, "w", "w")
    opened.run("T.view.scroller.scrollTop = 0")
    y, height, number = line_of(opened, "thread")
    left, right = opened.run("return [T.view.gutter + 120, T.view.width - 200]")
    drag(opened, (left, y + 3), (right, y + 5))
    area = opened.run("return T.view.areas.now")
    assert area["tracks"] == [number]
    assert height > 20  # rows below the one that the mouse crossed count too
    thread = opened.run("return T.data.tracks[arguments[0]].title", number).split(",")[0]
    job = demo_run.job
    table = demo_run.replay.schedule().table.filter(
        (pl.col("rank") == job.ranks[0]) & (pl.col("resource").cast(pl.String) == thread)
    )
    names = job.traces[0].nodes["name"].cast(pl.String).gather(table["node"])
    calls = pl.DataFrame({"name": names, "start": table["start"], "end": table["end"]})
    calls = calls.filter(pl.col("end") > pl.col("start"))
    expected = expected_sums(calls, area["from"], area["to"])
    assert sum(expected[name, "count"] for name in set(names)) > 20
    assert area_sums(opened, "name") == expected
    whole = {way: area_sums(opened, way) for way in ("name", "stream", "class", "rank")}
    for key in ("count", "time", "own"):
        sums = {way: sum(n for (_, one), n in found.items() if one == key)
                for way, found in whole.items()}  # fmt: skip
        assert len(set(sums.values())) == 1
    panel = opened.driver.find_element("id", "timeline-area").text
    assert format_ns(area["to"] - area["from"]) in panel
    largest = max((n, name) for (name, key), n in expected.items() if key == "own")
    assert format_ns(largest[0]) in panel


def test_an_area_is_kept_and_compared_by_keys(opened: Browser) -> None:
    press(opened, "w", "w", "x", "k", "d", "d", "d", "x")
    now, kept = opened.run("return [T.view.areas.now, T.view.areas.kept]")
    assert kept["to"] <= now["to"]
    assert kept["from"] < now["from"]
    rows = opened.run("return T.controls.area.rows.map((r) => [r.title, r.own, r.kept.own])")
    one = opened.run("return [...T.controls.area.sums(T.view.areas.now, 'name').values()]"
                     ".map((r) => [r.title, r.own])")  # fmt: skip
    assert {name: own for name, own, _ in rows if own} == {n: own for n, own in one if own}
    largest = max(rows, key=lambda row: abs(row[1] - row[2]))
    assert rows[0] == largest
    text = opened.driver.find_element("id", "timeline-area").text
    assert "difference" in text
    assert format_ns(abs(largest[1] - largest[2])) in text
    press(opened, "ESCAPE")
    assert opened.run("return T.view.areas.now") is None


def test_a_link_opens_what_was_shown(opened: Browser, page: Path) -> None:
    press(opened, "w", "x", "k", "w", "]", "x")
    number = line_of(opened, "thread", 1)[2]
    opened.run("T.view.pin(arguments[0]); T.view.hide(arguments[1]); T.controls.arranged()",
               number, number + 1)  # fmt: skip
    opened.driver.find_element("id", "timeline-search").send_keys("aten::mm")
    state = ("const v = T.view; return [Math.round(v.from), Math.round(v.to), v.selected, v.pins, "
             "[...v.hidden], v.areas.now, v.areas.kept, T.controls.matches.length]")  # fmt: skip
    before = opened.run(state)
    address = opened.run_async("setTimeout(() => done(location.hash), 320)")
    assert f"pins={number}" in address
    opened.run("window.stop()")
    opened.driver.get("about:blank")
    opened.driver.get(page.resolve().as_uri() + address)
    opened.run_async("nadiTimeline.then((t) => { window.T = t; done(1); })")
    assert opened.run(state) == before
    assert before[7] > 0
    assert opened.complaints() == []


def test_tracks_are_pinned_hidden_moved_and_filtered(opened: Browser) -> None:
    opened.run("T.view.scroller.scrollTop = 0")
    y, _, number = line_of(opened, "thread")
    gutter = opened.run("return T.view.gutter")
    drag(opened, (gutter - 30, y + 8), (gutter - 30, y + 8))  # a click on the star
    assert opened.run("return T.view.pins") == [number]
    opened.run("T.view.scroller.scrollTop = 500")
    pinned = line_of(opened, "thread")
    assert pinned[0] < 100  # it stays
    press(opened, "p")  # nothing is chosen yet
    drag(opened, (20, pinned[0] + 8), (20, pinned[0] + 8))
    press(opened, "p")
    assert opened.run("return T.view.pins") == []
    press(opened, "h")
    assert opened.run("return [...T.view.hidden]") == [number]
    opened.driver.find_element("id", "timeline-shown").click()
    opened.run("T.view.scroller.scrollTop = 0")
    order = "return T.view.tracksOf(0).map((t) => t.number)"
    before = opened.run(order)
    opened.run("T.view.chosen = arguments[0]", before[0])
    from selenium.webdriver.common.keys import Keys

    canvas(opened).send_keys(Keys.SHIFT + Keys.ARROW_DOWN)
    assert opened.run(order) == [before[1], before[0], *before[2:]]
    line = line_of(opened, opened.run(
        "return T.data.tracks[arguments[0]].title", before[0]))  # fmt: skip
    target = line_of(opened, opened.run(
        "return T.data.tracks[arguments[0]].title", before[1]))  # fmt: skip
    drag(opened, (30, line[0] + 6), (30, target[0] + 4))
    assert opened.run(order) == before
    opened.driver.find_element("id", "timeline-filter").send_keys("rank 2 thread")
    shown = opened.run("return T.view.lines.map((l) => [l.track.process, l.track.title])")
    assert {process for process, _ in shown} == {2}
    assert all(title.startswith("thread") for _, title in shown)


def test_a_search_counts_and_sums(opened: Browser, demo_run: nadi.bottlenecks.Run) -> None:
    field = opened.driver.find_element("id", "timeline-search")
    field.send_keys("/^aten::(mm|addmm)$/")
    table = demo_run.replay.schedule().table
    found: Counter[str] = Counter()
    time: Counter[str] = Counter()
    for rank, trace in zip(demo_run.job.ranks, demo_run.job.traces, strict=True):
        mine = table.filter(pl.col("rank") == rank)
        for name, start, end in zip(
            trace.nodes["name"].cast(pl.String).gather(mine["node"]), mine["start"], mine["end"],
            strict=True,
        ):  # fmt: skip
            if name in ("aten::mm", "aten::addmm"):
                found[name] += 1
                time[name] += end - start
    told = opened.driver.find_element("id", "timeline-results").text.split("\n")
    assert told[0] == f"{found.total():,} events of 2 names, {format_ns(time.total())}"
    for line, (name, spent) in zip(told[1:], time.most_common(), strict=True):
        assert line == f"{name} {found[name]:,}, {format_ns(spent)}"
    opened.driver.find_element("css selector", "#timeline-results button").click()
    first = opened.run("return T.data.nameOf(T.view.selected)")
    assert first == time.most_common(1)[0][0]
    field.clear()
    field.send_keys("/(/")
    assert "nvalid" in opened.driver.find_element("id", "timeline-found").text
    assert opened.complaints() == []


def test_the_overview_moves_what_is_in_view(opened: Browser) -> None:
    press(opened, "w", "w", "w")
    before = opened.run("return [T.view.from, T.view.to]")
    x = opened.run("return T.view.overview.x(T.data.begin + 0.8 * T.view.overview.length)")
    drag(opened, (opened.run("return T.view.overview.x((T.view.from + T.view.to) / 2)"), 15),
         (x, 15))  # fmt: skip
    after = opened.run("return [T.view.from, T.view.to, T.view.overview.timeAt(arguments[0])]", x)
    assert after[1] - after[0] == pytest.approx(before[1] - before[0])
    assert (after[0] + after[1]) / 2 == pytest.approx(after[2], rel=0.02)


def test_counters_add_up_to_what_analyses_say(of_device: Browser, device: Path) -> None:
    trace = nadi.read(device / "device.json")
    times = analyze.temporal_breakdown(trace).row(0, named=True)
    counters = of_device.run(
        "return T.data.tracks.filter((t) => t.counter).map((t) => [t.title,"
        " t.counter.mean(T.data.begin, T.data.lastEnd) * (T.data.lastEnd - T.data.begin),"
        " t.counter.largest])"
    )
    found = {title: (area, most) for title, area, most in counters}
    assert found["device busy"][0] == pytest.approx(times["busy_ns"])
    assert found["exposed communication"][0] == pytest.approx(times["exposed_communication_ns"])
    queue = analyze.queue_lengths(trace)
    waits = sum(
        part.select(
            (pl.col("length") * (pl.col("time_ns").shift(-1) - pl.col("time_ns"))).sum()
        ).item()
        for _, part in queue.group_by("stream")
    )
    assert found["queue length"][0] == pytest.approx(waits)
    assert found["bandwidth Memcpy HtoD"] == (pytest.approx(400 * 10_000), 400)
    y, height, _ = line_of(of_device, "device busy")
    assert height == 34
    x = of_device.run("return T.view.x(T.data.start[T.data.find('ncclDev').events[0]]) + 2")
    drag(of_device, (x, y + 20), (x, y + 20))
    chain(of_device).move_to_element_with_offset(
        canvas(of_device), *of_device.run(
            "return [arguments[0] - T.view.width / 2, arguments[1] - T.view.height / 2]",
            x, y + 20)).perform()  # fmt: skip
    assert of_device.driver.find_element("id", "tip").text == "device busy: 100.0 %"


def test_names_of_kernels_are_short_and_differ(of_device: Browser) -> None:
    short = of_device.run("return Object.fromEntries(T.data.names.map((n, i) => "
                          "[n[0], T.data.short[i]]))")  # fmt: skip
    assert short[KERNELS[0]] == "vectorized_elementwise_kernel<FillFunctor> #1"
    assert short[KERNELS[1]] == "vectorized_elementwise_kernel<FillFunctor> #2"
    assert short[KERNELS[2]] == "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    assert len(set(short.values())) == len(short)
    of_device.run("document.getElementById('timeline').scrollIntoView()")
    y, _, _ = line_of(of_device, "device 0 stream 7")
    x = of_device.run("return T.view.x(T.data.start[T.data.find('FillFunctor').events[0]]) + 2")
    at = of_device.run(
        "return [arguments[0] - T.view.width / 2, arguments[1] - T.view.height / 2]", x, y + 8
    )
    chain(of_device).move_to_element_with_offset(canvas(of_device), *at).perform()
    assert of_device.driver.find_element("id", "tip").text.split("\n")[0] == KERNELS[0]
    titles = of_device.run("return T.data.tracks.map((t) => t.title)")
    assert {"thread 1, main", "thread 2, autograd"} <= set(titles)
    legend = of_device.driver.find_element("id", "timeline-legend").text
    for title in ("kernel", "communication", "operator", "critical path"):
        assert title in legend


def test_the_path_is_marked_at_the_innermost_call(opened: Browser) -> None:
    assert opened.run(
        "const d = T.data; let critical = 0, marked = 0;"
        "for (let i = 0; i < d.size; i++) {"
        "  critical += d.critical[i]; marked += d.marked[i];"
        "  if (d.marked[i] && !d.critical[i]) return 'marked and not on the path';"
        "  if (!d.critical[i] || !d.trackOf(i).isHost) continue;"
        "  for (const outer of d.around(i)) if (d.marked[outer]) return [i, outer];"
        "}"
        "return marked > 0 && marked < critical"
    ) is True  # fmt: skip


def test_operators_stand_in_a_table_and_go_to_a_file(
    of_device: Browser, device: Path, tmp_path: Path
) -> None:
    given = {"behavior": "allow", "downloadPath": str(tmp_path)}
    of_device.cdp("Browser.setDownloadBehavior", given)
    table = "#operators .block table"
    head = of_device.driver.find_element("css selector", f"{table} th:nth-child(3) button")
    of_device.run("arguments[0].click(); arguments[0].click()", head)  # fewest calls first
    of_device.driver.find_element("css selector", "#operators button[aria-label*=CSV]").click()
    file = tmp_path / "operators.csv"
    for _ in range(50):
        if file.exists():
            break
        of_device.run_async("setTimeout(() => done(1), 20)")
    found = pl.read_csv(file, null_values="-").with_columns(pl.selectors.numeric().fill_null(0))
    assert found["calls"].is_sorted()
    expected = analyze.operator_times(nadi.read(device / "device.json"))
    names = {"calls": "count", "self, host": "self_host_ns", "total, host": "host_ns",
             "self, device": "self_device_ns", "total, device": "device_ns"}  # fmt: skip
    columns = ["name", "kind", *names.values(), "kernels"]
    assert sorted(found.rename(names).select(columns).rows()) == sorted(
        expected.select(columns).rows()
    )
    assert of_device.complaints() == []


def test_it_prints_two_pages(opened: Browser) -> None:
    import base64

    data = base64.b64decode(opened.cdp("Page.printToPDF", {"printBackground": True})["data"])
    assert data.count(b"/Type /Page\n") == 2


def test_a_chosen_scheme_is_kept(opened: Browser, page: Path) -> None:
    scheme = "return document.documentElement.dataset.scheme"
    before = opened.run(scheme)
    opened.driver.find_element("id", "scheme").click()
    opened.driver.get(page.resolve().as_uri())
    assert opened.run(scheme) != before


LENGTHS = (100, 200, 130), (150, 120, 180)  # us of the steps of two recordings


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Write two recordings whose steps are longer by turns; gives them, and their page."""
    folder = tmp_path_factory.mktemp("two")
    for name, lengths in zip(("before", "after"), LENGTHS, strict=True):
        (folder / name).mkdir()
        pair = PairWriter(folder / name)
        begin = 7.0 if name == "before" else 1000.0
        pair.event("around all", begin - 3, sum(lengths) + 6, "user_annotation", tid=3)
        for step, length in enumerate(lengths):
            pair.event(f"ProfilerStep#{step}", begin, length, "user_annotation")
            pair.event("aten::fill_", begin + 5, length - 10)
            pair.event("aten::inner", begin + 10, length / 2)
            begin += length
        pair.write()
    page = folder / "page.html"
    paths = [folder / name / "device.json" for name in ("before", "after")]
    assert main(["report", *map(str, paths), "-o", str(page)]) == 0
    return paths[0], paths[1], page


def test_every_step_of_two_recordings_begins_at_the_same_place(
    browser: Browser, two: tuple[Path, Path, Path]
) -> None:
    browser.run("window.stop()")
    browser.open(two[2])
    places = browser.run(
        "return T.data.processes.map((_, process) => [0, 1, 2].map((step) => {"
        "  const found = T.data.find(`ProfilerStep#${step}`).events.find("
        "    (e) => T.data.trackOf(e).process === process);"
        "  return [...T.data.span(found), T.data.end[found] - T.data.start[found]];"
        "}))"
    )
    slots = [max(pair) * 1000 for pair in zip(*LENGTHS, strict=True)]
    for lengths, steps in zip(LENGTHS, places, strict=True):
        begins = [begin for begin, _, _ in steps]
        assert [b - a for a, b in pairwise(begins)] == slots[:2]
        assert begins == [begin for begin, _, _ in places[0]]
        assert [end - begin for begin, end, _ in steps] == [1000 * length for length in lengths]
        assert [length for _, _, length in steps] == [1000 * length for length in lengths]
    # what is around all steps lasts as recorded, and is drawn over the gaps
    around = browser.run("const e = T.data.find('around all').events; return e.map((one) => "
                         "[T.data.end[one] - T.data.start[one], T.data.span(one)])")  # fmt: skip
    for lengths, (length, (begin, end)) in zip(LENGTHS, around, strict=True):
        assert length == 1000 * (sum(lengths) + 6)
        assert end - begin >= sum(slots)
    # the same place of the canvas is the same step of both, and a click on it chooses that
    for process, title in enumerate(("before", "after")):
        # what is chosen stands beside the timeline, which is narrower then
        x = browser.run("T.view.resize(); return T.view.x(arguments[0]) + 4", places[0][2][0])
        y, _, _ = line_of(browser, "thread 1", process)
        drag(browser, (x, y + 8), (x, y + 8))
        details = browser.driver.find_element("id", "timeline-details").text
        assert "ProfilerStep#2" in details
        assert f"rank 0 {title}" in details
        assert format_ns(1000 * LENGTHS[process][2]) in details
    press(browser, "f")
    shown = browser.run("return [T.view.from, T.view.to]")
    assert shown[0] < places[1][2][0] < places[1][2][1] < shown[1]


def test_an_area_over_steps_of_two_recordings_sums_recorded_times(
    browser: Browser, two: tuple[Path, Path, Path]
) -> None:
    browser.run("window.stop()")
    browser.open(two[2])
    for process in (0, 1):
        y, height, number = line_of(browser, "thread 1", process)
        left, right = browser.run("return [T.view.gutter, T.view.width]")
        drag(browser, (left + 40, y + 3), (right - 30, y + height - 3))
        area = browser.run("return T.view.areas.now")
        assert area["tracks"] == [number]
        begin, end = browser.run(
            "const a = T.data.alignmentOf(arguments[0]);"
            "return [a.recorded(T.view.areas.now.from), a.recorded(T.view.areas.now.to)]", process
        )  # fmt: skip
        nodes = nadi.load_job(two[process]).traces[0].nodes.filter(pl.col("thread") == 1)
        first = browser.run(
            "return T.data.start[T.data.tracks[arguments[0]].rows[0].first]", number
        )
        shift = first - nodes["start"].min()
        calls = nodes.select(
            pl.col("name").cast(pl.String), start=pl.col("start") + shift,
            end=pl.col("start") + pl.col("duration") + shift,
        )  # fmt: skip
        assert area_sums(browser, "name") == expected_sums(calls, begin, end)
    # in the gap after the first, shorter step of the first recording nothing is found
    gap = browser.run("const a = T.data.alignmentOf(0); return T.view.x("
                      "(a.axis(a.time[1], true) + a.axis(a.time[1])) / 2)")  # fmt: skip
    y, _, _ = line_of(browser, "thread 1", 0)
    assert browser.run("return T.view.eventAt(arguments[0], arguments[1])", gap, y + 8) == -1
    assert browser.complaints() == []


def test_areas_of_many_events_are_summed_by_blocks(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    source = random.Random(5)
    pair = PairWriter(tmp_path_factory.mktemp("many"))
    now = 0.0
    for i in range(3000):
        length = source.randrange(6, 40)
        pair.event(f"aten::op{source.randrange(30)}", now, length)
        if i % 3:
            pair.event(f"aten::in{source.randrange(9)}", now + 1, length // 2)
            pair.event("aten::leaf", now + 2, length // 2 - 2)
        now += length + source.choice([0, 2])
    file = pair.write()[1]
    page = file.with_suffix(".html")
    assert main(["report", str(file), "-o", str(page)]) == 0
    browser.run("window.stop()")
    browser.open(page)
    nodes = nadi.load_job(file).traces[0].nodes
    calls = nodes.select(pl.col("name").cast(pl.String), "start", end=pl.col("start")
                         + pl.col("duration"))  # fmt: skip
    shift = browser.run("return T.data.begin") - calls["start"].min()
    calls = calls.with_columns(pl.col("start", "end") + shift)
    kept = browser.run(
        "T.data.sums(0, 1e9, T.data.tracks.map((t) => t.number));"
        "return T.data.rows.map((row) => row.blocks?.count.length ?? 0)"
    )
    assert max(kept) > 100
    for left, right in ((150, 900), (400, 410), (130, 1240), (200, 1000)):
        y, height, _ = line_of(browser, "thread")
        drag(browser, (left, y + 3), (right, y + height - 3))
        area = browser.run("return T.view.areas.now")
        assert area_sums(browser, "name") == expected_sums(calls, area["from"], area["to"])
        press(browser, "ESCAPE")
