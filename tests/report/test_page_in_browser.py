"""The page in headless Chromium, opened from disk and without a network.

Where Chromium is absent these tests are skipped, and the summary of the tests says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nadi.cli import main
from nadi.units import format_ns
from tests.conftest import PairWriter
from tests.report.headless_browser import Browser
from tests.report.test_report_page import HOSTILE


@pytest.fixture(scope="module")
def page(demo_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    command = ["report", str(demo_folder), "--what-if", "scale gloo 0.5", "-o", str(path)]
    assert main(command) == 0
    return path


@pytest.fixture
def opened(browser: Browser, page: Path) -> Browser:
    browser.size(1440, 900)
    browser.prefers("light")
    browser.open(page)
    return browser


def press(browser: Browser, *keys: str) -> None:
    from selenium.webdriver.common.keys import Keys

    canvas = browser.driver.find_element("id", "timeline-canvas")
    for key in keys:
        canvas.send_keys(getattr(Keys, key, key))


def shown(browser: Browser) -> list[float]:
    found: list[float] = browser.run("return [T.view.from, T.view.to]")
    return found


def wheel(browser: Browser, **given: Any) -> None:
    options = ", ".join(f"{name}: {value}" for name, value in given.items())
    browser.run(
        "const box = document.getElementById('timeline-rows').getBoundingClientRect();"
        "document.getElementById('timeline-canvas').dispatchEvent(new WheelEvent('wheel', "
        "{bubbles: true, cancelable: true, clientX: box.x + 700, clientY: box.y + 80, "
        f"{options}}}))"
    )


def test_it_opens_without_a_complaint_and_without_a_request(opened: Browser) -> None:
    requests = opened.run("return performance.getEntriesByType('resource').map((e) => e.name)")
    assert [name for name in requests if not name.startswith(("data:", "blob:"))] == []
    assert opened.complaints() == []
    assert opened.run("return document.documentElement.scrollWidth <= innerWidth") is True
    assert opened.run("return T.view.frames") >= 1


def test_wheel_and_drag_zoom_and_pan(opened: Browser) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    before = shown(opened)
    wheel(opened, ctrlKey="true", deltaY=-40)
    after = shown(opened)
    assert before[0] < after[0] < after[1] < before[1]
    wheel(opened, shiftKey="true", deltaY=50)
    panned = shown(opened)
    assert panned[0] > after[0]
    assert panned[1] - panned[0] == pytest.approx(after[1] - after[0])
    canvas = opened.driver.find_element("id", "timeline-canvas")
    shift = ActionChains(opened.driver).key_down(Keys.SHIFT)
    shift.drag_and_drop_by_offset(canvas, 120, 0).key_up(Keys.SHIFT).perform()
    assert shown(opened)[0] < panned[0]
    scrolled = shown(opened)
    wheel(opened, deltaY=50)  # rows scroll
    assert shown(opened) == scrolled
    opened.driver.find_element("id", "timeline-home").click()
    assert shown(opened) == before


def test_it_works_by_keyboard(opened: Browser) -> None:
    before = shown(opened)
    press(opened, "w", "w", "d")
    after = shown(opened)
    assert after[1] - after[0] == pytest.approx(0.49 * (before[1] - before[0]))
    press(opened, "ARROW_LEFT", "s", "s", "0")
    assert shown(opened) == before
    press(opened, "]")
    first = opened.run("return T.view.selected")
    assert first >= 0
    press(opened, "]", "f")
    assert opened.run("return T.view.selected") == first + 1
    press(opened, "ESCAPE", "/")
    assert opened.run("return document.activeElement.id") == "timeline-search"


def test_it_finds_an_operation_and_shows_its_dependencies(opened: Browser) -> None:
    from selenium.webdriver.common.keys import Keys

    opened.driver.find_element("id", "timeline-search").send_keys("gloo:all_reduce" + Keys.ENTER)
    found = opened.driver.find_element("id", "timeline-found").text
    assert found.startswith("1 of ")
    matches = opened.run(
        "return T.controls.matches.map((e) => [T.data.nameOf(e), T.data.start[e]])"
    )
    assert int(found.split()[-1]) == len(matches)
    assert {name for name, _ in matches} == {"gloo:all_reduce"}
    assert [start for _, start in matches] == sorted(start for _, start in matches)
    details = opened.driver.find_element("id", "timeline-details").text
    for expected in ("gloo:all_reduce", "duration", "waits for (", "launch: c10d::allreduce_",
                     "inferred"):  # fmt: skip
        assert expected in details
    selected = opened.run("return T.view.selected")
    edges = opened.run("return T.data.dependencies(T.view.selected).before")
    assert {edge["kind"] for edge in edges} <= {"launch", "collective", "comm", "order", "thread"}
    opened.driver.find_element("css selector", "#timeline-details li button").click()
    assert opened.run("return T.view.selected") != selected
    # what is drawn there is what a click selects
    x, y = opened.run(
        "const e = T.view.selected; T.controls.focus(e); const d = T.data;"
        "return [T.view.x((d.start[e] + d.end[e]) / 2),"
        " T.view.tops.get(d.rowOf[e])[0] - T.view.scroller.scrollTop + 6]"
    )
    assert opened.run("return T.view.eventAt(arguments[0], arguments[1])", x, y) == opened.run(
        "return T.view.selected"
    )


def test_flame_graphs_zoom_and_search(opened: Browser) -> None:
    from selenium.webdriver.common.keys import Keys

    frames = "return [...document.querySelectorAll('#flame .frame')].map((f) => "
    whole = opened.run(
        f"{frames} [f.dataset.frame, f.textContent, f.getBoundingClientRect().width])"
    )
    assert whole[0][1] == "ProfilerStep"
    opened.run("document.querySelector('#flame .frame[data-frame=\"1\"]').click()")
    assert opened.run("return nadiFlames[0].root") == 1
    width = "f.getBoundingClientRect().width"
    zoomed = dict(opened.run(f"{frames} [f.dataset.frame, {width}])"))
    room = opened.run("return document.querySelector('#flame .frames').clientWidth")
    assert zoomed["1"] == zoomed["0"] == pytest.approx(room, abs=1)
    assert whole[1][2] < 0.5 * room
    box = opened.driver.find_element("css selector", "#flame .frames")
    box.send_keys(Keys.ARROW_DOWN)
    chosen = opened.run("const f = nadiFlames[0]; return f.frames[f.chosen].parent")
    assert chosen == 1
    box.send_keys(Keys.ENTER)
    assert opened.run("return nadiFlames[0].root") > 1
    box.send_keys(Keys.ESCAPE)
    assert opened.run(f"{frames} [f.dataset.frame, f.textContent])") == [one[:2] for one in whole]
    field = opened.driver.find_element("css selector", "#flame input")
    field.send_keys("aten::mm")
    told = opened.driver.find_element("css selector", "#flame output").text
    number, time = opened.run(
        "const f = nadiFlames[0].frames.filter((one) => one.name.includes('aten::mm'));"
        "return [f.length, f.reduce((sum, one) => sum + one.sides[0].total, 0)]"
    )
    assert told.startswith(f"{number} frames, {format_ns(time)}, ")
    assert opened.complaints() == []


def test_joined_events_are_those_of_the_data(opened: Browser) -> None:
    assert opened.run(
        "for (let l = 0; l < T.data.levels.length; l++) {"
        "  const runs = T.data.runs(l);"
        "  for (let r = 0; r < runs.longest.length; r++) {"
        "    const [a, b] = [runs.first[r], runs.first[r + 1] - 1];"
        "    if (b < a || T.data.rowOf[a] !== T.data.rowOf[b]) return [l, r];"
        "    if (runs.longest[r] < a || runs.longest[r] > b) return [l, r];"
        "  }"
        "}"
        "return T.data.levels.length > 0"
    ) is True  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_scheme_follows_the_system_and_a_click(
    browser: Browser, page: Path, scheme: str
) -> None:
    browser.size(1440, 900)
    browser.prefers(scheme)
    browser.open(page)
    look = "return [getComputedStyle(document.body).backgroundColor, T.view.color.card]"
    first = browser.run(look)
    browser.driver.find_element("id", "scheme").click()
    other = browser.run_async(f"setTimeout(() => done((() => {{ {look} }})()), 50)")
    assert first[0] != other[0]
    assert first[1] != other[1]
    assert browser.run("return document.documentElement.dataset.scheme") != scheme


def test_tables_sort_by_the_exact_number_and_search(opened: Browser) -> None:
    cells = "#operators > .block tbody tr:not([hidden]) td:nth-child(4) data"
    values = f"return [...document.querySelectorAll('{cells}')].map((d) => +d.value)"
    before = opened.run(values)
    assert before == sorted(before, reverse=True)
    head = opened.driver.find_element("css selector", "#operators th:nth-child(4) button")
    opened.run("arguments[0].click(); arguments[0].click()", head)
    assert opened.run(values) == sorted(before)
    field = opened.driver.find_element("css selector", "#operators input[type=search]")
    field.send_keys("aten::mm")
    assert 0 < len(opened.run(values)) < len(before)


def test_nothing_is_wider_than_the_window(opened: Browser) -> None:
    for width in (1440, 800, 400):
        opened.size(width, 900)
        opened.run_async("requestAnimationFrame(() => requestAnimationFrame(() => done(1)))")
        assert opened.run("return document.documentElement.scrollWidth") <= width
        assert opened.run("return T.view.width") < width


def test_hostile_names_are_shown_and_do_not_run(
    browser: Browser, pair: PairWriter, tmp_path: Path
) -> None:
    pair.event("ProfilerStep#1", 0, 1000, "user_annotation")
    for i, name in enumerate(HOSTILE):
        pair.event(name, 1 + 40 * i, 30 + i)
    command = ["report", str(pair.write()[1]), "-o", str(tmp_path / "page.html")]
    assert main(command) == 0
    browser.run("window.stop()")
    browser.open(tmp_path / "page.html")
    assert browser.run("return document.scripts.length") <= 3
    assert browser.run("return document.images.length") == 0
    for name in HOSTILE:
        event = browser.run("return T.data.find(arguments[0]).events[0]", name)
        browser.run("T.controls.select(arguments[0])", event)
        title = browser.run("return document.querySelector('#timeline-details h3').textContent")
        assert title == name
    assert browser.complaints() == []  # no policy was hit, and no alert was open


def test_times_are_written_as_in_python(opened: Browser) -> None:
    times = [0, 1, 17, 999, 1000, 1234, 9_999, 12_345, 999_950, 1_000_000, 412_711_830,
             1_004_000_000, 123_456_789_012]  # fmt: skip
    assert opened.run("return arguments[0].map(formatTime)", times) == list(map(format_ns, times))


def test_nothing_is_shown_that_says_nothing(opened: Browser) -> None:
    gains = opened.run(
        "return [...document.querySelectorAll('#waits table')].slice(0, 1).flatMap((table) => "
        "[...table.tBodies[0].rows].map((row) => +row.cells[1].querySelector('data').value))"
    )
    assert gains == sorted(gains, reverse=True)
    assert min(gains) > 0
    assert "identical" not in opened.run("return document.querySelector('main').textContent")
    assert opened.run("return [...document.querySelectorAll('#step-time th')].map((c) => "
                      "c.textContent)") == ["step", "measured"]  # fmt: skip
    # the bar of the critical path says what its parts are, and which of the whole they are
    parts = opened.run(
        "return [...document.querySelectorAll('#critical-path .named i')].map((part) => "
        "[part.textContent, part.getBoundingClientRect().width / part.parentElement.clientWidth])"
    )
    assert sum(width for _, width in parts) == pytest.approx(1, abs=0.01)
    for told, width in parts:
        assert (told == "") == (width < 0.06)
        if told:
            assert float(told.split()[-2]) == pytest.approx(100 * width, abs=0.3)
    assert any(told.startswith("host op ") for told, _ in parts)
    # links to all sections are in the window
    for width in (1440, 800):
        opened.size(width, 900)
        outside = opened.run(
            "return [...document.querySelectorAll('nav a')].filter((link) => {"
            "  const box = link.getBoundingClientRect();"
            "  return box.right > innerWidth || box.width === 0;"
            "}).length"
        )
        assert outside == 0
        sections = opened.run("return [...document.querySelectorAll('main > section')].length")
        assert opened.run("return document.querySelectorAll('nav a').length") == sections
