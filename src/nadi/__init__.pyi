"""What ``import nadi`` gives; each name is loaded when it is first used."""

from . import (
    analyses as analyses,
    bottlenecks as bottlenecks,
    errors as errors,
    estimates as estimates,
    files as files,
    graph as graph,
    jobs as jobs,
    memory as memory,
    models as models,
    pytorch as pytorch,
    recordings as recordings,
    results as results,
    serving as serving,
    sharing as sharing,
    simulation as simulation,
    systems as systems,
    trace as trace,
    whatif as whatif,
)
from .bottlenecks.paths.critical_path import critical_path as critical_path
from .bottlenecks.steps.recorded_jobs import run as run
from .errors import NadiError as NadiError
from .files.trace_files import read as read, write as write
from .graph.edges.job_graph import build_graph as build_graph
from .graph.event_graph import EventGraph as EventGraph
from .graph.networkx_graphs import from_networkx as from_networkx, to_networkx as to_networkx
from .jobs.folded.fold import fold as fold, unfold as unfold
from .jobs.scaled.scale import scale as scale
from .models.job_builder import JobBuilder as JobBuilder
from .models.llm.generated_jobs import llm_job as llm_job
from .pytorch.collecting.recorder import record as record, trace_handler as trace_handler
from .recordings.job_of_files import load_job as load_job
from .recordings.join_host_device import link_pair as link_pair
from .serving.served import serve as serve
from .sharing.conversion.convert import convert as convert
from .sharing.conversion.link_files import link_files as link_files
from .sharing.obfuscation.obfuscate import obfuscate as obfuscate
from .sharing.parts.extract import extract as extract
from .sharing.similarity.similarity import compare as compare
from .simulation.feeder.feeder import ETFeeder as ETFeeder
from .simulation.runs.simulate import simulate as simulate, simulate_together as simulate_together
from .systems.library import load_system as load_system
from .trace.trace import Job as Job, Schedule as Schedule, Trace as Trace
from .version import __version__ as __version__
from .whatif.reordering.move_search import reorder as reorder
from .whatif.what_if_results import redraw as redraw, what_if as what_if
