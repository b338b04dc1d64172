"""Detect recordings that contain only a sample of the operations."""

from __future__ import annotations

import numpy as np

from nadi.trace.issues import IssueLog
from nadi.trace.trace import Trace

__all__ = ["report_sampling"]

_FEWEST = 100
_USUAL_STEP = 1  # difference between the ids of consecutive operations


def report_sampling(device: Trace, log: IssueLog) -> None:
    """Report a device trace from which most operations have been removed.

    The profiler numbers operations consecutively in External id. If at least every second number
    is missing, the file was sampled, and dependencies between operations are lost.
    """
    of_host = device.category_mask("operator", "annotation")
    ids = np.sort(device.column("external_id")[of_host & (device.column("external_id") > 0)])
    ids = ids[np.diff(ids, prepend=0) > 0]  # sorting nearly sorted ids costs less than numpy.unique
    sampled = ids.size >= _FEWEST and float(np.median(np.diff(ids))) > _USUAL_STEP
    missing = int(ids[-1] - ids[0] + 1 - ids.size) if sampled else 0
    log.add(
        "link.sampled", "warning", missing,
        "operations are missing from the device trace: it was sampled or filtered after recording",
        "results lack the time and dependencies of these operations; use the complete recording",
    )  # fmt: skip
