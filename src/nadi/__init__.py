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
    from nadi.analyze.near_critical import (
        NearCriticalPath,
        near_critical_paths,
        slack_histogram,
    )
    from nadi.analyze.stragglers import Stragglers, find_stragglers
    from nadi.analyze.unexplained import Explained, explain_time
    from nadi.conversion import Conversion, convert
    from nadi.critical_paths import CriticalPath, critical_path
    from nadi.errors import FormatError, InputError, NadiError, PairError, UsageError
    from nadi.export.astra_sim import SimulatorFiles, write_for_astra_sim
    from nadi.feed import ETFeeder, ETFeederNode, NodeBatch, NodeType
    from nadi.formats import read, write
    from nadi.graph import EdgeKind, EventGraph, Replay
    from nadi.graph_builder import build_graph
    from nadi.hta.overlay import hta_overlay
    from nadi.hta.path import HtaCriticalPath, hta_critical_path
    from nadi.link import link_device, link_job, link_pair
    from nadi.link.tensors import tensor_deps
    from nadi.linking import LinkedFile, Linking, link_files
    from nadi.networkx_graphs import from_networkx, to_networkx
    from nadi.overheads import Overheads, estimate_overheads
    from nadi.pipeline import ask, load_devices, load_job, reorder_job, run
    from nadi.reordering import Candidate, MoveEarlier, Reordering, find_reorders, reorder
    from nadi.report.saved_simulations import SavedSimulation, read_simulation
    from nadi.report.simulation import write_simulation
    from nadi.report.simulation_timeline import write_issue_lines, write_simulated_timeline
    from nadi.report.summary import summarize, write_results
    from nadi.report.timeline import TimelinePart, redraw, write_timeline, write_timelines
    from nadi.result import Answers, Prediction, Run
    from nadi.schedule import Schedule
    from nadi.simulator import (
        OnSystem,
        Simulation,
        System,
        astra_sim_system,
        collective_time,
        load_astra_sim_system,
        load_system,
        on_system,
        read_ranks,
        read_system_file,
        simulate,
    )
    from nadi.simulator.results.as_recorded import simulated_graph, simulated_job
    from nadi.steps import Window, choose_window, find_steps
    from nadi.trace import Job, Trace
    from nadi.validate import validate_job, validate_trace
    from nadi.whatif import (
        Change,
        Scale,
        Selection,
        WhatIf,
        apply_change,
        ideal_limits,
        parse_change,
        parse_selection,
        sweep,
        what_if,
    )

_HOME = {
    "NearCriticalPath": "analyze.near_critical",
    "near_critical_paths": "analyze.near_critical",
    "slack_histogram": "analyze.near_critical",
    "Answers": "result",
    "Change": "whatif",
    "Conversion": "conversion",
    "CriticalPath": "critical_paths",
    "ETFeeder": "feed",
    "ETFeederNode": "feed",
    "EdgeKind": "graph",
    "Explained": "analyze.unexplained",
    "NodeBatch": "feed",
    "NodeType": "feed",
    "OnSystem": "simulator",
    "Overheads": "overheads",
    "estimate_overheads": "overheads",
    "explain_time": "analyze.unexplained",
    "EventGraph": "graph",
    "FormatError": "errors",
    "HtaCriticalPath": "hta.path",
    "InputError": "errors",
    "Job": "trace",
    "LinkedFile": "linking",
    "Linking": "linking",
    "NadiError": "errors",
    "PairError": "errors",
    "Replay": "graph",
    "Prediction": "result",
    "Run": "result",
    "SavedSimulation": "report.saved_simulations",
    "Scale": "whatif",
    "Schedule": "schedule",
    "Simulation": "simulator",
    "System": "simulator",
    "SimulatorFiles": "export.astra_sim",
    "Trace": "trace",
    "UsageError": "errors",
    "Selection": "whatif",
    "Stragglers": "analyze.stragglers",
    "TimelinePart": "report.timeline",
    "WhatIf": "whatif",
    "Window": "steps",
    "apply_change": "whatif",
    "astra_sim_system": "simulator",
    "ask": "pipeline",
    "build_graph": "graph_builder",
    "choose_window": "steps",
    "collective_time": "simulator",
    "communication_by_rank": "analyze.exposed",
    "convert": "conversion",
    "critical_path": "critical_paths",
    "find_steps": "steps",
    "find_stragglers": "analyze.stragglers",
    "hta_critical_path": "hta.path",
    "hta_overlay": "hta.overlay",
    "link_device": "link",
    "link_files": "linking",
    "link_job": "link",
    "link_pair": "link",
    "load_devices": "pipeline",
    "load_astra_sim_system": "simulator",
    "load_job": "pipeline",
    "load_system": "simulator",
    "from_networkx": "networkx_graphs",
    "ideal_limits": "whatif",
    "on_system": "simulator",
    "to_networkx": "networkx_graphs",
    "parse_change": "whatif",
    "parse_selection": "whatif",
    "sweep": "whatif",
    "what_if": "whatif",
    "read": "formats",
    "read_ranks": "simulator",
    "read_simulation": "report.saved_simulations",
    "read_system_file": "simulator",
    "redraw": "report.timeline",
    "run": "pipeline",
    "simulate": "simulator",
    "simulated_graph": "simulator.results.as_recorded",
    "simulated_job": "simulator.results.as_recorded",
    "summarize": "report.summary",
    "tensor_deps": "link.tensors",
    "validate_job": "validate",
    "validate_trace": "validate",
    "write": "formats",
    "write_for_astra_sim": "export.astra_sim",
    "write_results": "report.summary",
    "write_timeline": "report.timeline",
    "Candidate": "reordering",
    "MoveEarlier": "reordering",
    "Reordering": "reordering",
    "find_reorders": "reordering",
    "reorder": "reordering",
    "reorder_job": "pipeline",
    "write_simulation": "report.simulation",
    "write_timelines": "report.timeline",
    "write_issue_lines": "report.simulation_timeline",
    "write_simulated_timeline": "report.simulation_timeline",
}

__all__ = [
    "Answers",
    "Candidate",
    "Change",
    "Conversion",
    "CriticalPath",
    "ETFeeder",
    "ETFeederNode",
    "EdgeKind",
    "EventGraph",
    "Explained",
    "FormatError",
    "HtaCriticalPath",
    "InputError",
    "Job",
    "LinkedFile",
    "Linking",
    "MoveEarlier",
    "NadiError",
    "NearCriticalPath",
    "NodeBatch",
    "NodeType",
    "OnSystem",
    "Overheads",
    "PairError",
    "Prediction",
    "Reordering",
    "Replay",
    "Run",
    "SavedSimulation",
    "Scale",
    "Schedule",
    "Selection",
    "Simulation",
    "SimulatorFiles",
    "Stragglers",
    "System",
    "TimelinePart",
    "Trace",
    "UsageError",
    "WhatIf",
    "Window",
    "__version__",
    "apply_change",
    "ask",
    "astra_sim_system",
    "build_graph",
    "choose_window",
    "collective_time",
    "communication_by_rank",
    "convert",
    "critical_path",
    "estimate_overheads",
    "explain_time",
    "find_reorders",
    "find_steps",
    "find_stragglers",
    "from_networkx",
    "hta_critical_path",
    "hta_overlay",
    "ideal_limits",
    "link_device",
    "link_files",
    "link_job",
    "link_pair",
    "load_astra_sim_system",
    "load_devices",
    "load_job",
    "load_system",
    "near_critical_paths",
    "on_system",
    "parse_change",
    "parse_selection",
    "read",
    "read_ranks",
    "read_simulation",
    "read_system_file",
    "redraw",
    "reorder",
    "reorder_job",
    "run",
    "simulate",
    "simulated_graph",
    "simulated_job",
    "slack_histogram",
    "summarize",
    "sweep",
    "tensor_deps",
    "to_networkx",
    "validate_job",
    "validate_trace",
    "what_if",
    "write",
    "write_for_astra_sim",
    "write_issue_lines",
    "write_results",
    "write_simulated_timeline",
    "write_simulation",
    "write_timeline",
    "write_timelines",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'nadi' has no attribute {name!r}")
    value = getattr(import_module(f"nadi.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
