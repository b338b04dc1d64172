"""The critical path by Nadi's rules or by those of Holistic Trace Analysis (HTA)."""

from collections.abc import Sequence
from typing import Any, Literal, overload

from nadi.analyses.hta.hta_path import HtaCriticalPath, hta_critical_path
from nadi.errors import Parameter, UsageError, check_kind
from nadi.graph.critical_paths import CriticalPath, walk_critical_path
from nadi.graph.replay import Replay
from nadi.graph.windows import Window
from nadi.trace.trace import Job, Trace


@overload
def critical_path(
    source: Replay, window: Window, *, rules: Literal["nadi"] = "nadi"
) -> CriticalPath: ...


@overload
def critical_path(
    source: Trace | Job | Sequence[Trace],
    *,
    rules: Literal["hta"],
    rank: int | None = None,
    annotation: str = "",
    instance: int | tuple[int, int] = 0,
    zero_weight_launch_edges: bool = False,
    include_last_step: bool = False,
) -> HtaCriticalPath: ...


def critical_path(
    source: Any, window: Window | None = None, *, rules: str = "nadi", **options: Any
) -> CriticalPath | HtaCriticalPath:
    """Find the critical path by Nadi's rules, or by those of Holistic Trace Analysis (HTA).

    By Nadi's, of a replay and a window: one path over all ranks, without gaps. By HTA's
    (``rules="hta"``), of a trace and an annotation: see
    :func:`hta_critical_path`, which takes the same arguments.

    Raises
    ------
    UsageError
        If the rules are unknown.
    """
    if rules == "hta":
        return hta_critical_path(source, **options)
    if rules != "nadi" or window is None:
        raise UsageError(
            Parameter("rules"), f"{rules!r} with {'a' if window else 'no'} window",
            "pass rules='nadi' with a replay and a window, or rules='hta' with a trace",
        )  # fmt: skip
    check_kind("source", source, Replay, "make one with nadi.graph.replay_graph(graph)")
    return walk_critical_path(source, window)
