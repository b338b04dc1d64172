"""Compare Nadi's analyses of recordings with what TraceLens answered on the wild ones.

    python verification/tracelens.py [TRACE_NAME ...]

TraceLens computes with doubles of microseconds since the epoch, a quarter of a nanosecond to one
each: a kernel's time is compared to 1 ns, a sum of n kernels to n ns. Rows of operators are
compared by shape: calls, operations, bytes and time. Where the two count differently, the rule is
named.
"""

from __future__ import annotations

import ast
import gzip
import json
import sys
from collections import Counter
from typing import Any

import polars as pl
from _report import SHARED, Checks, Tally

import nadi
from nadi import analyses as analyze

_FOLDER = SHARED / "golden" / "tracelens"
_PARENTS = ("aten::layer_norm", "aten::batch_norm", "vllm::rocm_unquantized_gemm")
_PARENT = "TraceLens lists an operator and the one in it, both with the same kernels"
_BIAS = "TraceLens takes convolutions for such without bias, and the bias of baddbmm for a row"
_MIXED = "TraceLens takes the result of operands of two types for the wider one's"
_PAGED = "attention of a serving engine: TraceLens reads its annotations; no shapes in the call"
_MEMSET = "memory sets are memory for Nadi, computation for TraceLens"
_DEEP = "TraceLens takes DeepEP's kernels for computation"
_CAST = "TraceLens counts a call and the one that automatic casts make in it"


def main() -> None:
    """Compare every recording."""
    checks = Checks()
    for path in sorted(_FOLDER.glob("*.json.gz")):
        name = path.name.removesuffix(".json.gz")
        if name == "exact_busy" or (sys.argv[1:] and name not in sys.argv[1:]):
            continue
        with gzip.open(path) as file:
            answer = json.load(file)
        compare(checks, name, answer)
    checks.finish()


def compare(checks: Checks, name: str, answer: dict[str, Any]) -> None:
    """Compare the sheets of one recording."""
    trace = nadi.read(SHARED / "wild" / f"{name}.json.gz")
    events = analyze.events_of(trace)
    if not answer["ok"]:
        busy = analyze.temporal_breakdown(events)["busy_ns"][0]
        checks.add(f"{name}: TraceLens refuses it, Nadi answers", busy > 0, answer["error"])
        return
    timeline(checks, name, answer, events)
    kernels(checks, name, answer, events)
    if sheets := operator_rows(answer):
        tally = Tally()
        operators(sheets, events, tally)
        checks.add_tally(f"{name} operators by shape", tally)


def timeline(checks: Checks, name: str, answer: dict[str, Any], events: analyze.RankEvents) -> None:
    """Compare the times of the device."""
    theirs = answer["gpu_timeline_with_unlinked_kernels"]
    (mine,) = analyze.temporal_breakdown(events).iter_rows(named=True)
    tally = Tally()
    pairs = {
        "busy_time": mine["busy_ns"], "idle_time": mine["idle_ns"], "total_time": mine["total_ns"],
        "computation_time": mine["computation_ns"],
        "exposed_comm_time": mine["exposed_communication_ns"],
        "exposed_memcpy_time": mine["exposed_memory_ns"],
        "total_comm_time": mine["communication_ns"], "total_memcpy_time": mine["memory_ns"],
    }  # fmt: skip
    has_sets = bool(events.is_of("memset").any())
    deep = any("ep::intern" in one for one in events.table["name"].cast(pl.String).unique())
    for key, time in pairs.items():
        is_equal = abs(theirs[key] * 1e6 - time) <= events.work.size
        moved = key in ("computation_time", "exposed_memcpy_time", "total_memcpy_time")
        rule = _DEEP if deep and key not in ("busy_time", "idle_time", "total_time") else (
            _MEMSET if has_sets and moved else "")  # fmt: skip
        tally.add(exact=is_equal, rule=rule, detail=f"{key}: {theirs[key] * 1e6} ns, Nadi {time}")
    checks.add_tally(f"{name} timeline", tally)


def kernels(checks: Checks, name: str, answer: dict[str, Any], events: analyze.RankEvents) -> None:
    """Compare the time of kernels by name and stream, of those with a launch."""
    sheet = answer["sheets"].get("kernel_summary")
    if not sheet:
        return
    theirs: Counter[tuple[str, int]] = Counter()
    times: Counter[tuple[str, int]] = Counter()
    for row in sheet["rows"]:
        one = dict(zip(sheet["columns"], row, strict=True))
        key = one["Kernel name"], int(one["Kernel stream"])
        theirs[key] += int(one["Kernel duration (µs)_count"])
        times[key] += one["Kernel duration (µs)_sum"] * 1000
    work = (
        events.table[events.work]
        .group_by(pl.col("name").cast(pl.String), "stream")
        .agg(count=pl.len(), sum=pl.sum("duration"))
    )
    mine = {(a, b): (c, d) for a, b, c, d in work.rows()}
    tally = Tally()
    for key, count in theirs.items():
        own = mine.get(key, (0, 0))
        is_equal = own[0] == count and abs(own[1] - times[key]) <= count
        fewer = "TraceLens leaves out kernels that it finds no operator for"
        tally.add(exact=is_equal, rule=fewer if own[0] > count else "",
                  detail=f"{key}: {count} {times[key]}, Nadi {own}")  # fmt: skip
    checks.add_tally(f"{name} kernels by name", tally)


def operator_rows(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Give the rows of the four classes."""
    rows = []
    for name in ("GEMM", "SDPA_fwd", "InferenceAttention_fwd", "CONV_fwd", "Normalization"):
        sheet = answer["sheets"].get(name, {"columns": [], "rows": []})
        rows += [dict(zip(sheet["columns"], row, strict=True)) for row in sheet["rows"]]
    return rows


def operators(rows: list[dict[str, Any]], events: analyze.RankEvents, tally: Tally) -> None:
    """Compare calls, operations, bytes and time of each shape; layouts of one shape are one row."""
    mine = {
        (one["operator"], one["flops"]): one
        for one in analyze.operator_rates(events).group_by("operator", "flops").agg(
            pl.sum("count", "sum_ns"), pl.col("size_bytes")
        ).iter_rows(named=True)
    }  # fmt: skip
    totals: Counter[tuple[str, int]] = Counter()
    times: Counter[tuple[str, int]] = Counter()
    sizes: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        if row["name"] in _PARENTS:
            tally.add(rule=_PARENT)
            continue
        if row["name"] == "vllm::unified_attention_with_output":
            tally.add(rule=_PAGED)
            continue
        key = row["name"], round(row["GFLOPS_first"] * 1e9)
        if key[0] == "aten::convolution":  # its bias has been left out
            key = key[0], key[1] + _outputs(row)
        totals[key] += row["name_count"]
        times[key] += row["Kernel Time (µs)_sum"] * 1000
        sizes.setdefault(key, []).append(row)
    for key, count in totals.items():
        own = mine.get(key, {"count": 0, "sum_ns": 0, "size_bytes": []})
        fits = own["count"] == count and abs(own["sum_ns"] - times[key]) <= 100 * count
        cast = len({str(row["Input type_first"]) for row in sizes[key]}) > 1
        tally.add(exact=fits, rule=_CAST if own["count"] * 2 <= count else "",
                  detail=f"{key}: {count} calls, {times[key]} ns; Nadi {own}")  # fmt: skip
        for row in sizes[key]:
            size = round(row["Data Moved (MB)_first"] * 2**20)
            types = ast.literal_eval(str(row["Input type_first"]))
            tensors = {one for one in types[:3] if "Scalar" not in one and one}
            rule = (_BIAS if key[0] in ("aten::convolution", "aten::baddbmm") else
                    _MIXED if len(tensors) > 1 else _CAST if cast else "")  # fmt: skip
            tally.add(exact=size in own["size_bytes"], rule=rule,
                      detail=f"{key}: {size} bytes, Nadi {own['size_bytes']}")  # fmt: skip


def _outputs(row: dict[str, Any]) -> int:
    """Give the number of results of a convolution: operations by those of each result."""
    weight = ast.literal_eval(row["param: filter_shape"])
    each = 2
    for size in weight[1:]:
        each *= size
    has_bias = len(row["Input Dims_first"][2]) > 0
    return round(row["GFLOPS_first"] * 1e9) // each if has_bias else 0


if __name__ == "__main__":
    main()
