"""What ``nadi.graph`` gives; each name is loaded when it is first used."""

from .contention import (
    Contention as Contention,
    Slowdown as Slowdown,
    learn_contention as learn_contention,
    learned_ratio as learned_ratio,
)
from .critical_paths import CriticalPath as CriticalPath
from .drawing import DrawnPart as DrawnPart, draw_graph as draw_graph
from .edges.job_graph import build_graph as build_graph
from .event_graph import (
    CycleError as CycleError,
    EdgeKind as EdgeKind,
    Edges as Edges,
    EventGraph as EventGraph,
)
from .module_times import ModuleTimes as ModuleTimes, time_by_module as time_by_module
from .near_critical import (
    NearCriticalPath as NearCriticalPath,
    near_critical_paths as near_critical_paths,
    slack_histogram as slack_histogram,
)
from .networkx_graphs import from_networkx as from_networkx, to_networkx as to_networkx
from .overheads import Overheads as Overheads, estimate_overheads as estimate_overheads
from .rank_excess import Excess as Excess, ExcessPart as ExcessPart, find_excess as find_excess
from .replay import Replay as Replay, replay_graph as replay_graph
from .stragglers import Stragglers as Stragglers, find_stragglers as find_stragglers
from .time_parts import (
    RankCommunication as RankCommunication,
    communication_by_rank as communication_by_rank,
)
from .timeline.schedule_timeline import (
    TimelinePart as TimelinePart,
    draw_schedule as draw_schedule,
    write_timeline as write_timeline,
    write_timelines as write_timelines,
)
from .unexplained import (
    Explained as Explained,
    ThreadWaits as ThreadWaits,
    UnexplainedPath as UnexplainedPath,
    explain_time as explain_time,
    thread_waits as thread_waits,
    unexplained_path as unexplained_path,
)
from .windows import Window as Window, choose_window as choose_window, find_steps as find_steps
