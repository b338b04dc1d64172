"""The bars that long commands show in a terminal."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import rich.progress

from nadi.cli.progress_bar import show_progress
from nadi.progress import tell


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
