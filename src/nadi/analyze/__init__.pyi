"""What ``nadi.analyze`` gives; each name is loaded when it is first used."""

from .analysis_registry import (
    ANALYSES as ANALYSES,
    Analysis as Analysis,
    analysis_named as analysis_named,
)
from .compared_runs import (
    ComparedRuns as ComparedRuns,
    RunSide as RunSide,
    compare_runs as compare_runs,
)
from .critical_path_rules import critical_path as critical_path
from .explained_time import Explained as Explained, explain_time as explain_time
from .hta.hta_path import HtaCriticalPath as HtaCriticalPath, hta_critical_path as hta_critical_path
from .hta.overlay import hta_overlay as hta_overlay
from .hta_rank_events import hta_events as hta_events
from .module_times import ModuleTimes as ModuleTimes, time_by_module as time_by_module
from .near_critical import (
    NearCriticalPath as NearCriticalPath,
    near_critical_paths as near_critical_paths,
    slack_histogram as slack_histogram,
)
from .rank_activity import (
    RankCommunication as RankCommunication,
    communication_by_rank as communication_by_rank,
)
from .rank_excess import Excess as Excess, ExcessPart as ExcessPart, find_excess as find_excess
from .recorded.annotation_times import (
    annotation_kernels as annotation_kernels,
    annotation_times as annotation_times,
)
from .recorded.call_stacks import call_stacks as call_stacks, flame_graph as flame_graph
from .recorded.collective_times import (
    collective_list as collective_list,
    collective_skew as collective_skew,
)
from .recorded.device_counters import device_counters as device_counters
from .recorded.graph_analyses import (
    late_collectives as late_collectives,
    module_table as module_table,
    step_table as step_table,
    straggler_ranks as straggler_ranks,
)
from .recorded.idle_times import idle_times as idle_times
from .recorded.kernel_breakdown import kernel_types as kernel_types, top_kernels as top_kernels
from .recorded.launch_statistics import launch_summary as launch_summary, launches as launches
from .recorded.memory_bandwidth import (
    memory_bandwidth as memory_bandwidth,
    memory_bandwidth_series as memory_bandwidth_series,
)
from .recorded.memory_timeline import (
    memory_peaks as memory_peaks,
    memory_timeline as memory_timeline,
)
from .recorded.operator_launches import (
    kernel_sequences as kernel_sequences,
    operator_delays as operator_delays,
)
from .recorded.operator_rates import operator_rates as operator_rates
from .recorded.queue_lengths import (
    full_queues as full_queues,
    queue_lengths as queue_lengths,
    queue_summary as queue_summary,
)
from .recorded.rank_events import RankEvents as RankEvents, events_of as events_of
from .recorded.temporal_breakdown import (
    communication_overlap as communication_overlap,
    temporal_breakdown as temporal_breakdown,
)
from .run_speeds import Speed as Speed
from .straggler_test import (
    RepeatedLateness as RepeatedLateness,
    lateness_over_repeats as lateness_over_repeats,
)
from .stragglers import Stragglers as Stragglers, find_stragglers as find_stragglers
from .unexplained_time import (
    UnexplainedPath as UnexplainedPath,
    unexplained_path as unexplained_path,
)
from .verdict import (
    LateRank as LateRank,
    Leading as Leading,
    Verdict as Verdict,
    judge as judge,
)
