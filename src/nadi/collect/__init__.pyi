"""What ``nadi.collect`` gives; each name is loaded when it is first used."""

from .collected_runs import (
    Collected as Collected,
    CollectOptions as CollectOptions,
    collect as collect,
)
from .fake_groups import GroupFamily as GroupFamily
from .fake_job import (
    FakeJob as FakeJob,
    FakeOptions as FakeOptions,
    RecordedRank as RecordedRank,
    record_fake_job as record_fake_job,
)
from .fake_rank import FakeRecording as FakeRecording, fake_recording as fake_recording
from .fake_trace import RankSummary as RankSummary
from .recorder import Recording as Recording, record as record
