"""What ``nadi.pytorch`` gives; each name is loaded when it is first used."""

from .collecting.collected_runs import (
    CheckedRecordings as CheckedRecordings,
    Collected as Collected,
    CollectOptions as CollectOptions,
    check_recordings as check_recordings,
    collect as collect,
)
from .collecting.recorder import (
    Recording as Recording,
    record as record,
    trace_handler as trace_handler,
)
from .fake.fake_job import (
    FakeJob as FakeJob,
    FakeOptions as FakeOptions,
    RecordedRank as RecordedRank,
    record_fake_job as record_fake_job,
)
from .fake.fake_trace import (
    FakeRecording as FakeRecording,
    RankSummary as RankSummary,
    fake_recording as fake_recording,
)
from .fake.operation_log import GroupFamily as GroupFamily
from .rerunning.operator_trials import Replayable as Replayable, Skipped as Skipped
from .rerunning.recorded_calls import RecordedCall as RecordedCall, RecordedCalls as RecordedCalls
from .rerunning.replay import (
    RankReplay as RankReplay,
    ReplayComparison as ReplayComparison,
    ReplayedJob as ReplayedJob,
    compare_replay as compare_replay,
    replay as replay,
    replay_ranks as replay_ranks,
)
from .rerunning.replay_plan import ReplayPlan as ReplayPlan, plan_replay as plan_replay
from .rerunning.replay_run import (
    OperatorChoice as OperatorChoice,
    ReplayOptions as ReplayOptions,
    ReplayTimes as ReplayTimes,
)
from .rerunning.replay_source import ReplaySource as ReplaySource, replay_source as replay_source
