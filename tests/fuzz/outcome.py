"""What must come of any input: a trace that keeps the rules, or one line about the file."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import re
import sqlite3
import zipfile
import zlib
from contextlib import closing
from pathlib import Path
from pickletools import genops
from typing import Any

import nadi
from nadi.files import sniff
from nadi.files.files import read_file
from nadi.files.messages import plain_fields
from tests.fuzz.corpus import samples
from tests.reference import kineto
from tests.reference.chakra_messages import read_messages

__all__ = ["WRITTEN", "check", "check_flipped", "check_use"]

WRITTEN = (
    ".et", ".nadi", ".graphml", ".csv", ".pftrace", ".json", ".linked.json", ".trace.json", ".dot",
)  # fmt: skip
_LONGEST_LINE = 1_500
# rules that a recording itself may break, by the issue that tells of it while reading; what
# operands and tensors say is only read when somebody asks, and these rules are what tells of it
_TOLD = {
    "nodes.cycle": "chakra.cycle",
    "operands.text": "",
    "tensors.elements": "",
    "tensors.strides": "",
}
# instructions of a pickle that make plain values
_PLAIN = {
    "PROTO", "FRAME", "STOP", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "MARK", "MEMOIZE", "BINGET",
    "LONG_BINGET", "SETITEM", "SETITEMS", "APPEND", "APPENDS", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
    "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "BINFLOAT", "LONG1",
    "SHORT_BINUNICODE", "BINUNICODE",
}  # fmt: skip
_LINE_END = re.compile(r"\r\n|\r|\n")
# why an .et may be refused that the protobuf package reads
_CHAKRA_RULES = re.compile(
    r"occurs twice|microseconds or an id is too large|after the year 2262|gzip|"
    r"not a trace in a format that Nadi reads|"  # its first bytes are not those of a Chakra trace
    r"is no protobuf field|"  # groups, which Chakra has never had and protobuf passes over
    r"a list does not hold what its type says"  # protobuf passes over items of another type
)


def check(path: Path) -> nadi.Trace | None:
    """Read a file, and look at all of it.

    Returns
    -------
    Trace or None
        None if it was refused as it should be.

    Raises
    ------
    AssertionError
        If the trace breaks a rule that no issue tells of, or the error is not one line that
        begins with the file. Other exceptions pass through.
    """
    try:
        trace = nadi.read(path)
        _check_trace(trace)
    except nadi.NadiError as error:
        _check_line(str(error), path)
        return None
    return trace


def _check_line(line: str, path: Path) -> None:
    assert line.startswith((str(path), "attribute ")), line
    assert line.isprintable() and len(line) < _LONGEST_LINE, line  # noqa: PT018


def _check_trace(trace: nadi.Trace) -> None:
    for _ in trace.attributes.items():
        pass
    assert trace.operands.width > 0
    assert trace.tensors.width > 0
    told = set(trace.issues["code"])
    for code in nadi.trace.validate_trace(trace)["code"]:
        assert code in _TOLD, (code, told)
        assert not _TOLD[code] or _TOLD[code] in told, (code, told)


def check_use(trace: nadi.Trace, folder: Path, suffix: str) -> None:
    """Write a trace; nothing but a NadiError may come of it."""
    try:
        nadi.write(trace, folder / f"written{suffix}")
    except nadi.NadiError as error:
        assert str(error).isprintable(), error


def check_flipped(path: Path, format_name: str) -> nadi.Trace | None:
    """Check a damaged file against another reader of its format."""
    trace = check(path)
    content = path.read_bytes()
    if content.startswith(b"\x1f\x8b"):
        content = _decompressed(content, trace)
    if trace is not None:  # damage may make a file of another format
        format_name = str(getattr(sniff(path), "name", ""))
    _ORACLES[format_name](content, trace, path)
    return trace


def _decompressed(content: bytes, trace: nadi.Trace | None) -> bytes:
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error):
        assert trace is None, "Python finds the gzip data broken"
        return b""


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _parsed(content: bytes, trace: nadi.Trace | None) -> Any:
    """Parse JSON as Python does; what Python refuses must be refused."""
    try:
        return json.loads(content.decode("utf-8-sig"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        assert trace is None, f"Python refuses it: {error}"
        return None


def _check_host(content: bytes, trace: nadi.Trace | None, _: Path) -> None:
    found = _parsed(content, trace)
    if trace is not None:
        told = sorted(trace.nodes.select("id", "name").iter_rows())
        assert told == sorted((node["id"], node["name"]) for node in found["nodes"])


def _check_device(content: bytes, trace: nadi.Trace | None, path: Path) -> None:
    _parsed(content, trace)
    if trace is not None:
        slow = kineto.decode(read_file(path))
        told = [one.nodes["name"].cast(str).to_list() for one in (trace, slow)]
        assert told[0] == told[1]
        if not _has_keys_twice(content):  # of which Python's json shows the last alone
            # the slow reader does not look for ranks that were merged into a file
            found = trace.issues.filter(trace.issues["code"] != "kineto.merged-ranks")
            assert found["count"].sum() == slow.issues["count"].sum()


def _has_keys_twice(content: bytes) -> bool:
    sizes: list[bool] = []
    json.loads(
        content.decode("utf-8-sig"),
        object_pairs_hook=lambda pairs: sizes.append(len(dict(pairs)) < len(pairs)),
    )
    return any(sizes)


def _check_chakra(content: bytes, trace: nadi.Trace | None, path: Path) -> None:
    try:
        _, nodes = read_messages(content)
    except Exception as error:  # of many kinds: DecodeError, IndexError, AssertionError
        assert trace is None, f"protobuf refuses it: {error!r}"
        return
    if trace is None:
        try:
            nadi.read(path)
        except nadi.NadiError as error:
            assert _CHAKRA_RULES.search(str(error)), f"protobuf reads it: {error}"
        return
    assert trace.column("id").tolist() == [node.id for node in nodes]
    assert trace.nodes["name"].cast(str).to_list() == [node.name for node in nodes]


def _check_text(content: bytes, trace: nadi.Trace | None, _: Path) -> None:
    if trace is not None:
        _, counted, *layers = [line for line in _LINE_END.split(content.decode()) if line.strip()]
        assert int(counted) == len(layers)
        assert trace.nodes.height <= 9 * len(layers)


def _check_own(content: bytes, trace: nadi.Trace | None, _: Path) -> None:
    """Compare with the undamaged file: sums tell all damage but that of dates and the like."""
    if trace is not None:
        whole = samples()["nadi"].content
        members = [zipfile.ZipFile(io.BytesIO(c)).infolist() for c in (content, whole)]
        sums = [[(m.filename, m.CRC) for m in infos] for infos in members]
        assert sums[0] == sums[1]


def _check_chakra_json(content: bytes, trace: nadi.Trace | None, _: Path) -> None:
    """Parse one object, or as many as there are."""
    decoder = json.JSONDecoder(parse_constant=_refuse)
    objects = []
    try:
        text = content.decode("utf-8-sig").strip()
        while text:
            found, end = decoder.raw_decode(text)
            objects.append(found)
            text = text[end:].strip()
    except (ValueError, RecursionError) as error:
        assert trace is None, f"Python refuses it: {error}"
        return
    if trace is not None:
        whole = objects[0]
        if "workload_graph" in whole:
            num_nodes = len(whole["workload_graph"])
        elif "nodes" in whole or "globalMetadata" in whole or "global_metadata" in whole:
            num_nodes = len(whole.get("nodes", []))
        else:
            num_nodes = len(objects) - 1
        assert trace.nodes.height == num_nodes


def _check_nsight(content: bytes, trace: nadi.Trace | None, _: Path) -> None:
    """Compare the rows that have times, as SQLite itself reads them."""
    if trace is None:
        return
    with closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(content)
        there = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
        tables = [name for name in there if name.startswith(("CUPTI_ACTIVITY_KIND", "NVTX_EVENTS"))]
        rows = sum(database.execute(f"SELECT count(*) FROM {one}").fetchone()[0] for one in tables)
    assert trace.nodes.height <= rows


def _check_rocprof(content: bytes, trace: nadi.Trace | None, _: Path) -> None:
    """Compare with as many records as Python's json reads."""
    try:
        whole = json.loads(content)
    except (ValueError, RecursionError) as error:
        assert trace is None, f"Python refuses it: {error}"
        return
    if trace is not None:
        tools = whole["rocprofiler-sdk-tool"]
        records = [r for tool in tools for some in tool["buffer_records"].values() for r in some]
        assert trace.nodes.height <= len(records)


def _check_pftrace(content: bytes, trace: nadi.Trace | None, _: Path) -> None:
    """Compare with the begins of slices and the work of devices, packet by packet."""
    if trace is not None:
        fields = plain_fields(memoryview(content))
        packets = [dict(plain_fields(p)) for n, p in fields if n == 1 and not isinstance(p, int)]
        assert trace.nodes.height <= sum(11 in packet or 53 in packet for packet in packets)


def _check_snapshot(content: bytes, trace: nadi.Trace | None, _: Path) -> None:
    """Compare the entries of the history with Python's pickle, unless that would call anything."""
    try:
        if trace is None or not _PLAIN.issuperset(code.name for code, *_ in genops(content)):
            return
        whole = pickle.loads(content)
    except (ValueError, OverflowError, TypeError, pickle.UnpicklingError):
        return  # a text that is no UTF-8, sizes of frames, which are not looked at, or a tuple of
        # lists as a key
    entries = sum(map(len, whole.get("device_traces", ())))
    blocks = sum(len(segment["blocks"]) for segment in whole["segments"])
    # what was released without an allocation was there before: two events
    assert len(list(trace.attributes.rows_named("event"))) <= 2 * entries + blocks


def _check_xplane(content: bytes, trace: nadi.Trace | None, _: Path) -> None:
    """Compare with the events of all lines, plane by plane; a launch may be of an operation."""
    if trace is not None:
        inner = [memoryview(content)]
        for number in (1, 3, 4):
            inner = [value for message in inner for key, value in plain_fields(message)
                     if key == number and not isinstance(value, int)]  # fmt: skip
        assert trace.nodes.height <= 2 * len(inner)


_ORACLES = {
    "pytorch": _check_host,
    "kineto": _check_device,
    "chakra": _check_chakra,
    "chakra-json": _check_chakra_json,
    "astra-text": _check_text,
    "nadi": _check_own,
    "nsight": _check_nsight,
    "rocprof": _check_rocprof,
    "perfetto": _check_pftrace,
    "memory-snapshot": _check_snapshot,
    "xplane": _check_xplane,
}
