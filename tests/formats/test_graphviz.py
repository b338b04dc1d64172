"""Writing DOT, and drawing with graphviz."""

from __future__ import annotations

import html
import re
import shutil
import sys
import xml.etree.ElementTree as ElementTree
from importlib.util import find_spec
from pathlib import Path

import pytest

import nadi
from nadi.errors import InputError
from nadi.files.drawing import drawings as graphviz
from nadi.trace.issues import IssueLog
from nadi.trace.trace import Trace
from tests.formats.graphs import REPLACED, SHOWN_NAMES, counted, make_trace

_NODE = re.compile(r'\t(\d+) \[label="((?:[^"\\]|\\.)*)"\]')
_ABSENT = re.compile(r"\t(\d+) \[style=dashed\]")
_EDGE = re.compile(r"\t(\d+) -> (\d+) \[class=(\w+) .*\]")
_QUICK = "\tgraph [nslimit=0 nslimit1=0 splines=line]"
needs_dot = pytest.mark.skipif(
    shutil.which("dot") is None or find_spec("graphviz") is None,
    reason="Graphviz's program dot, or the package graphviz, is not here",
)


def parse(text: str) -> tuple[dict[int, str | None], list[tuple[int, int, str]]]:
    """Read labels by id, and the edges."""
    head, boxes, *lines, tail = text.removesuffix("\n").split("\n")
    assert (head, boxes, tail) == ("digraph {", "\tnode [shape=box]", "}")
    nodes: dict[int, str | None] = {}
    edges = []
    for line in lines[lines[:1] == [_QUICK] :]:
        if found := _NODE.fullmatch(line):
            label = re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], found[2])
            nodes[int(found[1])] = html.unescape(label)
        elif found := _ABSENT.fullmatch(line):
            nodes[int(found[1])] = None
        else:
            found = _EDGE.fullmatch(line)
            assert found, line
            edges.append((int(found[1]), int(found[2]), found[3]))
    return nodes, edges


def encoded(trace: Trace, log: IssueLog | None = None) -> str:
    return b"".join(graphviz.encode(trace, log or IssueLog())).decode()


def drawn_names() -> list[str]:
    """Give the names as a drawing shows them: its lines end one way, and it has no tabs."""
    names = [REPLACED.get(name, name) for name in SHOWN_NAMES]
    return [name.replace("\r", "\n").replace("\t", " ") for name in names]


def test_names_come_back_whatever_they_hold() -> None:
    log = IssueLog()
    nodes, edges = parse(encoded(make_trace(SHOWN_NAMES), log))
    assert list(nodes.values()) == drawn_names()
    assert edges == []
    assert counted(log) == {
        "dot.name": len(REPLACED), "dot.columns": len(SHOWN_NAMES), "dot.attributes": 1,
    }  # fmt: skip


def test_every_dependency_is_an_arrow_of_its_kind() -> None:
    deps = [(0, 1, "ctrl"), (0, 1, "data"), (1, 2, "sync")]
    nodes, edges = parse(encoded(make_trace(list("abc"), deps, [(0, "ctrl_deps[0]", 1)])))
    assert nodes == {3: "a", 13: "b", 23: "c", 1: None}
    assert edges == [(3, 13, "ctrl"), (3, 13, "data"), (13, 23, "sync"), (1, 3, "ctrl")]


def test_a_linked_trace_has_all_its_nodes_and_dependencies(demo_run: nadi.bottlenecks.Run) -> None:
    trace = demo_run.job.traces[0]
    nodes, edges = parse(encoded(trace))
    ids = trace.nodes["id"].to_list()
    assert list(nodes) == ids
    expected = [
        (ids[src], ids[dst], kind)
        for src, dst, kind in trace.deps.select("src", "dst", "kind").iter_rows()
    ]
    assert edges == expected


@needs_dot
def test_dot_draws_every_node_and_arrow() -> None:
    deps = [(0, 1, "ctrl"), (0, 1, "data"), (1, 2, "sync")]
    trace = make_trace(SHOWN_NAMES, deps, [(0, "ctrl_deps[0]", 1)])
    svg = ElementTree.fromstring(b"".join(graphviz.encode_svg(trace, IssueLog())))
    classes = [element.get("class", "") for element in svg.iter()]
    assert sum(name.split()[:1] == ["node"] for name in classes) == len(SHOWN_NAMES) + 1
    assert [name for name in classes if name.startswith("edge")] == [
        "edge ctrl", "edge data", "edge sync", "edge ctrl",
    ]  # fmt: skip
    shown = {element.text for element in svg.iter() if element.tag.endswith("}text")}
    for name in drawn_names():
        for line in filter(str.strip, name.split("\n")):
            assert {line, line.replace(" ", "\xa0")} & {text if text else "" for text in shown}, (
                line
            )


@needs_dot
def test_dot_draws_a_thousand_operations_in_seconds() -> None:
    deps = [(row - row % 10, row, "call") for row in range(1000) if row % 10]
    deps += [(row - 1, row, "order") for row in range(1, 1000)]
    trace = make_trace([f"op{row}" for row in range(1000)], deps)
    assert _QUICK in encoded(trace)
    svg = b"".join(graphviz.encode_svg(trace, IssueLog()))
    assert svg.count(b'class="node"') == 1000


@needs_dot
def test_dot_writes_pdf() -> None:
    pdf = b"".join(graphviz.encode_pdf(make_trace(["a", "b"], [(0, 1, "data")]), IssueLog()))
    assert pdf.startswith(b"%PDF-")


def test_a_large_trace_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    # three boxes, two arrows to the next level, and one past a level
    trace = make_trace(list("abc"), [(1, 0, "data"), (0, 2, "data"), (1, 2, "ctrl")])
    monkeypatch.setattr(graphviz, "MAX_POINTS", 6)
    with pytest.raises(InputError, match=r"at least 7 points.*hours.*\.graphml"):
        graphviz.encode_svg(trace, IssueLog())
    monkeypatch.setattr(graphviz, "MAX_POINTS", 5)
    with pytest.raises(InputError, match="at least 6 points"):
        graphviz.encode_pdf(trace, IssueLog())


def test_a_deep_trace_is_not_drawn_though_it_has_few_operations() -> None:
    # each arrow from the first operation passes all the levels before its end
    deps = [(row - 1, row, "order") for row in range(1, 1100)]
    deps += [(0, row, "call") for row in range(2, 1100)]
    with pytest.raises(InputError, match="at least 606,648 points"):
        graphviz.encode_svg(make_trace(["op"] * 1100, deps), IssueLog())


@needs_dot
def test_a_cycle_is_drawn() -> None:
    trace = make_trace(["a", "b"], [(0, 1, "data"), (1, 0, "data")])
    assert b"".join(graphviz.encode_svg(trace, IssueLog())).count(b'class="edge') == 2


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "graphviz", None)
    with pytest.raises(InputError, match=r"pip install 'nadi\[graphviz\]'"):
        graphviz.encode_pdf(make_trace(["a"]), IssueLog())


def test_a_missing_program_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("graphviz")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="dot, which is not on PATH; install Graphviz"):
        graphviz.encode_svg(make_trace(["a"]), IssueLog())


def test_a_failing_program_is_one_clear_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("graphviz")
    program = tmp_path / "dot"
    program.write_text("#!/bin/sh\nread line\necho 'no such luck' >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(InputError, match="dot ended with 3: no such luck"):
        graphviz.encode_svg(make_trace(["a"]), IssueLog())
