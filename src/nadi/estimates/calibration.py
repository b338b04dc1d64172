"""What was measured on a machine, for estimates: kernels of recordings, and collectives."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from nadi.recordings.jobs import read_job
from nadi.systems.library import has_measured_collectives, read_measured_collectives
from nadi.systems.nccl.measured import MeasuredCollective
from nadi.systems.prices.learned_prices import LearnedPrices, learn_prices
from nadi.trace.trace import Job, Trace


class Calibration(NamedTuple):
    """What was measured on the machine that an estimate is of.

    Attributes
    ----------
    prices
        Of kernels; None for the device's curves alone.
    measured
        Tables of collectives.
    """

    prices: LearnedPrices | None
    measured: tuple[MeasuredCollective, ...]


def read_calibration(paths: Sequence[Path | str]) -> Calibration:
    """Read recordings of the machine's device, and measurements of its collectives.

    Parameters
    ----------
    paths
        Recordings as :func:`nadi.simulate` takes them; outputs of nccl-tests and files or folders
        of NCCL's Inspector, as :func:`nadi.systems.read_measured_collectives` does.

    Raises
    ------
    InputError
        If one cannot be read, or no operation of the recordings has a time and states its work.
    """
    collectives = [path for path in paths if has_measured_collectives(path)]
    traces: list[Trace] = []
    for path in paths:
        if path not in collectives:
            job = read_job(path)
            traces += job.traces if isinstance(job, Job) else job
    return Calibration(
        learn_prices(traces) if traces else None, read_measured_collectives(collectives)
    )
