"""The events of a rank as HTA's parser has them, for the analyses of recordings."""

from collections.abc import Sequence

import numpy as np

from nadi.analyses.hta.recorded_fields import parse_events
from nadi.analyses.recorded.events import RankEvents, kernel_type_codes
from nadi.errors import checked
from nadi.trace.schema import DEVICE_WORK
from nadi.trace.trace import Trace


@checked
def hta_events(
    traces: Sequence[Trace], at: int = 0, *, include_last_step: bool = False
) -> RankEvents:
    """Return the events of one rank with HTA's times: whole microseconds, without the last step.

    The analyses of recordings then come to HTA's figures: in them alone Nadi's differ where both
    are right. Times begin at the earliest event of any rank.

    Parameters
    ----------
    traces, at, include_last_step
        As in :func:`nadi.analyses.hta.recorded_fields.parse_events`.

    Raises
    ------
    InputError
        If a trace has no events.
    """
    events = parse_events(traces, at, include_last_step=include_last_step)
    index = events["index"].to_numpy()
    row_of = np.full(int(index.max(initial=-1)) + 2, -1, dtype=np.int64)
    row_of[index] = np.arange(index.size)
    partner = events["partner"].to_numpy()
    on_device = events["category"].is_in(DEVICE_WORK).to_numpy()
    table = events.select(
        "name", "category", "start", "duration", "thread", device="process", stream="stream",
        correlation="correlation", index="index",
    )  # fmt: skip
    work = table.filter(on_device)
    return RankEvents(
        traces[at].rank, table,
        np.where(on_device & (partner > 0), row_of[np.maximum(partner, -1)], -1),
        kernel_type_codes(work["name"], work["category"]), traces[at], events["node"].to_numpy(),
    )  # fmt: skip
