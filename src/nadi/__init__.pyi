"""What ``import nadi`` gives; each name is loaded when it is first used."""

from . import (
    analyze as analyze,
    charts as charts,
    collect as collect,
    comparison as comparison,
    errors as errors,
    estimate as estimate,
    extraction as extraction,
    feed as feed,
    folding as folding,
    formats as formats,
    generate as generate,
    graph as graph,
    link as link,
    load as load,
    model as model,
    obfuscation as obfuscation,
    pipeline as pipeline,
    placement as placement,
    pricing as pricing,
    report as report,
    scaling as scaling,
    simulator as simulator,
    synthesis as synthesis,
    waiting as waiting,
    whatif as whatif,
    workload as workload,
)
from .analyze.critical_path_rules import critical_path as critical_path
from .collect.recorder import record as record
from .errors import NadiError as NadiError
from .feed.feeder import ETFeeder as ETFeeder
from .formats.trace_files import read as read, write as write
from .generate.job_builder import JobBuilder as JobBuilder
from .graph.build.job_graph import build_graph as build_graph
from .graph.event_graph import EventGraph as EventGraph
from .graph.networkx_graphs import from_networkx as from_networkx, to_networkx as to_networkx
from .link.join_host_device import link_pair as link_pair
from .load.recordings import load_job as load_job
from .load.system_library import load_system as load_system
from .model.schedule import Schedule as Schedule
from .model.trace import Job as Job, Trace as Trace
from .pipeline.compared_jobs import compare as compare
from .pipeline.conversion import convert as convert
from .pipeline.extracted_jobs import extract as extract
from .pipeline.folded_jobs import fold as fold, unfold as unfold
from .pipeline.generated_jobs import llm_job as llm_job
from .pipeline.jobs_together import simulate_together as simulate_together
from .pipeline.linking import link_files as link_files
from .pipeline.obfuscated_jobs import obfuscate as obfuscate
from .pipeline.recorded_jobs import run as run
from .pipeline.scaled_up_jobs import scale as scale
from .pipeline.simulated_jobs import simulate as simulate
from .report.schedule_timeline import redraw as redraw
from .version import __version__ as __version__
from .whatif.reordering.applied_moves import reorder as reorder
from .whatif.what_if_results import what_if as what_if
