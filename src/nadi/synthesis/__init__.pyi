"""What ``nadi.synthesis`` gives; each name is loaded when it is first used."""

from .column_traces import job_of_columns as job_of_columns
from .job_columns import (
    JobColumns as JobColumns,
    RankColumns as RankColumns,
    columns_of_job as columns_of_job,
)
