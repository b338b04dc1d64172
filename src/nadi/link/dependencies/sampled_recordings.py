"""Whether a recording holds all that ran, or only a sample of it."""

from __future__ import annotations

import numpy as np

from nadi.model.issues import IssueLog
from nadi.model.trace import Trace

__all__ = ["report_sampling"]

_FEWEST = 100
_USUAL_STEP = 1  # from the id of an operation to that of the next


def report_sampling(device: Trace, log: IssueLog) -> None:
    """Say so if most operations of a device trace are missing between those that are there.

    A profiler counts operations up in External id. Where every second one or more is
    not in the file, somebody thinned it out, and what waited for what cannot be seen.
    """
    of_host = device.category_mask("operator", "annotation")
    ids = np.sort(device.column("external_id")[of_host & (device.column("external_id") > 0)])
    ids = ids[np.diff(ids, prepend=0) > 0]  # sorting what nearly is costs less than numpy.unique
    sampled = ids.size >= _FEWEST and float(np.median(np.diff(ids))) > _USUAL_STEP
    missing = int(ids[-1] - ids[0] + 1 - ids.size) if sampled else 0
    log.add(
        "link.sampled", "warning", missing,
        "operations that the profiler counted are not in the device trace: it was thinned out",
        "answers from it are wrong by what is missing; take the whole recording",
    )  # fmt: skip
