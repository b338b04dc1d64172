"""Files of other tools: what is in a file, against what Nadi reads of it.

Usage: python verification/field_formats.py [FILES...]

Files are counted without Nadi, by sqlite3, json, and a reader of protobuf of its own. By default
those of ../shared/data/field, and a recording that torch 2.15 wrote both as JSON and as .pftrace.
Checked of each file with events:

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
import io
import json
import pickle
import re
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from _report import arguments

import nadi
import nadi.analyses

DEFAULTS = (
    "field/nsys/nsys-ai_mfu_2gpu_before.sqlite",
    "field/nsys/nsys-ai_mfu_2gpu_after.sqlite",
    "field/devices/rocprof__908_results.json.gz",
    "field/devices/test_data_jax_te_fused_attn_categorization__934987a2fc2f.xplane.pb",
    "field/memory/cs336_memory_ctx128_fullstep.pickle",
)
RECORDED = Path(__file__).parents[1] / "tests/formats/recorded"
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
            # of NCCL itself the calls, such as ncclSend, run as operators do
            is_operator = re.match("nccl[A-Z]", name) or (found and not name.startswith("nccl:"))
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


def varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (content[at] & 127) << shift
        if content[at] < 128:
            return value, at + 1
        at, shift = at + 1, shift + 7


def message(content: bytes) -> Iterator[tuple[int, Any]]:
    """Give number and value of each field: an int, or bytes."""
    at = 0
    while at < len(content):
        tag, at = varint(content, at)
        if tag & 7 == 0:
            value, at = varint(content, at)
            yield tag >> 3, value
        else:
            size = {1: 8, 5: 4}.get(tag & 7)
            if size is None:
                size, at = varint(content, at)
            yield tag >> 3, content[at : at + size]
            at += size


def parts(content: bytes, number: int) -> list[Any]:
    return [value for key, value in message(content) if key == number]


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name}")


def snapshot_checks(path: Path) -> Iterator[Check]:
    """Follow the history of a memory snapshot entry by entry, by Python's own pickle."""
    whole = _PlainUnpickler(io.BytesIO(content_of(path))).load()
    trace = nadi.read(path)
    series = nadi.analyses.memory_timeline(trace)
    for device, entries in enumerate(whole["device_traces"]):
        segments = [one for one in whole["segments"] if one["device"] == device]
        blocks = [one for segment in segments for one in segment["blocks"]]
        active = {one["address"]: one["requested_size"] for one in blocks
                  if one["state"] != "inactive"}  # fmt: skip
        own = series.filter(series["device"] == f"cuda:{device}")
        changes = Counter({"alloc": 0, "free_completed": 0})
        changes.update(e["action"] for e in entries if e["action"] in changes)
        # backward from the end, where what is held is known
        held = [sum(active.values())]
        for one in reversed(entries):
            if one["action"] in changes:
                change = one["size"] if one["action"] == "alloc" else -one["size"]
                held.append(held[-1] - change)
        yield "allocations and releases", changes.total(), own.filter(
            own["operator"] != "(before the history)").height  # fmt: skip
        yield "held at the end", held[0], own["allocated_bytes"][-1]
        yield "held at the peak", max(held), own["allocated_bytes"].max()
        yield "held before", held[-1], own.filter(own["operator"] == "(before the history)")[
            "change_bytes"].sum()  # fmt: skip
        yield "reserved", sum(one["total_size"] for one in segments), own["reserved_bytes"][-1]
        holders = nadi.analyses.memory_holders(trace)
        yield "held by somebody", max(held), holders["held_bytes"].sum()
    table = nadi.analyses.memory_segments(trace)
    yield "segments", len(whole["segments"]), table["segments"].sum()
    free = sum(one["size"] for s in whole["segments"] for one in s["blocks"]
               if one["state"] == "inactive")  # fmt: skip
    yield "free in segments", free, table["free_bytes"].sum()


STAGES = {"Kernel": "kernel", "Memcpy": "memcpy", "Memset": "memset",
          "Annotation": "device_annotation"}  # fmt: skip
OF_KINETO = {"cpu_op": "operator", "user_annotation": "annotation", "cuda_runtime": "runtime",
             "cuda_driver": "driver", "python_function": "python"}  # fmt: skip


def pftrace_events(path: Path) -> Iterator[Event]:
    """Read a .pftrace of PyTorch; of some begins that follow each other, the ends do so too."""
    packets = [p for n, p in message(content_of(path)) if n == 1]
    interned = b"".join(one for p in packets for one in parts(p, 12))
    texts = {number: {dict(message(e))[1]: dict(message(e))[2].decode()
                      for e in parts(interned, number)} for number in (1, 2, 24)}  # fmt: skip
    begun: list[tuple[int, dict[int, Any]]] = []
    for packet in packets:
        said = dict(message(packet))
        if 11 in said:
            event = dict(message(said[11]))
            if event[9] == 1:
                notes = [dict(message(one)) for one in parts(said[11], 4)]
                event[4] = {one[10]: one.get(4) for one in notes}
                begun.append((said[8], event))
                continue
            start, event = begun.pop(0)
            category = OF_KINETO.get(texts[1].get(event.get(3), ""), "sync")
            launch = event[4].get(b"correlation")
            yield Event(category, texts[2][event[10]], start, said[8] - start, launch)
        elif 53 in said:
            stage = dict(message(said[53]))
            extra = dict(tuple(dict(message(one)).values())[:2] for one in parts(said[53], 6))
            kind = texts[24][stage[14]]
            yield Event(STAGES[kind], texts[2].get(stage.get(20, 0), kind), said[8], stage[2],
                        int(extra.get(b"correlation", -1)))  # fmt: skip


def xplane_events(path: Path) -> Iterator[Event]:
    """Read an XPlane file plane by plane; launches are also of the operation that they state."""
    planes = []
    for plane in parts(content_of(path), 1):
        tables = [{one.get(1, 0): dict(message(one[2])) for one in map(dict, map(message, parts(
            plane, number)))} for number in (4, 5)]  # fmt: skip
        names, stats = ({key: one.get(2, b"").decode() for key, one in table.items()}
                        for table in tables)  # fmt: skip
        planes.append((parts(plane, 2)[0].decode(), plane, names, stats))
    base = next(dict(message(one))[3] for _, plane, _, stats in planes for one in parts(plane, 6)
                if stats.get(dict(message(one))[1]) == "profile_start_time")  # fmt: skip
    for title, plane, names, stats in planes:
        on_device = re.search(r"/device:[A-Z]+:\d+$", title)
        for line in parts(plane, 3) if on_device or title == "/host:CPU" else ():
            about = dict(message(line))
            for event in parts(line, 4):
                said = dict(message(event))
                notes = {stats[one[1]]: one.get(3, one.get(4, one.get(7)))
                         for one in map(dict, map(message, parts(event, 4)))}  # fmt: skip
                start = base + about[3] + round(Decimal(said.get(2, 0)) / 1000)
                length = round(Decimal(said.get(3, 0)) / 1000)
                name, launch = names[said[1]], notes.get("correlation_id")
                if on_device:
                    yield Event("kernel", name, start, length, launch)
                elif launch is not None:
                    yield Event("runtime", name, start, length, launch)
                    if "hlo_op" in notes:
                        yield Event("operator", stats[notes["hlo_op"]], start, length)
                elif not re.search(r"profiler.py.* st(art|op)_trace", name):
                    yield Event("python" if name[0] == "$" else "operator", name, start, length)


def kineto_events(path: Path) -> Iterator[Event]:
    """Read the JSON of a recording, of which there is a .pftrace too."""
    found = json.loads(content_of(path), parse_float=Decimal)
    of_device = {"cuda_sync": "sync", "gpu_memcpy": "memcpy", "gpu_memset": "memset",
                 "kernel": "kernel", "gpu_user_annotation": "device_annotation"}  # fmt: skip
    categories = OF_KINETO | of_device
    for event in found["traceEvents"]:
        if event["ph"] == "X" and event["cat"] in categories:
            start, duration = (round(event[key] * 1000) for key in ("ts", "dur"))
            yield Event(categories[event["cat"]], event["name"],
                        found["baseTimeNanoseconds"] + start, duration,
                        event["args"].get("correlation"))  # fmt: skip


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
    if head.startswith(b"\x80"):
        yield from snapshot_checks(path)
        return
    readers: list[tuple[bool, Callable[[Path], Iterator[Event]]]] = [
        (head.startswith(b"SQLite format 3\0"), nsight_events),
        (b'"rocprofiler-sdk-tool"' in head, rocprof_events),
        (b'"schemaVersion"' in head, kineto_events),
        (path.name.endswith(".xplane.pb"), xplane_events),
        (head.startswith(b"\n"), pftrace_events),
    ]
    for fits, reader in readers:
        if fits:
            yield from event_checks(path, list(reader(path)))
            return
    raise SystemExit(f"{path}: not a format of this verification")


def main() -> int:
    exact = total = 0
    paths = list(arguments(*DEFAULTS))
    if len(sys.argv) == 1:
        paths += [RECORDED / "recorded.pftrace", RECORDED / "recorded.trace.json.gz"]
    for path in paths:
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
