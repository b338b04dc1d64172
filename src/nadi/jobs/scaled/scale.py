"""A job scaled up, and its time beside that of the job it came from."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from nadi.errors import UsageError
from nadi.graph.edges.job_graph import build_graph
from nadi.jobs.folded.fold import fold
from nadi.jobs.recorded_ranks import KnownRank, recorded_rank
from nadi.jobs.scaled_classes import ScaledJob, Wanted, scale_job, with_prices
from nadi.recordings.folded.folded_job import FoldedJob
from nadi.recordings.jobs import given_job
from nadi.recordings.join_ranks import link_job
from nadi.recordings.step_marks import num_steps_of
from nadi.results.declared import COUNT, Column, Lines, Result, Rows
from nadi.results.text import of_steps
from nadi.simulation.runs.simulate import simulate
from nadi.simulation.simulation import TimeBound
from nadi.simulation.work.recorded_work import nodes_of_job
from nadi.systems.library import load_system, read_system_file
from nadi.systems.system import System
from nadi.trace.schema import COMM_TYPES
from nadi.trace.trace import Job, Trace
from nadi.units import format_bytes, format_count, format_counted, format_ns

if TYPE_CHECKING:
    from nadi.jobs.scaled_classes import ScaledJob


class ScaledStep(NamedTuple):
    """The time of a scaled job on a system.

    Attributes
    ----------
    before_ns, step_ns
        The makespan of the job before, and of the scaled one: of all their steps together.
    bound
        Between what the latter is: with the least and largest prices and times of its operations.
    """

    before_ns: int
    step_ns: int
    bound: TimeBound


def scale(
    job: Job | Sequence[Trace] | Path | str, *, dp: int = 0, tp: int = 0, pp: int = 0,
    cp: int = 0, micro_batches: int = 0, system: System | Path | str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> ScaledJob:  # fmt: skip
    """Scale a job up: more replicas, other tensor, pipeline and context parallel degrees.

    Replicas are copies of the ranks that there are, and groups that sum gradients get the members
    of all. With another tensor parallel degree operations are split or merged by their shapes.
    With another number of stages layers are spread anew, in the order of the same schedule, and
    with another number of context parallel ranks each has another part of the tokens.
    Micro-batches of a rank stay as many as they are, so that the batch of a step grows with the
    replicas.

    Parameters
    ----------
    job
        A trace per rank, a job, or the path of one as :func:`nadi.simulate` takes it.
    dp, tp, pp, cp
        Data, tensor, pipeline and context parallel ranks; 0 for as many as the job has.
    micro_batches
        Of a step, where stages change; 0 for as many as the job has.
    system
        A system whose device prices operations, where measured times change with sizes; or its
        name or file.
    progress
        Called with a line of text before each longer stage.

    Returns
    -------
    ScaledJob
        ``job`` is a folded job; ``origin`` counts what was copied, resized, guessed and made.

    Raises
    ------
    InputError, UsageError
        If the job cannot be read, or cannot be scaled so.

    Examples
    --------
    >>> scaled = nadi.scale("TRACES", dp=512)
    >>> nadi.simulate(scaled.job, nadi.load_system("dgx-h100", 2048))
    """
    found = given_job(job, progress)
    folded = fold(found, progress=progress, alike="in time")
    progress("scaling")
    if isinstance(system, (str, Path)):
        system = load_system(system)
    device = system.compute.device if system else None
    wanted = Wanted(dp, tp, pp, micro_batches, cp)
    recorded: list[KnownRank] = []
    sums = dp > 1 and not any(trace.groups.height for trace in folded.traces)
    if tp > 1 or pp > 1 or sums:
        recorded = _recorded_ranks(found)
    scaled = scale_job(folded, wanted, device, recorded)
    return scaled._replace(num_steps=num_steps_of(found))


def _recorded_ranks(job: Job | Sequence[Trace]) -> list[KnownRank]:
    """Return what is known of each rank of a recording; nothing of other jobs."""
    if isinstance(job, FoldedJob) and "fold.recording" in job.issues["code"].to_list():
        raise UsageError(
            "job", "a folded recording keeps no tensors, so nothing says how its operators are "
            "split", "scale the recording itself",
        )  # fmt: skip
    if isinstance(job, FoldedJob) or (isinstance(job, Job) and job.rank_groups is not None):
        return []
    played = nodes_of_job(job, frozenset(COMM_TYPES) - {"none", "send", "recv"}, at_once=True)[1]
    if not played:
        return []
    graph = build_graph(job if isinstance(job, Job) else link_job(job))
    return [recorded_rank(graph, number, one) for number, one in enumerate(played)]


def scaled_step(scaled: ScaledJob, system: str) -> ScaledStep:
    """Simulate a job before and after it was scaled, each on a system of its size.

    Parameters
    ----------
    system
        The name of a system, or the path of its file.
    """
    described = read_system_file(system)
    small, large = described.fit(scaled.before.ranks), described.fit(scaled.after.ranks)
    done = simulate(with_prices(scaled.job, large), large)
    assert done.bound is not None
    return ScaledStep(simulate(scaled.source, small).makespan, done.makespan, done.bound)


_ORIGINS = ("copied", "resized", "guessed", "made")
_KINDS = ("computation", "collective", "message")


def _described(found: tuple[ScaledJob, ScaledStep | None]) -> dict[str, Any]:
    """Describe the axes before and after, the origin of nodes, and the makespan; times are ns."""
    scaled, step = found
    counted = {kind: dict.fromkeys(_ORIGINS, 0) for kind in _KINDS}
    for kind, origin, nodes in scaled.origin.iter_rows():
        counted[kind][origin] += nodes
    return {
        "before": scaled.before._asdict(),
        "after": scaled.after._asdict(),
        "nodes": scaled.job.num_nodes,
        "origin": counted,
        "repriced": scaled.repriced,
        "found": list(scaled.found),
        "memory": list(scaled.memory),
        "guesses": list(scaled.guesses),
        "num_steps": scaled.num_steps,
        "step": step and {
            "before_ns": step.before_ns, "step_ns": step.step_ns,
            "bound": msgspec.to_builtins(step.bound),
        },
    }  # fmt: skip


def _headline(data: dict[str, Any]) -> str:
    before, after = data["before"], data["after"]
    shared = ("cp",) if max(before["cp"], after["cp"]) > 1 else ()
    axes = ", ".join(
        f"{axis} {before[axis]} -> {after[axis]}" if before[axis] != after[axis]
        else f"{axis} {after[axis]}"
        for axis in ("tp", "dp", "pp", *shared)
    )  # fmt: skip
    ranks = f"{format_counted(before['ranks'], 'rank')} -> {format_count(after['ranks'])}"
    return f"{ranks}, {format_count(data['nodes'])} nodes: {axes}"


def _lines(data: dict[str, Any]) -> Iterator[str]:
    """Say what changed, what was found and guessed, and the makespan with its interval."""
    if data["repriced"]:
        yield f"{format_count(data['repriced'])} measured times changed with sizes"
    for one in data["found"]:
        yield f"found: {one}"
    if data["memory"]:
        first, *others = map(format_bytes, data["memory"])
        where = " in the stages" if len(others) > 1 else ""
        yield f"tensors of a rank at once: {first} before, {', '.join(others)} after{where}"
    for one in data["guesses"]:
        yield f"guessed: {one}"
    if step := data["step"]:
        now, low, high = step["step_ns"], step["bound"]["low_ns"], step["bound"]["high_ns"]
        between = f", between {format_ns(low)} and {format_ns(high)}" if low < high else ""
        before = format_ns(step["before_ns"])
        name = of_steps(data["num_steps"], "the job")
        yield f"{name}: {format_ns(now)} ({format_count(now)} ns){between}; before {before}"


SCALE = Result(
    kind="scale", title="Scaled job", order=83,
    facts=_described,
    headline=_headline,
    parts=(
        Rows(
            "", "origin of nodes", None,
            (Column("kind", "nodes"), *(Column(one, one, COUNT) for one in _ORIGINS)),
            made=lambda data: [
                (("origin", kind), {"kind": f"{kind}s", **counted})
                for kind, counted in data["origin"].items() if any(counted.values())
            ],
        ),
        Lines(_lines),
    ),
)  # fmt: skip
"""Made of a scaled job and its simulated step, or None."""
