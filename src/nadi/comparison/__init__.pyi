"""What ``nadi.comparison`` gives; each name is loaded when it is first used."""

from .job_measures import (
    JobMeasures as JobMeasures,
    distances_of as distances_of,
    measures_of as measures_of,
)
from .shuffled_columns import independent_sample as independent_sample
