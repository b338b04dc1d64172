"""What ``nadi.bottlenecks`` gives; each name is loaded when it is first used."""

from .changes.what_if import ask as ask, reorder_job as reorder_job
from .checks.budgets import (
    Budget as Budget,
    CheckedBudget as CheckedBudget,
    CheckedRuns as CheckedRuns,
    check as check,
)
from .differences.compared_runs import (
    ComparedRuns as ComparedRuns,
    RunSide as RunSide,
    Speed as Speed,
    compare_runs as compare_runs,
    diff as diff,
)
from .differences.predictions import (
    ComparedPrediction as ComparedPrediction,
    SavedPrediction as SavedPrediction,
    compare_prediction as compare_prediction,
    read_prediction as read_prediction,
)
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
from .steps.recorded_jobs import on_system as on_system, run as run
from .steps.run import Answers as Answers, Prediction as Prediction, Run as Run
from .steps.run_report import summarize as summarize, write_results as write_results
from .steps.verdict import (
    LateRank as LateRank,
    Leading as Leading,
    RepeatedLateness as RepeatedLateness,
    Verdict as Verdict,
    judge as judge,
    lateness_over_repeats as lateness_over_repeats,
)
from .waiting.bottlenecks import (
    Bottleneck as Bottleneck,
    WaitGraph as WaitGraph,
    Waits as Waits,
    WithoutWaits as WithoutWaits,
    find_knots as find_knots,
    find_waits as find_waits,
    wait_graph as wait_graph,
    waits as waits,
)
from .waiting.recorded_timelines import switch_timelines as switch_timelines
from .waiting.timelines import (
    Actor as Actor,
    SegmentKind as SegmentKind,
    Segments as Segments,
    Timelines as Timelines,
    make_timelines as make_timelines,
)
