"""What ``nadi.bottlenecks`` gives; each name is loaded when it is first used."""

from .changes.what_if import ask as ask, reorder_job as reorder_job
from .differences.compared_runs import (
    ComparedRuns as ComparedRuns,
    RunSide as RunSide,
    compare_runs as compare_runs,
)
from .differences.predictions import (
    ComparedPrediction as ComparedPrediction,
    compare_prediction as compare_prediction,
)
from .differences.recorded_diffs import diff as diff
from .differences.report_inputs import read_prediction as read_prediction
from .differences.run_speeds import Speed as Speed
from .differences.saved_predictions import SavedPrediction as SavedPrediction
from .hangs.hangs import (
    BlockedGroup as BlockedGroup,
    Hang as Hang,
    RankPlace as RankPlace,
    find_hang as find_hang,
)
from .pages.result_pages import (
    write_answers_page as write_answers_page,
    write_run_page as write_run_page,
)
from .paths.critical_path import critical_path as critical_path
from .steps.predictions import on_system as on_system
from .steps.recorded_jobs import run as run
from .steps.run import Answers as Answers, Prediction as Prediction, Run as Run
from .steps.run_report import summarize as summarize, write_results as write_results
from .steps.straggler_test import (
    RepeatedLateness as RepeatedLateness,
    lateness_over_repeats as lateness_over_repeats,
)
from .steps.verdict import (
    LateRank as LateRank,
    Leading as Leading,
    Verdict as Verdict,
    judge as judge,
)
from .waiting.bottlenecks import (
    Bottleneck as Bottleneck,
    Waits as Waits,
    WithoutWaits as WithoutWaits,
    find_waits as find_waits,
)
from .waiting.thread_switches import switch_timelines as switch_timelines
from .waiting.timelines import (
    Actor as Actor,
    SegmentKind as SegmentKind,
    Segments as Segments,
    Timelines as Timelines,
    make_timelines as make_timelines,
)
from .waiting.wait_for_graph import (
    WaitGraph as WaitGraph,
    find_knots as find_knots,
    wait_graph as wait_graph,
)
from .waiting.waiting_jobs import waits as waits
