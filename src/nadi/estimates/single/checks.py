"""Three ways to the time of one step: estimated, simulated as a generated job, and published.

Published step times that ship with Nadi, by model, system and plan.

An estimate beside the simulated job and the published step time, as data.
"""

import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
import polars as pl

from nadi.errors import UsageError
from nadi.estimates.execution import Execution
from nadi.estimates.plan_execution import OFFLOADED
from nadi.estimates.single.estimate import DescribedStep
from nadi.estimates.single_estimate import Estimate
from nadi.files.shipped_files import Shelf
from nadi.models.job_rows import COMPUTE
from nadi.models.llm.generated_jobs import job_of_model
from nadi.models.llm.parallel_plan import ParallelPlan
from nadi.simulation.accounts.times import steady_step
from nadi.simulation.runs.simulate import simulate
from nadi.simulation.simulation import Simulation
from nadi.systems.library import load_system
from nadi.systems.prices.priced_traces import price_job
from nadi.systems.system import System
from nadi.trace.trace import Job, Trace

_SHELF = Shelf("measured", "table of measured steps", "docs/estimate.md names them")


class MeasuredStep(NamedTuple):
    """A published step time."""

    # model, system: names of those that ship with Nadi
    model: str
    system: str
    plan: dict[str, Any]  # fields of ``ParallelPlan``
    seconds: float  # of a step
    source: str  # where it was published


@cache
def measured_steps() -> tuple[MeasuredStep, ...]:
    """Return all published step times that ship with Nadi."""
    found = []
    for name in _SHELF.names():
        table = tomllib.loads(_SHELF.text(name))
        found += [
            MeasuredStep(
                row["model"], table["system"], row["plan"], row["seconds"], table["source"]
            )
            for row in table["steps"]
        ]
    return tuple(found)


_FAR = 0.005  # of the step: differences that are explained
_ENDS = ("backward", "recompute", "forward")
_MOVES = ("MEM_LOAD", "MEM_STORE")  # kinds of nodes
_OFFLOADING = "offloading"
# parts of an estimate, and why a simulation has another one
_PARTS: dict[str, tuple[tuple[str, ...], str]] = {
    "computing": (
        ("forward", "backward", "computed_again", "ends"),
        "an estimate has the exposed communication of the embedding, the head and the loss here",
    ),
    "optimizer": (
        ("optimizer",),
        "an estimate adds small sums of gradients, which a simulation runs beside others",
    ),
    "exposed tensor parallelism": (
        ("tensor_parallel", "exchanged_again"),
        "a simulation has that of the embedding, the head and the loss here, and queues on links",
    ),
    "pipeline": (
        ("bubble", "pipeline_parallel"),
        "an estimate has closed forms of the bubble and of the transfers that stages wait for",
    ),
    "data parallelism": (
        ("data_parallel",),
        "an estimate has closed forms of what reductions expose, without queues on links",
    ),
    _OFFLOADING: (
        ("forward_offload", "backward_offload", "update_offload"),
        "a simulation counts what waits for a move and a collective as the one that ends last",
    ),
}


class PartCheck(NamedTuple):
    """One part of the step, in seconds, and why they differ; empty if they hardly do."""

    name: str
    estimated: float
    simulated: float
    reason: str


class EstimateCheck(NamedTuple):
    """One step in three ways."""

    # estimated, simulated: seconds
    estimated: float
    simulated: float
    # the published step time; None if none ships with Nadi for this model, system and plan
    measured: MeasuredStep | None
    parts: tuple[PartCheck, ...]  # where both spend the time


class SimulatePlaced(Protocol):
    """Simulates a job whose tensors live in tiers, which another room does."""

    def __call__(self, job: Job | Sequence[Trace], system: System, rules: str) -> Simulation:
        """Return the simulation; ``rules`` are such as ``weights=cxl,optimizer=cxl``."""
        ...


def check_estimate(
    step: DescribedStep, system: str | Path, estimate: Estimate, model_name: str = "",
    placed: SimulatePlaced | None = None,
) -> EstimateCheck:  # fmt: skip
    """Simulate the generated job of an estimate, and find its published time.

    - ``step``: As :func:`describe_step` gives it.
    - ``system``: The system by name or file: Nadi's own.
    - ``estimate``: Its estimate, by the default rules.
    - ``model_name``: The name of the model, to find a published step time.
    - ``placed``: What simulates a job that offloads.
    - Raises UsageError if the execution is Calculon's, of which no job is generated; or if it
      offloads, and nothing simulates that.
    """
    plan, offloaded = step.plan, _offloaded(step.execution)
    if offloaded and placed is None:
        raise UsageError(
            "a check of an estimate", "nothing is given that simulates what is offloaded",
            "give it, as the command does",
        )  # fmt: skip
    if plan is None or step.machine.nested is None:
        raise UsageError(
            "a check of an estimate", "it needs a generated job, which no files of Calculon "
            "describe", "use options or a plan, and one of Nadi's systems",
        )  # fmt: skip
    done = _simulated(step, plan, load_system(system, plan.world_size), placed)
    simulated = _simulated_parts(done)
    took = done.makespan
    if plan.inference:
        took = steady_step(done, feeds_back=plan.inference == "decode")
        # what fills and empties the stages of one step, the steps before and after it do
        simulated["pipeline"] += (took - done.makespan) / 1e9
    parts = []
    for name, (fields, reason) in _PARTS.items():
        if name == _OFFLOADING and not offloaded:
            continue
        own = sum(estimate.times[field] for field in fields)
        is_far = abs(own - simulated[name]) > _FAR * estimate.seconds
        parts.append(PartCheck(name, own, simulated[name], reason if is_far else ""))
    measured = None
    if not offloaded:
        measured = _published(step, plan, str(system), model_name)
    return EstimateCheck(estimate.seconds, took / 1e9, measured, tuple(parts))


def _simulated(
    step: DescribedStep, plan: ParallelPlan, system: System, placed: SimulatePlaced | None
) -> Simulation:
    """Simulate the generated job at an estimate's prices; what it offloads lives in its tier."""
    machine, offloaded = step.machine, _offloaded(step.execution)
    if machine.system is not None:
        system = msgspec.structs.replace(system, measured=machine.system.measured)
    job, _ = price_job(job_of_model(step.model.language_model, plan), system, machine.prices)
    if placed is None or not offloaded:
        return simulate(job, system)
    name = machine.mem2.name
    if not name:
        assert system.remote_memory is not None
        system = msgspec.structs.replace(system, tiers=(system.remote_memory,), memory_paths=())
        name = system.tiers[0].name
    return placed(job, system, ",".join(f"{role}={name}" for role in offloaded))


def _offloaded(execution: Execution) -> tuple[str, ...]:
    """Return what lives in the second tier, by the names of options."""
    which = (execution.weight_offload, execution.activations_offload, execution.optimizer_offload)
    return tuple(name for name, is_there in zip(OFFLOADED, which, strict=True) if is_there)


def _published(
    step: DescribedStep, plan: ParallelPlan, system: str, model_name: str
) -> MeasuredStep | None:
    """Return the published time of the same plan; types of 16 bits are the same."""
    for one in measured_steps():
        if (one.model, one.system) == (model_name, system):
            known = msgspec.convert(one.plan, ParallelPlan).of(step.model.language_model)
            same_type = {plan.dtype, known.dtype} <= {"float16", "bfloat16"}
            if same_type and known == msgspec.structs.replace(plan, dtype=known.dtype):
                return one
    return None


def _simulated_parts(done: Simulation) -> dict[str, float]:
    """Give the seconds of each part on the rank that computes most.

    What lies between two computations belongs to the communication, or the move from or to a
    lower tier of memory, that ended last before the second one.
    """
    program = done.program
    ranks = [_rank_nodes(done, number) for number in range(len(program.traces))]
    work = [
        int((one["end"] - one["start"]).filter(one["stream"] == COMPUTE).sum()) for one in ranks
    ]
    nodes = ranks[int(np.argmax(work))]
    found = dict.fromkeys(_PARTS, 0.0)
    ended = max(_end_of_work(one) for one in ranks)
    others = nodes.filter(pl.col("stream") != COMPUTE).sort("end")
    ends = others["end"].to_numpy()
    roles = others["role"].to_list()

    def ended_last(moment: int) -> str:
        before = int(np.searchsorted(ends, moment, side="right")) - 1
        return _part_of(roles[before] if before >= 0 else "pp")

    last = 0
    for start, end, phase in (
        nodes.filter(pl.col("stream") == COMPUTE).sort("start")
        .select("start", "end", "phase").iter_rows()
    ):  # fmt: skip
        name = "optimizer" if phase == "optimizer" else "computing"
        found[name] += end - start
        if start > last and phase == "optimizer":
            waited = max(min(ended, start) - last, 0)
            found["pipeline"] += waited
            moves = ended_last(start) == _OFFLOADING
            found[_OFFLOADING if moves else "data parallelism"] += start - last - waited
        elif start > last:
            found[ended_last(start)] += start - last
        last = max(last, end)
    moves = ended_last(done.makespan) == _OFFLOADING
    found[_OFFLOADING if moves else "data parallelism"] += done.makespan - last
    return {name: value / 1e9 for name, value in found.items()}


def _end_of_work(nodes: pl.DataFrame) -> int:
    """Return when the last backward, or forward if there is none, ends."""
    chosen = nodes.filter((pl.col("stream") == COMPUTE) & pl.col("phase").is_in(_ENDS))
    return int(chosen["end"].max() or 0)  # type: ignore[arg-type]


def _part_of(role: str) -> str:
    if role == _OFFLOADING:
        return role
    if role in ("tp", "cp", "ep"):
        return "exposed tensor parallelism"
    return "data parallelism" if role in ("dp", "edp") else "pipeline"


def _rank_nodes(done: Simulation, number: int) -> pl.DataFrame:
    """Give the nodes of one simulated rank, with their phase and the role of their group."""
    program = done.program
    first, end = (int(one) for one in program.first[number : number + 2])
    trace, row = program.traces[number], program.row[first:end]
    names = [name.partition("[")[0] for name in trace.groups["name"].to_list()]
    group = trace.column("group")[row]
    moves = trace.nodes["kind"].cast(pl.String).gather(row).is_in(_MOVES).to_list()
    return pl.DataFrame({
        "start": done.start[first:end],
        "end": done.end[first:end],
        "stream": trace.column("stream")[row],
        "phase": trace.nodes["phase"].cast(pl.String).gather(row),
        "role": [
            _OFFLOADING if is_move else names[one] if one >= 0 else ""
            for one, is_move in zip(group.tolist(), moves, strict=True)
        ],
    })  # fmt: skip


def describe_check(check: EstimateCheck) -> dict[str, Any]:
    """Compute the JSON output: seconds."""
    measured = check.measured
    return {
        "estimated": check.estimated,
        "simulated": check.simulated,
        "measured": measured.seconds if measured else None,
        "source": measured.source if measured else None,
        "parts": [part._asdict() for part in check.parts],
    }
