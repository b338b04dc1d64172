"""The HTML page: its numbers are those of summary.json, and no text of a recording can run."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import nadi
from nadi.cli import main
from nadi.graph.timeline.page_timeline import detail_levels, timeline_events
from nadi.graph.timeline.schedule_timeline import TimelinePart
from nadi.results.page import html_page
from nadi.results.page.figures import packed
from nadi.units import (
    format_bytes,
    format_count,
    format_ns,
    format_number,
    format_percent,
    format_range,
)
from tests.amounts import examples
from tests.analyze.test_compared_runs import recording
from tests.conftest import PairWriter
from tests.report.page_numbers import at_pointer, read_page

pytestmark = pytest.mark.usefixtures("demo_read_once")

FORMS: list[Callable[[Any], str]] = [
    format_ns, format_count, format_bytes, str, lambda rate: f"{format_bytes(round(rate))}/s",
    lambda value: f"{value:,.1f}", lambda value: format_percent(value, 1),
    lambda mean: f"{mean:.4g}", lambda mean: format_ns(round(mean)),
    lambda change: f"{'+' if change > 0 else ''}{format_ns(round(change))}",
    lambda seconds: format_ns(round(1e9 * seconds)), lambda size: format_bytes(max(int(size), 0)),
    format_number, lambda value: f"{value:,.3f}", lambda rate: f"{rate:.3g} GB/s",
]  # fmt: skip
HOSTILE = [
    "<script>alert(1)</script>", "\"' onmouseover='alert(1)", "</script><script>alert(2)</script>",
    "🚀 rocket & <b>bold</b>", "long" * 2500, "tab\tand\nline",
    "</td></table><img src=x onerror=a>",
    "<!--", "]]>", "&lt;already&gt;", "\\u003cscript\\u003e", "javascript:alert(3)",
]  # fmt: skip


def unpacked(text: str) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """Read a packed timeline plainly."""
    content = gzip.decompress(base64.b64decode(text))
    at = 4 + int.from_bytes(content[:4], "little")
    header = json.loads(content[4:at])
    columns = {}
    for column in header["columns"]:
        values = [0] * column["size"]
        for plane in column["planes"]:
            for i in range(column["size"]):
                values[i] += content[at + i] << (8 * plane)
            at += column["size"]
        if column["name"].endswith("±"):
            values = [value // 2 if value % 2 == 0 else -(value + 1) // 2 for value in values]
        columns[column["name"]] = values
    assert at == len(content)
    return header, columns


def timeline_of(html: str) -> tuple[dict[str, Any], dict[str, list[int]]]:
    found = [text for given, text in read_page(html).scripts if given.get("id") == "timeline-data"]
    return unpacked(found[0])


def check_numbers(html: str, results: dict[str, Any]) -> int:
    """Compare all numbers of a page with the results."""
    page = read_page(html)
    for shown in page.numbers:
        value = at_pointer(results, shown.at)
        assert str(value) == shown.value, shown
        if shown.of:
            whole = at_pointer(results, shown.of)
            assert shown.text == (format_percent(value, whole) if whole else "-"), shown
        elif shown.to:
            assert shown.text == format_range(value, at_pointer(results, shown.to)), shown
        else:
            assert shown.text in [form(value) for form in FORMS if fits(form, value)], shown
    assert [text for text in page.loose if any(c in string.digits for c in text)] == []
    return len(page.numbers)


def fits(form: Callable[[Any], str], value: Any) -> bool:
    return isinstance(value, int) or form not in (format_ns, format_count, format_bytes)


@pytest.fixture(scope="module")
def results(demo_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a run with everything that can be asked, and its page."""
    folder = tmp_path_factory.mktemp("results")
    asked = ["--what-if", "scale gloo:all_reduce 0.5", "--system", "dgx-h100", "--by", "module"]
    page = str(folder / "page.html")
    assert main(["run", str(demo_folder), *asked, "-o", str(folder), "--report", page]) == 0
    return folder


def test_every_number_is_the_one_in_summary_json(results: Path) -> None:
    summary = json.loads((results / "summary.json").read_text())
    assert check_numbers((results / "page.html").read_text(), summary) > 400


def test_the_page_of_a_summary_shows_the_same_numbers(results: Path, tmp_path: Path) -> None:
    assert main(["report", str(results), "-o", str(tmp_path / "again.html")]) == 0
    summary = json.loads((results / "summary.json").read_text())
    first, again = ((results / "page.html").read_text(), (tmp_path / "again.html").read_text())
    assert check_numbers(again, summary) == check_numbers(first, summary)
    assert set(read_page(first).sections) - set(read_page(again).sections) == {"timeline"}


def test_the_verdict_stands_first_and_in_the_words_of_the_command(
    results: Path, capsys: pytest.CaptureFixture[str], demo_folder: Path
) -> None:
    page = read_page((results / "page.html").read_text())
    assert page.sections[:2] == ["prediction", "verdict"]  # differences are before all else
    assert main(["run", str(demo_folder)]) == 0
    assert capsys.readouterr().out.splitlines()[0] in page.words


def test_numbers_of_a_simulation_and_of_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(recording(tmp_path / "recording", extra=True))
    cases = {
        "simulate": ["simulate", folder, "--system", "dgx-h100"],
        "changes": ["what-if", folder, "scale gemm 0.5", "no-gaps"],
        "sweep": ["what-if", folder, "scale gemm {}", "--sweep", "0.5,1"],
        "limits": ["what-if", folder],
    }
    for name, command in cases.items():
        assert main([*command, "--json", "--report", str(tmp_path / name) + ".html"]) == 0
        told = json.loads(capsys.readouterr().out)
        told = {"simulation": told} if name == "simulate" else told
        assert check_numbers((tmp_path / f"{name}.html").read_text(), told) > 4, name


def test_the_page_asks_no_host_and_runs_its_scripts_alone(results: Path) -> None:
    html = (results / "page.html").read_text()
    page = read_page(html)
    assert all(address.startswith(("#", "data:,")) for address in page.addresses)
    assert [given for given, _ in page.scripts] == [
        {"type": "text/plain", "id": "timeline-data"}, {"type": "text/plain", "id": "scripts"}, {},
    ]  # fmt: skip
    # what runs is what the policy names: the loader, and what it unpacks
    running = [page.scripts[2][1].encode(), gzip.decompress(base64.b64decode(page.scripts[1][1]))]
    digests = [base64.b64encode(hashlib.sha256(one).digest()).decode() for one in running]
    allowed = re.search(r"script-src ([^;]*);", html)
    assert allowed is not None
    assert sorted(allowed[1].split()) == sorted(f"'sha256-{digest}'" for digest in digests)
    outside = re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)
    assert "://" not in re.sub(r"s3://|gs://", "", outside)


def test_the_page_is_small(results: Path) -> None:
    html = (results / "page.html").read_text()
    assert len(html) < 346_000  # before its timeline was a tool
    header, columns = timeline_of(html)
    assert len(html.encode()) < 2_000_000 + 40 * len(columns["length"])
    assert sum(count for _, _, count in header["rows"]) == len(columns["length"])


@pytest.fixture
def hostile(pair: PairWriter) -> str:
    pair.event("ProfilerStep#1", 0, 1000, "user_annotation")
    for i, name in enumerate(HOSTILE):
        pair.event(name, 1 + 40 * i, 30 + i)
    return str(pair.write()[1])


def test_hostile_names_are_text(hostile: str, tmp_path: Path) -> None:
    assert main(["report", hostile, "-o", str(tmp_path / "page.html")]) == 0
    html = (tmp_path / "page.html").read_text()
    page = read_page(html)
    assert len(page.scripts) == 3
    header, _ = timeline_of(html)
    assert {name for name, _ in header["names"]} >= set(HOSTILE)
    shown = "".join(page.words)
    for name in HOSTILE:
        one_line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)
        assert one_line in shown


def test_events_of_a_row_do_not_overlap_and_nothing_is_lost(
    demo_run: nadi.bottlenecks.Run,
) -> None:
    part = TimelinePart.of_replay(demo_run.replay, demo_run.path)
    changed = nadi.what_if(demo_run.graph, "scale gloo 0.5")
    second = TimelinePart.of_replay(changed.replay, changed.path, "after")
    for parts in ([part], [part, second]):
        drawn = timeline_events(parts)
        at = 0
        for row in drawn.rows:
            start, end = drawn.start[at : at + row.size], drawn.end[at : at + row.size]
            assert (start[1:] >= end[:-1]).all()
            at += row.size
        assert at == drawn.start.size
        operations = sum(one.schedule.table.height for one in parts)
        on_path = sum(
            row.size for row in drawn.rows if drawn.tracks[row.track].is_path
        )  # fmt: skip
        assert operations == at - on_path + drawn.left_out
        for number, one in enumerate(parts):
            table = one.schedule.table
            for place, rank in enumerate(one.job.ranks):
                mine = table.filter(rank=rank)
                event = drawn.event_of[number, place][mine["node"].to_numpy()]
                seen = event >= 0
                assert (drawn.start[event[seen]] == mine["start"].to_numpy()[seen]).all()
                assert (drawn.end[event[seen]] == mine["end"].to_numpy()[seen]).all()


def test_dependencies_are_those_of_the_traces(results: Path, demo_folder: Path) -> None:
    job = nadi.load_job(demo_folder)
    header, columns = timeline_of((results / "page.html").read_text())
    kinds: dict[str, int] = {}
    for code in columns["dependencyKind"]:
        name = header["dependencyKinds"][code & 127]
        kinds[name] = kinds.get(name, 0) + 1
    expected = {}
    for trace in job.traces:
        for src, dst, kind, _ in trace.deps.iter_rows():
            timed = trace.column("start")[[src, dst]].min() >= 0
            if kind != "call" and timed:
                expected[kind] = expected.get(kind, 0) + 2  # measured, and on the other system
    collectives = kinds.pop("collective")
    sizes = job.matches.group_by("collective").len()["len"]
    assert collectives == 2 * int((sizes - 1).sum())
    # an operation that takes no time on the other system is not drawn there
    assert all(0.9 * expected[kind] <= kinds[kind] <= expected[kind] for kind in expected)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(-(2**51), 2**51), max_size=40), st.lists(st.integers(0, 2**53 - 1)))
def test_columns_come_back(signed: list[int], counts: list[int]) -> None:
    columns = {"a±": np.array(signed, dtype=np.int64), "b": np.array(counts, dtype=np.int64)}
    header, found = unpacked(packed({"title": "x"}, columns))
    assert header["title"] == "x"
    assert found == {"a±": signed, "b": counts}


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 5), st.integers(1, 4), st.randoms(use_true_random=False))
def test_levels_join_neighbors_only(seed: int, num_rows: int, random: Any) -> None:
    row, start, end = [], [], []
    for number in range(num_rows):
        time = 0
        for _ in range(random.randrange(1, 2500)):
            time += random.choice((0, 0, 5, 900, 40_000))
            lasts = random.choice((0, 20, 700, 30_000))
            row.append(number)
            start.append(time)
            end.append(time + lasts)
            time += lasts
    rows, starts, ends = (np.array(one, dtype=np.int64) for one in (row, start, end))
    last = len(row)
    for level in detail_levels(rows, starts, ends):
        assert level.counts.min() > 0
        assert level.counts.sum() == len(row)
        assert level.counts.size < last
        last = level.counts.size
        first = np.cumsum(level.counts) - level.counts
        for at, count in zip(first.tolist(), level.counts.tolist(), strict=True):
            assert row[at] == row[at + count - 1]
            if count > 1:
                assert max(end[i] - start[i] for i in range(at, at + count)) < level.width
                assert start[at + count - 1] - start[at] < level.width


def test_a_section_is_one_declaration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, results: Path
) -> None:
    for section in html_page.all_sections():
        assert isinstance(section.title, str)
        assert isinstance(section.order, int)
    lines = ["from nadi.results.declared import Html, Result",
             "RANKS = Html(lambda figures: figures.number(('ranks',), str))",
             "AGAIN = Result('again', 'Ranks again', 45, (), None, (RANKS,), at='')"]  # fmt: skip
    (tmp_path / "again_section.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(html_page, "SECTIONS", (*html_page.SECTIONS, "again_section:AGAIN"))
    html_page.all_sections.cache_clear()
    try:
        assert main(["report", str(results), "-o", str(tmp_path / "page.html")]) == 0
        page = read_page((tmp_path / "page.html").read_text())
        assert "again" in page.sections
    finally:
        html_page.all_sections.cache_clear()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report", "{demo}", "-o", "{tmp}/page.pdf"], "a report is HTML"),
        (["report", "{demo}", "-o", "{tmp}/other/summary.json/page.html"], "page.html"),
        (
            ["report", "{demo}", "-o", "{tmp}/other/old.html"],
            "give another name, or --overwrite",
        ),
        (["what-if", "{demo}", "--report", "{tmp}/other/old.html"], "exists already"),
        (["report", "{tmp}/nothing"], "nothing"),
        (["report", "{tmp}/broken"], "is not JSON"),
        (["report", "{tmp}/other"], "is not a summary"),
        (["run", "{demo}", "--report", "{tmp}/page.txt"], "a report is HTML"),
        (["what-if", "{demo}", "--report", "{tmp}/page"], "a report is HTML"),
        (["simulate", "{demo}", "--system", "dgx-h100", "--report", "{tmp}"], "a report is HTML"),
    ],
)
def test_what_cannot_be_written_is_said(
    arguments: list[str], said: str, tmp_path: Path, demo_folder: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for folder, content in (("broken", '{"verdict": '), ("other", "{}")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "summary.json").write_text(content)
        (tmp_path / folder / "old.html").write_text("")
    given = [text.format(demo=demo_folder, tmp=tmp_path) for text in arguments]
    assert main(given) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.strip().splitlines()) == 1
    assert not [path for path in tmp_path.iterdir() if path.is_file()]
