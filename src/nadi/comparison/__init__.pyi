"""What ``nadi.comparison`` gives; each name is loaded when it is first used."""

from .independent_sample import independent_sample as independent_sample
from .job_measures import (
    JobMeasures as JobMeasures,
    distances_of as distances_of,
    measures_of as measures_of,
)
