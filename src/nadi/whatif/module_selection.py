"""The condition ``in=`` for modules: their forward, their backward, their optimizer."""

import re
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from nadi.graph.event_graph import EventGraph
from nadi.graph.module_tree import PHASES, ModuleTree, find_modules
from nadi.graph.optimizer_parts import BY_GRADIENTS
from nadi.trace.arrays import Bools
from nadi.trace.schema import DEVICE_WORK
from nadi.units import format_count

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


def module_parts(graph: EventGraph, pattern: re.Pattern[str]) -> ModuleParts | None:
    """Find what belongs to the modules that an expression matches; None if it matches none.

    A module consists of everything that runs in its calls, of the backward of its
    operators, and of the operators of an optimizer that work on its parameters. O(ops * depth).
    """
    tree = _tree(graph)
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
    return _tree(graph).is_recorded


def _tree(graph: EventGraph) -> ModuleTree:
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
