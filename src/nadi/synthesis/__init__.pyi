"""What ``nadi.synthesis`` gives; each name is loaded when it is first used."""

from .column_traces import job_of_columns as job_of_columns
from .job_columns import (
    JobColumns as JobColumns,
    RankColumns as RankColumns,
    columns_of_job as columns_of_job,
)
from .learned_model import Template as Template, TraceModel as TraceModel
from .synthetic_jobs import JobWishes as JobWishes, synthetic_job as synthetic_job
