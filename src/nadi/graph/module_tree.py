"""The module that each operation belongs to: its forward, its backward, its optimizer."""

import re
import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.graph.autograd_pairs import BackwardNodes, backward_nodes, node_before
from nadi.graph.event_graph import EventGraph
from nadi.graph.optimizer_parts import OptimizerParts, optimizer_parts
from nadi.trace.arrays import Bools, Bytes, Ints
from nadi.trace.rows import nearest

PHASES = ("forward", "backward", "optimizer", "other")
"""The parts of a step; ``other`` is work outside of all modules that is none of them."""

_FORWARD, _BACKWARD, _OPTIMIZER, _OTHER = range(len(PHASES))
_CALL = "nn.Module: "
_DEEPEST = 200  # modules in each other; what is deeper belongs to the last of these
_OPTIMIZER_STEP = r"^Optimizer\.step#"
# annotations of the profiler, of parts of a step, and of libraries; the others name modules
_NO_MODULE = (
    r"^ProfilerStep#|^Optimizer\.|^enumerate\(|^##|^\[|(?i:forward|backward|optimizer)|"
    r"^(?:nccl|gloo|mpi|ucc|xccl|hccl|c10d|record_param_comms)\b"
)
_REGION = r"^Torch-Compiled Region"
_COMPILED = r"^## Call (CompiledFxGraph \w+) ##$"
_AUTOGRAD = r"^autograd::engine::evaluate_function"
_FEED_FORWARD = r"(?i)feed[-_. ]?forward"  # a module, whose name has the word
_COMMUNICATION = r"^c10d::|^record_param_comms$"


@dataclass(frozen=True, eq=False)
class ModuleTree:
    """The modules of a job, and the module and phase of each operation."""

    # the path of each module from the outermost one, such as ``Model_0.Block_2.Linear_7``; ranks
    # that run the same modules share them. A module follows those around it; those in one module
    # are in order of their first call.
    paths: tuple[str, ...]
    parent: Ints  # int64, shape (modules,): the module around each, or -1
    module: Ints  # int64, shape (ops,): the innermost module of each operation, or -1
    phase: Bytes  # uint8, shape (ops,): position in ``PHASES``
    is_called: Bools  # bool, shape (ops,): the calls themselves, which contain the forward
    is_recorded: bool  # whether the calls are those of modules; otherwise they are annotations
    # how work of the optimizer was attributed to modules, or why not; empty if there is none
    optimizer: str

    def __repr__(self) -> str:
        return f"<ModuleTree modules={len(self.paths)}>"

    def matching(self, pattern: re.Pattern[str]) -> Bools:
        """Return the modules of which a whole part of the path matches, or several in a row.

        ``layers.2`` matches ``model.layers.2.mlp`` and not ``model.layers.20``. The number of a
        class can be left out: ``Block`` matches ``Block_0``. bool, shape (modules,).
        """
        parts = _whole_parts(pattern)
        searched = pattern.fullmatch if parts is None else parts.search
        return np.array([searched(path) is not None for path in self.paths], dtype=np.bool_)

    def containing(self, pattern: re.Pattern[str]) -> Bools:
        """Return the modules in whose own name an expression is found; bool, shape (modules,).

        Annotations that count as modules are none of them.
        """
        names = [f"{_CALL}{path.rpartition('.')[2]}" for path in self.paths]
        return np.array(
            [self.is_recorded and pattern.search(name) is not None for name in names],
            dtype=np.bool_,
        )

    def operations(self, modules: Bools) -> Bools:
        """Return the operations of modules and of the modules in them; bool, shape (ops,)."""
        wider = modules.copy()
        for number, around in enumerate(self.parent.tolist()):  # a module follows those around it
            wider[number] |= around >= 0 and wider[around]
        chosen: Bools = np.append(wider, False)[self.module]
        return chosen


def _whole_parts(pattern: re.Pattern[str]) -> re.Pattern[str] | None:
    """Return an expression for paths with whole parts that match; None if there is none."""
    try:
        with warnings.catch_warnings(action="ignore"):  # it was compiled before
            return re.compile(rf"(?:^|\.)(?:{pattern.pattern})(?:_\d+)?(?:\.|$)", pattern.flags)
    except (re.error, OverflowError, RecursionError):  # flags such as (?i) stand at the beginning
        return None


class _Calls(NamedTuple):
    """The calls of modules; arrays of shape (calls,)."""

    ops: Ints
    name: Ints  # position in ``names``
    names: list[str]  # each once
    around: Ints  # position of the call around each, or -1


def find_modules(graph: EventGraph) -> ModuleTree:
    """Find the module and the phase of each operation.

    The forward of a module is what runs in its calls (``nn.Module: NAME_N`` in recordings with
    Python stacks; without any, annotations count as modules) or in a region that torch.compile
    compiled (``Torch-Compiled Region: 0/1``). The backward of an operator is
    what autograd runs with its sequence number, all operations in it included. A gradient
    is accumulated directly after the operation that computed it, and belongs to its module. Work of
    the optimizer belongs to the module of the gradient that it uses, where the host trace
    states the storages of tensors. Device work belongs to the module of the call that launched
    it. O(ops * depth).
    """
    is_call, is_recorded = _calls(graph)
    calls = _call_tree(graph, is_call)
    module_of_call, paths, parent = _modules(calls)
    module_of = np.full(graph.num_ops + 1, -1, dtype=np.int64)
    module_of[calls.ops] = module_of_call
    every = np.arange(graph.num_ops)
    around = nearest(every, graph.op_parent, is_call)

    nodes = backward_nodes(graph)
    is_node = _mask(graph, nodes.ops)
    known = np.where(nodes.origin >= 0, nodes.origin, nodes.ops)  # else what it runs in
    computed = module_of[around[known]]
    before = node_before(graph, nodes)
    of_node = np.where(before >= 0, computed[before], computed)
    of_gradient = np.full(graph.num_ops, -1, dtype=np.int64)
    of_gradient[nodes.ops[nodes.is_gradient]] = of_node[nodes.is_gradient]
    of_node[_communicates(graph, nodes, is_node)] = -1
    module_of[nodes.ops] = of_node
    module = module_of[nearest(every, graph.op_parent, is_call | is_node)]

    steps = _optimizer_steps(graph)
    in_step = nearest(every, graph.op_parent, steps) >= 0
    in_node = nearest(every, graph.op_parent, is_node) >= 0
    parts = optimizer_parts(graph, steps, of_gradient, parent)
    _attribute(graph, in_step, parts, module)
    phase = np.select(
        [in_node, in_step, module >= 0], [_BACKWARD, _OPTIMIZER, _FORWARD], _OTHER
    ).astype(np.uint8)
    call = graph.recorded_launchers
    work = np.flatnonzero(call >= 0)
    module[work], phase[work] = module[call[work]], phase[call[work]]
    return ModuleTree(tuple(paths), parent, module, phase, is_call, is_recorded, parts.how)


def _calls(graph: EventGraph) -> tuple[Bools, bool]:
    """Return which operations are calls of modules, and whether they were recorded as such.

    Regions that torch.compile compiled are modules, too.
    """
    kind = graph.gather("category")
    is_call = (kind == "python").to_numpy() & graph.named(f"^{_CALL}")
    is_region = _regions(graph, kind)
    if is_call.any():
        return is_call | is_region, True
    is_module = graph.named(_FEED_FORWARD) | ~graph.named(_NO_MODULE)
    is_range = (kind == "annotation").to_numpy() & is_module
    is_range &= (graph.gather("comm_type") == "none").to_numpy()
    return is_range | is_region, False


def _regions(graph: EventGraph, kind: pl.Series) -> Bools:
    """Return the calls of compiled regions; without any those of compiled graphs, but for backward.

    bool, shape (ops,).
    """
    is_marked = kind.is_in(["annotation", "operator"]).to_numpy()
    found = is_marked & graph.named(_REGION)
    if found.any() or not (calls := is_marked & graph.named(_COMPILED)).any():
        return found
    ops = np.flatnonzero(calls)
    calls[ops[nearest(ops, graph.op_parent, graph.named(_AUTOGRAD)) >= 0]] = False
    return calls


def _optimizer_steps(graph: EventGraph) -> Bools:
    kind = graph.gather("category")
    return kind.is_in(["annotation", "operator"]).to_numpy() & graph.named(_OPTIMIZER_STEP)


def _mask(graph: EventGraph, ops: Ints) -> Bools:
    mask = np.zeros(graph.num_ops, dtype=np.bool_)
    mask[ops] = True
    return mask


def _communicates(graph: EventGraph, nodes: BackwardNodes, is_node: Bools) -> Bools:
    """Return which accumulations of gradients communicate: for the gradients of other modules too.

    bool, shape (nodes,).
    """
    is_comm = (graph.gather("comm_type") != "none").to_numpy() | graph.named(_COMMUNICATION)
    call = graph.recorded_launchers[is_comm]
    ops = np.concatenate([np.flatnonzero(is_comm), call[call >= 0]])
    holds = _mask(graph, np.zeros(0, dtype=np.int64))
    within = nearest(ops, graph.op_parent, is_node)
    holds[within[within >= 0]] = True
    return nodes.is_gradient & holds[nodes.ops]


def _attribute(graph: EventGraph, in_step: Bools, parts: OptimizerParts, module: Ints) -> None:
    """Fill in the modules of an optimizer's operations, and of what is nested in them."""
    part = np.append(parts.module, -1)
    inner = np.flatnonzero(in_step & (module < 0))
    module[inner] = part[nearest(inner, graph.op_parent, parts.module >= 0)]


def _call_tree(graph: EventGraph, is_call: Bools) -> _Calls:
    ops = np.flatnonzero(is_call)
    ops = ops[np.argsort(graph.time[2 * ops], kind="stable")]
    position = np.full(graph.num_ops + 1, -1, dtype=np.int64)
    position[ops] = np.arange(ops.size)
    around = position[nearest(graph.op_parent[ops], graph.op_parent, is_call)]
    names = graph.names(ops).str.strip_prefix(_CALL).str.replace(_COMPILED, "$1")
    name = names.rank("dense").to_numpy().astype(np.int64) - 1
    return _Calls(ops, name, names.unique().sort().to_list(), around)


def _modules(calls: _Calls) -> tuple[Ints, list[str], Ints]:
    """Return the module of each call, the path of each module, and the module around it.

    A module that runs again in the backward (activation checkpointing) has no call around it,
    but an earlier one with the same name has: it is the same module.
    """
    code = calls.name
    module = np.full(calls.ops.size, -1, dtype=np.int64)
    known: dict[tuple[int, int], int] = {}
    paths: list[str] = []
    parent: list[int] = []
    inner = calls.around >= 0
    again = ~inner & np.isin(code, code[inner])
    ready = np.flatnonzero(~inner & ~again)
    for _ in range(_DEEPEST):
        if not (ready.size or again.any()):
            break
        if not ready.size:  # nothing else is left: what runs again
            ready, again = np.flatnonzero(again), np.zeros_like(again)
            by_name = {name: number for (_, name), number in reversed(known.items())}
        else:
            by_name = {}
        above = np.where(inner[ready], module[calls.around[ready]], -1)
        pairs, first, which = np.unique(
            np.stack([above, code[ready]]), axis=1, return_index=True, return_inverse=True
        )
        numbers = np.empty(first.size, dtype=np.int64)
        for place in np.argsort(first).tolist():
            around, name = (int(number) for number in pairs[:, place])
            same = by_name.get(name, -1) if around < 0 else -1
            if same < 0 and (around, name) not in known:
                known[around, name] = len(paths)
                paths.append(_path(paths[around] if around >= 0 else "", calls.names[name]))
                parent.append(around)
            numbers[place] = same if same >= 0 else known[around, name]
        module[ready] = numbers[which.ravel()]
        ready = np.flatnonzero(inner & (module < 0) & (module[calls.around] >= 0))
    module = np.append(module, -1)[nearest(np.arange(code.size), calls.around, module >= 0)]
    return module, paths, np.array(parent, dtype=np.int64)


def _path(around: str, name: str) -> str:
    """Join a name to the path around it, unless the name already is a path in it."""
    return name if not around or name.startswith(f"{around}.") else f"{around}.{name}"
