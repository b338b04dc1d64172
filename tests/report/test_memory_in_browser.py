"""Memory over time with who holds it, by mouse and keys, against a walk over the allocations."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

import nadi
from nadi.analyses import memory_holders
from nadi.analyses.recorded.events import events_of
from nadi.analyses.recorded.memory_timeline import describe_memory
from nadi.cli import main
from nadi.units import format_bytes
from tests.conftest import PairWriter
from tests.report.headless_browser import Browser

_HELD_BEFORE = 5000
LISTED = (
    "return Object.fromEntries([...document.querySelectorAll('.holders tr')].map("
    "(row) => [row.cells[0].textContent, +row.querySelector('data').value]))"
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Counter[str]]]:
    """Write a recording that allocates and releases; gives it, and who holds what after each."""
    source = random.Random(3)
    pair = PairWriter(tmp_path_factory.mktemp("memory"))
    pair.event("ProfilerStep#1", 0, 4000, "user_annotation")
    blocks: dict[int, tuple[str, int]] = {}
    after = []
    for at in range(300):
        name = f"aten::op{source.randrange(14)}"
        pair.event(name, 10 + 12 * at, 10)
        if blocks and source.random() < 0.45:
            address = source.choice(list(blocks))
            change = -blocks.pop(address)[1]
        else:
            address, change = 1000 + at, 512 * source.randrange(1, 40)
            blocks[address] = name, change
        held = sum(size for _, size in blocks.values())
        pair.events.append({
            "ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "s": "t", "pid": 1,
            "tid": 1, "ts": pair.events[-1]["ts"] + 5,
            "args": {"Bytes": change, "Addr": address, "Device Type": 1, "Device Id": 0,
                     "Total Allocated": held + _HELD_BEFORE, "Total Reserved": 1 << 19},
        })  # fmt: skip
        sums: Counter[str] = Counter()
        for owner, size in blocks.values():
            sums[owner] += size
        after.append(sums)
    return pair.write()[1], after


@pytest.fixture
def opened(browser: Browser, recorded: tuple[Path, list[Counter[str]]], tmp_path: Path) -> Browser:
    assert main(["report", str(recorded[0]), "-o", str(tmp_path / "page.html")]) == 0
    browser.open(tmp_path / "page.html")
    browser.run_async("nadiMemory.then((m) => { window.M = m; done(true); })")
    browser.run("document.getElementById('recorded-memory').scrollIntoView()")
    return browser


def check(listed: dict[str, int], expected: Counter[str]) -> None:
    """Compare who is listed with who holds: those without a line of their own are summed."""
    own = {name: size for name, size in listed.items() if not name.startswith("(")}
    assert own == {name: expected[name] for name in own}
    assert len(own) == 9
    assert listed["(others)"] == expected.total() - sum(own.values())
    assert listed["(before the recording)"] == _HELD_BEFORE


def test_who_holds_the_memory_is_told_at_every_time(
    opened: Browser, recorded: tuple[Path, list[Counter[str]]]
) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    after = recorded[1]
    peak = max(range(len(after)), key=lambda at: after[at].total())
    check(opened.run(LISTED), after[peak])
    for name, size in (
        memory_holders(nadi.read(recorded[0])).select("operator", "held_bytes").iter_rows()
    ):
        assert opened.run(LISTED).get(name, size) == size
    canvas = opened.driver.find_element("css selector", ".held canvas")
    canvas.send_keys(Keys.HOME)
    check(opened.run(LISTED), after[0])
    canvas.send_keys(Keys.ARROW_RIGHT)
    check(opened.run(LISTED), after[1])
    canvas.send_keys(Keys.END)
    check(opened.run(LISTED), after[-1])
    canvas.send_keys("p")
    told = opened.driver.find_element("css selector", ".holders h3").text
    size = format_bytes(after[peak].total() + _HELD_BEFORE)
    assert told.startswith(size)
    assert ", the peak; reserved 512.0 KiB" in told
    assert canvas.get_attribute("aria-valuetext").startswith(size)
    ActionChains(opened.driver).move_to_element_with_offset(canvas, 100, 20).perform()
    at, x = opened.run("return [M.at, M.x(M.device.time[M.at])]")
    width = opened.run("return M.width")
    assert 0 <= width / 2 + 100 - x < width / 100
    check(opened.run(LISTED), after[at])
    assert opened.complaints() == []


def test_holders_add_up_to_what_is_allocated(recorded: tuple[Path, list[Counter[str]]]) -> None:
    found = describe_memory([events_of(nadi.read(recorded[0]))])
    assert found is not None
    (series,) = found["series"]
    for at, allocated in enumerate(series["allocated_bytes"]):
        assert sum(one["held_bytes"][at] for one in series["holders"]) == allocated
