"""What recorded jobs would take after changes, or in another order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from nadi.bottlenecks.steps.run import Answers
from nadi.errors import Parameter, UsageError
from nadi.graph.load_graph import load_graph
from nadi.graph.windows import choose_window, find_steps
from nadi.units import as_list
from nadi.whatif.change_syntax import parse_change, parse_values
from nadi.whatif.reordering.move_search import Reordering, reorder
from nadi.whatif.what_if_results import ideal_limits, sweep, what_if

if TYPE_CHECKING:
    from nadi.recordings.job_of_files import Reading

_Progress = Callable[[str], None]


def ask(
    *paths: Path | str,
    changes: str | Sequence[str] = (),
    step: str | int = "all",
    window: str = "",
    sweep_over: str = "",
    progress: _Progress = lambda _: None,
    **reading: Unpack[Reading],
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
    window
        A time range instead of a step, such as ``120ms:180ms``; see :func:`choose_window`.
    sweep_over
        Values that replace ``{}`` in all changes: ``0.5,1,2`` or ``0.5:2:0.25``.
    progress
        Called with a line of text before each longer stage.
    reading
        ``force``, ``capture`` and ``executor``, as in :func:`load_job`.

    Raises
    ------
    InputError
        If a file cannot be read, files are not from one job, or no operation has a timestamp.
    UsageError
        If the step or time range does not exist, or a change is invalid or matches nothing.
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
    graph = load_graph(paths, progress, **reading)
    chosen = choose_window(graph, find_steps(graph), str(step), window)
    alone, together, swept, limits = [], None, [], []
    if values:
        swept = sweep(graph, asked, values, chosen)
    elif asked:
        alone = [what_if(graph, one, window=chosen) for one in asked]
        together = what_if(graph, *asked, window=chosen) if len(asked) > 1 else None
    else:
        limits = ideal_limits(graph, chosen)
    return Answers(graph, chosen, alone, together, swept, limits, tuple(asked))


def reorder_job(
    *paths: Path | str,
    step: str | int = "all",
    window: str = "",
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
    window
        A time range instead of a step, such as ``120ms:180ms``; see :func:`choose_window`.
    most
        The most moves to apply; None for all that gain.
    progress
        Called with a line of text before each longer stage.

    Raises
    ------
    InputError
        If a file cannot be read, files are not from one job, or no operation has a timestamp.
    UsageError
        If the step or time range does not exist, or no rank has data dependencies.
    """
    graph = load_graph(paths, progress, tensors=True)
    chosen = choose_window(graph, find_steps(graph), str(step), window)
    progress("trying moves")
    return reorder(graph, chosen, most)
