"""Communication covered by computation, against HolisticTraceAnalysis' answers.

Usage: python verification/communication_overlap.py [GOLDEN_FOLDER=TRACE_FILES...]

A golden folder holds ``comm_comp_overlap.csv`` (rank, percentage with two decimals).
HTA cuts times to whole microseconds and leaves out the last step where there are
several; both is done here to the tables of the trace before Nadi is asked.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import polars as pl
from _report import SHARED, Checks

import nadi

TRACES, GOLDEN = SHARED / "traces", SHARED / "golden" / "hta"
DEFAULT = (
    f"{GOLDEN}/nccl={TRACES}/gpu_resnet_pair/device.json.gz",
    f"{GOLDEN}/param_dlrm_8rank={TRACES}/gpu_dlrm8/device_*.json.gz",
    f"{GOLDEN}/trace_filter={TRACES}/gpu_hta/trace_filter_rank*.json.gz",
)


def as_hta_sees_it(trace: nadi.Trace, last_step: str) -> nadi.Trace:
    """Cut times to whole microseconds, inwards, and leave out the last step."""
    end = (pl.col("start") + pl.col("duration")) // 1000 * 1000
    start = -(-pl.col("start") // 1000) * 1000
    nodes = trace.nodes.with_columns(start=start, duration=(end - start).clip(0))
    marks = nodes.filter(pl.col("name").cast(str) == last_step)
    if last_step and marks.height:
        is_call = ~nodes["stream"].ge(0)
        kept = is_call & (nodes["start"] < marks["start"].max())
        calls = nodes.filter(kept & (nodes["correlation"] > 0))["correlation"].unique()
        nodes = nodes.filter(kept | (~is_call & nodes["correlation"].is_in(calls.implode())))
    return replace(trace, nodes=nodes)


def last_of_several_steps(traces: list[nadi.Trace]) -> str:
    names = pl.concat([trace.nodes["name"].cast(str) for trace in traces]).unique()
    steps = names.filter(names.str.contains(r"^ProfilerStep#\d+"))
    return max(steps, key=lambda name: int(name.split("#")[1])) if len(steps) > 1 else ""


def check(golden: Path, pattern: str, checks: Checks) -> None:
    expected = dict(
        pl.read_csv(golden / "comm_comp_overlap.csv")
        .select("rank", "comp_comm_overlap_pctg")
        .iter_rows()
    )
    files = sorted(Path(pattern).parent.glob(Path(pattern).name))
    traces = [nadi.read(file) for file in files]
    last_step = last_of_several_steps(traces)
    job = nadi.recordings.link_job([as_hta_sees_it(trace, last_step) for trace in traces])
    for found in nadi.graph.communication_by_rank(nadi.build_graph(job), 0, 2**62 - job.origin):
        covered = 100 * (found.communication - found.exposed) / found.communication
        checks.add(
            f"{golden.name} rank {found.rank}",
            round(covered, 2) == expected[found.rank],
            f"{covered:.2f} %, HTA {expected[found.rank]} %",
        )


def main() -> None:
    checks = Checks()
    for argument in sys.argv[1:] or DEFAULT:
        golden, _, pattern = argument.partition("=")
        check(Path(golden), pattern, checks)
    checks.finish()


if __name__ == "__main__":
    main()
