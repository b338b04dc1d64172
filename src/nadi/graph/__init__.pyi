"""What ``nadi.graph`` gives; each name is loaded when it is first used."""

from .build.job_graph import build_graph as build_graph
from .critical_paths import CriticalPath as CriticalPath
from .drawn_parts import DrawnPart as DrawnPart
from .event_graph import (
    CycleError as CycleError,
    EdgeKind as EdgeKind,
    Edges as Edges,
    EventGraph as EventGraph,
)
from .idle_threads import ThreadWaits as ThreadWaits, thread_waits as thread_waits
from .networkx_graphs import from_networkx as from_networkx, to_networkx as to_networkx
from .overheads import Overheads as Overheads, estimate_overheads as estimate_overheads
from .replay import Replay as Replay, replay_graph as replay_graph
from .windows import Window as Window, choose_window as choose_window, find_steps as find_steps
