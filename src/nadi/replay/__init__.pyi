"""What ``nadi.replay`` gives; each name is loaded when it is first used."""

from .operator_trials import Replayable as Replayable, Skipped as Skipped
from .rank_replays import RankReplay as RankReplay, replay_ranks as replay_ranks
from .recorded_calls import RecordedCall as RecordedCall, RecordedCalls as RecordedCalls
from .replay_comparison import (
    ReplayComparison as ReplayComparison,
    compare_replay as compare_replay,
)
from .replay_plan import ReplayPlan as ReplayPlan, plan_replay as plan_replay
from .replay_run import (
    OperatorChoice as OperatorChoice,
    ReplayOptions as ReplayOptions,
    ReplayTimes as ReplayTimes,
)
from .replay_source import ReplaySource as ReplaySource, replay_source as replay_source
