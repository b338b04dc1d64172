"""Each quantity has one meaning: laws over what is printed, the JSON, and other commands.

Of every recording at hand: shares of a whole add up, explained and unexplained are one and the
rest, and a quantity has the same figure wherever it is printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
from rich.console import Console

import nadi
from nadi.bottlenecks.differences.compared_runs import diff_runs
from nadi.bottlenecks.differences.result import DIFF
from nadi.bottlenecks.steps.answers import ANSWERS
from nadi.bottlenecks.steps.run import Answers
from nadi.bottlenecks.steps.run_report import print_summary, summarize
from nadi.bottlenecks.waiting.bottlenecks import find_waits
from nadi.bottlenecks.waiting.result import WAITS
from nadi.kernels.sequences import union_length
from nadi.simulation.accounts.times import rank_times
from nadi.trace.schema import COMMUNICATION_KINDS, DEVICE_WORK
from nadi.units import format_ns, format_percent, format_range
from tests.amounts import some
from tests.conftest import DEMO, SHARED

pytestmark = pytest.mark.usefixtures("demo_read_once")

SHIPPED = (DEMO, *sorted((Path(__file__).parents[1] / "recordings").glob("cpu_*")))
FOLDERS = ("programs/*/rec/*", "traces/cpu_*", "traces/gpu_[!h]*", "traces/gpu_hta/*", "wild/*.gz",
           "field/devices/*")  # fmt: skip
BALANCED = "balanced ranks"
TITLES = ("critical path by kind", "top operations on the critical path")


class Said(NamedTuple):
    """What the commands say of a recording: the analysis, JSON, and lines of text."""

    run: nadi.bottlenecks.Run
    data: dict[str, Any]
    run_lines: list[str]
    waits: dict[str, Any]
    waits_lines: list[str]
    what_if: dict[str, Any]
    what_if_lines: list[str]
    diff: dict[str, Any]
    diff_lines: list[str]


def lines_of(show: Callable[[Console], None]) -> list[str]:
    console = Console(file=StringIO(), width=250)
    show(console)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def all_said(path: Path) -> Said:
    run = nadi.run(path)
    waits = find_waits(run.graph, run.window)
    limits = nadi.whatif.ideal_limits(run.graph, run.window)
    asked = [BALANCED] if any(limit.name == BALANCED for limit in limits) else ["scale . 0.5"]
    alone = [nadi.what_if(run.graph, one, window=run.window) for one in asked]
    answers = Answers(run.graph, run.window, alone, None, [], limits, tuple(asked))
    diff = diff_runs(run, run)
    return Said(
        run, summarize(run), lines_of(lambda console: print_summary(run, console)),
        WAITS.data(waits), lines_of(lambda console: WAITS.print(WAITS.data(waits), console)),
        ANSWERS.data(answers),
        lines_of(lambda console: ANSWERS.print(ANSWERS.data(answers), console)),
        DIFF.data(diff), lines_of(lambda console: DIFF.print(DIFF.data(diff), console)),
    )  # fmt: skip


def table(lines: list[str], title: str) -> dict[str, list[str]]:
    """Return the rows below a title, by their first cell; cells are two spaces apart."""
    rows = {}
    for line in lines[lines.index(title) + 2 :]:
        first, *cells = re.split(r" {2,}", line.strip())
        if not cells:
            break
        rows[first] = cells
    return rows


def percent(text: str) -> float:
    found = re.search(r"(-?[\d.]+) %", text)
    assert found, text
    return float(found[1])


def line_with(lines: list[str], begin: str) -> str:
    return next(line for line in lines if line.startswith(begin))


def check_the_path(said: Said) -> None:
    data, kinds = said.data, said.data["critical_path_by_kind"]
    whole = data["measured_ns"]
    assert sum(kinds.values()) == data["critical_path_ns"] == data["replayed_ns"] == whole
    assert data["explained"]["explained_ns"] + data["unexplained"]["ns"] == whole
    assert data["explained"]["measured_ns"] == whole
    assert sum(data["unexplained"]["by_cause"].values()) == data["unexplained"]["ns"]
    assert kinds["unexplained"] == data["unexplained"]["ns"]
    printed = table(said.run_lines, TITLES[0])
    shares = [percent(cells[1]) for kind, cells in printed.items() if kind != "total"]
    assert sum(shares) == pytest.approx(100, abs=0.05 * len(shares) + 1e-6)
    for kind, (time, *share) in printed.items():
        length = whole if kind == "total" else kinds[kind.replace(" ", "_")]
        assert time == format_ns(length)
        assert kind == "total" or share == [format_percent(length, whole)]
    line = line_with(said.run_lines, "explained by dependencies: ")
    shares = [float(share) for share in re.findall(r"\(([\d.]+) %\)", line)]
    assert sum(shares) == pytest.approx(100, abs=0.11)
    assert shares[0] == percent(format_percent(data["explained"]["explained_ns"], whole))
    if "unexplained" in printed:
        assert f"unexplained: {printed['unexplained'][0]} ({printed['unexplained'][1]})" in line


def check_the_verdict(said: Said) -> None:
    verdict, kinds = said.data["verdict"], said.data["critical_path_by_kind"]
    parts = {part: verdict[f"{part}_ns"] for part in ("host", "device", "communication")}
    assert sum(parts.values()) + verdict["unexplained_ns"] == verdict["length_ns"]
    assert verdict["length_ns"] == said.data["measured_ns"]
    assert verdict["unexplained_ns"] == said.data["unexplained"]["ns"]
    assert verdict["gaps_ns"] == kinds["host_gap"]
    assert verdict["calls_ns"] <= kinds["host_op"]
    printed = table(said.run_lines, TITLES[0])
    shares = {kind: percent(cells[1]) for kind, cells in printed.items() if kind != "total"}
    first = said.run_lines[0]
    if gap := re.search(r"between operations ([\d.]+) %", first):
        assert float(gap[1]) == shares["host gap"]
    if host := re.match(r"The host bounds .*?: ([\d.]+) % of the critical path", first):
        sums = sum(shares.get(kind, 0) for kind in ("host op", "host gap", "launch", "delay"))
        assert float(host[1]) == pytest.approx(sums, abs=0.21)
    if kernels := re.search(r"kernels are ([\d.]+) % of the critical path", first):
        assert float(kernels[1]) == pytest.approx(shares["kernel"], abs=0.01)
    if missing := re.match(r"The recording does not explain ([\d.]+) %", first):
        assert float(missing[1]) == shares["unexplained"]
    for gain in re.findall(r"Balanced ranks would gain ([\d.]+) %", "\n".join(said.run_lines[:3])):
        balanced = said.what_if["changes"][0]["gain_ns"]
        assert float(gain) == percent(format_percent(balanced, verdict["length_ns"]))


def check_divided_time(said: Said) -> None:
    """Divide the time of ranks and streams: what is exposed is what transfers and waits."""
    data = said.data
    whole, names = data["measured_ns"], ("computing", "transferring", "waiting", "copying", "idle")
    exposed = [rank["exposed_comm_ns"] for rank in data["per_rank"]]
    for row, rank in zip(data["activity"], data["per_rank"], strict=True):
        assert sum(row[f"{name}_ns"] for name in names) == whole
        assert row["transferring_ns"] + row["waiting_ns"] == rank["exposed_comm_ns"]
        assert rank["exposed_comm_ns"] <= rank["communication_ns"] <= whole
    assert data["exposed_comm_ns"] == data["verdict"]["exposed_ns"] == sum(exposed) // len(exposed)
    for stream in data["streams"]:
        assert stream["busy_ns"] + stream["idle_ns"] == whole
        assert stream["communicating_ns"] <= stream["busy_ns"]
    if any(rank["communication_ns"] for rank in data["per_rank"]):
        share = format_percent(data["exposed_comm_ns"], whole)
        line = line_with(said.run_lines, "exposed communication: ")
        assert f"{format_ns(data['exposed_comm_ns'])} ({share})" in line
    ranks = data["stragglers"]["ranks"]
    assert sum(row["caused_ns"] for row in ranks) == sum(row["waited_ns"] for row in ranks)


def check_devices(said: Said) -> None:
    """Let analyses of devices, which see all of a recording, agree where the window has it all."""
    run, graph = said.run, said.run.graph
    begin, end = run.window.start(graph.time), run.window.end(graph.time)
    for trace, row in zip(run.job.traces, said.data["activity"], strict=True):
        work = trace.category_mask(*DEVICE_WORK)
        talks = trace.nodes["kind"].is_in(COMMUNICATION_KINDS).to_numpy()
        start = trace.column("start")[work] - run.job.origin
        if not start.size or (talks & ~work).any():
            continue  # what a host communicates is not of its device
        if start.min() < begin or (start + trace.column("duration")[work]).max() > end:
            continue
        (found,) = nadi.analyses.temporal_breakdown(trace).to_dicts()
        exposed = row["transferring_ns"] + row["waiting_ns"]
        assert found["exposed_communication_ns"] == exposed
        assert found["computation_ns"] == row["computing_ns"]
        assert found["busy_ns"] == said.data["measured_ns"] - row["idle_ns"]
        (overlap,) = nadi.analyses.communication_overlap(trace).to_dicts()
        assert overlap["exposed_ns"] == exposed


def check_steps(said: Said) -> None:
    run, steps = said.run, said.data["steps"]
    if run.num_steps:
        whole = run.measured_ns
        assert sum(step["measured_ns"] for step in steps) == whole or run.window.number >= 0
        assert said.diff["before_ns"] == pytest.approx(whole / run.num_steps)
        assert said.diff_lines[0] == f"step: {format_ns(round(said.diff['before_ns']))} in both"
        if len(run.job.ranks) == 1:
            one = [row["before_ns"] for row in said.diff["steps"]]
            assert one == [step["measured_ns"] for step in steps]
    else:
        assert said.diff_lines[0] == f"recording: {format_ns(run.measured_ns)} in both"
    if steps:
        found = nadi.analyses.step_table(run.job)
        assert found["duration_ns"].to_list() == [step["measured_ns"] for step in steps]
        shown = [f"{step['step']}: {format_ns(step['measured_ns'])}" for step in steps[:8]]
        assert ", ".join(shown) in line_with(said.run_lines, "steps: ")


def check_other_commands(said: Said) -> None:
    data, whole = said.data, said.data["measured_ns"]
    assert said.waits["measured_ns"] == said.what_if["measured_ns"] == whole
    number = said.run.num_steps
    each = f" ({format_ns(round(whole / number))} a step)" if number > 1 else ""
    head = f"{said.run.window.name}: measured {format_ns(whole)}{each}"
    assert said.waits_lines[0] == said.what_if_lines[0] == head
    assert line_with(said.run_lines, said.run.window.name).startswith(head)
    steps = max(number, 1)
    path = pl.DataFrame(said.diff["path"]).group_by("kind").agg(pl.sum("before_ns"))
    for kind, time in path.iter_rows():
        assert time == pytest.approx(data["critical_path_by_kind"][kind.replace(" ", "_")] / steps)
    for one in data["best_changes"]:
        assert one["gain_ns"] == whole - one["window_ns"]
    balanced = [said.waits["balanced_ranks"]] if said.waits["balanced_ranks"] else []
    answers = [*data["best_changes"], *said.what_if["changes"], *said.what_if["ideals"], *balanced]
    for one in answers:
        assert one["step_ns"] == round(one["window_ns"] / steps)


def check_titles(said: Said) -> None:
    """Call the time after a change that of a step only if the window is one step."""
    number = said.run.num_steps
    assert {said.data["num_steps"], said.waits["num_steps"], said.what_if["num_steps"]} == {number}
    title = {0: "time of the window", 1: "step time"}.get(number, f"time of {number} steps")
    after = [line for line in said.what_if_lines if line.startswith(("change ", "removed "))]
    best = [line for line in said.run_lines if line.endswith("as --what-if")]
    assert len(after) == 2
    assert len(best) == bool(said.data["best_changes"])
    for line in (*after, *best):
        assert re.split(r" {2,}", line)[1] == title


def check_the_simulated_device(said: Said) -> None:
    """Let a simulation of one rank say for how long its device computes as the recording does."""
    run, (row, *others) = said.run, said.data["activity"]
    if others or run.job.world_size > 1 or not row["has_device"] or row["transferring_ns"]:
        return
    (trace,) = run.job.traces
    busy = trace.category_mask(*DEVICE_WORK)
    start = trace.column("start")[busy]
    device = union_length(start, start + trace.column("duration")[busy])
    done = nadi.simulate(run.job, "dgx-h100")
    (computing,) = rank_times(done)["computing"]
    assert computing == pytest.approx(device, rel=0.001)


def check_balanced_ranks(said: Said) -> None:
    limits = {one["name"]: one for one in said.what_if["ideals"]}
    if BALANCED not in limits:
        assert said.waits["balanced_ranks"] is None
        return
    whole, step = said.data["measured_ns"], limits[BALANCED]["window_ns"]
    assert said.data["verdict"]["balanced_ns"] == said.waits["balanced_ranks"]["window_ns"] == step
    assert said.what_if["changes"][0]["window_ns"] == step
    tried = {one["change"]: one["window_ns"] for one in said.data["best_changes"]}
    assert tried.get(BALANCED, step) == step
    share, gain = format_percent(whole - step, whole), format_ns(whole - step)
    low, high = (
        said.waits["balanced_ranks"]["interval"][f"gain_{end}_ns"] for end in ("low", "high")
    )
    between = format_range(low, high)
    assert f"balanced ranks would gain {gain} ({share}; 90 % interval: {between})" in (
        said.waits_lines
    )
    rows = [line for line in (*said.what_if_lines, *said.run_lines) if line.startswith(BALANCED)]
    assert len(rows) >= 2
    for row in rows:
        assert gain in row
        assert share in row


def recordings() -> Iterator[Path]:
    yield from SHIPPED
    yield from some((one for folder in FOLDERS for one in sorted(SHARED.glob(folder))), of=6)


@pytest.mark.parametrize("path", list(recordings()))
def test_a_quantity_has_one_figure(path: Path) -> None:
    try:
        said = all_said(path)
    except nadi.errors.InputError:
        if path in SHIPPED:
            raise
        pytest.skip("no recording of PyTorch with times")
    check_the_path(said)
    check_the_verdict(said)
    check_divided_time(said)
    check_devices(said)
    check_steps(said)
    check_other_commands(said)
    check_titles(said)
    check_the_simulated_device(said)
    check_balanced_ranks(said)
