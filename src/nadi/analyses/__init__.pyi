"""What ``nadi.analyses`` gives; each name is loaded when it is first used."""

from .analyses import analyze as analyze, analyze_all as analyze_all
from .hta.hta_path import HtaCriticalPath as HtaCriticalPath, hta_critical_path as hta_critical_path
from .hta.overlay import hta_overlay as hta_overlay
from .recorded.breakdown import (
    communication_overlap as communication_overlap,
    idle_times as idle_times,
    temporal_breakdown as temporal_breakdown,
)
from .recorded.call_stacks import call_stacks as call_stacks, flame_graph as flame_graph
from .recorded.collectives import (
    collective_list as collective_list,
    collective_skew as collective_skew,
)
from .recorded.compiled import compiled_kernels as compiled_kernels
from .recorded.events import (
    RankEvents as RankEvents,
    events_of as events_of,
    hta_events as hta_events,
)
from .recorded.experts import expert_imbalance as expert_imbalance
from .recorded.from_graph import (
    kernel_contention as kernel_contention,
    late_collectives as late_collectives,
    module_table as module_table,
    step_table as step_table,
    straggler_ranks as straggler_ranks,
)
from .recorded.kernels import (
    annotation_kernels as annotation_kernels,
    annotation_times as annotation_times,
    device_counters as device_counters,
    kernel_types as kernel_types,
    top_kernels as top_kernels,
)
from .recorded.launches import (
    full_queues as full_queues,
    kernel_sequences as kernel_sequences,
    launch_summary as launch_summary,
    launches as launches,
    operator_delays as operator_delays,
    queue_lengths as queue_lengths,
    queue_summary as queue_summary,
)
from .recorded.memory_timeline import (
    memory_holders as memory_holders,
    memory_peaks as memory_peaks,
    memory_segments as memory_segments,
    memory_timeline as memory_timeline,
)
from .recorded.operation_tables import (
    OperationTable as OperationTable,
    operation_table as operation_table,
)
from .recorded.operators import operator_times as operator_times
from .recorded.over_time import (
    memory_bandwidth as memory_bandwidth,
    memory_bandwidth_series as memory_bandwidth_series,
)
from .recorded.rates import operator_rates as operator_rates
from .recorded.slowdowns import ideal_timeline as ideal_timeline, slowdowns as slowdowns
from .registry import ANALYSES as ANALYSES, Analysis as Analysis, analysis_named as analysis_named
