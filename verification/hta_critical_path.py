"""Compare Nadi's critical paths by HTA's rules with those that HTA itself found.

    python verification/hta_critical_path.py [GOLDEN_DIR=TRACE_FILE[,TRACE_FILE...] ...]

A folder holds what HTA answered (its ``meta.json`` says to which calls), the files are the traces
of all ranks in order; all calls are for the first. For each instance the nodes, the path node by
node, its length, summary and breakdown, and the edges with their order are compared. Where work is
launched at the very time when other work of its stream begins, how long the stream's queue is then
is not defined, and HTA's answer depends on the processor that it ran on: into these two, and only
there, the edge may be of the other kind. Which they are is worked out from the recording alone.
"""

from __future__ import annotations

import ast
import gzip
import json
import math
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from _report import SHARED, Checks

import nadi

DEFAULTS = {
    "alexnet": ["gpu_hta/alexnet.json.gz"],
    "cpu_only": ["gpu_hta/cpu_only.json.gz"],
    "cuda_event_sync": ["gpu_hta/cuda_event_sync.json.gz"],
    "cuda_event_sync_multi_stream": ["gpu_hta/cuda_event_sync_multi_stream.json.gz"],
    "execution_trace": ["gpu_simple_add_pair/device.json.gz"],
    "nccl": ["gpu_resnet_pair/device.json.gz"],
    "ns_resolution": ["gpu_hta/ns_resolution.json.gz"],
    "param_dlrm_8rank": [f"gpu_dlrm8/device_{rank}.json.gz" for rank in range(8)],
    "simple_add": ["gpu_hta/simple_add.json.gz"],
    "trace_filter": [f"gpu_hta/trace_filter_rank{rank}.json.gz" for rank in range(2)],
    "triton": ["gpu_hta/triton.json.gz"],
}
_CALL = re.compile(r"cp\d+(_zerolaunch|_includelast)?")
_EDGE = ["begin", "end", "type", "edge_weight", "graph_weight", "attributed_event"]
_DELAYS = ("KERNEL_LAUNCH_DELAY", "KERNEL_KERNEL_DELAY")


@dataclass(frozen=True)
class Golden:
    """What HTA answered on one trace."""

    folder: Path
    meta: dict[str, Any]

    def table(self, call: str, what: str) -> pl.DataFrame | None:
        """Read a table; None if it was not kept."""
        same = self.meta.get("identical_files", {})
        for name in (f"{call}_{what}.csv", f"{call}_{what}.csv.gz"):
            path = self.folder / same.get(name, name)
            if path.exists():
                return pl.read_csv(path, infer_schema_length=None)
        return None


def main() -> None:
    """Compare every instance of every trace."""
    checks = Checks()
    for golden, files in goldens():
        compare(checks, golden, files)
    checks.finish()


def goldens() -> list[tuple[Golden, list[Path]]]:
    """Give the answers named on the command line, or all, each with its traces."""
    pairs = [argument.split("=", 1) for argument in sys.argv[1:]]
    named = [(Path(folder), [Path(file) for file in files.split(",")]) for folder, files in pairs]
    traces = SHARED / "traces"
    chosen = named or [
        (SHARED / "golden" / "hta" / name, [traces / file for file in files])
        for name, files in DEFAULTS.items()
    ]
    return [
        (Golden(folder, json.loads((folder / "meta.json").read_text())), files)
        for folder, files in chosen
    ]


def compare(checks: Checks, golden: Golden, files: list[Path]) -> None:
    """Compare the instances of one trace."""
    traces = [nadi.read(file) for file in files]
    ties = tied_kernels(files[0])
    for call, done in golden.meta["calls"].items():
        if _CALL.fullmatch(call) is None:
            continue
        what = f"{golden.folder.name} {call}"
        try:
            found = nadi.analyses.hta_critical_path(traces, **arguments_of(call, done["call"]))
        except nadi.errors.InputError as error:
            checks.add(f"{what} is refused by both", not done["ok"], str(error))
            continue
        if not done["ok"]:
            checks.add(what, False, f"HTA refused: {done['error']}")
            continue
        parts, detail = compare_instance(golden, call, done, found, ties)
        wrong = [name for name, is_equal in parts.items() if not is_equal]
        differing = f"not equal: {', '.join(wrong)}" if wrong else ""
        detail = "; ".join(text for text in (differing, detail) if text)
        checks.add_many(what, sum(parts.values()), len(parts), detail)


def arguments_of(call: str, text: str) -> dict[str, Any]:
    """Give our arguments for a call to HTA."""
    annotation = re.search(r"annotation=('[^']*')", text)
    instance = re.search(r"instance_id=(\([^)]*\)|\w+)", text)
    assert annotation is not None
    assert instance is not None
    return {
        "annotation": ast.literal_eval(annotation.group(1)),
        "instance": ast.literal_eval(instance.group(1)) or 0,
        "zero_weight_launch_edges": call.endswith("_zerolaunch"),
        "include_last_step": call.endswith("_includelast"),
    }


def compare_instance(
    golden: Golden,
    call: str,
    done: dict[str, Any],
    found: nadi.analyses.HtaCriticalPath,
    ties: set[int],
) -> tuple[dict[str, bool], str]:
    """Tell for each part of an answer whether it is the same."""
    parts = {"length": found.length == round(done["cp_length_us"] * 1000)}
    mine = {
        "nodes": found.nodes, "path": found.path, "summary": found.summary(),
        "breakdown": found.breakdown(),
    }  # fmt: skip
    for what, table in mine.items():
        theirs = golden.table(call, what)
        assert theirs is not None, f"{golden.folder}: {call}_{what} is missing"
        is_sorted = what == "breakdown"
        parts[what] = _rows(theirs, theirs.columns, is_sorted) == _rows(
            table, theirs.columns, is_sorted
        )
    theirs = golden.table(call, "edges")
    if theirs is None:
        return parts, "HTA's edges were not kept"
    parts["edges"], parts["order of edges"], num_tied = compare_edges(theirs, found, ties)
    return parts, f"{num_tied} edges at ties" if num_tied else ""


def _rows(table: pl.DataFrame, columns: list[str], is_sorted: bool) -> list[tuple[Any, ...]]:
    """Give rows as plain values: a missing text and an empty one are the same in a CSV file."""
    rows = [
        tuple("" if value is None else value for value in row)
        for row in table.select(columns).iter_rows()
    ]
    return sorted(rows, key=str) if is_sorted else rows


def compare_edges(
    theirs: pl.DataFrame, found: nadi.analyses.HtaCriticalPath, ties: set[int]
) -> tuple[bool, bool, int]:
    """Compare edges, then the order of those in common; count the different ones at ties."""
    event = dict(found.nodes.select("node", "ev_idx").iter_rows())
    mine = _edge_rows(found.edges)
    order = "insert_order" in theirs.columns
    golden = _edge_rows(theirs.sort("insert_order") if order else theirs)
    tied, differs = 0, False
    for edge in set(mine) ^ set(golden):
        is_tie = edge[2] in _DELAYS and event[edge[1]] in ties
        tied += is_tie
        differs |= not is_tie
    common = set(mine) & set(golden)
    in_order = [e for e in mine if e in common] == [e for e in golden if e in common]
    return not differs, in_order or not order, tied


def _edge_rows(edges: pl.DataFrame) -> list[tuple[Any, ...]]:
    return edges.select(pl.col("type").cast(pl.String), pl.exclude("type")).select(_EDGE).rows()


def tied_kernels(file: Path) -> set[int]:
    """Find device work launched when other work of its stream begins, and that other work."""
    with gzip.open(file) as stream:
        events = json.load(stream)["traceEvents"]
    begun: dict[tuple[int, int], set[int]] = defaultdict(set)
    launched: dict[tuple[int, int], set[int]] = defaultdict(set)
    work: dict[int, tuple[int, int]] = {}  # index and stream of each correlation's
    calls: dict[int, int] = {}
    for index, event in enumerate(events):
        correlation = event.get("args", {}).get("correlation", -1)
        if event.get("ph") != "X" or correlation < 0:
            continue
        time = math.ceil(event["ts"])
        if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset"):
            work[correlation] = (index, event["args"]["stream"])
            begun[event["args"]["stream"], time].add(index)
        elif event["cat"] != "cuda_sync":
            calls[correlation] = time
    for correlation in work.keys() & calls.keys():
        index, stream_number = work[correlation]
        launched[stream_number, calls[correlation]].add(index)
    tied: set[int] = set()
    for moment in begun.keys() & launched.keys():
        if len(both := begun[moment] | launched[moment]) > 1:
            tied |= both
    return tied


if __name__ == "__main__":
    main()
