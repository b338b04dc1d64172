"""A window before and after changes as a timeline."""

from pathlib import Path

import polars as pl

from nadi.errors import check_kind
from nadi.graph.critical_paths import walk_critical_path
from nadi.graph.replay import replay_graph
from nadi.graph.timeline.schedule_timeline import TimelinePart, write_timelines
from nadi.whatif.what_if_results import WhatIf

_BEFORE, _AFTER = "before", "after"


def redraw(answer: WhatIf, path: Path | str) -> pl.DataFrame:
    """Write a window before and after changes as a timeline, side by side.

    A result without changes is drawn once.

    Parameters
    ----------
    path
        As of :func:`write_timelines`, which says what is drawn, returned and raised too.
    """
    check_kind("answer", answer, WhatIf, "make one with nadi.what_if")
    after = TimelinePart.of_replay(answer.replay, answer.path, _AFTER if answer.changes else "")
    if not answer.changes:
        return write_timelines(path, [after], answer.window.name)
    replay = replay_graph(answer.graph)
    before = TimelinePart.of_replay(replay, walk_critical_path(replay, answer.window), _BEFORE)
    changes = "; ".join(map(str, answer.changes))
    return write_timelines(path, [before, after], f"{answer.window.name}: {changes}")
