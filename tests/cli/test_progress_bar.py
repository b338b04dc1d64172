"""The bars that long commands show in a terminal."""

from __future__ import annotations

import io
import re
import sys
import time
from threading import Event
from typing import Any

import pytest
import rich.progress

from nadi.progress import tell
from nadi.results.terminal import progress as progress_lines
from nadi.results.terminal.progress import ProgressLines, show_progress


def test_each_stage_begins_a_bar_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[rich.progress.Progress] = []

    class Progress(rich.progress.Progress):
        def __init__(self, *columns: Any, **options: Any) -> None:
            super().__init__(*columns, **options)
            shown.append(self)

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(rich.progress, "Progress", Progress)
    with show_progress(announce=False) as begin:
        for name, size in (("first", 100), ("second", 40)):
            begin(name)
            (bar,) = shown[0].tasks
            assert (bar.description, bar.completed, bar.total) == (name, 0, None)
            tell(size // 2, size)
            assert (bar.completed, bar.total, bar.percentage) == (size // 2, size, 50)
        tell(50, 40)  # more than the file states
        assert (bar.completed, bar.total) == (50, 50)
        begin("third")
        tell(7)
        (bar,) = shown[0].tasks
        assert (bar.completed, bar.total) == (7, None)


def test_a_log_has_lines_of_what_takes_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress_lines, "BETWEEN", 0.02)

    def assert_is_printed(line: str) -> None:
        printed, last = "", time.monotonic() + 60
        while not (found := re.search(rf"^nadi: {line}; \d+ s$", printed, re.M)):
            assert time.monotonic() < last, printed
            time.sleep(0.005)
            printed += capsys.readouterr().err
        assert found

    with show_progress(announce=False, counts="jobs") as begin:
        assert_is_printed("starting")
        begin("attacking\nall")  # as a file's name may be
        tell(1200, 3000)
        assert_is_printed(r"attacking\\nall, 1,200 of 3,000 jobs")
        begin("the next")
        assert_is_printed("the next")
    capsys.readouterr()
    time.sleep(0.05)
    assert capsys.readouterr().err == ""


def test_lines_say_how_much_is_read_and_compiled() -> None:
    lines = ProgressLines()
    lines.begin("reading rank0.json")
    assert lines.next_line() == "nadi: reading rank0.json; 0 s\n"
    lines.show(3 << 20, 0)
    assert lines.next_line() == "nadi: reading rank0.json, 3.000 MiB; 0 s\n"
    lines.show(3 << 20, 4 << 20)
    lines.show_compiled("compiling kernels, once: 1 of 2")
    compiling = "reading rank0.json, 75%; compiling kernels, once: 1 of 2"
    assert lines.next_line() == f"nadi: {compiling}; 0 s\n"
    assert lines.next_line() == "nadi: reading rank0.json, 75%; 0 s\n"


def test_lines_come_seldom_and_ever_more_so(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    class Over(Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0)
            return len(waits) == 9

    monkeypatch.setattr(progress_lines, "BETWEEN", 10.0)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    ProgressLines().print_until(Over())
    assert waits == [10, 10, 10, 10, 10, 10, 60, 60, 60]


def test_lines_of_counted_stages_say_how_long_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("nadi.results.terminal.progress.time.monotonic", lambda: now[0])
    lines = ProgressLines("jobs")
    now[0] = 130.0
    lines.begin("level shapes")
    assert lines.next_line() == "nadi: level shapes; 30 s\n"
    now[0] = 150.0
    lines.show(5, 40)
    assert lines.next_line() == "nadi: level shapes, 5 of 40 jobs, about 140 s left of this; 50 s\n"
    lines.show(40, 40)
    assert lines.next_line() == "nadi: level shapes, 40 of 40 jobs; 50 s\n"
