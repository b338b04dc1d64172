"""The operations of a part: those that meet every condition."""

import difflib
import re
from dataclasses import dataclass, replace

import numpy as np

from nadi.errors import Parameter, UsageError, checked
from nadi.graph.event_graph import EventGraph
from nadi.graph.windows import choose_window, find_steps, steps_of_operations
from nadi.recordings.dependencies.operator_nesting import nest
from nadi.recordings.dependencies.thread_handovers import waiting_threads
from nadi.trace.arrays import Bools
from nadi.trace.attributes import Attributes
from nadi.trace.schema import DEPS, DEVICE_WORK
from nadi.units import format_count, format_ns
from nadi.whatif.selection import (
    Selection,
    compile_expression,
    covered,
    has_modules,
    module_parts,
    select,
)

_SHOWN = 3
_RANGE = re.compile(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?")


@dataclass(frozen=True)
class PartOf:
    """What a part consists of: operations that meet every condition that is given.

    Attributes
    ----------
    module
        Regular expression for modules, as of ``in=``: their calls, forward, backward and
        optimizer, and the device work of these.
    step
        Number of a step: what the hosts issue in it, and the device work of that.
    window
        Two times since the first event, such as ``120ms:180ms``: operations that lie wholly
        between them.
    ranks
        Such as ``0-3,6``.
    under
        Regular expression for names: these operations, those nested in them, and their device
        work.
    """

    module: str = ""
    step: str = ""
    window: str = ""
    ranks: str = ""
    under: str = ""

    def __str__(self) -> str:
        given = (f"{name} {value}" for name, value in vars(self).items() if value)
        return ", ".join(given) or "everything"


@checked
def part_operations(graph: EventGraph, wanted: PartOf) -> Bools:
    """Find the operations of a part; bool, shape (ops,). O(ops * depth).

    A collective or message that only some of the chosen ranks have in the part is not in it on
    any: ranks would be matched wrongly otherwise. Its members are then outside, and waited for.
    Nor are threads in it that do nothing but poll or wait there.

    Raises
    ------
    UsageError
        If a condition is invalid or nothing meets it, or no operation meets all.
    """
    chosen = np.ones(graph.num_ops, dtype=np.bool_)
    if wanted.ranks:
        chosen &= _of_ranks(graph, wanted.ranks)
    if wanted.step:
        chosen &= _of_step(graph, wanted.step)
    if wanted.window:
        chosen &= _of_window(graph, wanted.window)
    if wanted.module:
        chosen &= _of_modules(graph, wanted.module)
    if wanted.under:
        chosen &= _under(graph, wanted.under)
    if not chosen.any():
        raise UsageError(
            str(wanted), "no operation meets all of these conditions", "remove one of them"
        )
    while True:
        closed = _with_whole_collectives(graph, _without_idle_threads(graph, chosen))
        if not closed.any():
            raise UsageError(
                str(wanted), "this is only communication that other ranks have outside, or threads "
                "that poll or wait", "choose more",
            )  # fmt: skip
        if (closed == chosen).all():
            return closed
        chosen = closed


def _without_idle_threads(graph: EventGraph, chosen: Bools) -> Bools:
    """Drop what would be no operation in a trace of the part: of threads that only poll or wait."""
    left = chosen.copy()
    for number, trace in enumerate(graph.job.traces):
        mine = np.flatnonzero(chosen & (graph.op_trace == number))
        if mine.size in (0, np.count_nonzero(graph.op_trace == number)):
            continue
        nodes = trace.nodes[graph.op_row[mine]]
        bare = replace(trace, nodes=nodes, deps=DEPS.empty(), given_attributes=Attributes.empty())
        works = bare.category_mask(*DEVICE_WORK)
        works[nest(bare, waiting_threads(bare)).rows] = True
        left[mine[~works]] = False
    return left


def _of_ranks(graph: EventGraph, text: str) -> Bools:
    there = graph.job.ranks
    wanted: set[int] = set()
    for part in text.split(","):
        found = _RANGE.fullmatch(part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if first > last:
            raise UsageError(
                Parameter("ranks", text), f"{part.strip()!r} is neither a rank nor a range",
                "give ranks such as 0-3,6",
            )  # fmt: skip
        beyond = min(last, max(first, max(there)) + 1)
        missing = [rank for rank in range(first, beyond + 1) if rank not in there]
        if missing:
            nearest = min(there, key=lambda rank: abs(rank - missing[0]))
            raise UsageError(
                Parameter("ranks", text), f"there is no rank {missing[0]}",
                f"the nearest is {nearest}; the job has {len(there)}: {_told(there)}",
            )  # fmt: skip
        wanted |= set(range(first, last + 1))
    mine: Bools = np.isin(np.array(there)[graph.op_trace], list(wanted))
    return mine


def _told(ranks: tuple[int, ...]) -> str:
    if len(ranks) > 1 and ranks == tuple(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]}-{ranks[-1]}"
    return ", ".join(map(str, ranks[:16])) + (", ..." if len(ranks) > 16 else "")


def _of_step(graph: EventGraph, text: str) -> Bools:
    steps = find_steps(graph)
    numbers = [step.number for step in steps]
    if not (text.isdecimal() and len(text) <= 18 and int(text) in numbers):
        if not steps:
            choose_window(graph, steps, text)  # says why there are none
        near = _nearest_step(text, numbers)
        told = ", ".join(map(str, numbers[:16])) + (", ..." if len(numbers) > 16 else "")
        raise UsageError(
            Parameter("step", text), "the trace has no such step", f"{near}there are: {told}"
        )
    chosen: Bools = steps_of_operations(graph, steps) == numbers.index(int(text))
    return chosen


def _nearest_step(text: str, numbers: list[int]) -> str:
    if not (text.isdecimal() and len(text) <= 18):
        return "give the number of one; "
    return f"the nearest is {min(numbers, key=lambda number: abs(number - int(text)))}; "


def _of_window(graph: EventGraph, text: str) -> Bools:
    window = choose_window(graph, [], window=text)
    low, high = window.start(graph.time), window.end(graph.time)
    start, end = graph.time[0 : 2 * graph.num_ops : 2], graph.time[1 : 2 * graph.num_ops : 2]
    inside: Bools = (start >= low) & (end <= high)
    if not inside.any():
        first = int(np.argmin(np.maximum(low - start, 0) + np.maximum(end - high, 0)))
        raise UsageError(
            Parameter("window", text), "no operation lies wholly in it",
            f"the nearest, {graph.op_names[first]}, lasts from {format_ns(int(start[first]))} to "
            f"{format_ns(int(end[first]))}",
        )  # fmt: skip
    return inside


def _of_modules(graph: EventGraph, text: str) -> Bools:
    try:
        pattern = compile_expression(text)
    except ValueError as error:
        raise UsageError(Parameter("module", text), str(error), "check the brackets") from None
    parts = module_parts(graph, pattern)
    if parts is not None:
        return parts.operations | parts.tree.operations(parts.modules)
    from nadi.graph.module_tree import find_modules

    paths = find_modules(graph).paths
    if not paths:
        raise UsageError(
            Parameter("module", text), "the recording has no modules",
            ["record with_stack=True, or annotate parts; ", Parameter("under"),
             " takes the name of an operation"],
        )  # fmt: skip
    near = _similar(text, [*paths, *(path.rpartition(".")[2] for path in paths)])
    kind = "modules" if has_modules(graph) else "annotations"
    raise UsageError(
        Parameter("module", text), f"matches none of {format_count(len(paths))} {kind}",
        [f"{near}nadi run with ", Parameter("by", "module"), " lists them"],
    )  # fmt: skip


def _similar(text: str, names: list[str]) -> str:
    """Say which names are alike; empty if none is."""
    lowered = {name.lower(): name for name in names}
    close = difflib.get_close_matches(text.lower(), lowered, n=_SHOWN, cutoff=0.4)
    return f"did you mean {', '.join(lowered[name] for name in close)}? " if close else ""


def _under(graph: EventGraph, text: str) -> Bools:
    within = covered(graph, select(graph, Selection(name=text)))
    call = graph.recorded_launchers
    found: Bools = within | ((call >= 0) & within[call])
    return found


def _with_whole_collectives(graph: EventGraph, chosen: Bools) -> Bools:
    """Drop communication that not all ranks of the part have in it, until nothing changes."""
    matches = graph.job.matches
    if matches.height == 0:
        return chosen
    place = {rank: number for number, rank in enumerate(graph.job.ranks)}
    trace = np.array([place[rank] for rank in matches["rank"].to_list()])
    op, node = np.full(matches.height, -1, dtype=np.int64), matches["node"].to_numpy()
    for number in np.unique(trace).tolist():
        mine = trace == number
        op[mine] = graph.ops_of_rows(number)[node[mine]]
    _, collective = np.unique(matches["collective"].to_numpy(), return_inverse=True)
    while True:
        present = np.zeros(len(graph.job.traces), dtype=np.bool_)
        present[graph.op_trace[chosen]] = True
        here = present[trace]
        taken = here & chosen[op]
        lost = np.bincount(collective[here & ~taken], minlength=collective.max() + 1) > 0
        dropped = op[taken & lost[collective]]
        if dropped.size == 0:
            return chosen
        gone = np.zeros(graph.num_ops, dtype=np.bool_)
        gone[dropped] = True
        chosen = chosen & ~covered(graph, gone)
