"""Whether the traces of ranks belong to one job: they state one world size, and overlap in time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from nadi.errors import PairError
from nadi.trace.issues import IssueLog
from nadi.trace.trace import Trace
from nadi.units import format_ns

_TOLD = 4  # files or ranks
_ONE_RUN = "give the recordings of one run; nadi diff compares two runs"


def common_world_size(traces: Sequence[Trace], log: IssueLog) -> int:
    """Return the world size that all traces state, or 1 if none does.

    Records ranks that are outside it and in no larger group.

    - Raises PairError if traces state different sizes.
    """
    refuse_other_sizes((_path(trace), trace.rank, trace.world_size) for trace in traces)
    size = max((trace.world_size for trace in traces), default=-1)
    outside = [trace.rank for trace in traces if trace.rank >= size and not _is_member(trace)]
    log.add(
        "job.world-size", "warning", len(outside) if size > 0 else 0,
        f"ranks are outside the world size {size:,} that traces state: {outside[:_TOLD]}",
        "give files of one job only",
    )  # fmt: skip
    return max(size, 1)


def refuse_other_sizes(recordings: Iterable[tuple[str, int, int]]) -> None:
    """Raise PairError if recordings state different world sizes.

    - ``recordings``: Path, rank and world size of each; a size that is not above 0 is not stated.
    """
    stating: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for path, rank, size in recordings:
        if size > 0:
            stating[size].append((path, rank))
    if len(stating) > 1:
        said = (f"{_ranks(r for _, r in same)} of {n:,}" for n, same in sorted(stating.items()))
        raise PairError(
            ", ".join(same[0][0] for _, same in sorted(stating.items())[:_TOLD]),
            f"the traces state different world sizes, and are of different jobs: {', '.join(said)}",
            _ONE_RUN,
        )


def refuse_apart(traces: Sequence[Trace]) -> None:
    """Raise PairError if some ranks end before all others begin, on clocks that are aligned.

    Ranks of one job run at the same time. Clocks that merely disagree are aligned by collectives;
    where there are none, ranks that lie apart say nothing about each other.
    """
    spans = []
    for trace in traces:
        start = trace.column("start")
        end = (start + trace.column("duration"))[start >= 0]
        if end.size:
            spans.append((int(start[start >= 0].min()), int(end.max()), trace))
    spans.sort(key=lambda span: span[:2])
    latest = spans[0] if spans else None
    for number, span in enumerate(spans):
        if latest and span[0] > latest[1]:
            before = _ranks(trace.rank for *_, trace in spans[:number])
            raise PairError(
                f"{_path(latest[2])}, {_path(span[2])}",
                f"do not overlap in time: {_ranks([span[2].rank])} begins "
                f"{format_ns(span[0] - latest[1])} after {before} ended",
                _ONE_RUN,
            )
        latest = max(latest or span, span, key=lambda one: one[1])


def _is_member(trace: Trace) -> bool:
    return any(trace.rank in ranks for ranks in trace.groups["ranks"].to_list())


def _ranks(ranks: Iterable[int]) -> str:
    each = list(ranks)
    told = ", ".join(map(str, each[:_TOLD]))
    more = f" and {len(each) - _TOLD} more" if len(each) > _TOLD else ""
    return f"rank{'s' if len(each) > 1 else ''} {told}{more}"


def _path(trace: Trace) -> str:
    sources = trace.provenance.sources
    return sources[-1].path if sources else f"rank {trace.rank}"
