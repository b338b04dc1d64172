"""Recordings that users of other projects have: what is in a file, against what Nadi reads of it.

Usage: python verification/wild.py [FILES OR FOLDERS...]

A folder is looked through with all that lies in it. Files are counted by Python's json module,
without Nadi. Checked of each Kineto trace, PyTorch's or another vendor's:

phases and categories
    as many events of each phase and category, nodes and kept events together.
durations
    the complete events of a category that became nodes last as long in all, in ns.
names
    the complete events of a category that became nodes have the same names as often.
written again
    read, written as Nadi's own file, read and written as Kineto, every event is the same as in
    the file, in the same order, with times compared in ns; and so is what the file says besides.
validity
    there are nodes, and they hold to the rules of the data model.

background threads
    no operation of the critical path runs on a thread that has Python functions only, by the
    file: it waits for work, such as a writer of queues. The path's kinds and the share of it that
    the recording does not explain are printed.
twins
    the same model on two vendors' devices, by names such as ``amd_mi300_vit`` and ``h100_vit``:
    where the devices are busy for the same share of the step within 2 points, so are the kinds of
    the critical path.

Checked of each text workload: as many layers as lines, and the computing time and the bytes of all
its phases that its parallelism performs.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from collections import Counter
from decimal import ROUND_HALF_UP, Decimal
from itertools import combinations
from pathlib import Path
from typing import Any

import polars as pl
from _report import Checks, arguments

import nadi

# what PyTorch calls the categories of nodes today; others are kept with the node
CATEGORY = {
    "operator": "cpu_op", "annotation": "user_annotation", "python": "python_function",
    "runtime": "cuda_runtime", "driver": "cuda_driver", "kernel": "kernel", "memcpy": "gpu_memcpy",
    "memset": "gpu_memset", "sync": "cuda_sync", "device_annotation": "gpu_user_annotation",
}  # fmt: skip
# parallelisms that compute every time that a layer states
ALL_TIMES = ("HYBRID_TRANSFORMER_FWD_IN_BCKWD", "HYBRID_TRANSFORMER", "MODEL")
DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
TWINS_AGREE = 2.0  # points of per cent
_TIMES = ("ts", "dur")
_Kind = tuple[str, Any]


def content_of(path: Path) -> bytes:
    stored = path.read_bytes()
    return gzip.decompress(stored) if stored[:2] == b"\x1f\x8b" else stored


def file_of(path: Path) -> tuple[list[Any], dict[str, Any]]:
    """Read the events of a file, and what it says besides."""
    file = json.loads(content_of(path), parse_float=Decimal)
    if isinstance(file, list):
        return file, {}
    return file.pop("traceEvents"), file


def nanoseconds(value: Any) -> Any:
    """Give decimal microseconds, also as text, as ns; what is no time as it is."""
    try:
        ns = Decimal(value).scaleb(3)
        return int(ns.quantize(Decimal(1), ROUND_HALF_UP))
    except (ArithmeticError, TypeError, ValueError):
        return value


def in_nanoseconds(event: Any) -> Any:
    if not isinstance(event, dict):
        return event
    times = {key: nanoseconds(event[key]) for key in _TIMES if key in event}
    return {**event, **times}


def check_kineto(path: Path, work: Path, checks: Checks) -> None:
    events, about = file_of(path)
    trace = nadi.read(path)
    kept = [
        value for _, name, _, value in trace.attributes.filtered(trace.attributes.node < 0).items()
        if name == "event"
    ]  # fmt: skip
    stated = pl.DataFrame(
        {"row": rows(trace, "cat"), "stated": values(trace, "cat")},
        schema={"row": pl.Int64, "stated": pl.String},
    )
    nodes = trace.nodes.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    nodes = nodes.select(
        "row", "event", "duration", pl.col("name").cast(pl.String),
        pl.col("category").cast(pl.String).replace(CATEGORY),
    ).join(stated.with_columns(is_stated=True), on="row", how="left")  # fmt: skip
    categories = [
        own if is_stated else category
        for category, own, is_stated in nodes.select("category", "stated", "is_stated").iter_rows()
    ]
    whole = [event for event in events if isinstance(event, dict)]
    expected = Counter((event.get("ph"), event.get("cat")) for event in whole)
    found: Counter[_Kind] = Counter(("X", category) for category in categories)
    found += Counter((e.get("ph"), e.get("cat")) for e in kept if isinstance(e, dict))
    name = path.name
    checks.add_many(
        f"{name}: events per phase and category",
        sum(found[kind] == count for kind, count in expected.items()),
        len(expected.keys() | found.keys()), f"{len(events)} events",
    )  # fmt: skip
    check_nodes(name, events, nodes, categories, checks)
    valid = nadi.trace.validate_trace(trace).is_empty()
    checks.add(f"{name}: nodes, all valid", trace.nodes.height > 0 and valid)
    nadi.write(trace, work / "own.nadi")
    nadi.write(nadi.read(work / "own.nadi"), work / "again.trace.json")
    again, about_again = file_of(work / "again.trace.json")
    same = sum(in_nanoseconds(a) == in_nanoseconds(b) for a, b in zip(events, again, strict=False))
    checks.add_many(f"{name}: events written again", same, max(len(events), len(again)))
    if about:
        checks.add(f"{name}: other keys written again", about == about_again)


def check_path(path: Path, checks: Checks) -> dict[str, float]:
    """Check the critical path of a recording; gives its kinds in per cent, and ``busy``."""
    events, _ = file_of(path)
    run = nadi.run(path)
    works, all_threads = set(), set()
    for event in events:
        if isinstance(event, dict) and event.get("ph") == "X":
            thread = event.get("pid"), event.get("tid")
            all_threads.add(thread)
            if event.get("cat") != "python_function":
                works.add(thread)
    background = all_threads - works
    nodes = run.path.segments["node"]
    places = run.job.traces[0].nodes["event"].gather(nodes.filter(nodes >= 0)).to_list()
    wrong = sum((events[at].get("pid"), events[at].get("tid")) in background for at in places)
    length = max(run.path.length, 1)
    kinds = {kind: 100 * time / length for kind, time in run.path.by_kind().items()}
    shown = ", ".join(f"{kind} {share:.1f} %" for kind, share in kinds.items() if share >= 0.05)
    checks.add(
        f"{path.name}: no background thread on the path", wrong == 0,
        f"{len(background)} such threads; {shown}; unexplained "
        f"{100 * run.unexplained.total_ns / length:.1f} %",
    )  # fmt: skip
    return {**kinds, "busy": 100 * busy_ns(events) / max(run.measured_ns, 1)}


def busy_ns(events: list[Any]) -> int:
    """Give the time in which a device runs at least one kernel or copy."""
    work = sorted(
        (nanoseconds(event["ts"]), nanoseconds(event["dur"])) for event in events
        if isinstance(event, dict) and event.get("cat") in DEVICE_WORK and event.get("ph") == "X"
    )  # fmt: skip
    busy = until = 0
    for start, duration in work:
        busy += max(start + duration - max(start, until), 0)
        until = max(until, start + duration)
    return busy


def check_twins(of_file: dict[str, dict[str, float]], checks: Checks) -> None:
    """Compare the paths of the same model on two devices."""
    by_model: dict[str, list[str]] = {}
    for name in of_file:
        by_model.setdefault(name.split(".")[0].rpartition("_")[2], []).append(name)
    for amd, other in (
        pair for names in by_model.values() for pair in combinations(sorted(names), 2)
        if pair[0].startswith("amd_") and pair[1].startswith("h100_")
    ):  # fmt: skip
        one, two = of_file[amd], of_file[other]
        apart = {key: abs(one.get(key, 0) - two.get(key, 0)) for key in one | two}
        busy = apart.pop("busy")
        farthest = max(apart.values())
        if busy <= TWINS_AGREE:
            checks.add(f"{amd} and {other}: kinds of the path", farthest <= TWINS_AGREE,
                       f"at most {farthest:.1f} points apart")  # fmt: skip
        else:
            print(f"     {amd} and {other}: busy shares are {busy:.1f} points apart, kinds of the "
                  f"path {farthest:.1f}")  # fmt: skip


def rows(trace: nadi.Trace, name: str) -> list[int]:
    """Give the nodes that have an attribute."""
    return trace.attributes.node[trace.attributes.rows_named(name)].tolist()


def values(trace: nadi.Trace, name: str) -> list[Any]:
    attributes = trace.attributes
    return [attributes.python_value(int(row)) for row in attributes.rows_named(name)]


def check_nodes(
    name: str, events: list[Any], nodes: pl.DataFrame, categories: list[Any], checks: Checks
) -> None:
    """Compare the nodes with the events that they were, by their positions in the file."""
    lasted: Counter[Any] = Counter()
    named: Counter[Any] = Counter()
    for place in nodes["event"].to_list():
        event = events[place]
        lasted[event.get("cat")] += nanoseconds(event["dur"])
        named[event.get("cat"), event["name"]] += 1
    sums: Counter[Any] = Counter()
    for category, duration in zip(categories, nodes["duration"].to_list(), strict=True):
        sums[category] += duration
    checks.add_many(
        f"{name}: durations per category",
        sum(sums[category] == total for category, total in lasted.items()), len(lasted),
        f"{sum(sums.values()) / 1e6:,.3f} ms in all",
    )  # fmt: skip
    found = Counter(zip(categories, nodes["name"].to_list(), strict=True))
    checks.add_many(
        f"{name}: names per category",
        sum(found[key] == count for key, count in named.items()), len(named | found),
        f"{nodes.height} nodes of {sum(isinstance(e, dict) and e.get('ph') == 'X' for e in events)}"
        " complete events",
    )  # fmt: skip


def check_text(path: Path, _: Path, checks: Checks) -> None:
    lines = [line.split() for line in content_of(path).decode().splitlines() if line.strip()]
    layers = lines[2:]
    trace = nadi.read(path)
    (source,) = trace.provenance.sources
    left_out = trace.issues.filter(pl.col("code") == "astra.communication-left-out").height
    names = Counter(
        name.removeprefix("COMP_NODE_").removesuffix("_FWD")
        for name in trace.nodes["name"].cast(pl.String)
        if name.endswith("_FWD")
    )
    stated = Counter(fields[0] for fields in layers)
    micro = lines[0][0] == "MICRO"  # which only communicates
    num = trace.nodes.filter(pl.col("kind") == "COMM_COLL").height if micro else names.total()
    checks.add(
        f"{path.name}: layers", num == len(layers) and (micro or names == stated),
        f"{len(layers)} lines, {source.format}",
    )  # fmt: skip
    bytes_stated = sum(
        int(fields[at + 1]) for fields in layers for at in (3, 6, 9) if fields[at] != "NONE"
    )
    found = int(trace.nodes.filter(pl.col("comm_type") != "none")["comm_bytes"].sum())
    holds = found == bytes_stated if left_out == 0 else found <= bytes_stated
    checks.add(f"{path.name}: bytes", holds, f"{found} of {bytes_stated} stated")
    if lines[0][0] in ALL_TIMES:
        unit = 1 if "model_parallel_NPU_group:" in lines[0] else 1000
        time = sum(int(fields[at]) for fields in layers for at in (2, 5, 8)) * unit
        spent = int(trace.nodes.filter(pl.col("duration") >= 0)["duration"].sum())
        checks.add(f"{path.name}: computing time", spent == time, f"{time / 1e6:,.3f} ms")


def main() -> None:
    checks = Checks()
    found = [
        file for path in arguments("wild")
        for file in (sorted(path.rglob("*")) if path.is_dir() else [path])
        if file.is_file()
    ]  # fmt: skip
    paths: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for path in found:
            try:
                if ".txt" in path.suffixes:
                    check_text(path, Path(folder), checks)
                else:
                    check_kineto(path, Path(folder), checks)
                    paths[path.name] = check_path(path, checks)
            except nadi.NadiError as error:
                checks.add(f"{path.name}: reads", False, str(error))
    check_twins(paths, checks)
    checks.finish()


if __name__ == "__main__":
    main()
