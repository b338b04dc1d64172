"""Compare traces with a critical path marked by HTA's rules with those that HTA wrote.

    python verification/hta_overlay.py [GOLDEN_DIR=TRACE_FILE[,TRACE_FILE...] ...]

For every overlay in a folder of HTA's answers: the same slices with the same arguments, the same
other events, and the same arrows. HTA cuts the times of arrows to whole microseconds, so that where
recordings have fractions an arrow begins before its slice; Nadi keeps the fractions, and only whole
microseconds are compared. HTA gives events without arguments empty ones. Arrows into work whose
launch edge is not defined (``hta_critical_path.py`` says which) may be of the other kind.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from _report import Checks, Tally
from hta_critical_path import Golden, arguments_of, goldens, tied_kernels

import nadi

_OVERLAY = re.compile(r"(cp\d+(?:_zerolaunch)?)_overlay")
_MODES = {
    "only_critical": {"only_critical": True}, "all_events": {}, "all_edges": {"all_edges": True},
}  # fmt: skip
_DELAYS = ("critical_path_kernel_launch_delay", "critical_path_kernel_kernel_delay")

Event = dict[str, Any]


def main() -> None:
    """Compare all overlays."""
    checks = Checks()
    for golden, files in goldens():
        for folder in sorted(golden.folder.glob("cp*_overlay")):
            compare(checks, golden, files, folder)
    checks.finish()


def compare(checks: Checks, golden: Golden, files: list[Path], folder: Path) -> None:
    """Compare the overlays of one call."""
    match = _OVERLAY.fullmatch(folder.name)
    assert match is not None
    call = match.group(1)
    traces = [nadi.read(file) for file in files]
    options = arguments_of(call, golden.meta["calls"][call]["call"])
    path = nadi.analyses.hta_critical_path(traces, **options)
    ties = _starts_of_ties(files[0])
    for mode, shown in _MODES.items():
        (theirs,) = (folder / mode).iterdir()
        mine = nadi.analyses.hta_overlay(traces[0], path, **shown)
        what = f"{golden.folder.name} {call} {mode}"
        compare_events(checks, what, _written(mine), _load(theirs), ties)


def _written(trace: nadi.Trace) -> list[Event]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "overlay.json.gz"
        nadi.write(trace, path, to="kineto")
        return _load(path)


def _load(path: Path) -> list[Event]:
    with gzip.open(path) as file:
        events: list[Event] = json.load(file)["traceEvents"]
    return events


def _starts_of_ties(file: Path) -> set[tuple[Any, ...]]:
    """Give pid, tid and whole microsecond of each start whose edge is not defined."""
    events = _load(file)
    return {
        (events[k]["pid"], events[k]["tid"], math.floor(events[k]["ts"]))
        for k in tied_kernels(file)
    }


def compare_events(
    checks: Checks, what: str, mine: list[Event], theirs: list[Event], ties: set[tuple[Any, ...]]
) -> None:
    """Compare slices and other events, then arrows, each as often as it stands there."""
    tally = Tally()
    own, golden = (Counter(map(_content, _split(events)[0])) for events in (mine, theirs))
    tally.exact += (own & golden).total()
    for content in ((own - golden) + (golden - own)).elements():
        tally.add(detail=f"event {content[:150]}")
    own, golden = (Counter(_arrows(_split(events)[1])) for events in (mine, theirs))
    tally.exact += (own & golden).total()
    for arrow in ((own - golden) + (golden - own)).elements():
        is_tie = arrow[2] in _DELAYS and arrow[1] in ties
        rule = "launched when other work of the stream begins" if is_tie else ""
        tally.add(rule=rule, detail=f"arrow {arrow}")
    checks.add_tally(what, tally)


def _split(events: list[Event]) -> tuple[list[Event], list[Event]]:
    arrows = [event for event in events if event.get("cat") == "critical_path"]
    return [event for event in events if event.get("cat") != "critical_path"], arrows


def _content(event: Event) -> str:
    """Write an event so that equal ones are equal, whether times are whole or args empty."""
    times = {key: float(event[key]) for key in ("ts", "dur") if key in event}
    return json.dumps({"args": {}} | event | times, sort_keys=True)


def _arrows(events: list[Event]) -> list[tuple[Any, ...]]:
    """Join the two ends of each arrow: where from, where to, type, weight, on the path."""
    ends = {(event["ph"], event["id"]): event for event in events}
    found = []
    for (phase, number), begin in ends.items():
        if phase != "s":
            continue
        end, args = ends["f", number], begin["args"]
        places = ((e["pid"], e["tid"], math.floor(e["ts"])) for e in (begin, end))
        found.append((*places, args["type"], args["weight"], args["critical"], end["bp"]))
    return found


if __name__ == "__main__":
    main()
