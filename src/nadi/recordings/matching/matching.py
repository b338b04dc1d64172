"""Match each operation of the device trace with its operation in the host trace.

Match operations of a device trace with a host trace of later steps of the same process.

Match operations of a host and a device trace by the order of their names alone.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from nadi.errors import PairError, Parameter
from nadi.recordings.dependencies.device_calls import find_rows
from nadi.recordings.matching.name_alignment_kernels import align
from nadi.recordings.step_marks import STEP_MARK
from nadi.trace.arrays import Ints, text_codes
from nadi.trace.issues import IssueLog
from nadi.trace.rows import number_rows
from nadi.trace.trace import Trace, names_of_both
from nadi.units import format_count, format_percent

_MOST_EDITS = 1_000
_THREAD = r"^\[pytorch\|profiler\|execution_(trace|graph)\|thread\]$"


def align_names(
    host: Trace, device: Trace, host_rows: Ints, device_rows: Ints, names: tuple[Ints, Ints]
) -> tuple[Ints, int]:
    """Pair operations of the same name, thread by thread, in the order of their starts.

    A host trace numbers its operations in this order. Threads are matched by their names too: the
    two threads with the most names in common are paired first, then the next two. Of several that
    have as many, those that begin first are.

    - ``host_rows``, ``device_rows``: int64, shape (host operations,) and (device operations,): the
      nodes to pair.
    - ``names``: int64, shape (host nodes,) and (device nodes,): equal numbers for equal names.
    - Returns host_row: int64, shape (device nodes,): the host node, or -1.
    - and num_spanned: Operations from the first pair to the last on each thread, in the file that
      has more of them there. Scattered accidental pairs are a small share of this number.
      Near-linear where the two are nearly equal.
    """
    ours = _host_sequences(host, host_rows)
    theirs = _device_sequences(device, device_rows)
    left = [np.ascontiguousarray(names[1][rows]) for rows in theirs]
    right = [np.ascontiguousarray(names[0][rows]) for rows in ours]
    host_row = np.full(device.nodes.height, -1, dtype=np.int64)
    num_spanned = 0
    for i, j, partner in _assign(left, right):
        paired = np.flatnonzero(partner >= 0)
        host_row[theirs[i][paired]] = ours[j][partner[paired]]
        if paired.size:
            num_spanned += max(int(np.ptp(paired)), int(np.ptp(partner[paired]))) + 1
    return host_row, num_spanned


def _assign(left: Sequence[Ints], right: Sequence[Ints]) -> list[tuple[int, int, Ints]]:
    """Choose pairs of sequences, those with the most in common first; each at most once.

    The number of common items in any order bounds the number of common items in order, so that few
    pairs have to be aligned.

    - Returns list of (number in left, number in right, partners as :func:`align` fills them)
    """
    bounds = common_counts(left, right)
    queue = [(-int(bounds[i, j]), i, j, False) for i, j in np.argwhere(bounds > 0).tolist()]
    heapq.heapify(queue)
    partners: dict[tuple[int, int], Ints] = {}
    chosen: list[tuple[int, int, Ints]] = []
    while queue:
        _, i, j, is_aligned = heapq.heappop(queue)
        if any(i == taken or j == used for taken, used, _ in chosen):
            continue
        if is_aligned:
            chosen.append((i, j, partners[i, j]))
            continue
        partner = np.full(left[i].size, -1, dtype=np.int64)
        num_pairs = align(left[i], right[j], _MOST_EDITS, partner)
        partners[i, j] = partner
        heapq.heappush(queue, (-num_pairs, i, j, True))
    return chosen


def common_counts(left: Sequence[Ints], right: Sequence[Ints]) -> Ints:
    """Count the common items of each two sequences, in any order; shape (left, right)."""
    every = np.concatenate([*left, *right, np.zeros(0, dtype=np.int64)])
    codes, _ = number_rows([every])
    ends = np.cumsum([part.size for part in (*left, *right)])[:-1]
    size = int(codes.max(initial=-1)) + 1
    counts = [np.bincount(part, minlength=size) for part in np.split(codes, ends)]
    common = np.zeros((len(left), len(right)), dtype=np.int64)
    for i in range(len(left)):
        for j in range(len(right)):
            common[i, j] = np.minimum(counts[i], counts[len(left) + j]).sum()
    return common


def _host_sequences(host: Trace, rows: Ints) -> list[Ints]:
    """Return the operations below each thread of the host trace, in the order of their ids."""
    is_thread = host.name_mask(_THREAD)
    # threads are nodes in the file: find the thread node above each node
    above = np.where(is_thread, np.arange(host.nodes.height), host.column("parent"))
    while ((higher := np.where(above >= 0, above[above], -1)) != above).any():
        above = higher
    return _by_thread(above[rows], host.column("id")[rows], rows)


def _device_sequences(device: Trace, rows: Ints) -> list[Ints]:
    """Return the operations of each thread in order of start; ties in the order of their ids."""
    rf_id, external_id = device.column("rf_id")[rows], device.column("external_id")[rows]
    by_id = rows[np.argsort(np.where(rf_id > 0, rf_id, external_id), kind="stable")]
    start, thread = device.column("start")[by_id], device.column("thread")[by_id]
    return _by_thread(thread, start, by_id)


def _by_thread(thread: Ints, key: Ints, rows: Ints) -> list[Ints]:
    """Split rows by thread, each in order of key; threads in order of their first."""
    order = np.lexsort((key, thread))
    ends = np.flatnonzero(np.diff(thread[order])) + 1
    parts = [part for part in np.split(order, ends) if part.size]
    return [rows[part] for part in sorted(parts, key=lambda part: int(key[part[0]]))]


def align_later_steps(
    host: Trace, device: Trace, host_rows: Ints, device_rows: Ints, names: tuple[Ints, Ints]
) -> Ints:
    """Pair operations of the same name, step by step, thread by thread, in order.

    The two steps with the most names in common are paired first; of several that have as many, the
    earliest. Each step of either trace has one partner at most. Threads of the two steps, and the
    operations of the two threads, are paired as :func:`align_names` does it. Any of gloo's threads
    may run a collective, so these are paired by their order in the step, as is what is left of a
    name of which either step has as many.

    - ``host_rows``, ``device_rows``: int64, shape (host operations,) and (device operations,): the
      nodes to pair.
    - ``names``: int64, shape (host nodes,) and (device nodes,): equal numbers for equal names.
    - Returns int64, shape (device nodes,): The host node, or -1.
    """
    theirs = _by_step(device_rows, device.column("start"), device.name_mask(STEP_MARK))
    ours = _by_step(host_rows, host.column("id"), host.name_mask(STEP_MARK))  # in order of start
    common = common_counts([names[1][rows] for rows in theirs], [names[0][rows] for rows in ours])
    of_gloo = [one.name_mask("^gloo:") for one in (host, device)]
    host_row = np.full(device.nodes.height, -1, dtype=np.int64)
    while common.size and common.max() > 0:
        i, j = np.unravel_index(np.argmax(common), common.shape)
        common[i, :] = common[:, j] = 0
        mine, other = ours[j][~of_gloo[0][ours[j]]], theirs[i][~of_gloo[1][theirs[i]]]
        found, _ = align_names(host, device, mine, other, names)
        host_row = np.maximum(host_row, found)
        left = ours[j][~np.isin(ours[j], found)], theirs[i][found[theirs[i]] < 0]
        _pair_rest(*left, host.column("id"), device.column("start"), names, host_row)
    return host_row


def _pair_rest(
    ours: Ints, theirs: Ints, ids: Ints, start: Ints, names: tuple[Ints, Ints], host_row: Ints
) -> None:
    """Pair nodes of any thread in order, of each name of which there are as many on either side."""
    ours, theirs = ours[np.argsort(ids[ours])], theirs[np.argsort(start[theirs], kind="stable")]
    for name in np.intersect1d(names[0][ours], names[1][theirs]).tolist():
        mine, other = ours[names[0][ours] == name], theirs[names[1][theirs] == name]
        if mine.size == other.size:
            host_row[other] = mine


def _by_step(rows: Ints, order: Ints, is_mark: np.ndarray) -> list[Ints]:
    """Split nodes at the marks of steps; what comes before the first is a part of its own."""
    step = np.searchsorted(np.sort(order[is_mark]), order[rows], side="right")
    by_step = np.argsort(step, kind="stable")
    ends = np.flatnonzero(np.diff(step[by_step])) + 1
    return np.split(rows[by_step], ends)


_Names = tuple[Ints, Ints]

MIN_EQUAL_NAMES = 0.95
_IDS = (("rf_id", "record function id"), ("external_id", "External id"))
_REMEDY = "give the host and the device trace of the same run"
_BY_NAMES = "order of names on each thread"
_BY_STEPS = "order of names in each step"


@dataclass(frozen=True)
class Match:
    """How the operations of a pair correspond."""

    host_row: Ints  # int64, shape (device nodes,): the host node that is the same operation, or -1
    key: str  # how they were matched: by an id that both files have, or by the order of names
    num_equal: int  # operations found in both files under one key and one name
    # operations with a key in the file that has fewer of them; if matched by names, at least the
    # number of operations between the first and the last match
    num_expected: int

    @property
    def rate(self) -> float:
        """Share of the expected operations that were found in both files; 0 to 1."""
        return self.num_equal / self.num_expected if self.num_expected else 0.0

    @property
    def is_enough(self) -> bool:
        """Whether enough operations match for the files to be of one run."""
        return self.rate >= MIN_EQUAL_NAMES

    def __str__(self) -> str:
        equal, expected = format_count(self.num_equal), format_count(self.num_expected)
        percent = format_percent(self.num_equal, self.num_expected)
        return f"{equal} of {expected} operations ({percent})"


def match_operations(host: Trace, device: Trace, *, force: bool = False) -> Match:
    """Match by an id, or by the order of names if the device trace has no matching id.

    Ids are the record function id and the External id, the one with the better rate. If the device
    trace has record function ids and they refer to other operations in the host trace, the two are
    not of one run. They are refused even if their names match: names cannot distinguish two runs
    of one program.

    - ``force``: Whether to accept the best match whatever its rate.
    - Raises PairError: Unless forced, if fewer than 95 % of the operations have the same name, or
      if record function ids contradict the names.
    """
    names = _name_codes(host, device)
    by_id = {key: _match_by_id(host, device, column, key, names) for column, key in _IDS}
    matches = [match for match in by_id.values() if match is not None]
    best = max(matches, key=lambda match: match.rate, default=None)
    if best is not None and best.is_enough:
        return best
    matches.append(_match_by_names(host, device, names))
    best = max(matches, key=lambda match: match.rate)
    contradicting = by_id[_IDS[0][1]]
    if force or (best.is_enough and contradicting is None) or device.is_part:
        return best
    raise _refusal(host, device, best, contradicting)


def match_later_steps(host: Trace, device: Trace, *, force: bool = False) -> Match | None:
    """Match by names, step by step, if the recorder says that the host trace is of later steps.

    Both traces are of one process, so they belong together whatever the rate.

    - Returns: None if the recorder does not say so.
    - Raises PairError: Unless forced, if they are of two processes.
    """
    if device.step_lengths is None or not device.step_lengths.host_is_later:
        return None
    if not force and min(host.process, device.process) >= 0 and host.process != device.process:
        where = f"{host.provenance.sources[0].path} with {device.provenance.sources[0].path}"
        raise PairError(
            where, f"the traces are of processes {host.process} and {device.process}",
            [f"{_REMEDY}, or link anyway: ", Parameter("force", True)],
        )  # fmt: skip
    names = _name_codes(host, device, but_numbers=True)
    host_rows = np.flatnonzero(host.category_mask("operator", "annotation"))
    device_rows = np.flatnonzero(device.category_mask("operator", "annotation"))
    host_row = align_later_steps(host, device, host_rows, device_rows, names)
    return Match(host_row, _BY_STEPS, int((host_row >= 0).sum()), device_rows.size)


def with_host_ids(host: Trace, device: Trace, match: Match) -> Trace:
    """Give operations of a device trace record function ids of their host nodes, if any.

    Without an observer PyTorch gives operations no such ids, by which work on threads of gloo finds
    the call that asked for it, and ranks the order of their collectives. Steps may have partners in
    another order than theirs, so all ids of a step are above those of the steps before it.
    """
    start, ids = device.column("start"), host.column("rf_id")[match.host_row]
    step = np.searchsorted(np.sort(start[device.name_mask(STEP_MARK)]), start, side="right")
    known = (match.host_row >= 0) & (ids > 0)
    ids = np.where(known, ids + step * _num_ids(host), -1)
    return device.changed(nodes=device.nodes.with_columns(rf_id=ids))


def match_by_host_ids(host: Trace, device: Trace, match: Match) -> Match:
    """Return a match for a device trace in another order, that was made ``with_host_ids``."""
    rows = np.flatnonzero(host.column("rf_id") > 0)
    wanted = device.column("rf_id")
    wanted = np.where(wanted > 0, wanted % _num_ids(host), -1)
    return replace(match, host_row=find_rows(host.column("rf_id")[rows], rows, wanted))


def _num_ids(host: Trace) -> int:
    return int(host.column("rf_id").max(initial=0)) + 1


def report_match(host: Trace, device: Trace, match: Match, log: IssueLog) -> None:
    """Report how the operations were matched, and doubts about the match."""
    every = match.num_equal == match.num_expected
    log.add(
        "link.matched", "info", max(match.num_equal, 1),
        f"host and device matched by {match.key}: {'all operations' if every else match}",
    )  # fmt: skip
    is_later = match.key == _BY_STEPS
    log.add(
        "link.later-steps", "info", int(is_later),
        "the host trace is of later steps, in which the execution trace observer ran; times are of "
        "steps without it",
    )  # fmt: skip
    log.add(
        "link.forced", "warning", int(not match.is_enough and not device.is_part and not is_later),
        f"by {match.key}, only {match} have the same name in both files",
        "linked because force was given; results that combine both files are unreliable",
    )  # fmt: skip
    log.add(
        "link.process", "warning", int(host.process != device.process and host.process >= 0),
        f"the host trace is of process {host.process}, the device trace of {device.process}",
        "give the host and the device trace of the same run",
    )  # fmt: skip


def _refusal(host: Trace, device: Trace, best: Match, by_id: Match | None) -> PairError:
    where = f"{host.provenance.sources[0].path} with {device.provenance.sources[0].path}"
    if best.num_expected == 0:
        return PairError(
            where, "one of them has no operators, so nothing can be matched",
            "record both in one run, with the profiler and ExecutionTraceObserver on together",
        )  # fmt: skip
    shown = by_id or best
    what = f"by {shown.key}, only {shown} have the same name in both files"
    if best.is_enough and best is not shown:
        return PairError(
            where, f"{what}, although by {best.key} {best} match: the files are of two runs",
            [f"{_REMEDY}, or link by names: ", Parameter("force", True)],
        )  # fmt: skip
    return PairError(
        where, f"{what}; linking needs at least {MIN_EQUAL_NAMES:.0%}",
        [f"{_REMEDY}, or link anyway: ", Parameter("force", True)],
    )  # fmt: skip


def _name_codes(host: Trace, device: Trace, *, but_numbers: bool = False) -> _Names:
    """Enumerate the names, equal names alike; int64, shape (host nodes,) and (device nodes,).

    Names of annotations, such as ``ProfilerStep#3``, may be taken alike if they differ in numbers.
    """
    if not but_numbers:
        return names_of_both(host, device)[:2]
    texts = pl.concat([host.nodes["name"], device.nodes["name"]]).cast(pl.String)
    is_mark = np.concatenate([one.category_mask("annotation") for one in (host, device)])
    both = texts.str.replace_all(r"\d+", "0").zip_with(pl.Series(is_mark), texts)
    codes = text_codes(both)
    return codes[: host.nodes.height], codes[host.nodes.height :]


def _match_by_id(host: Trace, device: Trace, column: str, key: str, names: _Names) -> Match | None:
    """Match by the host's record function id; None if a file has no ids."""
    host_ids = host.column("rf_id")
    device_ids = np.where(device.category_mask("operator", "annotation"), device.column(column), -1)
    with_id = np.flatnonzero(host_ids > 0)
    if with_id.size == 0 or not (device_ids > 0).any():
        return None
    by_id = with_id[np.argsort(host_ids[with_id], kind="stable")]
    at = np.minimum(np.searchsorted(host_ids[by_id], device_ids), by_id.size - 1)
    found = (host_ids[by_id[at]] == device_ids) & (device_ids > 0)
    host_row = np.where(found, by_id[at], -1)

    rows = np.flatnonzero(found)
    # several device events may have the same id; each host operation is matched once
    first = np.full(host.nodes.height, -1, dtype=np.int64)
    first[host_row[rows[::-1]]] = rows[::-1]
    repeated = first[host_row[rows]] != rows
    host_row[rows[repeated]] = -1
    rows = rows[~repeated]

    equal = names[0][host_row[rows]] == names[1][rows]
    host_row[rows[~equal]] = -1
    in_order = np.sort(device_ids[device_ids > 0])
    num_device = 1 + int(np.count_nonzero(np.diff(in_order)))
    return Match(host_row, key, int(equal.sum()), min(with_id.size, num_device))


def _match_by_names(host: Trace, device: Trace, names: _Names) -> Match:
    host_rows = np.flatnonzero(host.category_mask("operator", "annotation"))
    device_rows = np.flatnonzero(device.category_mask("operator", "annotation"))
    host_row, num_spanned = align_names(host, device, host_rows, device_rows, names)
    num_expected = max(num_spanned, min(host_rows.size, device_rows.size))
    return Match(host_row, _BY_NAMES, int((host_row >= 0).sum()), num_expected)
