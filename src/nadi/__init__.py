"""Nadi: what bounds an AI training or inference step, from the traces that PyTorch writes.

>>> import nadi
>>> run = nadi.run("traces", what_if=["scale aten::mm 0.5"])
>>> run.path.by_kind()

Names are loaded when they are first used, so that ``import nadi`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nadi.version import __version__

if TYPE_CHECKING:
    from nadi.analyze.exposed import communication_by_rank
    from nadi.analyze.unexplained import Explained, explain_time
    from nadi.conversion import Conversion, convert
    from nadi.critical_paths import CriticalPath, critical_path
    from nadi.errors import FormatError, InputError, NadiError, PairError, UsageError
    from nadi.formats import read, write
    from nadi.graph import EdgeKind, EventGraph, Replay
    from nadi.graph_builder import build_graph
    from nadi.hta.path import HtaCriticalPath, hta_critical_path
    from nadi.link import link_device, link_job, link_pair
    from nadi.overheads import Overheads, estimate_overheads
    from nadi.pipeline import load_job, run
    from nadi.report.summary import summarize, write_results
    from nadi.report.timeline import write_timeline
    from nadi.result import Run, WhatIf
    from nadi.schedule import Schedule
    from nadi.steps import Window, choose_window, find_steps
    from nadi.trace import Job, Trace
    from nadi.validate import validate_job, validate_trace
    from nadi.whatif import Scale, apply_change, parse_change

_HOME = {
    "Conversion": "conversion",
    "CriticalPath": "critical_paths",
    "EdgeKind": "graph",
    "Explained": "analyze.unexplained",
    "Overheads": "overheads",
    "estimate_overheads": "overheads",
    "explain_time": "analyze.unexplained",
    "EventGraph": "graph",
    "FormatError": "errors",
    "HtaCriticalPath": "hta.path",
    "InputError": "errors",
    "Job": "trace",
    "NadiError": "errors",
    "PairError": "errors",
    "Replay": "graph",
    "Run": "result",
    "Scale": "whatif",
    "Schedule": "schedule",
    "Trace": "trace",
    "UsageError": "errors",
    "WhatIf": "result",
    "Window": "steps",
    "apply_change": "whatif",
    "build_graph": "graph_builder",
    "choose_window": "steps",
    "communication_by_rank": "analyze.exposed",
    "convert": "conversion",
    "critical_path": "critical_paths",
    "find_steps": "steps",
    "hta_critical_path": "hta.path",
    "link_device": "link",
    "link_job": "link",
    "link_pair": "link",
    "load_job": "pipeline",
    "parse_change": "whatif",
    "read": "formats",
    "run": "pipeline",
    "summarize": "report.summary",
    "validate_job": "validate",
    "validate_trace": "validate",
    "write": "formats",
    "write_results": "report.summary",
    "write_timeline": "report.timeline",
}

__all__ = [
    "Conversion",
    "CriticalPath",
    "EdgeKind",
    "EventGraph",
    "Explained",
    "FormatError",
    "HtaCriticalPath",
    "InputError",
    "Job",
    "NadiError",
    "Overheads",
    "PairError",
    "Replay",
    "Run",
    "Scale",
    "Schedule",
    "Trace",
    "UsageError",
    "WhatIf",
    "Window",
    "__version__",
    "apply_change",
    "build_graph",
    "choose_window",
    "communication_by_rank",
    "convert",
    "critical_path",
    "estimate_overheads",
    "explain_time",
    "find_steps",
    "hta_critical_path",
    "link_device",
    "link_job",
    "link_pair",
    "load_job",
    "parse_change",
    "read",
    "run",
    "summarize",
    "validate_job",
    "validate_trace",
    "write",
    "write_results",
    "write_timeline",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'nadi' has no attribute {name!r}")
    value = getattr(import_module(f"nadi.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
