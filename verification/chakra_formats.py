"""What Chakra's own tools make of a trace, against what Nadi makes of it.

Usage: python verification/chakra_formats.py [FOLDER, ARCHIVE OR .ET FILE...]

A folder is looked through with all that lie in it; in an archive (.tar.gz) only .et files
are looked at. Checked of what is found:

``out.et.gz`` with ``jsonized.json.gz`` beside it
    written as JSON by Nadi, every message equals the one that chakra_jsonizer wrote, field
    by field, both read with Python's json module; and chakra_jsonizer's file, read and
    written as .et, is ``out.et`` byte for byte.
``out.et.gz`` with ``out.graphml.gz`` beside it
    written as GraphML by Nadi, nodes with their labels and edges with their dependency are
    those that chakra_visualizer wrote.
every ``.et`` and ``.et.gz``
    read and written again, it is the same file, byte for byte. Of a file whose messages
    protobuf itself would write otherwise (an id of 0 that is stated, say), it is what
    protobuf writes of them.
``NAME.txt`` with ``NAME.0.et``, ``NAME.1.et``, ... beside it
    the text workload, read and written as .et, holds the messages that chakra_converter wrote
    for each rank. That tool goes on counting from rank to rank, where Nadi numbers the nodes
    of every rank from 0: the number of nodes before a rank is taken off its ids.

Messages are decoded by the protobuf package, as Nadi's tests do it: what stands in
``tests/reference`` is independent of Nadi's own codec, and should exist only once.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from _report import Checks, arguments, unpack

import nadi

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.reference.chakra_messages import read_messages, write_messages

DEFAULT = ("golden/chakra", "golden/astra")
_GRAPHML = "{http://graphml.graphdrawing.org/xmlns}"


def content_of(path: Path) -> bytes:
    stored = path.read_bytes()
    return gzip.decompress(stored) if stored[:2] == b"\x1f\x8b" else stored


def jsonized_messages(path: Path) -> list[dict[str, Any]]:
    """Read objects that stand one after the other."""
    text, at, messages = content_of(path).decode(), 0, []
    decoder = json.JSONDecoder()
    while at < len(text):
        message, at = decoder.raw_decode(text, at)
        messages.append(message)
    return messages


def check_json(et: Path, work: Path, checks: Checks) -> None:
    expected = jsonized_messages(et.with_name("jsonized.json.gz"))
    nadi.write(nadi.read(et), work / "out.json", to="chakra-json")
    written = json.loads((work / "out.json").read_bytes())
    found = [written["globalMetadata"], *written["nodes"]]
    exact = sum(a == b for a, b in zip(found, expected, strict=False))
    fields = sum(len(message) + len(message.get("attr", ())) for message in expected)
    checks.add_many(
        f"{et.parent.name}: messages as JSON", exact, max(len(found), len(expected)),
        f"{fields} fields and attributes",
    )  # fmt: skip
    nadi.write(nadi.read(et.with_name("jsonized.json.gz")), work / "out.et")
    checks.add(
        f"{et.parent.name}: jsonizer's file as .et",
        (work / "out.et").read_bytes() == content_of(et),
    )


def graph_of(path: Path) -> tuple[Counter[tuple[str, ...]], Counter[tuple[str, ...]]]:
    """Read nodes (id, label) and edges (source, target, dependency)."""
    root = ElementTree.fromstring(content_of(path))
    names = {key.get("id"): key.get("attr.name") for key in root.iter(f"{_GRAPHML}key")}

    def datum(element: ElementTree.Element, name: str) -> str:
        return next((d.text or "" for d in element if names.get(d.get("key")) == name), "without")

    nodes = Counter((n.get("id", ""), datum(n, "label")) for n in root.iter(f"{_GRAPHML}node"))
    edges = Counter(
        (e.get("source", ""), e.get("target", ""), datum(e, "dependency"))
        for e in root.iter(f"{_GRAPHML}edge")
    )
    return nodes, edges


def check_graph(et: Path, work: Path, checks: Checks) -> None:
    nadi.write(nadi.read(et), work / "out.graphml")
    ours, theirs = graph_of(work / "out.graphml"), graph_of(et.with_name("out.graphml.gz"))
    for what, a, b in zip(("nodes", "edges"), ours, theirs, strict=True):
        checks.add_many(
            f"{et.parent.name}: {what} of GraphML", (a & b).total(), max(a.total(), b.total())
        )


def check_round_trips(name: str, files: list[Path], work: Path, checks: Checks) -> None:
    """Read and write files; those of the same bytes only once."""
    results: dict[bytes, bool] = {}
    exact = 0
    for path in files:
        content = content_of(path)
        digest = blake2b(content).digest()
        if digest not in results:
            nadi.write(nadi.read(path), work / "again.et")
            again = (work / "again.et").read_bytes()
            results[digest] = again == content or again == write_messages(*read_messages(content))
        exact += results[digest]
    checks.add_many(f"{name}: .et read and written", exact, len(files), f"{len(results)} different")


def shifted(message: Any, distance: int) -> Any:
    """Give a node whose ids are so much lower."""
    copy = type(message)()
    copy.CopyFrom(message)
    copy.id -= distance
    for ids in (copy.ctrl_deps, copy.data_deps):
        ids[:] = [number - distance for number in ids]
    return copy


def check_text(path: Path, work: Path, checks: Checks) -> None:
    nadi.write(nadi.read(path), work / "text.et")
    metadata, nodes = read_messages(content_of(work / "text.et"))
    taken = 0  # ids of the ranks before
    ranks = [
        int(re.findall(r"\.(\d+)\.et$", et.name)[0]) for et in path.parent.glob(f"{path.stem}.*.et")
    ]
    for rank in sorted(ranks):
        their_metadata, theirs = read_messages(content_of(path.with_suffix(f".{rank}.et")))
        expected = [their_metadata, *(shifted(node, taken) for node in theirs)]
        exact = sum(a == b for a, b in zip([metadata, *nodes], expected, strict=False))
        checks.add_many(
            f"{path.name}: messages of rank {rank}", exact, max(len(nodes) + 1, len(expected)),
            f"{taken} taken off its ids" if taken else "",
        )  # fmt: skip
        taken += len(theirs)


def check_folder(name: str, folder: Path, work: Path, checks: Checks) -> None:
    files = sorted(path for path in folder.iterdir() if path.is_file())
    for path in files:
        if path.name == "out.et.gz":
            if path.with_name("jsonized.json.gz").exists():
                check_json(path, work, checks)
            if path.with_name("out.graphml.gz").exists():
                check_graph(path, work, checks)
        elif path.suffix == ".txt" and path.with_suffix(".0.et").exists():
            check_text(path, work, checks)
    traces = list(traces_below(folder)) if name.endswith(".tar.gz") else [
        path for path in files if path.name.endswith((".et", ".et.gz"))
    ]  # fmt: skip
    if traces:
        check_round_trips(name, traces, work, checks)


def traces_below(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.name.endswith((".et", ".et.gz")))


def check(path: Path, work: Path, checks: Checks) -> None:
    if path.name.endswith(".tar.gz"):
        with tempfile.TemporaryDirectory() as unpacked:
            unpack(path, unpacked)
            check_folder(path.name, Path(unpacked), work, checks)
        return
    if path.is_file():
        check_round_trips(path.name, [path], work, checks)
        return
    check_folder(path.name, path, work, checks)
    for inner in sorted(path.iterdir()):
        if inner.is_dir() or inner.name.endswith(".tar.gz"):
            check(inner, work, checks)


def main() -> None:
    checks = Checks()
    with tempfile.TemporaryDirectory() as work:
        for path in arguments(*DEFAULT):
            check(path, Path(work), checks)
    checks.finish()


if __name__ == "__main__":
    main()
