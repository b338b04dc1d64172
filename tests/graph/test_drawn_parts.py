"""Drawings of parts of the event graph: what they contain, their bounds, and their files."""

from __future__ import annotations

import io
import re
import shutil
import xml.etree.ElementTree as ElementTree
from importlib.util import find_spec
from pathlib import Path

import networkx as nx
import pytest

import nadi
from nadi.cli import main
from nadi.graph.drawing import (
    MOST_ARROWS,
    MOST_NODES,
    condensed,
    encode_part,
    find_operation,
    neighborhood,
)
from tests.conftest import PairWriter

pytestmark = pytest.mark.usefixtures("demo_read_once")

needs_dot = pytest.mark.skipif(
    shutil.which("dot") is None or find_spec("graphviz") is None,
    reason="Graphviz's program dot, or the package graphviz, is not here",
)


def edges_by_hand(graph: nadi.EventGraph) -> set[tuple[int, int, str]]:
    """Every edge between two operations, one after the other; other moments follow operations."""
    last = 2 * graph.num_ops
    found = set()
    for src, dst, _, kind, _ in zip(*(column.tolist() for column in graph.edges), strict=True):
        ends = [end // 2 if end < last else end - graph.num_ops for end in (src, dst)]
        if ends[0] != ends[1]:
            found.add((ends[0], ends[1], nadi.graph.EdgeKind(kind).name.lower()))
    return found


@pytest.mark.parametrize(("name", "hops"), [("gloo:all_reduce", 2), ("aten::addmm", 1)])
def test_a_neighborhood_is_what_a_search_finds(
    demo_run: nadi.bottlenecks.Run, name: str, hops: int
) -> None:
    graph = demo_run.graph
    op, which = find_operation(graph, name)
    assert name in graph.op_names[op]
    assert f"of {graph.named(name).sum()} operations" in which
    edges = edges_by_hand(graph)
    reached = {op}
    for _ in range(hops):
        reached |= {end for u, v, _ in edges if u in reached or v in reached for end in (u, v)}
    part = neighborhood(graph, op, hops)
    assert len(reached) <= MOST_NODES
    assert set(part.nodes["id"]) == reached
    assert set(part.edges.select("source", "target", "kind").iter_rows()) == {
        edge for edge in edges if edge[0] in reached and edge[1] in reached
    }
    assert part.nodes.filter("is_chosen")["id"].to_list() == [op]


def test_drawings_are_bounded_and_say_so(demo_run: nadi.bottlenecks.Run) -> None:
    graph = demo_run.graph
    op, _ = find_operation(graph, around="2:2313")
    assert graph.op_names[op] == "gloo:all_reduce"
    far = neighborhood(graph, op, 40)
    assert far.nodes.height == MOST_NODES
    assert "the 100 nearest in time are drawn" in far.note
    whole = condensed(graph)
    assert whole.nodes.height <= MOST_NODES
    assert whole.edges.height <= MOST_ARROWS
    assert whole.nodes["operations"].sum() == graph.num_ops
    assert f"{graph.num_ops:,} operations condensed to {whole.nodes.height} nodes" in whole.note


def test_modules_are_nodes_where_they_were_recorded(pair: PairWriter) -> None:
    names = ["nn.Module: Net_0", "nn.Module: Linear_0", "aten::mm", "aten::relu"]
    spans = [(0, 100), (10, 50), (20, 30), (70, 10)]
    for name, (start, length) in zip(names, spans, strict=True):
        pair.event(name, start, length, "python_function" if name.startswith("nn") else "cpu_op")
    graph = nadi.build_graph(nadi.load_job(pair.write()[1]))
    part = condensed(graph)
    labels = [label.split("\n")[0] for label in part.nodes["label"]]
    assert labels == ["Net_0 forward", "Net_0.Linear_0 forward"]
    assert part.nodes["operations"].to_list() == [2, 2]
    ends = set(part.edges.select("source", "target").iter_rows())
    assert ends == {(0, 1), (1, 0)}
    assert "modules to depth 2" in part.note


def test_a_single_operation_has_no_arrows(pair: PairWriter) -> None:
    pair.event("aten::mm", 0, 10)
    graph = nadi.build_graph(nadi.load_job(pair.write()[1]))
    for part in (condensed(graph), neighborhood(graph, 0, 3)):
        assert (part.nodes.height, part.edges.height) == (1, 0)
        assert b"aten::mm" in encode_part(part.nodes, part.edges, ".dot", part.note)


def test_files_hold_any_name(pair: PairWriter, tmp_path: Path) -> None:
    hostile = ['"];\n x -> y [label="', "<script>&amp;", "back\\slash", "nul\0 and \r", "🚀" * 90]
    for i, name in enumerate(hostile):
        pair.event(name, 10 * i, 5)
    graph = nadi.build_graph(nadi.load_job(pair.write()[1]))
    part = neighborhood(graph, 0, 9)
    read = nx.read_graphml(io.BytesIO(encode_part(part.nodes, part.edges, ".graphml", part.note)))
    assert set(read) == {str(number) for number in part.nodes["id"]}
    assert set(read.edges) == {
        (str(u), str(v)) for u, v in part.edges.select("source", "target").iter_rows()
    }
    labels = {given["label"] for _, given in read.nodes(data=True)}
    assert any(label.startswith("<script>&amp;\nrank 0") for label in labels)
    dot = encode_part(part.nodes, part.edges, ".dot", part.note).decode()
    # each quoted text ends on its line, and nothing else is an arrow
    outside = re.sub(r'"(?:[^"\\]|\\.)*"', "", dot)
    assert '"' not in outside
    assert outside.count("->") == part.edges.height


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-o", "{tmp}/graph.png"], "is no drawing of a graph"),
        (["-o", "{tmp}/a.dot", "--operation", "nosuch"], "no operation has 'nosuch'"),
        (["-o", "{tmp}/a.dot", "--around", "99999999"], "no operation has the id 99999999"),
        (["-o", "{tmp}/a.dot", "--around", "x"], "'x' is no id"),
        (["-o", "{tmp}/a.dot", "--around", "1", "--operation", "a"], "both are given"),
        (["-o", "{tmp}/a.dot", "--operation", "("], "'(' is no regular expression"),
    ],
)
def test_what_cannot_be_drawn_is_said(
    arguments: list[str], said: str, demo_folder: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    given = [text.format(tmp=tmp_path) for text in arguments]
    assert main(["draw", "graph", str(demo_folder), *given]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


@needs_dot
@pytest.mark.parametrize("suffix", [".svg", ".pdf"])
def test_dot_draws_a_neighborhood(
    suffix: str, demo_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    near = tmp_path / f"near{suffix}"
    assert (
        main(["draw", "graph", str(demo_folder), "--operation", "gloo:barrier", "-o", str(near)])
        == 0
    )
    assert "operations within 2 edges of gloo:barrier" in capsys.readouterr().out
    assert near.read_bytes().startswith(b"%PDF" if suffix == ".pdf" else b"<?xml")
    if suffix == ".svg":
        text = near.read_text()
        boxes = [one for one in ElementTree.fromstring(text).iter() if one.get("class") == "node"]
        said = re.search(r"(\d+) operations within", text)
        assert said
        assert len(boxes) == int(said[1]) > 2


def test_without_dot_a_line_says_so(
    demo_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    pytest.importorskip("graphviz")
    monkeypatch.setenv("PATH", str(tmp_path))
    drawing = tmp_path / "near.svg"
    assert (
        main(["draw", "graph", str(demo_folder), "--operation", "barrier", "-o", str(drawing)]) == 2
    )
    error = capsys.readouterr().err
    assert "dot, which is not on PATH" in error
    assert len(error.strip().splitlines()) == 1
    assert not drawing.exists()
