"""The layers of a model, as its modules state them: modules that are alike, side by side.

Layers are modules of one class in one module, with the same modules in them, such as
``encoder.BertLayer_0`` to ``encoder.BertLayer_11``. A module without modules in it is no layer:
the query, key and value of an attention are three ``Linear``, and not three layers.
"""

import re

import numpy as np

from nadi.graph.event_graph import EventGraph
from nadi.graph.module_tree import PHASES, ModuleTree, find_modules
from nadi.trace.arrays import Ints

NO_LAYER, EVERY_LAYER = -1, -2
_OPTIMIZER = PHASES.index("optimizer")


def layers_by_modules(graph: EventGraph) -> Ints | None:
    """Return the layer of each operation; None if no modules were recorded, or none are alike.

    All modules that are alike are layers, numbered from 0 in the order of their first calls; what
    is in layers that are in each other is of the outer one. O(operations * depth).

    - Returns: int64, shape (ops,): ``NO_LAYER`` for what is of no layer; ``EVERY_LAYER`` for what
      an optimizer does for weights of an unknown module.
    """
    tree = find_modules(graph)
    of_module = _layers(tree)
    if not tree.is_recorded or not (of_module >= 0).any():
        return None
    found = np.append(of_module, NO_LAYER)[tree.module]
    found[(tree.module < 0) & (tree.phase == _OPTIMIZER)] = EVERY_LAYER
    return found


def _layers(tree: ModuleTree) -> Ints:
    """Return the layer of each module, or ``NO_LAYER``; int64, shape (modules,)."""
    form = _forms(tree)
    inside = np.bincount(tree.parent[tree.parent >= 0], minlength=len(tree.paths))
    alike: dict[tuple[int, int], list[int]] = {}
    for number, around in enumerate(tree.parent.tolist()):
        if around >= 0 and inside[number]:
            alike.setdefault((around, int(form[number])), []).append(number)
    found = np.full(len(tree.paths), NO_LAYER, dtype=np.int64)
    layer = 0
    is_layer = {one for own in alike.values() if len(own) > 1 for one in own}
    for number, around in enumerate(tree.parent.tolist()):  # a module follows those around it
        if around >= 0 and found[around] >= 0:
            found[number] = found[around]
        elif number in is_layer:
            found[number] = layer
            layer += 1
    return found


def _forms(tree: ModuleTree) -> Ints:
    """Return equal numbers for modules of one class with equal modules in them."""
    within: list[list[int]] = [[] for _ in tree.paths]
    form = np.zeros(len(tree.paths), dtype=np.int64)
    known: dict[tuple[str, tuple[int, ...]], int] = {}
    for number in range(len(tree.paths) - 1, -1, -1):
        name = re.sub(r"_\d+$", "", tree.paths[number].rpartition(".")[2])
        own = name, tuple(reversed(within[number]))
        form[number] = known.setdefault(own, len(known))
        if tree.parent[number] >= 0:
            within[tree.parent[number]].append(int(form[number]))
    return form
