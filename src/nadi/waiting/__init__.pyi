"""What ``nadi.waiting`` gives; each name is loaded when it is first used."""

from .bottlenecks import (
    Bottleneck as Bottleneck,
    Waits as Waits,
    WithoutWaits as WithoutWaits,
    find_waits as find_waits,
)
from .thread_switches import switch_timelines as switch_timelines
from .timelines import (
    Actor as Actor,
    SegmentKind as SegmentKind,
    Segments as Segments,
    Timelines as Timelines,
    make_timelines as make_timelines,
)
from .wait_for_graph import (
    WaitGraph as WaitGraph,
    find_knots as find_knots,
    wait_graph as wait_graph,
)
