"""Values in a notebook: what they show is their own, well formed, and only text."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

import nadi
from nadi.trace.notebook_html import notebook_html, times_of
from nadi.units import format_count, format_ns


class Tags(HTMLParser):
    """Checks that elements are closed in order, and keeps the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.used: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert {name for name, _ in attrs} <= {"style"}
        self.open.append(tag)
        self.used.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


def shown(html: str) -> str:
    tags = Tags()
    tags.feed(html)
    assert tags.open == []
    assert tags.used <= {"div", "b", "table", "tr", "td"}
    return tags.text


def test_each_value_shows_its_figures(demo_folder: Path, demo_run: nadi.bottlenecks.Run) -> None:
    run = demo_run
    told = shown(run._repr_html_())
    assert format_ns(run.measured_ns) in told
    assert run.verdict.bound_by in told
    told = shown(run.path._repr_html_())
    for kind, time in run.path.by_kind().items():
        assert (f"{kind}\n{format_ns(time)}" in told) == (time > 0)
    told = shown(run.job._repr_html_())
    assert format_count(run.job.num_nodes) in told
    assert "rank 3\n" in told
    told = shown(run.job.traces[2]._repr_html_())
    assert "2 of 4" in told
    answer = nadi.what_if(run.graph, "scale gloo 0.5")
    told = shown(answer._repr_html_())
    assert "scale gloo 0.5" in told
    assert format_ns(answer.gain_ns) in told
    simulated = nadi.simulate(demo_folder, nadi.load_system("dgx-h100", 4))
    told = shown(simulated._repr_html_())
    assert f"rank 1\n{format_ns(int(simulated.cycles[1]))}" in told


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "a\"b'c", "🚀", "x" * 10_000, ""])
def test_names_are_text(name: str) -> None:
    told = shown(notebook_html(name, {name: name}, [(name, 1.0, name)]))
    assert name[:40] in told


def test_many_bars_are_counted() -> None:
    bars = times_of({str(k): 1 + k for k in range(40)})
    assert "and 28 more" in shown(notebook_html("title", {}, bars))
    assert times_of({"none": 0}) == []
    shown(notebook_html("", {}, [("zero", 0.0, "0")]))
