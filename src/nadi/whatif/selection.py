"""Selection of operations by name, kind, rank, stream, thread, step and enclosing operation.

The condition ``in=`` for modules: their forward, their backward, their optimizer.
"""

import difflib
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from nadi.errors import UsageError
from nadi.graph.event_graph import EdgeKind, EventGraph
from nadi.graph.module_tree import (
    BY_GRADIENTS,
    CALL,
    PHASES,
    ModuleTree,
    find_modules,
    function_name,
)
from nadi.graph.windows import find_steps, steps_of_operations
from nadi.trace.arrays import Bools, Ints
from nadi.trace.rows import nearest
from nadi.trace.schema import CATEGORIES, DEVICE_WORK, THREAD_WORK
from nadi.units import format_count, format_ns

_MAX_PATHS = 3
_found: WeakKeyDictionary[EventGraph, ModuleTree] = WeakKeyDictionary()


class ModuleParts(NamedTuple):
    """What belongs to some modules."""

    tree: ModuleTree  # all modules
    modules: Bools  # bool, shape (modules,): those that match
    # bool, shape (ops,): their operations in all phases, without the outermost calls themselves
    operations: Bools
    # whether whole parts of paths match; otherwise the expression is found within names
    is_whole: bool


_MAX_NAMES_SHOWN = 3
_GROUPS_OF_CATEGORIES = {"host": THREAD_WORK, "device": DEVICE_WORK}
CONDITIONS = ("kind", "rank", "stream", "thread", "step", "in")
KINDS = ("host", "device", "communication", *(c for c in CATEGORIES if c != "metadata"))
"""Values of ``kind=``: a category of the schema, ``host``, ``device`` or ``communication``."""
WAIT = "wait"
"""The word that selects waits of threads instead of operations, where a change begins with it."""
# what can stand as it is: single spaces, no quote first, no condition, no arrow, and not ``wait``
_PLAIN = re.compile(
    rf"(?!\.$|{WAIT}(?:\s|$))(?:(?!['\"]|->(?:\s|$)|(?:{'|'.join(CONDITIONS)})=)\S+ )*"
    rf"(?!['\"]|->(?:\s|$)|(?:{'|'.join(CONDITIONS)})=)\S+"
)


@dataclass(frozen=True)
class Selection:
    """Operations that meet every given condition; without conditions, all operations.

    Attributes
    ----------
    name
        Regular expression found anywhere in the name.
    kinds
        One of ``KINDS`` each; any of them.
    ranks, streams, threads
        Numbers; any of them.
    inside
        Regular expression for modules, or for enclosing operations. Of a module it matches whole
        parts of the path, and selects forward, backward and optimizer. If it matches none, it is
        found in the name of an enclosing operation or annotation; device work is inside the
        operations that enclose its launch.
    steps
        Numbers of steps, or what a serving engine does in them, such as ``decode``; any of them.
    """

    name: str = ""
    kinds: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    streams: tuple[int, ...] = ()
    threads: tuple[int, ...] = ()
    inside: str = ""
    steps: tuple[str, ...] = ()

    def __str__(self) -> str:
        conditions = [_written(self.name)] if self.name else []
        for key, values in (("kind", self.kinds), ("rank", self.ranks), ("stream", self.streams),
                            ("thread", self.threads), ("step", self.steps)):  # fmt: skip
            if values:
                conditions.append(f"{key}={','.join(map(str, values))}")
        if self.inside:
            conditions.append(f"in={_written(self.inside, one_word=True)}")
        return " ".join(conditions) or "."


def _written(expression: str, *, one_word: bool = False) -> str:
    """Quote an expression that would not parse unquoted; quotes inside are doubled."""
    if _PLAIN.fullmatch(expression) and not (one_word and " " in expression):
        return expression
    return "'" + expression.replace("'", "''") + "'"


def select(graph: EventGraph, selection: Selection) -> Bools:
    """Find the operations of a selection; bool, shape (ops,). O(ops).

    - Raises UsageError if no operation meets all conditions; for a name, the message suggests
      similar ones.
    """
    unknown = [kind for kind in selection.kinds if kind not in KINDS]
    if unknown:
        raise UsageError(
            str(selection), f"{unknown[0]!r} is not a known kind", f"one of {', '.join(KINDS)}"
        )
    chosen = np.ones(graph.num_ops, dtype=np.bool_)
    if selection.name:
        chosen &= _named(graph, selection.name)
    if selection.kinds:
        chosen &= np.logical_or.reduce([_of_kind(graph, kind) for kind in selection.kinds])
    if selection.ranks:
        ranks = np.array(graph.job.ranks)[graph.op_trace]
        chosen &= np.isin(ranks, selection.ranks)
    if selection.streams:
        chosen &= np.isin(graph.op_stream, selection.streams)
    if selection.threads:
        chosen &= np.isin(graph.gather("thread").to_numpy(), selection.threads)
    if selection.steps:
        chosen &= _in_steps(graph, selection.steps)
    if selection.inside:
        chosen &= _in_condition(graph, selection)
    if not chosen.any():
        raise UsageError(
            str(selection), "selects no operation",
            "remove a condition; nadi info lists operations, streams and threads",
        )  # fmt: skip
    return chosen


def selected_modules(graph: EventGraph, selection: Selection) -> ModuleParts | None:
    """Return what belongs to the modules of the condition ``in=``; None if it names none."""
    if not selection.inside:
        return None
    return module_parts(graph, _compiled(selection.inside))


def module_expression(graph: EventGraph, name: str) -> str:
    """Return an expression by which ``in=`` selects the modules of a name alone, or "" without any.

    Of a function it is the name without its file, if that is enough.
    """
    tree = modules_of(graph)
    wanted = tree.operations(tree.named(name))
    own = name.removeprefix(CALL)
    for text in (re.escape(function_name(own)), rf"(.*\.)?{re.escape(own)}"):
        found = tree.operations(tree.matching(re.compile(text)))
        if wanted.any() and (found == wanted).all():
            return text
    return ""


def select_with_calls(graph: EventGraph, selection: Selection) -> Bools:
    """Find the operations of a selection, and of modules the calls too; bool, shape (ops,).

    A call of a module is what its thread does between its operations. It is none of those that have
    a name or a kind.

    - Raises UsageError as ``select`` does.
    """
    chosen = select(graph, selection)
    parts = selected_modules(graph, selection)
    if parts is None or selection.name or selection.kinds:
        return chosen
    calls = parts.tree.is_called & parts.tree.operations(parts.modules)
    others = replace(selection, inside="")
    return chosen | (calls & select(graph, others) if others != Selection() else calls)


def launchers(graph: EventGraph) -> Ints:
    """Return the call that launches each operation now; int64, shape (ops,), -1 without one."""
    launched_by = np.full(graph.num_ops, -1, dtype=np.int64)
    edges = np.flatnonzero(graph.edge_kind == EdgeKind.LAUNCH)
    launched_by[graph.destinations[edges] // 2] = graph.in_src[edges] // 2
    return launched_by


def covered(graph: EventGraph, chosen: Bools) -> Bools:
    """Add the operations nested in chosen ones. O(ops * depth)."""
    found: Bools = nearest(np.arange(graph.num_ops), graph.op_parent, chosen) >= 0
    return found


def outermost(graph: EventGraph, chosen: Bools) -> Ints:
    """Return the outermost chosen operation around each, itself included, or -1.

    int64, shape (ops,). O(ops * depth).
    """
    found = np.where(chosen, np.arange(graph.num_ops), -1)
    while True:
        above = np.where(graph.op_parent >= 0, found[graph.op_parent], -1)
        wider = np.where(above >= 0, above, found)
        if (wider == found).all():
            return wider
        found = wider


def within(graph: EventGraph, selection: Selection) -> Bools:
    """Return what the condition ``in=`` names, with all that runs in it; bool, shape (ops,).

    - Raises UsageError if nothing has such a name.
    """
    parts = selected_modules(graph, selection)
    if parts and parts.is_whole:
        return parts.tree.operations(parts.modules)
    return covered(graph, _named(graph, selection.inside))


def _in_condition(graph: EventGraph, selection: Selection) -> Bools:
    parts = selected_modules(graph, selection)
    if parts and parts.is_whole:
        return parts.operations
    try:
        around = _named(graph, selection.inside)
    except UsageError as error:
        if not has_modules(graph):
            raise
        remedy = f"{error.remedy}; nadi run --by module lists modules"
        raise UsageError(error.where, error.what, remedy) from None
    inside = _inside(graph, around)
    if not (parts or inside.any()):
        raise UsageError(
            f"in={_written(selection.inside, one_word=True)}", "encloses no operation",
            f"select it by its name, {_written(selection.inside)}",
        )  # fmt: skip
    return inside | parts.operations if parts else inside


def _inside(graph: EventGraph, around: Bools) -> Bools:
    within = covered(graph, around)
    call = graph.recorded_launchers
    strictly: Bools = (graph.op_parent >= 0) & within[graph.op_parent]
    return strictly | ((call >= 0) & within[call])


def describe_inside(graph: EventGraph, selection: Selection) -> str:
    """Say what the condition ``in=`` alone selects of an operation that is no module: not all.

    Empty if it is not alone, or names a module.
    """
    if not selection.inside or selection.name or selected_modules(graph, selection):
        return ""
    chosen, around = select(graph, selection), _named(graph, selection.inside)
    whole, called = (_time_of_outermost(graph, ops) for ops in (around, chosen))
    inside = _written(selection.inside, one_word=True)
    return (
        f"in={inside} selects what is called there ({format_ns(called)} of {format_ns(whole)} on "
        f"threads), not its own time or waits: 'scale {_written(selection.inside)}' scales all of "
        f"it, 'remove {WAIT} in={inside}' removes its waits"
    )


def _time_of_outermost(graph: EventGraph, chosen: Bools) -> int:
    """Sum the time of operations of threads that are in no other one of them; ns."""
    own = outermost(graph, chosen) == np.arange(graph.num_ops)
    ops = np.flatnonzero(own & chosen & graph.gather("is_cpu").to_numpy())
    return int((graph.time[2 * ops + 1] - graph.time[2 * ops]).sum())


def _in_steps(graph: EventGraph, wanted: Sequence[str]) -> Bools:
    steps = find_steps(graph)
    names = [{str(one.number), one.serving.kind if one.serving else ""} for one in steps]
    if unknown := [one for one in wanted if not any(one in each for each in names)]:
        kinds = {one.serving.kind: 0 for one in steps if one.serving}
        there = [f"{steps[0].number} to {steps[-1].number}", *kinds] if steps else []
        raise UsageError(
            f"step={unknown[0]}", "the trace has no such step",
            f"give some of: {', '.join(there)}" if there else "nothing marks steps in it",
        )  # fmt: skip
    chosen = [number for number, each in enumerate(names) if not each.isdisjoint(wanted)]
    return np.isin(steps_of_operations(graph, steps), chosen)


def _of_kind(graph: EventGraph, kind: str) -> Bools:
    if kind == "communication":
        found: Bools = (graph.gather("comm_type") != "none").to_numpy()
        return found
    wanted = _GROUPS_OF_CATEGORIES.get(kind, (kind,))
    return graph.gather("category").is_in(wanted).to_numpy()


def _named(graph: EventGraph, expression: str) -> Bools:
    pattern = _compiled(expression)
    which, names = graph.name_codes()
    occurs = (np.bincount(which, minlength=len(names)) > 0).tolist()
    unique = [name for name, does in zip(names, occurs, strict=True) if does]
    chosen = np.array([pattern.search(name) is not None for name in names])
    if not chosen[which].any():
        raise UsageError(
            repr(expression),
            f"matches none of the {format_count(len(unique))} operation names",
            _suggest(expression, unique),
        )
    found: Bools = chosen[which]
    return found


def _compiled(expression: str) -> re.Pattern[str]:
    try:
        return compile_expression(expression)
    except ValueError as error:
        raise UsageError(repr(expression), str(error), "check the brackets") from None


def compile_expression(expression: str) -> re.Pattern[str]:
    """Compile a regular expression.

    - Raises ValueError if it is none.
    """
    try:
        with warnings.catch_warnings(
            action="ignore"
        ):  # of future syntax changes in regular expressions
            return re.compile(expression)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{expression!r} is not a regular expression ({error})") from None


def _suggest(expression: str, names: Sequence[str]) -> str:
    lowered = {name.lower(): name for name in names}
    wanted = expression.lower()
    near = [name for low, name in lowered.items() if wanted in low]
    near += [lowered[n] for n in difflib.get_close_matches(wanted, lowered, n=_MAX_NAMES_SHOWN)]
    shown = [name if len(name) <= 60 else name[:57] + "..." for name in near[:_MAX_NAMES_SHOWN]]
    return f"did you mean {', '.join(shown)}" if shown else "nadi run lists the top operations"


def module_parts(graph: EventGraph, pattern: re.Pattern[str]) -> ModuleParts | None:
    """Find what belongs to the modules that an expression matches; None if it matches none.

    A module consists of everything that runs in its calls, of the backward of its
    operators, and of the operators of an optimizer that work on its parameters. O(ops * depth).
    """
    tree = modules_of(graph)
    modules = tree.matching(pattern)
    is_whole = bool(modules.any())
    if not is_whole:
        modules = tree.containing(pattern)
    if not modules.any():
        return None
    chosen = tree.operations(modules)
    calls = tree.is_called & chosen
    return ModuleParts(tree, modules, _within(graph, calls) | (chosen & ~calls), is_whole)


def has_modules(graph: EventGraph) -> bool:
    """Return whether calls of modules were recorded."""
    return modules_of(graph).is_recorded


def modules_of(graph: EventGraph) -> ModuleTree:
    """Return the modules of a job, which are found once."""
    tree = _found.get(graph)
    if tree is None:
        tree = _found[graph] = find_modules(graph)
    return tree


def _within(graph: EventGraph, calls: Bools) -> Bools:
    """Return what runs in calls, or is launched in them; not the outermost calls themselves."""
    within = calls.copy()
    has_parent = graph.op_parent >= 0
    while True:
        wider = within | (has_parent & within[graph.op_parent])
        if (wider == within).all():
            break
        within = wider
    launched_by = graph.recorded_launchers
    strictly: Bools = has_parent & within[graph.op_parent]
    return strictly | ((launched_by >= 0) & within[launched_by])


def describe_parts(graph: EventGraph, parts: ModuleParts) -> str:
    """Say which modules match, and what belongs to them: operators of each phase, device work."""
    tree = parts.tree
    matched = [path for path, taken in zip(tree.paths, parts.modules, strict=True) if taken]
    outer = [
        path
        for path in matched
        if not any(path.startswith(f"{other}.") for other in matched if other != path)
    ]
    more = f" and {len(outer) - _MAX_PATHS} more" if len(outer) > _MAX_PATHS else ""
    category = graph.gather("category")
    is_operator = parts.operations & (category == "operator").to_numpy()
    counts = np.bincount(tree.phase[is_operator], minlength=len(PHASES)).tolist()
    said = [
        f"forward {_operators(counts[0])}",
        f"backward {_operators(counts[1])}" if counts[1] else "no backward in the trace",
        _optimizer(tree, counts[2]),
    ]
    on_device = int((parts.operations & category.is_in(DEVICE_WORK).to_numpy()).sum())
    if on_device:
        said.append(f"{format_count(on_device)} operations on devices")
    return f"{', '.join(outer[:_MAX_PATHS])}{more}: {', '.join(said)}"


def _operators(count: int) -> str:
    return f"{format_count(count)} operator{'' if count == 1 else 's'}"


def _optimizer(tree: ModuleTree, count: int) -> str:
    if count:
        return f"optimizer {_operators(count)}"
    if tree.optimizer == BY_GRADIENTS:
        return "optimizer: no operator works on their parameters alone"
    return f"optimizer: {tree.optimizer}" if tree.optimizer else "no optimizer in the trace"
