"""Compare Nadi's analyses of recordings with what HTA answered.

    python verification/hta_analyses.py [GOLDEN_DIR=TRACE_FILE[,TRACE_FILE...] ...]

HTA cuts times to whole microseconds and drops the last step. ``nadi.analyses.hta_events`` does the
same, so that every figure can be compared: what is equal then differs by HTA's cut only. A
difference that remains counts by a rule, and only if the rule, applied to Nadi's events, gives
HTA's figure. Of the wild recordings, busy and total time to the nanosecond are compared
with ``exact_busy.json.gz``.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from _report import SHARED, Checks, Tally
from hta_critical_path import DEFAULTS

import nadi
from nadi import analyses as analyze
from nadi.analyses.recorded.over_time import bandwidth_of
from nadi.trace.categories import hta_calls

Rows = list[tuple[Any, ...]]
_US = 1000
_COMM = re.compile(r"^nccl.*|^hip|^hccl|.*ncclKernel.*")
_MEMORY = re.compile(r"^(hip)?Memcpy|^(hip)?Memset|^dma")
RULES = {
    "names": "HTA takes names that begin with hip for communication, dma for memory; not DeepEP",
    "streams": "HTA takes every event that states a stream for device work: waits, operators",
    "before": "HTA measures gaps from the work before, though earlier work still runs; 0 is a gap; "
    "where a launch is not recorded it takes the file's first event",
    "calls": "HTA knows few launch calls, of HIP none",
    "ties": "HTA's order of launches and starts at one time is not defined",
    "calls_ties": "HTA knows few launch calls; their order at one time is not defined",
    "stated": "HTA leaves out device work whose arguments state no stream",
    "nothing": "HTA answers without device work: nothing of nothing",
    "short": "HTA gives work that its cut makes 0 us long no annotation, and copies 1 us; "
    "copies that its cut ends before they begin have negative bandwidth",
    "unknown": "HTA gives copies whose bandwidth is not recorded 0 GB/s",
    "cut": "by HTA's cut times operators that are in each other, and kernels, are the same",
    "touching": "HTA lists types that touch and do not overlap, with 0",
}
_CALLS = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaMemsetAsync",
          "runFunction - job_prep_and_submit_for_execution")  # fmt: skip


def main() -> None:
    """Compare all analyses of all recordings."""
    checks = Checks()
    for folder, files in recordings():
        compare(checks, folder, files)
    if not sys.argv[1:]:
        compare_exact_busy(checks)
    checks.finish()


def recordings() -> Iterator[tuple[Path, list[Path]]]:
    """Give each folder of answers with the traces of all ranks."""
    if sys.argv[1:]:
        for argument in sys.argv[1:]:
            folder, files = argument.split("=", 1)
            yield Path(folder), [Path(file) for file in files.split(",")]
        return
    for name, files in (
        DEFAULTS | {"timeline_analysis": ["gpu_hta/timeline_analysis.json.gz"]}
    ).items():
        yield SHARED / "golden" / "hta" / name, [SHARED / "traces" / file for file in files]
    for folder in sorted((SHARED / "golden" / "hta_wild").iterdir()):
        if folder.is_dir():
            yield folder, [SHARED / "wild" / f"{folder.name}.json.gz"]


class Answers:
    """What HTA answered on one recording, and Nadi's events by the same rules."""

    def __init__(self, folder: Path, files: list[Path]) -> None:
        self.folder = folder
        self.files = files
        self.calls = json.loads((folder / "meta.json").read_text())["calls"]
        self.traces = [nadi.read(file) for file in files]
        self._events: dict[tuple[int, bool, str], analyze.RankEvents] = {}

    def table(self, name: str) -> pl.DataFrame | None:
        """Read a table; None if HTA gave none."""
        for path in (self.folder / f"{name}.csv", self.folder / f"{name}.csv.gz"):
            if path.exists():
                return pl.read_csv(path, infer_schema_length=None)
        return None

    def events(self, rank: int = 0, *, last: bool = False, rule: str = "") -> analyze.RankEvents:
        """Give the events of a rank as they are, or changed by a rule."""
        key = rank, last, rule
        if key not in self._events:
            found = analyze.hta_events(self.traces, rank, include_last_step=last)
            found = replace(found, rank=rank)
            self._events[key] = (
                self._stated(found, rank) if rule == "stated" else _ruled(found, rule)
            )
        return self._events[key]

    def _stated(self, events: analyze.RankEvents, rank: int) -> analyze.RankEvents:
        """Leave out device work whose arguments state no stream."""
        work = events.table[events.work]
        if not (work["correlation"] < 0).any():
            return events
        with gzip.open(self.files[rank]) as file:
            recorded = json.load(file)["traceEvents"]
        kept = ["stream" in recorded[index].get("args", {}) for index in work["index"]]
        table = events.table.with_columns(
            category=pl.Series([*events.table["category"]], dtype=pl.String).scatter(
                events.work[~np.array(kept)], "other"
            )
        )
        return replace(events, table=table, type_codes=events.type_codes[np.array(kept)])


def _ruled(events: analyze.RankEvents, rule: str) -> analyze.RankEvents:
    """Change events by a rule, so that Nadi's analyses come to what HTA's do."""
    if rule in ("calls", "known"):
        known = hta_calls("launches") if rule == "known" else _CALLS
        call = events.table["name"].gather(np.maximum(events.launcher, 0)).is_in(known).to_numpy()
        return replace(events, launcher=np.where(call, events.launcher, -1))
    if rule in ("streams", "streams and names"):
        table = events.table
        states = (table["stream"] >= 0) & ((table["category"] != "sync") | (rule == "streams"))
        category = pl.when(states).then(pl.lit("kernel")).otherwise(pl.lit("other"))
        waits = states & (table["category"] == "sync")
        events = replace(events, table=table.with_columns(category=category))
        codes = _types(events)
        codes[waits.gather(events.work).to_numpy()] = 2  # neither computation nor communication
        return replace(events, type_codes=codes)
    return replace(events, type_codes=_types(events)) if rule == "names" else events


def _types(events: analyze.RankEvents) -> Any:
    names = events.table["name"].gather(events.work).cast(pl.String)
    return np.array([1 if _COMM.match(n) else 2 if _MEMORY.match(n) else 0 for n in names],
                    dtype=np.int64)  # fmt: skip


def compare(checks: Checks, folder: Path, files: list[Path]) -> None:
    """Compare the tables of one recording."""
    try:
        answers = Answers(folder, files)
    except nadi.errors.NadiError as error:
        checks.add(f"{folder.name} is read", False, str(error))
        return
    for name, function in COMPARED.items():
        if (theirs := answers.table(name)) is None:
            continue
        tally = Tally()
        try:
            function(answers, theirs, tally)
        except nadi.errors.InputError as error:
            told = [value for row in theirs.select(pl.exclude("", "rank")).rows() for value in row]
            is_empty = all(value in (0, None) or value != value for value in told)
            tally.add(exact=not told, rule=RULES["nothing"] if is_empty else "", detail=str(error))
        checks.add_tally(f"{folder.name} {name}", tally)


def rows_equal(tally: Tally, theirs: Rows, mine: Rows, **ruled: Rows) -> None:
    """Count each row: equal, or different by a rule under which all rows are HTA's.

    Parameters
    ----------
    ruled
        Nadi's rows under each rule of ``RULES``.
    """
    golden, own = Counter(theirs), Counter(mine)
    tally.exact += (golden & own).total()
    differing = [("HTA", row) for row in (golden - own).elements()]
    differing += [("Nadi", row) for row in (own - golden).elements()]
    rule = next((name for name, rows in ruled.items() if Counter(rows) == golden), "")
    for who, row in differing:
        tally.add(rule=RULES.get(rule.strip(), ""), detail=f"{who}: {str(row)[:190]}")


def us(nanoseconds: float | None) -> float | None:
    """Convert ns to us; a figure that HTA rounds is compared to 9 digits."""
    return None if nanoseconds is None else close(nanoseconds / _US)


def close(value: Any) -> Any:
    """Round to 9 significant digits."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return float(f"{float(value):.9g}")


def of_ranks(answers: Answers, theirs: pl.DataFrame) -> list[int]:
    """Give the ranks of a table."""
    return theirs["rank"].unique(maintain_order=True).to_list() if "rank" in theirs.columns else [0]


def both_types(
    answers: Answers, theirs: Rows, ranks: list[int], rows: Callable[[analyze.RankEvents], Rows],
    tally: Tally, *, last: bool = False,
) -> None:  # fmt: skip
    """Compare with Nadi's types of kernels, then with HTA's."""

    def of(rule: str) -> Rows:
        return [row for rank in ranks for row in rows(answers.events(rank, last=last, rule=rule))]

    rows_equal(tally, theirs, of(""), names=of("names"), streams=of("streams"),
               stated=of("stated"),
               **{"streams ": of("streams and names")})  # fmt: skip


def temporal(answers: Answers, theirs: pl.DataFrame, tally: Tally, *, last: bool = False) -> None:
    """Compare times and shares of a rank."""

    def rows(events: analyze.RankEvents) -> Rows:
        (one,) = analyze.temporal_breakdown(events).iter_rows(named=True)
        times = [one["idle_ns"], one["computation_ns"], one["busy_ns"] - one["computation_ns"]]
        total = one["total_ns"]
        shares = [round(100 * time / total, 2) for time in times]
        return [(events.rank, *(us(time) for time in (*times, total)), *shares)]

    golden = theirs.select(pl.exclude("")).rows()
    both_types(answers, golden, of_ranks(answers, theirs), rows, tally, last=last)


def overlap(answers: Answers, theirs: pl.DataFrame, tally: Tally, *, last: bool = False) -> None:
    """Compare the share of communication that is overlapped."""

    def rows(events: analyze.RankEvents) -> Rows:
        share = analyze.communication_overlap(events)["overlap_percent"][0]
        return [(events.rank, None if share is None else round(share, 2))]

    golden = [(rank, close(share)) for rank, share in theirs.select(pl.exclude("")).rows()]
    both_types(answers, golden, of_ranks(answers, theirs), rows, tally, last=last)


def types(answers: Answers, theirs: pl.DataFrame, tally: Tally, *, memory: bool) -> None:
    """Compare busy time by types; HTA adds ranks up."""

    def rows(events: list[analyze.RankEvents]) -> Rows:
        table = pl.concat(analyze.kernel_types(one, memory=memory) for one in events)
        table = table.group_by("type").agg(pl.sum("time_ns"))
        total = table["time_ns"].sum()
        return [
            (
                " overlapping ".join(name.upper().split(" + ")),
                us(time),
                round(100 * time / total, 1),
            )
            for name, time in table.iter_rows()
        ]

    ranks = range(len(answers.traces))
    golden = [
        (name, close(time), share) for name, time, share in theirs.select(pl.exclude("")).rows()
    ]
    rows_equal(tally, golden, rows([answers.events(rank) for rank in ranks]),
               names=rows([answers.events(rank, rule="names") for rank in ranks]),
               streams=rows([answers.events(rank, rule="streams and names") for rank in ranks]),
               stated=rows([answers.events(rank, rule="stated") for rank in ranks]),
               touching=[*rows([answers.events(rank) for rank in ranks]),
                         *(row for row in golden if row[1:] == (0.0, 0.0))])  # fmt: skip


def kernels(answers: Answers, theirs: pl.DataFrame, tally: Tally) -> None:
    """Compare the time of kernels by name."""

    def rows(events: analyze.RankEvents) -> Rows:
        table = analyze.top_kernels(events).filter(pl.col("type") != "memory")
        return [
            (row["name"], us(row["sum_ns"]), us(row["max_ns"]), us(row["min_ns"]),
             us(row["std_ns"]) or 0.0, us(row["mean_ns"]), row["type"].upper(), row["rank"])
            for row in table.iter_rows(named=True)
        ]  # fmt: skip

    golden = [
        (row[0], *map(close, row[1:6]), *row[6:]) for row in theirs.select(pl.exclude("")).rows()
    ]
    both_types(answers, golden, of_ranks(answers, theirs), rows, tally)


def annotations(answers: Answers, theirs: pl.DataFrame, tally: Tally, *, place: str) -> None:
    """Compare the time of user annotations."""
    mine = [
        (row["name"], us(row["sum_ns"]), us(row["max_ns"]), us(row["min_ns"]),
         us(row["std_ns"]) or 0.0, us(row["mean_ns"]), row["rank"])
        for rank in of_ranks(answers, theirs)
        for row in analyze.annotation_times(answers.events(rank)).iter_rows(named=True)
        if row["place"] == place
    ]  # fmt: skip
    golden = [
        (row[0], *map(close, row[1:6]), *row[6:]) for row in theirs.select(pl.exclude("")).rows()
    ]
    rows_equal(tally, golden, mine)


def idle(answers: Answers, theirs: pl.DataFrame, tally: Tally) -> None:
    """Compare idle times by stream and cause; HTA lists causes that do not occur with 0."""

    def rows(tables: list[pl.DataFrame]) -> Rows:
        return [
            (row["rank"], row["stream"], row["cause"].replace(" ", "_"), us(row["idle_ns"]),
             round(row["idle_percent"] / 100, 2) + 0.0)
            for table in tables for row in table.iter_rows(named=True) if row["idle_ns"]
        ]  # fmt: skip

    ranks = of_ranks(answers, theirs)
    golden = theirs.filter(pl.col("idle_time") != 0).select(pl.exclude("")).rows()
    rows_equal(tally, [(*row[:3], close(row[3]), row[4] + 0.0) for row in golden],
               rows([analyze.idle_times(answers.events(rank)) for rank in ranks]),
               before=rows([gaps_before(answers.events(rank)) for rank in ranks]),
               stated=rows([gaps_before(answers.events(rank, rule="stated"))
                                for rank in ranks]))  # fmt: skip


def gaps_before(events: analyze.RankEvents) -> pl.DataFrame:
    """Divide idle time as HTA does: each gap from the work before, be it 0 or negative."""
    start, rows = events.column("start"), events.work
    first = np.flatnonzero(events.column("index") == 0)  # for a launch that was not recorded
    absent = int(start[first[0]]) if first.size else -(2**62)
    work = pl.DataFrame({
        "stream": events.column("stream")[rows], "start": start[rows], "end": events.end[rows],
        "launched": np.where(events.launcher[rows] >= 0, start[events.launcher[rows]],
                             np.where(events.column("correlation")[rows] < 0, -(2**62), absent)),
    }).sort("stream", "start", maintain_order=True)  # fmt: skip
    before = pl.col("end").shift(1).over("stream")
    gaps = work.with_columns(before=before).drop_nulls().with_columns(
        gap=pl.col("start") - pl.col("before"),
        cause=pl.when(pl.col("launched") > pl.col("before")).then(pl.lit("host wait"))
        .when(pl.col("start") - pl.col("before") < 30_000).then(pl.lit("kernel wait"))
        .otherwise(pl.lit("other")),
    )  # fmt: skip
    total = pl.sum("idle_ns").over("stream")
    return gaps.group_by("stream", "cause", maintain_order=True).agg(
        idle_ns=pl.sum("gap"), gaps=pl.len(), mean_ns=pl.mean("gap"), min_ns=pl.min("gap"),
        median_ns=pl.median("gap"), max_ns=pl.max("gap"),
    ).with_columns(
        rank=pl.lit(events.rank), idle_percent=100 * pl.col("idle_ns") / total
    )  # fmt: skip


def idle_statistics(answers: Answers, theirs: pl.DataFrame, tally: Tally) -> None:
    """Compare the gaps of streams."""

    def rows(tables: list[pl.DataFrame]) -> Rows:
        return [
            (row["cause"].replace(" ", "_"), row["rank"], row["stream"], float(row["gaps"]),
             round(row["mean_ns"] / _US, 2), us(row["min_ns"]),
             round(row["median_ns"] / _US, 2), us(row["max_ns"]))
            for table in tables for row in table.iter_rows(named=True)
        ]  # fmt: skip

    ranks = of_ranks(answers, theirs)
    golden = theirs.filter(pl.col("count") > 0).select(
        "idle_category", "rank", "stream", "count", "mean", "min", "50%", "max"
    )
    rows_equal(tally, golden.rows(),
               rows([analyze.idle_times(answers.events(rank)) for rank in ranks]),
               before=rows([gaps_before(answers.events(rank)) for rank in ranks]),
               stated=rows([gaps_before(answers.events(rank, rule="stated"))
                                for rank in ranks]))  # fmt: skip


def launch_stats(answers: Answers, theirs: pl.DataFrame, tally: Tally, *, rank: int) -> None:
    """Compare each launch."""

    def rows(events: analyze.RankEvents) -> Rows:
        found = analyze.launches(events).select("correlation", "call_ns", "work_ns", "delay_ns")
        return [(a, us(b), us(c), us(d)) for a, b, c, d in found.rows()]

    ruled = answers.events(rank, rule="calls")
    known = rows(ruled) if (ruled.launcher >= 0).any() else []
    rows_equal(tally, theirs.select(pl.exclude("")).rows(), rows(answers.events(rank)), calls=known)


def queue_series(answers: Answers, theirs: pl.DataFrame, tally: Tally, *, rank: int) -> None:
    """Compare the lengths of queues."""

    def rows(events: analyze.RankEvents) -> Rows:
        if not (events.launcher >= 0).any():
            return []
        begin = int(events.column("start").min())
        found = analyze.queue_lengths(events).select("stream", "time_ns", "length")
        return [(us(time + begin), stream, length) for stream, time, length in found.rows()]

    def settled(rows: Rows) -> Rows:
        """Put the same lengths where several changes of a stream happen at once."""
        changes = Counter(row[:2] for row in rows)
        return [(*row[:2], row[2] if changes[row[:2]] == 1 else -1) for row in rows]

    golden = [(close(a), b, c) for a, b, c in theirs.select("ts", "stream", "queue_length").rows()]
    mine, known = (rows(answers.events(rank, rule=rule)) for rule in ("", "known"))
    is_tied = {name: golden if Counter(settled(own)) == Counter(settled(golden)) else []
               for name, own in (("ties", mine), ("calls_ties", known))}  # fmt: skip
    rows_equal(tally, golden, mine, calls=known, **is_tied)


def queue_statistics(answers: Answers, theirs: pl.DataFrame, tally: Tally) -> None:
    """Compare statistics of queues; the order at ties has no effect on the mean of few."""
    theirs = pl.read_csv(answers.folder / "queue_length_summary.csv", skip_rows=3, has_header=False)
    columns = ("changes", "mean", "std", "min", "p25", "median", "p75", "max")

    def rows(rule: str) -> Rows:
        found = []
        for rank in range(len(answers.traces)):
            events = answers.events(rank, rule=rule)
            if (events.launcher >= 0).any():
                table = analyze.queue_summary(events).select("rank", "stream", *columns)
                found += [(*row[:2], *map(close, row[2:])) for row in table.rows()]
        return found

    golden = [(*row[:2], *map(close, row[2:])) for row in theirs.rows()]
    mine, known = rows(""), rows("known")
    same = {name: golden if [row[:3] for row in own] == [row[:3] for row in golden] else []
            for name, own in (("ties", mine), ("calls_ties", known))}  # fmt: skip
    rows_equal(tally, golden, mine, calls=known, **same)


def bandwidth(answers: Answers, theirs: pl.DataFrame, tally: Tally, *, rank: int) -> None:
    """Compare the bandwidth of copies over time, to six digits: HTA adds doubles up."""
    events = answers.events(rank)
    begin = int(events.column("start").min())

    def rows(events: analyze.RankEvents) -> Rows:
        found = analyze.memory_bandwidth_series(events).select("kind", "time_ns", "gb_per_s")
        return [(us(time + begin), kind, float(f"{rate:.5g}")) for kind, time, rate in found.rows()]

    def settled(rows: Rows) -> Rows:
        """Leave out the rates between changes at one time."""
        changes = Counter(row[:2] for row in rows)
        return [row if changes[row[:2]] == 1 else row[:2] for row in rows]

    def by_cut() -> Rows:
        """Sum rates up where some copies end before they begin: these become negative."""
        copies = events.of_type("memory")
        rates = bandwidth_of(events, copies)[0]
        start, lasts = events.column("start")[copies], events.column("duration")[copies]
        time = np.concatenate([start, start + np.where(lasts == 0, _US, lasts)])
        kinds = events.table["name"].gather(copies).str.split(" (").list.first()
        changes = pl.DataFrame({"kind": pl.concat([kinds, kinds]), "time": time,
                                "rate": np.concatenate([rates, -rates])})  # fmt: skip
        sums = changes.sort("kind", "time", maintain_order=True).with_columns(
            pl.col("rate").cum_sum().over("kind")
        )
        return [(us(t), kind, float(f"{rate:.5g}") if abs(rate) > 1e-9 else 0.0)
                for kind, t, rate in sums.rows()]  # fmt: skip

    golden = [(close(a), b, float(f"{c:.5g}")) for a, b, c in
              theirs.select("ts", "name", "memory_bw_gbps").rows()]  # fmt: skip
    golden = [(*row[:2], row[2] if abs(row[2]) > 1e-9 else 0.0) for row in golden]
    mine, long = rows(events), by_cut()
    is_tied = {name: golden if Counter(settled(own)) == Counter(settled(golden)) else []
               for name, own in (("ties", mine), ("short", long))}  # fmt: skip
    unknown = golden if not mine and not any(row[2] for row in golden) else []
    rows_equal(tally, golden, mine, unknown=unknown, **is_tied)


def delays(answers: Answers, theirs: pl.DataFrame, tally: Tally) -> None:
    """Compare what ATen operators launch, and after which delays."""
    found = analyze.operator_delays(answers.events()).filter(
        pl.col("operator").str.starts_with("aten::")
    )
    mine = [(name, sequence, count, round(first / _US, 3), round(then / _US, 3))
            for name, sequence, count, first, then in found.select(
                "operator", "sequence", "count", "call_delay_ns", "kernel_delay_ns",
            ).rows()]  # fmt: skip
    golden = theirs.select(pl.exclude("")).rows()

    def together(rows: Rows) -> Counter[str]:
        """Count the kernels of all operators."""
        return Counter(name for row in rows for name in row[1].split(" -> ") for _ in range(row[2]))

    same = golden if together(golden) == together(mine) else []
    rows_equal(tally, golden, mine, cut=same)


def sequences(answers: Answers, theirs: pl.DataFrame, tally: Tally, *, operator: str) -> None:
    """Compare sequences of kernels; HTA's contain waits of streams, and are the first five."""
    found = analyze.kernel_sequences(answers.events(), operator=operator, shortest=1)
    mine = [(sequence, count, us(work), us(spent)) for sequence, count, work, spent in
            found.select("sequence", "count", "work_ns", "operator_ns").rows()]  # fmt: skip
    for pattern, count, work, spent in theirs.select(pl.exclude("")).rows():
        row = (" -> ".join(pattern.split("|")[1:]), count, close(work), close(spent))
        # HTA takes every operator whose name contains the one asked for
        more = analyze.kernel_sequences(
            answers.events(), operator=pattern.split("|")[0], shortest=1
        )
        wider = [(sequence, count, us(work), us(spent)) for sequence, count, work, spent in
                 more.select("sequence", "count", "work_ns", "operator_ns").rows()]  # fmt: skip
        rule = "HTA counts waits of streams as kernels" if "Wait Event" in pattern else ""
        tally.add(exact=row in mine or row in wider, detail=f"HTA: {row}", rule=rule)


def work_annotations(answers: Answers, theirs: pl.DataFrame, tally: Tally) -> None:
    """Compare the annotation of all kernels of a name."""
    if "user_annotation_breakdown_gpu" not in {
        path.name.split(".")[0] for path in answers.folder.iterdir()
    }:
        return
    found = analyze.annotation_kernels(answers.events())
    mine = [(name, annotation, count) for name, annotation, count in
            found.select("name", "annotation", "count").rows()]  # fmt: skip
    golden = theirs.group_by("s_name", pl.col("s_user_annotation").fill_null("")).len().rows()
    events = answers.events()
    durations = events.column("duration")[events.work]
    gone = np.isin(np.arange(events.table.height), events.work[durations <= 0])
    category = pl.when(pl.Series(gone)).then(pl.lit("other")).otherwise("category")
    shorter = replace(events, table=events.table.with_columns(category=category),
                      type_codes=events.type_codes[durations > 0])  # fmt: skip
    found = analyze.annotation_kernels(shorter).select("name", "annotation", "count")
    counts = Counter({row[:2]: row[2] for row in found.rows()})
    counts.update((name, "") for name in events.table.filter(pl.Series(gone))["name"])
    rows_equal(tally, golden, mine, short=[(*key, count) for key, count in counts.items()])


COMPARED: dict[str, Callable[[Answers, pl.DataFrame, Tally], None]] = {
    "temporal_breakdown": temporal,
    "temporal_breakdown_include_last": lambda *args: temporal(*args, last=True),
    "comm_comp_overlap": overlap,
    "comm_comp_overlap_include_last": lambda *args: overlap(*args, last=True),
    "gpu_kernel_breakdown_type": lambda *args: types(*args, memory=True),
    "gpu_kernel_breakdown_nomem_type": lambda *args: types(*args, memory=False),
    "gpu_kernel_breakdown_nomem_kernels": kernels,
    "user_annotation_breakdown_cpu": lambda *args: annotations(*args, place="host"),
    "user_annotation_breakdown_gpu": lambda *args: annotations(*args, place="device"),
    "idle_time_breakdown": idle,
    "idle_time_interval_stats": idle_statistics,
    **{f"cuda_kernel_launch_stats_rank{n}": lambda *args, n=n: launch_stats(*args, rank=n)
       for n in range(8)},
    **{f"queue_length_time_series_rank{n}": lambda *args, n=n: queue_series(*args, rank=n)
       for n in range(8)},
    **{f"memory_bw_time_series_rank{n}": lambda *args, n=n: bandwidth(*args, rank=n)
       for n in range(8)},
    "queue_length_summary": queue_statistics,
    "aten_op_kernels_and_delay": delays,
    "gpu_kernels_with_user_annotations": work_annotations,
    **{f"frequent_cuda_sequences_aten_{name}": lambda *args, name=name:
       sequences(*args, operator=f"aten::{name}") for name in ("linear", "add", "conv2d", "mm")},
}  # fmt: skip


def compare_exact_busy(checks: Checks) -> None:
    """Compare busy and total time of the wild recordings to the nanosecond."""
    with gzip.open(SHARED / "golden" / "tracelens" / "exact_busy.json.gz") as file:
        truth = json.load(file)
    tally = Tally()
    for name, one in truth.items():
        trace = nadi.read(SHARED / "wild" / f"{name}.json.gz")
        events = analyze.events_of(trace)
        (found,) = analyze.temporal_breakdown(events).iter_rows(named=True)
        mine = [events.work.size, found["busy_ns"], found["total_ns"]]
        theirs = [
            one["gpu_events"],
            *(int(Decimal(one[key]) * _US) for key in ("busy_us", "total_us")),
        ]
        tally.add(exact=mine == theirs, detail=f"{name}: {mine}, exactly {theirs}")
    checks.add_tally("wild recordings, to the nanosecond", tally)


if __name__ == "__main__":
    main()
