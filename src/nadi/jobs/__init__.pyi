"""What ``nadi.jobs`` gives; each name is loaded when it is first used."""

from .folded.fewer_ranks import (
    ScaledDown as ScaledDown,
    scale_down as scale_down,
    write_scaled as write_scaled,
)
from .folded.fold import fold as fold, unfold as unfold
from .scaled.scale import ScaledStep as ScaledStep, scale as scale, scaled_step as scaled_step
from .scaled_classes import ScaledJob as ScaledJob, Wanted as Wanted, scale_job as scale_job
