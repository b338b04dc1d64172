"""The main analyses of recorded jobs. Apart from ``cli``, only this module joins all stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from nadi.analyze.explained_time import explain_time
from nadi.analyze.exposed_communication import communication_by_rank
from nadi.analyze.stragglers import find_stragglers
from nadi.errors import InputError, Parameter, UsageError
from nadi.graph.build.job_graph import build_graph
from nadi.graph.critical_paths import walk_critical_path
from nadi.graph.event_graph import EventGraph
from nadi.graph.replay import replay_graph
from nadi.graph.windows import Window, choose_window, find_steps
from nadi.load.recordings import load_job
from nadi.load.system_library import read_system_file
from nadi.pipeline.result import Answers, Prediction, Run
from nadi.pipeline.system_fit import on_system
from nadi.simulator.machine.system_file import SystemFile
from nadi.whatif.change_syntax import as_list, parse_change, parse_values
from nadi.whatif.reordering.applied_moves import Reordering, reorder
from nadi.whatif.system_change import prices_on
from nadi.whatif.what_if_results import ideal_limits, sweep, what_if as change_and_replay

__all__ = ["ask", "reorder_job", "run"]

_Progress = Callable[[str], None]


def run(
    *paths: Path | str,
    step: str | int = "all",
    what_if: str | Sequence[str] = (),
    system: Path | str = "",
    force: bool = False,
    progress: _Progress = lambda _: None,
) -> Run:
    """Find what bounds a step, and predict the step time after changes.

    Parameters
    ----------
    paths
        Folders or files, as in :func:`load_job`.
    step
        Number of a step, or ``all``.
    what_if
        A change such as ``scale aten::mm 0.5``, or several, each applied alone.
    system
        A system as :func:`nadi.load_system` takes it, to predict the step there.
    force
        As in :func:`load_job`.
    progress
        Called with a line of text before each longer stage.

    Raises
    ------
    InputError
        If a file cannot be read, files are not from one job, or no operation has a timestamp.
    UsageError
        If the step does not exist, a change is invalid or matches nothing, or the system
        does not fit the number of ranks.
    """
    described = read_system_file(system) if system else None
    changes = [parse_change(text) for text in as_list(what_if)]
    graph = _load_graph(paths, progress, force=force)
    steps = find_steps(graph)
    window = choose_window(graph, steps, str(step))
    progress("finding the critical path")
    measured = replay_graph(graph)
    path = walk_critical_path(measured, window)
    prediction = None
    if described is not None:
        progress("predicting")
        prediction = _predict(graph, described, window)
    start, end = window.start(graph.time), window.end(graph.time)
    return Run(
        job=graph.job,
        graph=graph,
        replay=measured,
        steps=steps,
        window=window,
        path=path,
        explained=explain_time(graph),
        communication=communication_by_rank(graph.job, start, end),
        stragglers=find_stragglers(measured, window),
        what_ifs=[change_and_replay(graph, one, window=window) for one in changes],
        prediction=prediction,
    )


def _load_graph(
    paths: Sequence[Path | str],
    progress: _Progress,
    *,
    force: bool = False,
    tensors: bool = False,
) -> EventGraph:
    """Load a job and build its event graph."""
    job = load_job(*paths, force=force, tensors=tensors, progress=progress)
    progress("building the event graph")
    graph = build_graph(job)
    if graph.num_ops == 0:
        raise InputError(
            ", ".join(map(str, paths)), "no operation has a timestamp",
            "record a device trace with torch.profiler while the program runs",
        )  # fmt: skip
    return graph


def _predict(graph: EventGraph, described: SystemFile, window: Window) -> Prediction:
    change = on_system(graph.job, described)
    answer = change_and_replay(graph, change, window=window)
    return Prediction(change, prices_on(graph, change.system), answer)


def ask(
    *paths: Path | str,
    changes: str | Sequence[str] = (),
    step: str | int = "all",
    sweep_over: str = "",
    progress: _Progress = lambda _: None,
) -> Answers:
    """Predict the effect of changes, alone and together; without changes, compute upper bounds.

    Parameters
    ----------
    paths
        Folders with a pair per rank, or the files themselves in any order.
    changes
        A change as :func:`nadi.whatif.parse_change` reads it, or several.
    step
        Number of a step, or ``all``.
    sweep_over
        Values that replace ``{}`` in all changes: ``0.5,1,2`` or ``0.5:2:0.25``.
    progress
        Called with a line of text before each longer stage.

    Raises
    ------
    InputError
        If a file cannot be read, files are not from one job, or no operation has a timestamp.
    UsageError
        If the step does not exist, or a change is invalid or matches nothing.
    """
    asked = as_list(changes)
    values = parse_values(sweep_over, "sweep_over") if sweep_over else []
    if values and not any("{}" in change for change in asked):
        raise UsageError(
            Parameter("sweep_over"), "no change contains the placeholder {}", "write {} in one"
        )
    for change in asked:
        for value in values or [""]:
            parse_change(change.replace("{}", value) if values else change)
    graph = _load_graph(paths, progress)
    window = choose_window(graph, find_steps(graph), str(step))
    alone, together, swept, limits = [], None, [], []
    if values:
        swept = sweep(graph, asked, values, window)
    elif asked:
        alone = [change_and_replay(graph, one, window=window) for one in asked]
        together = change_and_replay(graph, *asked, window=window) if len(asked) > 1 else None
    else:
        limits = ideal_limits(graph, window)
    return Answers(graph, window, alone, together, swept, limits, tuple(asked))


def reorder_job(
    *paths: Path | str,
    step: str | int = "all",
    most: int | None = 0,
    progress: _Progress = lambda _: None,
) -> Reordering:
    """Find operations that can start earlier and the gain of moving them; apply the best moves.

    Parameters
    ----------
    paths
        Folders with a pair per rank, or the files themselves in any order.
    step
        Number of a step, or ``all``.
    most
        The most moves to apply; None for all that gain.
    progress
        Called with a line of text before each longer stage.

    Raises
    ------
    InputError
        If a file cannot be read, files are not from one job, or no operation has a timestamp.
    UsageError
        If the step does not exist, or no rank has data dependencies.
    """
    graph = _load_graph(paths, progress, tensors=True)
    window = choose_window(graph, find_steps(graph), str(step))
    progress("trying moves")
    return reorder(graph, window, most)
