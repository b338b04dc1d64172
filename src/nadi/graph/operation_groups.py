"""Operations grouped by the outermost operator around them, and by the kind of module."""

from dataclasses import dataclass

import numpy as np

from nadi.graph.autograd_pairs import backward_nodes
from nadi.graph.event_graph import EventGraph
from nadi.graph.module_tree import find_modules
from nadi.trace.arrays import Bools, Ints
from nadi.trace.rows import nearest

_DIGITS = "0123456789"


@dataclass(frozen=True, eq=False)
class OperationGroups:
    """What each operation is a part of; arrays of shape (ops,)."""

    # int64: position in ``names`` of the outermost operator that it is a part of: of the forward,
    # where autograd runs it for one; of its launch, where it runs on a device. Elsewhere its own
    # name.
    operator: Ints
    is_call: Bools  # bool: it is such an operator itself, not a part of one
    # int64: position in ``names`` of the kind of module that it belongs to, or -1: the name of the
    # class or annotation without a number at its end
    module: Ints
    is_module: Bools  # bool: it is the call of such a module itself
    communicates: Bools  # bool: it is communication, or waits for it
    names: list[str]  # distinct names, "" first


def group_operations(graph: EventGraph) -> OperationGroups:
    """Group the operations of a job, over all its ranks. O(ops * depth)."""
    which, texts = graph.name_codes()
    names = dict.fromkeys(["", *texts])
    tree = find_modules(graph)
    kinds = [""] * len(tree.paths)
    for op in np.flatnonzero(tree.is_called & (tree.module >= 0)).tolist():
        if not kinds[tree.module[op]]:
            kinds[tree.module[op]] = _kind(texts[which[op]])
    names.update(dict.fromkeys(kinds))
    place = {name: number for number, name in enumerate(names)}
    code = np.array([place[text] for text in texts], dtype=np.int64)[which]
    module = np.array([place[kind] for kind in kinds] + [-1], dtype=np.int64)[tree.module]
    module[module == 0] = -1
    top, is_call = _outermost_operators(graph)
    return OperationGroups(
        operator=code[top], is_call=is_call, module=module,
        is_module=tree.is_called & (module >= 0),
        communicates=graph.communicates, names=list(names),
    )  # fmt: skip


def _kind(name: str) -> str:
    """Return the name of a module or range without its number: ``block.2`` is a ``block``."""
    kind = name.removeprefix("nn.Module: ")
    unnumbered = kind.rstrip(_DIGITS)
    if len(unnumbered) < len(kind) and unnumbered.endswith((".", "_", "#")):
        unnumbered = unnumbered[:-1]
    return unnumbered or name


def _outermost_operators(graph: EventGraph) -> tuple[Ints, Bools]:
    """Return the operation that each is a part of, and which stand for themselves."""
    is_operator = (graph.gather("category") == "operator").to_numpy()
    parent = graph.op_parent
    is_top = is_operator & ~((parent >= 0) & is_operator[parent])
    every = np.arange(graph.num_ops)
    found = nearest(every, parent, is_top)
    nodes = backward_nodes(graph)
    origin = np.full(graph.num_ops, -1, dtype=np.int64)
    origin[nodes.ops] = nodes.origin
    inside = nearest(every, parent, origin >= 0)  # what autograd runs for an operator
    found = np.where(inside >= 0, np.append(found, -1)[origin[inside]], found)
    is_call = is_top & (inside < 0)
    call = graph.recorded_launchers
    found = np.where(call >= 0, found[call], found)
    return np.where(found >= 0, found, every), is_call
