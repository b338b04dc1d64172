"""Join a host and a device trace to one trace: times from one, ids and parents from the other.

The clock of a device against its host's: bounded by launches and waits, corrected if wrong.

No kernel starts before its launch call, and no call that waits for a kernel returns before its
end. Profilers convert the times of devices to the host's clock, and on some devices miss it by
microseconds: a kernel then ends after the call that waited for it.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.errors import PairError, Parameter, check_kind, checked
from nadi.files.remedies import OF_PYTORCH, remedies_of
from nadi.recordings.communication.process_groups import group_order, transfers_beside_threads
from nadi.recordings.communication.rank_communication import communication
from nadi.recordings.dependencies.all_dependencies import find_deps
from nadi.recordings.dependencies.device_calls import find_rows, launcher_rows, stream_work
from nadi.recordings.dependencies.operator_nesting import nest
from nadi.recordings.dependencies.tensor_dependencies import find_tensor_deps
from nadi.recordings.dependencies.thread_handovers import waiting_threads
from nadi.recordings.matching.matching import (
    Match,
    match_by_host_ids,
    match_later_steps,
    match_operations,
    report_match,
    with_host_ids,
)
from nadi.recordings.step_marks import mend_marks
from nadi.trace.arrays import Ints
from nadi.trace.attributes import JoinedAttributes, Part
from nadi.trace.categories import COPY_TO_PAGEABLE, pattern
from nadi.trace.issues import IssueLog
from nadi.trace.rows import nearest
from nadi.trace.schema import (
    COMM_TYPES,
    DEPS,
    DEVICE_WORK,
    GROUPS,
    ISSUES,
    LABELS,
    NODE_KINDS,
    NODES,
    ON_DEVICE,
)
from nadi.trace.trace import Provenance, Trace, names_of_both
from nadi.units import format_ns
from nadi.version import __version__

_METADATA = NODE_KINDS.index("METADATA")
_NONE = COMM_TYPES.index("none")
_RARE = 100  # launches for one that precedes its call, which then is an error of the recording


class DeviceClock(NamedTuple):
    """How far the clock of a device is ahead of the host's, in ns."""

    device: int  # its number in the recording
    # int64, ascending: for each wait, how long after the return of the call its work ends. The
    # device's clock is ahead by at least the largest.
    late: Ints
    # int64, ascending: for each launch, the time from the call's start to the work's. The clock is
    # ahead by at most the smallest.
    early: Ints

    @property
    def shift(self) -> int:
        """The least correction of the device's times that agrees with the bounds; 0 if none does.

        A wait that contradicts all launches is not used, nor a launch that contradicts all waits
        or is one of few.
        """
        if self.early.size == 0:
            return 0
        low = self.late[self.late <= self.early[0]]
        if low.size and low[-1] > 0:
            return -int(low[-1])
        least = int(self.late[-1]) if self.late.size else np.iinfo(np.int64).min
        high = self.early[self.early >= least]
        if (self.early < 0).sum() * _RARE >= self.early.size and high.size and high[0] < 0:
            return -int(high[0])
        return 0


def align_device(device: Trace, log: IssueLog) -> tuple[Trace, Ints]:
    """Correct the clocks of a rank's devices where they contradict launches and waits.

    - ``device``: A Kineto trace as read.
    - ``log``: Records what was corrected.
    - Returns Trace: The same, or with the times of device work moved, in order of start.
    - and int64, shape (nodes,): The launch calls of its nodes, as of ``launcher_rows``.
    """
    launcher = launcher_rows(device)
    clocks = [clock for clock in bound_device_clocks(device, launcher) if clock.shift]
    if not clocks or device.is_part:
        return device, launcher
    start, number = device.column("start").copy(), device.column("device")
    on_device = device.category_mask(*ON_DEVICE) & (start >= 0)
    for clock in clocks:
        mine = on_device & (number == clock.device)
        start[mine] += clock.shift
        moved = f"{format_ns(abs(clock.shift))} {'earlier' if clock.shift < 0 else 'later'}"
        log.add(
            "link.device-clock", "info", int(mine.sum()),
            f"events of device {clock.device} are moved {moved}: they ended after calls that "
            "waited for them, or started before their launch",
            "the clocks of host and device disagree; use a newer profiler or driver",
        )  # fmt: skip
    moved_trace, order = _in_order(device, start)
    new_row = np.empty_like(order)
    new_row[order] = np.arange(order.size)
    caller = launcher[order]
    return moved_trace, np.where(caller >= 0, new_row[caller], -1)


def bound_device_clocks(device: Trace, launcher: Ints) -> list[DeviceClock]:
    """Measure by how much device work seems to be late for waits, and early for launches.

    - ``device``: A Kineto trace as read, or a linked trace.
    - ``launcher``: int64, shape (nodes,), from
      :func:`nadi.recordings.dependencies.device_calls.launcher_rows`.
    - Returns list of DeviceClock: One per device with launched work. O(nodes + calls * streams).
    """
    rows = np.flatnonzero(device.category_mask(*DEVICE_WORK) & (launcher >= 0))
    number, start = device.column("device"), device.column("start")
    end = start + device.column("duration")
    copying = rows[device.category_mask("memcpy")[rows]]
    copies = _named(device, copying, COPY_TO_PAGEABLE)
    to_host = _named(device, copying, r"\bDtoH\b")
    waiting = np.flatnonzero(
        device.category_mask("runtime", "driver")
        & device.name_mask(pattern("device sync", "stream sync"))
    )
    devices = np.unique(number[rows]).tolist()
    found = []
    for one in devices:
        mine, copied = rows[number[rows] == one], copies[number[copies] == one]
        late = [end[copied] - end[launcher[copied]]]
        if len(devices) == 1:  # a synchronization does not say which device it waits for
            late.append(_after_synchronization(device, launcher, waiting, end))
            late.append(_after_copies(device, launcher, waiting, to_host, end))
        early = start[mine] - start[launcher[mine]]
        found.append(DeviceClock(one, np.sort(np.concatenate(late)), np.sort(early)))
    return found


def _after_synchronization(device: Trace, launcher: Ints, waiting: Ints, end: Ints) -> Ints:
    """Return how long after device synchronization the last work before it on each stream ends."""
    calls = _named(device, waiting, pattern("device sync"))
    found = [np.empty(0, dtype=np.int64)]
    if calls.size == 0:
        return found[0]
    work = stream_work(device, launcher)
    for stream in range(work.keys.size):
        at = work.last_before(stream, device.column("start")[calls])
        known = at >= 0
        found.append(end[work.rows[at[known]]] - end[calls[known]])
    return np.concatenate(found)


def _after_copies(device: Trace, launcher: Ints, waiting: Ints, to_host: Ints, end: Ints) -> Ints:
    """Return how long after the next synchronization of a stream copies to the host end.

    ``to_host`` are copies. Only copies count that the calling thread launched last, as ``.item()``
    does.
    """
    calls = _named(device, waiting, pattern("stream sync"))
    launches = np.flatnonzero(np.bincount(launcher[launcher >= 0], minlength=launcher.size))
    work = np.full(launcher.size, -1, dtype=np.int64)
    work[launcher[to_host]] = to_host
    thread = device.column("thread")
    found = [np.empty(0, dtype=np.int64)]
    for one in np.unique(thread[calls]):
        mine, theirs = calls[thread[calls] == one], launches[thread[launches] == one]
        copy = find_rows(theirs, work[theirs], mine, nearest=True)
        found.append((end[copy] - end[mine])[copy >= 0])
    return np.concatenate(found)


def _named(device: Trace, rows: Ints, text: str) -> Ints:
    """Return the rows whose name contains a regular expression."""
    found: Ints = rows[device.name_mask(text)[rows]]
    return found


def _in_order(device: Trace, start: Ints) -> tuple[Trace, Ints]:
    """Return the trace with other times, and the old row of each of its nodes."""
    category = device.codes("category").astype(np.int64)
    keys = (device.column("event"), category, -device.column("duration"), start)
    order = np.lexsort(keys)
    new_row = np.empty_like(order)
    new_row[order] = np.arange(order.size)
    nodes = device.nodes.with_columns(start=start)[order]
    parts = JoinedAttributes(lambda: (Part(device.attributes, new_row),))
    return replace(device, nodes=nodes, given_attributes=parts), order


@checked
def link_pair(
    host: Trace, device: Trace, *, force: bool = False, tensors: bool = True, args: bool = True
) -> Trace:
    """Link the host and the device trace of one rank.

    Parameters
    ----------
    host
        A PyTorch execution trace as read.
    device
        A Kineto trace as read.
    force
        Whether to link the two even if few of their operations match.
    tensors
        Whether to find dependencies by tensors too; this reads all operands.
    args
        Whether operations that the host trace describes keep the raw args of the device trace too.
        Without them the device trace's file is not kept in memory.

    Returns
    -------
    Trace
        All operations of both, once each, with parents, exclusive times and dependencies. Host
        operations that the device trace lacks come first, without times; the others follow in
        order of start. O(nodes log nodes).

    Raises
    ------
    PairError
        Under the conditions of :func:`nadi.recordings.matching.matching.match_operations`.
    """
    _check_pair(host, device)
    log = IssueLog()
    device, launcher, match = _matched(host, device, log, force=force)
    report_match(host, device, match, log)
    trace, host_row, row_of_host, row_of_event = _joined(host, device, match, log)
    with ThreadPoolExecutor(1) as executor:  # kernels and numpy release the GIL
        by_tensors = executor.submit(_tensor_deps, host, row_of_host, trace) if tensors else None
        num_untimed = trace.nodes.height - launcher.size
        callers = np.full(trace.nodes.height, -1, dtype=np.int64)
        callers[num_untimed:] = np.where(launcher >= 0, launcher + num_untimed, -1)
        linked = _with_dependencies(trace, host, host_row, device, callers, later := IssueLog())
    deps = linked.deps
    if by_tensors is not None:
        found, of_tensors = by_tensors.result()
        deps = pl.concat([deps, found])
        log.add_all(of_tensors)
    log.add_all(later)
    given = linked.given_attributes
    if not args:
        parts = _without_args(host, row_of_host, device, row_of_event, log)
        given = JoinedAttributes(lambda: parts)
    issues = pl.concat([host.issues, device.issues, log.table()])
    return linked.changed(deps=deps, issues=issues, given_attributes=given)


def _matched(
    host: Trace, device: Trace, log: IssueLog, *, force: bool
) -> tuple[Trace, Ints, Match]:
    """Return the device trace with its mistakes mended, its launch calls, and its match."""
    by_steps = match_later_steps(host, device, force=force)
    if by_steps is not None:
        device = with_host_ids(host, device, by_steps)
    device, launcher = align_device(device, log)
    device = mend_marks(transfers_beside_threads(device, launcher, log), log)
    if by_steps is not None:
        return device, launcher, match_by_host_ids(host, device, by_steps)
    return device, launcher, match_operations(host, device, force=force)


def _check_pair(host: Trace, device: Trace) -> None:
    for name, trace in (("host", host), ("device", device)):
        check_kind(name, trace, Trace, "read it with nadi.read")
    if device.nodes.height and not (device.column("start") >= 0).any():
        raise PairError(
            Parameter("device"), "no operation has a time", "pass the Kineto trace of the rank"
        )


def _joined(
    host: Trace, device: Trace, match: Match, log: IssueLog
) -> tuple[Trace, Ints, Ints, Ints]:
    """Return the operations of both as a trace without dependencies, and their positions in it.

    These are int64: the host node of each operation, or -1; the operation of each host node, or -1;
    the operation of each device node.
    """
    timed = _linked_nodes(host, device, match, log)
    untimed = _unmatched_host_nodes(host, match, log)
    nodes = pl.concat([untimed, timed], rechunk=True)
    host_row = np.concatenate([_unmatched_rows(host, match), match.host_row])
    row_of_host = _row_of_host(host, host_row)
    row_of_event = untimed.height + np.arange(device.nodes.height)
    trace = Trace(
        nodes=nodes,
        deps=DEPS.empty(),
        groups=_groups_of(device, host),
        issues=ISSUES.empty(),
        provenance=Provenance(__version__, host.provenance.sources + device.provenance.sources),
        rank=device.rank,
        world_size=device.world_size,
        process=device.process,
        step_lengths=device.step_lengths,
        given_attributes=JoinedAttributes(
            lambda: (Part(host.attributes, row_of_host), Part(device.attributes, row_of_event))
        ),
    )
    of_host, of_device, names = names_of_both(host, device)
    alone = _unmatched_rows(host, match)
    trace.with_names(np.concatenate([of_host[alone], of_device]), names)
    trace.with_codes({
        "kind": np.append(host.codes("kind")[alone], device.codes("kind")),
        "category": np.append(host.codes("category")[alone], device.codes("category")),
        # what a host trace alone has runs nowhere
        "comm_type": np.append(np.full(alone.size, _NONE), device.codes("comm_type")),
    })  # fmt: skip
    return trace, host_row, row_of_host, row_of_event


def _groups_of(device: Trace, host: Trace) -> pl.DataFrame:
    if set(host.groups["name"]) <= set(device.groups["name"]):
        return device.groups
    both = pl.concat([device.groups, host.groups])
    return both.unique("name", keep="first", maintain_order=True)


def _tensor_deps(host: Trace, row_of_host: Ints, trace: Trace) -> tuple[pl.DataFrame, IssueLog]:
    log = IssueLog()
    return find_tensor_deps(host, row_of_host, trace.column("start"), log), log


@checked
def link_device(device: Trace) -> Trace:
    """Link a Kineto trace without a host trace.

    Parameters
    ----------
    device
        A Kineto trace as read.

    Returns
    -------
    Trace
        As :func:`link_pair` returns it, but without what only a host trace records: operands,
        parents, and operations that the profiler did not record. O(nodes log nodes).
    """
    log = IssueLog()
    log.add(
        "link.no-host", "info", 1,
        "no host trace: the linked trace has no operands and no recorded parents",
        "a host trace (ExecutionTraceObserver) adds data dependencies: nadi what-if --reorder, "
        "waits of kernels that are moved to another stream, and tensors in exported traces"
        if remedies_of(device) is OF_PYTORCH else "only PyTorch's own recordings can have one",
    )  # fmt: skip
    device, launcher = align_device(device, log)
    device = mend_marks(transfers_beside_threads(device, launcher, log), log)
    nowhere = np.full(device.nodes.height, -1, dtype=np.int64)
    linked = _with_dependencies(device, _NO_HOST, nowhere, device, launcher, log)
    return linked.changed(issues=pl.concat([device.issues, log.table()]))


_NO_HOST = Trace(
    nodes=NODES.empty(),
    deps=DEPS.empty(),
    groups=GROUPS.empty(),
    issues=ISSUES.empty(),
    provenance=Provenance(__version__, ()),
)


def _without_args(
    host: Trace, row_of_host: Ints, device: Trace, row_of_event: Ints, log: IssueLog
) -> tuple[Part, Part]:
    """Drop the raw args of operations that the host trace describes.

    The remaining attributes of the device trace are copied, so that its file can be released.
    """
    of_host, of_device = host.attributes, device.attributes
    schemas, args = of_host.rows_named("op_schema"), of_device.rows_named("args")
    args = args[of_device.node[args] >= 0]
    described = np.zeros(row_of_host.size + row_of_event.size, dtype=np.bool_)
    described[row_of_host[of_host.node[schemas[of_host.node[schemas] >= 0]]]] = True
    twice = args[described[row_of_event[of_device.node[args]]]]
    log.add(
        "link.args", "info", twice.size,
        "operations have attributes in the host trace: their raw args from the device trace are "
        "dropped",
    )  # fmt: skip
    kept = np.ones(len(of_device), dtype=np.bool_)
    kept[twice] = False
    return Part(of_host, row_of_host), Part(of_device.filtered(kept).with_own_bytes(), row_of_event)


def _row_of_host(host: Trace, host_row: Ints) -> Ints:
    """Return the linked row of each host node, or -1; int64, shape (host nodes,)."""
    row_of_host = np.full(host.nodes.height, -1, dtype=np.int64)
    known = np.flatnonzero(host_row >= 0)
    row_of_host[host_row[known]] = known
    return row_of_host


def _linked_nodes(host: Trace, device: Trace, match: Match, log: IssueLog) -> pl.DataFrame:
    """Give the device trace's nodes the ids of their host nodes; the others get ids after those."""
    is_host = match.host_row >= 0
    first_free = int(host.column("id").max(initial=-1)) + 1
    ids = first_free + np.cumsum(~is_host) - 1
    ids[is_host] = host.column("id")[match.host_row[is_host]]
    expected = device.category_mask("operator", "annotation")
    log.add(
        "link.device-only", "info", int((expected & ~is_host).sum()),
        "host operations of the device trace match no operation of the host trace",
    )  # fmt: skip
    return NODES.changed(device.nodes, id=ids)


def _unmatched_rows(host: Trace, match: Match) -> Ints:
    unmatched = np.ones(host.nodes.height, dtype=np.bool_)
    unmatched[match.host_row[match.host_row >= 0]] = False
    return np.flatnonzero(unmatched)


def _unmatched_host_nodes(host: Trace, match: Match, log: IssueLog) -> pl.DataFrame:
    rows = _unmatched_rows(host, match)
    log.add(
        "link.host-only", "info", int((host.codes("kind")[rows] != _METADATA).sum()),
        "operations of the host trace match no operation of the device trace",
        "they are kept without a start and duration",
    )  # fmt: skip
    none = np.zeros(rows.size, dtype=np.int64)
    return NODES.changed(
        host.nodes[rows], comm_type=NODES.coded("comm_type", none, ("none",)), comm_bytes=none - 1
    )


def _with_dependencies(
    trace: Trace, host: Trace, host_row: Ints, device: Trace, launcher: Ints, log: IssueLog
) -> Trace:
    """Add to the operations of a rank what is found from their times; ``launcher`` is of them."""
    nesting = nest(trace)
    log.add(
        "link.overlap", "info", nesting.num_overlaps,
        "operations end after the operation of their thread that they started in",
    )  # fmt: skip
    waits = waiting_threads(trace)
    log.add(
        "link.waiting-threads", "info", int(np.unique(trace.column("thread")[waits]).size),
        "threads only wait: they have Python frames, and no operator or launch",
        "they are not part of windows and critical paths",
    )  # fmt: skip
    deps = find_deps(trace, device, nesting, launcher, log)
    parent = np.full(trace.nodes.height, -1, dtype=np.int64)
    parent[nesting.rows] = nesting.parent_row
    on_device = trace.category_mask(*DEVICE_WORK)
    launched = on_device & (launcher >= 0)
    work = np.flatnonzero(launched)
    around = _launching_operations(trace, parent, launcher[work])
    parent[work] = np.where(around < work, around, -1)
    parent = _recorded_parents(trace, host, host_row, parent)
    exclusive = trace.column("exclusive").copy()
    exclusive[nesting.rows] = nesting.exclusive
    exclusive[on_device] = trace.column("duration")[on_device]
    columns, codes, groups = communication(trace, host, host_row, parent, launcher, log)
    nodes = NODES.changed(trace.nodes, parent=parent, exclusive=exclusive, **columns)
    linked = trace.changed(nodes=nodes, groups=groups, codes=codes)
    return linked.changed(deps=pl.concat([deps, group_order(linked)]))


def _launching_operations(trace: Trace, parent: Ints, calls: Ints) -> Ints:
    """Return the innermost operator around each call, or the innermost annotation without one."""
    is_label = trace.category_mask(*LABELS)
    innermost = parent[calls]
    found = nearest(innermost, parent, ~is_label)
    return np.where(found >= 0, found, innermost)


def _recorded_parents(trace: Trace, host: Trace, host_row: Ints, nested: Ints) -> Ints:
    """Prefer the parents in the host trace to those found by nesting, if they were running.

    The observer takes what began last for the parent. If a range has ended that began before
    another that has not, as step marks in hooks do, it is wrong about all that follows.
    """
    row_of_host = _row_of_host(host, host_row)
    known = np.flatnonzero(host_row >= 0)
    parent = nested.copy()
    recorded = host.column("parent")[host_row[known]]
    recorded_row = np.where(recorded >= 0, row_of_host[recorded], -1)
    start, end = trace.column("start"), trace.column("start") + trace.column("duration")
    runs = (start[recorded_row] <= start[known]) & (start[known] <= end[recorded_row])
    untimed = (start[known] < 0) | (start[recorded_row] < 0)
    usable = (recorded_row >= 0) & (recorded_row < known) & (runs | untimed)
    parent[known[usable]] = recorded_row[usable]
    return parent
