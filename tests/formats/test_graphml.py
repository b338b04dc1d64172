"""Writing GraphML."""

from __future__ import annotations

import gzip
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import nadi
from nadi.files.drawing import graphml
from nadi.trace.attributes import AttributeBuilder
from nadi.trace.issues import IssueLog
from nadi.trace.schema import DEPS, GROUPS, NODES
from nadi.trace.trace import Provenance, Trace
from tests.amounts import some
from tests.formats.graphs import REPLACED, SHOWN_NAMES, counted, make_trace
from tests.reference.chakra_messages import read_messages

_SPACE = "{http://graphml.graphdrawing.org/xmlns}"
Nodes = dict[int, str | None]
Edges = dict[tuple[int, int], dict[str, str]]


def parse(content: bytes) -> tuple[Nodes, Edges]:
    """Read labels by id, and the attributes of edges by their ends."""
    root = ElementTree.fromstring(content)
    names = {key.get("id"): str(key.get("attr.name")) for key in root.iter(f"{_SPACE}key")}
    graph = root.find(f"{_SPACE}graph")
    assert graph is not None
    assert graph.get("edgedefault") == "directed"
    nodes: Nodes = {}
    for element in graph.findall(f"{_SPACE}node"):
        data = element.find(f"{_SPACE}data")
        assert int(element.attrib["id"]) not in nodes
        nodes[int(element.attrib["id"])] = None if data is None else data.text or ""
    edges: Edges = {}
    for element in graph.findall(f"{_SPACE}edge"):
        ends = int(element.attrib["source"]), int(element.attrib["target"])
        assert ends not in edges
        edges[ends] = {names[data.get("key")]: str(data.text) for data in element}
    return nodes, edges


def written(trace: Trace) -> tuple[Nodes, Edges, dict[str, int]]:
    log = IssueLog()
    nodes, edges = parse(b"".join(graphml.encode(trace, log)))
    return nodes, edges, counted(log)


def test_names_come_back_whatever_they_hold() -> None:
    nodes, edges, issues = written(make_trace(SHOWN_NAMES))
    assert list(nodes.values()) == [REPLACED.get(name, name) for name in SHOWN_NAMES]
    assert list(nodes) == [10 * row + 3 for row in range(len(SHOWN_NAMES))]
    assert edges == {}
    assert issues == {
        "graphml.name": len(REPLACED), "graphml.columns": len(SHOWN_NAMES), "graphml.attributes": 1,
    }  # fmt: skip


def test_edges_have_the_last_of_their_kinds_and_all_of_them() -> None:
    deps = [(0, 1, "ctrl"), (0, 1, "data"), (1, 2, "data"), (0, 2, "ctrl"), (1, 3, "stream")]
    _, edges, _ = written(make_trace(list("abcd"), deps))
    assert edges == {
        (3, 13): {"dependency": "control", "kinds": "data control"},
        (13, 23): {"dependency": "data"},
        (3, 23): {"dependency": "control"},
        (13, 33): {"dependency": "stream"},
    }


def test_ids_that_are_only_waited_for_are_nodes_without_a_label() -> None:
    absent = [(0, "ctrl_deps[0]", 0), (1, "data_deps[2]", 0), (1, "data_deps[3]", 2**62)]
    twice = [(1, "data_deps[1]", 3)]  # on a node that is there, given a second time
    nodes, edges, issues = written(make_trace(["a", "b"], [(0, 1, "data")], absent + twice))
    assert nodes == {3: "a", 13: "b", 0: None, 2**62: None}
    assert {ends: data["dependency"] for ends, data in edges.items()} == {
        (3, 13): "data",
        (0, 3): "control",
        (0, 13): "data",
        (2**62, 13): "data",
    }
    assert issues["graphml.attributes"] == 1


def test_an_empty_trace_is_an_empty_graph() -> None:
    assert written(make_trace([]))[:2] == ({}, {})


def test_a_linked_trace_has_all_its_nodes_and_dependencies(demo_run: nadi.bottlenecks.Run) -> None:
    trace = demo_run.job.traces[0]
    nodes, edges, _ = written(trace)
    ids, names = trace.nodes["id"].to_list(), trace.nodes["name"].to_list()
    assert nodes == dict(zip(ids, names, strict=True))
    expected: dict[tuple[int, int], set[str]] = {}
    for src, dst, kind in trace.deps.select("src", "dst", "kind").iter_rows():
        expected.setdefault((ids[src], ids[dst]), set()).add(kind)
    kinds = {
        ends: set(data.get("kinds", data["dependency"]).split()) for ends, data in edges.items()
    }
    assert kinds == expected


@pytest.mark.parametrize(
    "name",
    some(
        [
            "gpu_resnet_1gpu_et103__nccl_data",
            "torch213_ddp4_r0",
            "torch213_ddp4_r1",
            "torch213_mlp",
            "torch213_transformer4",
        ]
    ),
)
def test_the_visualizers_own_graphs(shared_traces: Path, name: str) -> None:
    folder = shared_traces.parent / "golden" / "chakra" / name
    trace = trace_of_messages(gzip.decompress((folder / "out.et.gz").read_bytes()))
    golden_nodes, golden_edges = parse(gzip.decompress((folder / "out.graphml.gz").read_bytes()))
    nodes, edges, _ = written(trace)
    assert nodes == golden_nodes
    assert {ends: data["dependency"] for ends, data in edges.items()} == {
        ends: data["dependency"] for ends, data in golden_edges.items()
    }


def trace_of_messages(content: bytes) -> Trace:
    """Read ids, names and dependencies of a Chakra file, slowly."""
    _, messages = read_messages(content)
    rows = {message.id: row for row, message in enumerate(messages)}
    builder = AttributeBuilder()
    deps: list[tuple[int, int, str]] = []
    for row, message in enumerate(messages):
        for kind, given in (("ctrl", message.ctrl_deps), ("data", message.data_deps)):
            for position, number in enumerate(given):
                if number in rows:
                    deps.append((rows[number], row, kind))
                else:
                    builder.add(row, f"{kind}_deps[{position}]", "dependency", number)
    src, dst, kinds = zip(*deps, strict=True)
    columns = {
        "id": list(rows),
        "name": [message.name for message in messages],
        "kind": "COMP",
        "category": "operator",
    }
    return Trace(
        nodes=NODES.build(len(messages), columns),
        deps=DEPS.build(len(deps), {"src": src, "dst": dst, "kind": kinds}),
        groups=GROUPS.empty(),
        issues=IssueLog().table(),
        provenance=Provenance("1", ()),
        given_attributes=builder.build(),
    )
