"""What ``nadi.placement`` gives; each name is loaded when it is first used."""

from .placed_tensors import (
    JobTensors as JobTensors,
    TraceTensors as TraceTensors,
    tensors_of_job as tensors_of_job,
)
