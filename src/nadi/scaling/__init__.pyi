"""What ``nadi.scaling`` gives; each name is loaded when it is first used."""

from .scaled_classes import ScaledJob as ScaledJob, Wanted as Wanted, scale_job as scale_job
