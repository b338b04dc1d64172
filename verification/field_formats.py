"""Files of other tools: what is in a file, against what Nadi reads of it.

Usage: python verification/field_formats.py [FILES...]

Files are counted without Nadi, by sqlite3, json, a reader of protobuf and one of pickles of their
own. By default those of ../shared/data/field. Checked of each file with events:

events
    as many nodes of each category as the file has.
times
    the same starts and durations in ns, category by category, each as often.
names
    the same names, category by category, each as often.
launches
    as many kernels, copies and fills with the call that launched them as the file can tell.

The last line says how many checks are exact; the exit status is 1 unless all are.
"""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from _report import arguments

import nadi

DEFAULTS = (
    "field/nsys/nsys-ai_mfu_2gpu_before.sqlite",
    "field/nsys/nsys-ai_mfu_2gpu_after.sqlite",
    "field/devices/rocprof__908_results.json.gz",
)
DEVICE_WORK = ("kernel", "memcpy", "memset")
Check = tuple[str, Any, Any]


class Event(NamedTuple):
    """What a file says of an event; times in ns, launch as what identifies it, or None."""

    category: str
    name: str
    start: int
    duration: int
    launch: Any = None


COPIES = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}
SYNCS = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}


def nsight_events(path: Path) -> Iterator[Event]:
    """Read an export of Nsight Systems row by row."""
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as database:
        database.row_factory = sqlite3.Row
        (base,) = database.execute(
            "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME"
        ).fetchone()
        texts = dict(map(tuple, database.execute("SELECT id, value FROM StringIds")))

        def rows(table: str) -> Iterator[sqlite3.Row]:
            return database.execute(f"SELECT * FROM {table}")

        for row in rows("NVTX_EVENTS"):
            text = row["text"] if row["text"] is not None else texts[row["textId"]]
            found = re.match(r"(?s)(.*?)(?:, seq = \d+)?, op_id = \d+", text)
            name = found[1] if found else text
            is_operator = found and not name.startswith("nccl:")
            yield Event("operator" if is_operator else "annotation", name, base + row["start"],
                        row["end"] - row["start"])  # fmt: skip
        for row in rows("CUPTI_ACTIVITY_KIND_RUNTIME"):
            yield Event(
                "driver" if row["eventClass"] == 1 else "runtime",
                re.sub(r"_v\d{4,}$", "", texts[row["nameId"]]), base + row["start"],
                row["end"] - row["start"], (row["globalTid"] >> 24, row["correlationId"]),
            )  # fmt: skip
        for kind, category in (("KERNEL", "kernel"), ("MEMCPY", "memcpy"), ("MEMSET", "memset"),
                               ("SYNCHRONIZATION", "sync")):  # fmt: skip
            for row in rows(f"CUPTI_ACTIVITY_KIND_{kind}"):
                name = "Memset (Device)"
                if kind == "KERNEL":
                    name = texts[row["demangledName"]]
                elif kind == "MEMCPY":
                    name = f"Memcpy {COPIES[row['copyKind']]}"
                elif kind == "SYNCHRONIZATION":
                    name = SYNCS[row["syncType"]]
                yield Event(category, name, base + row["start"], row["end"] - row["start"],
                            (row["globalPid"] >> 24, row["correlationId"]))  # fmt: skip


def rocprof_events(path: Path) -> Iterator[Event]:
    """Read a file of rocprofv3 with json."""
    for tool in json.loads(content_of(path))["rocprofiler-sdk-tool"]:
        names = {one["kernel_id"]: one["formatted_kernel_name"] for one in tool["kernel_symbols"]}
        kinds = tool["strings"]["buffer_records"]
        for table, records in tool["buffer_records"].items():
            for one in records:
                name = kinds[one["kind"]]["operations"][one["operation"]]
                category = {"hip_api": "runtime", "memory_copy": "memcpy"}.get(table, "annotation")
                if table == "kernel_dispatch":
                    category, name = "kernel", names[one["dispatch_info"]["kernel_id"]]
                yield Event(category, name, one["start_timestamp"],
                            one["end_timestamp"] - one["start_timestamp"],
                            one["correlation_id"]["internal"])  # fmt: skip


def content_of(path: Path) -> bytes:
    stored = path.read_bytes()
    return gzip.decompress(stored) if stored[:2] == b"\x1f\x8b" else stored


def event_checks(path: Path, events: list[Event]) -> Iterator[Check]:
    """Compare the events of a file with the nodes that Nadi reads."""
    trace = nadi.read(path)
    columns = trace.nodes.select("category", "name", "start", "duration", "correlation").to_dict()
    read = [
        Event(*values)
        for values in zip(*(columns[key].to_list() for key in columns), strict=True)
    ]  # fmt: skip
    for category in sorted({e.category for e in events} | {e.category for e in read}):
        there, own = ([e for e in some if e.category == category] for some in (events, read))
        yield f"{category}: events", len(there), len(own)
        yield f"{category}: times", Counter(map(_times, there)), Counter(map(_times, own))
        yield f"{category}: names", Counter(e.name for e in there), Counter(e.name for e in own)
    yield "launches", _launched(events), _launched([
        e._replace(launch=None if e.launch == -1 else e.launch) for e in read])  # fmt: skip


def _times(event: Event) -> tuple[int, int]:
    return event.start, event.duration


def _launched(events: list[Event]) -> Counter[tuple[str, str]]:
    """Count which call launched which work."""
    calls = {e.launch: e.name for e in events
             if e.category in ("runtime", "driver") and e.launch is not None}  # fmt: skip
    work = [e for e in events if e.category in DEVICE_WORK and e.launch in calls]
    return Counter((calls[e.launch], e.name) for e in work)


def checks_of(path: Path) -> Iterator[Check]:
    """Tell what kind of file it is, and compare it."""
    head = content_of(path)[:64]
    readers: list[tuple[bool, Callable[[Path], Iterator[Event]]]] = [
        (head.startswith(b"SQLite format 3\0"), nsight_events),
        (b'"rocprofiler-sdk-tool"' in head, rocprof_events),
    ]
    for fits, reader in readers:
        if fits:
            yield from event_checks(path, list(reader(path)))
            return
    raise SystemExit(f"{path}: not a format of this verification")


def main() -> int:
    exact = total = 0
    for path in arguments(*DEFAULTS):
        print(path.name)
        for what, there, read in checks_of(path):
            total += 1
            exact += there == read
            shown = there if isinstance(there, int) else f"{len(there)} different"
            mark = "exact" if there == read else f"NOT EXACT: {there} read as {read}"[:400]
            print(f"  {what:<28} {shown!s:>16}  {mark}")
    print(f"{exact} of {total} exact")
    return 0 if exact == total and total else 1


if __name__ == "__main__":
    sys.exit(main())
