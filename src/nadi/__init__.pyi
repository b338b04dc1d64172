"""What ``import nadi`` gives; each name is loaded when it is first used."""

from .analyze.critical_path_rules import critical_path
from .analyze.explained_time import Explained, explain_time
from .analyze.exposed_communication import communication_by_rank
from .analyze.hta.hta_path import HtaCriticalPath, hta_critical_path
from .analyze.hta.overlay import hta_overlay
from .analyze.near_critical import NearCriticalPath, near_critical_paths, slack_histogram
from .analyze.stragglers import Stragglers, find_stragglers
from .errors import FormatError, InputError, NadiError, PairError, UsageError
from .feed.feeder import ETFeeder
from .feed.feeder_node import ETFeederNode, NodeType
from .feed.node_batch import NodeBatch
from .formats import read, write
from .graph.build import build_graph
from .graph.critical_paths import CriticalPath
from .graph.event_graph import EdgeKind, EventGraph, Replay
from .graph.networkx_graphs import from_networkx, to_networkx
from .graph.overheads import Overheads, estimate_overheads
from .graph.windows import Window, choose_window, find_steps
from .link.join_host_device import link_device, link_pair
from .link.join_ranks import link_job
from .link.tensor_dependencies import tensor_deps
from .load.astra_sim_system import load_astra_sim_system
from .load.recordings import load_job
from .load.saved_simulations import SavedSimulation, read_simulation
from .load.simulation_jobs import read_ranks
from .load.system_library import load_system, read_system_file
from .model.schedule import Schedule
from .model.trace import Job, Trace
from .model.validate import validate_job, validate_trace
from .pipeline.convert import Conversion, convert
from .pipeline.link_files import LinkedFile, Linking, link_files
from .pipeline.on_system import on_system
from .pipeline.result import Answers, Prediction, Run
from .pipeline.run import ask, load_devices, reorder_job, run
from .pipeline.simulate import simulate
from .report.run_report import summarize, write_results
from .report.schedule_timeline import TimelinePart, redraw, write_timeline, write_timelines
from .report.simulation_report import write_simulation
from .report.simulation_timeline import write_issue_lines, write_simulated_timeline
from .simulator.machine.astra_config import astra_sim_system
from .simulator.machine.system import System
from .simulator.prices import collective_time
from .simulator.results.as_recorded import simulated_graph, simulated_job
from .simulator.simulation import Simulation
from .version import __version__
from .whatif.answers import WhatIf, ideal_limits, sweep, what_if
from .whatif.change_syntax import parse_change, parse_selection
from .whatif.changes import Change, apply_change
from .whatif.duration_changes import Scale
from .whatif.reordering.applied_moves import Reordering, reorder
from .whatif.reordering.move_search import Candidate, find_reorders
from .whatif.reordering.moves import MoveEarlier
from .whatif.selection import Selection
from .whatif.system_change import OnSystem
from .workload.astra_sim_files import SimulatorFiles, write_for_astra_sim

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
