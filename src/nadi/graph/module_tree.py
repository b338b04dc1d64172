"""The module that each operation belongs to: its forward, its backward, its optimizer.

Which module's parameters the operators of an optimizer's step work on.

Autograd's nodes of the backward, and the operators of the forward that made them.

The layers of a model, as its modules state them: modules that are alike, side by side.

Layers are modules of one class in one module, with the same modules in them, such as
``encoder.BertLayer_0`` to ``encoder.BertLayer_11``. A module without modules in it is no layer:
the query, key and value of an attention are three ``Linear``, and not three layers.
"""

import re
import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.graph.event_graph import EventGraph
from nadi.recordings.serving_steps import serving_step
from nadi.trace.arrays import Bools, Bytes, Ints
from nadi.trace.rows import nearest

_EVALUATION = r"^autograd::engine::evaluate_function: "
_NODE = rf"{_EVALUATION}|Backward\d*$|^torch::autograd::"
_GRADIENT = r"torch::autograd::AccumulateGrad$"
_FORWARD_THREAD = r'"Fwd thread id"\s*:\s*(\d+)'


@dataclass(frozen=True, eq=False)
class BackwardNodes:
    """The outermost operations of autograd's nodes; arrays of shape (nodes,), in order of start."""

    ops: Ints  # int64: the operation that contains all work of the node
    origin: Ints  # int64: the operator of the forward that made the node, or -1
    # bool: the node accumulates a gradient. No operator of the forward made it.
    is_gradient: Bools


BY_GRADIENTS = "attributed by the gradients that its operators use"
_UNKNOWN = "not attributed: the trace does not state which tensors it uses (a host trace does)"


@dataclass(frozen=True)
class OptimizerParts:
    """The modules of an optimizer's operators."""

    # int64, shape (ops,): the module whose parameters an outermost operator in an optimizer's step
    # works on; of several modules, the innermost one around them; -1 for everything else
    module: Ints
    how: str  # what they were derived from, or why they are unknown; empty without an optimizer


PHASES = ("forward", "backward", "optimizer", "other")
"""The parts of a step; ``other`` is work outside of all modules that is none of them."""

_FORWARD, _BACKWARD, _OPTIMIZER, _OTHER = range(len(PHASES))
CALL = "nn.Module: "
"""What names of calls of modules begin with."""
_DEEPEST = 200  # modules in each other; what is deeper belongs to the last of these
_OPTIMIZER_STEP = r"^Optimizer\.step#"
# annotations of the profiler, of parts of a step, and of libraries; the others name modules
_NO_MODULE = (
    r"^ProfilerStep#|^Optimizer\.|^enumerate\(|^##|^\[|(?i:forward|backward|optimizer)|"
    r"^(?:nccl|gloo|mpi|ucc|xccl|hccl|c10d|record_param_comms)\b"
)
_CALLS_MODULES = r"nn/modules/module\.py\(\d+\): _call_impl$"
_REGION = r"^Torch-Compiled Region"
_COMPILED = r"^## Call (CompiledFxGraph \w+) ##$"
_AUTOGRAD = r"^autograd::engine::evaluate_function"
_FILE = re.compile(r"(?<![^.])[^.]+\.\w+\(\d+\): ")  # where a function begins: train.py(7): step
_FEED_FORWARD = r"(?i)feed[-_. ]?forward"  # a module, whose name has the word
_COMMUNICATION = r"^c10d::|^record_param_comms$"


@dataclass(frozen=True, eq=False)
class ModuleTree:
    """The modules of a job, and the module and phase of each operation."""

    # the path of each module from the outermost one, such as ``Model_0.Block_2.Linear_7``; ranks
    # that run the same modules share them. A module follows those around it; those in one module
    # are in order of their first call.
    paths: tuple[str, ...]
    names: tuple[str, ...]  # of each alone, as recorded: ``nn.Module: Linear_7``
    parent: Ints  # int64, shape (modules,): the module around each, or -1
    module: Ints  # int64, shape (ops,): the innermost module of each operation, or -1
    phase: Bytes  # uint8, shape (ops,): position in ``PHASES``
    is_called: Bools  # bool, shape (ops,): the calls themselves, which contain the forward
    is_recorded: (
        bool  # whether calls of modules are among them, not annotations and functions alone
    )
    # how work of the optimizer was attributed to modules, or why not; empty if there is none
    optimizer: str

    def __repr__(self) -> str:
        return f"<ModuleTree modules={len(self.paths)}>"

    def matching(self, pattern: re.Pattern[str]) -> Bools:
        """Return the modules of which a whole part of the path matches, or several in a row.

        ``layers.2`` matches ``model.layers.2.mlp`` and not ``model.layers.20``. The number of a
        class can be left out: ``Block`` matches ``Block_0``. Of a function it is the name without
        its file, or the whole. bool, shape (modules,).
        """
        parts = _whole_parts(pattern)
        searched = pattern.fullmatch if parts is None else parts.search
        return np.array(
            [bool(searched(function_name(path)) or pattern.fullmatch(path)) for path in self.paths],
            dtype=np.bool_,
        )

    def containing(self, pattern: re.Pattern[str]) -> Bools:
        """Return the modules in whose own name an expression is found; bool, shape (modules,).

        Annotations and functions that count as modules are none of them.
        """
        return np.array(
            [name.startswith(CALL) and pattern.search(name) is not None for name in self.names],
            dtype=np.bool_,
        )

    def named(self, name: str) -> Bools:
        """Return the modules that a recording names so; bool, shape (modules,).

        Without a number the name of a class, ``nn.Module: Linear``, is that of all its modules.
        """
        wanted = re.compile(re.escape(name) + (r"(_\d+)?" if name.startswith(CALL) else ""))
        return np.array([bool(wanted.fullmatch(one)) for one in self.names], dtype=np.bool_)

    def operations(self, modules: Bools) -> Bools:
        """Return the operations of modules and of the modules in them; bool, shape (ops,)."""
        wider = modules.copy()
        for number, around in enumerate(self.parent.tolist()):  # a module follows those around it
            wider[number] |= around >= 0 and wider[around]
        chosen: Bools = np.append(wider, False)[self.module]
        return chosen


def function_name(name: str) -> str:
    """Return the name of a function without the place where it begins."""
    return _FILE.sub("", name)


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

    The forward of a module is what runs in its calls (``nn.Module: NAME_N``; but in recordings with
    Python stacks, annotations and functions that call operators count as modules, too) or in a
    region that torch.compile compiled (``Torch-Compiled Region: 0/1``). The backward of an
    operator is what autograd runs with its sequence number, all operations in it included. A
    gradient is accumulated directly after the operation that computed it, and belongs to its
    module. Work of the optimizer belongs to the module of the gradient that it uses, where the host
    trace states the storages of tensors. Device work belongs to the module of the call that
    launched it. Generated operations state their module in their names. O(ops * depth).
    """
    is_call, is_recorded = _calls(graph)
    if not is_call.any() and (graph.gather("layer").to_numpy() >= 0).any():
        return _stated_modules(graph, is_call)
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
    first = np.unique(module_of_call[module_of_call >= 0], return_index=True)[1]
    names = graph.names(calls.ops[module_of_call >= 0][first]).to_list()
    return ModuleTree(
        tuple(paths), tuple(names), parent, module, phase, is_call, is_recorded, parts.how
    )


def _stated_modules(graph: EventGraph, is_call: Bools) -> ModuleTree:
    """Return the modules in names of generated operations, such as ``layers.3.attention.qkv``.

    What stands before a dot in any name is a module: ``layers.3.attention.qkv.weight_gradient``
    and ``layers.3.attention.qkv`` both belong to the last of these.
    """
    each = graph.names(np.argsort(graph.time[0 : 2 * graph.num_ops : 2], kind="stable"))
    numbers: dict[str, int] = {}
    parent: list[int] = []
    for name in each.unique(maintain_order=True).to_list():
        parts, around = name.split(".")[:_DEEPEST], -1
        for depth in range(1, len(parts)):
            path = ".".join(parts[:depth])
            if path not in numbers:
                numbers[path] = len(parent)
                parent.append(around)
            around = numbers[path]
    names = graph.names(np.arange(graph.num_ops))
    own = {one: numbers.get(one, numbers.get(one.rpartition(".")[0], -1))
           for one in names.unique().to_list()}  # fmt: skip
    module = np.array([own[one] for one in names.to_list()], dtype=np.int64)
    stated = graph.gather("phase").cast(pl.String)
    phase = np.full(graph.num_ops, _OTHER, dtype=np.uint8)
    for number, word in enumerate(PHASES):
        phase[(stated == word).to_numpy()] = number
    around_each = np.array(parent, dtype=np.int64)
    stated_names = tuple(numbers)
    return ModuleTree(stated_names, stated_names, around_each, module, phase, is_call, False, "")


def _calls(graph: EventGraph) -> tuple[Bools, bool]:
    """Return which operations are calls of modules, and whether they were recorded as such.

    Regions that torch.compile compiled are modules, too.
    """
    kind = graph.gather("category")
    is_call = (kind == "python").to_numpy() & graph.named(f"^{CALL}")
    is_region = _regions(graph, kind)
    is_recorded = bool(is_call.any())
    if is_recorded and has_all_functions(graph):
        return is_call | is_region, True
    is_module = graph.named(_FEED_FORWARD) | ~graph.named(_NO_MODULE)
    is_range = (kind == "annotation").to_numpy() & is_module
    is_range &= (graph.gather("comm_type") == "none").to_numpy()
    which, names = graph.name_codes()
    is_range &= np.array([serving_step(name) is None for name in names], dtype=np.bool_)[which]
    holds = np.zeros(graph.num_ops + 1, dtype=np.bool_)
    holds[graph.op_parent[(kind == "operator").to_numpy()]] = True
    is_function = (kind == "python").to_numpy() & holds[:-1]
    return is_range | is_function | is_region | is_call, is_recorded


def has_all_functions(graph: EventGraph) -> bool:
    """Whether all functions of Python were recorded, those of PyTorch that call a module too."""
    calls_modules = graph.named(_CALLS_MODULES)
    return bool((graph.gather("category") == "python").to_numpy()[calls_modules].any())


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
    names = graph.names(ops).str.strip_prefix(CALL).str.replace(_COMPILED, "$1")
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


def optimizer_parts(
    graph: EventGraph, steps: Bools, gradients: Ints, parent: Ints
) -> OptimizerParts:
    """Attribute the operators of optimizers to modules, by the gradients that they use.

    The host trace states the storage of each tensor. A gradient's storage lives from its
    accumulation to the optimizer's step. If the step does the same for each parameter, one
    parameter after the other, all operators between belong to it too.

    - ``graph``: The job.
    - ``steps``: bool, shape (ops,): the steps of optimizers.
    - ``gradients``: int64, shape (ops,): the module of each operation that accumulates a gradient,
      or -1.
    - ``parent``: int64, shape (modules,): the module around each, or -1.
    """
    found = np.full(graph.num_ops, -1, dtype=np.int64)
    if not steps.any():
        return OptimizerParts(found, "")
    if not (gradients >= 0).any():
        return OptimizerParts(found, _UNKNOWN)  # and tables of operands take time
    every = np.arange(graph.num_ops)
    step = nearest(every, graph.op_parent, steps)
    outer = _outermost_operators(graph, steps)
    made = nearest(every, graph.op_parent, gradients >= 0)
    uses = pl.concat([
        _uses(graph, number, made, outer, step) for number in range(len(graph.job.traces))
    ])  # fmt: skip
    if not uses.height:
        return OptimizerParts(found, _UNKNOWN)
    uses = uses.with_columns(module=gradients[uses["made"].to_numpy()])
    for op, modules in uses.group_by("op").agg(pl.col("module").unique()).iter_rows():
        found[op] = _around_all(modules, parent)
    _fill_sections(graph, outer, step, uses, found)
    return OptimizerParts(found, BY_GRADIENTS)


def _outermost_operators(graph: EventGraph, steps: Bools) -> Ints:
    """Return the outermost operator in an optimizer's step around each operation, or -1.

    int64, shape (ops,).
    """
    is_operator = (graph.gather("category") == "operator").to_numpy() & ~steps
    around = nearest(graph.op_parent, graph.op_parent, is_operator | steps)
    is_outermost = is_operator & (around >= 0) & steps[around]
    return nearest(np.arange(graph.num_ops), graph.op_parent, is_outermost)


def _uses(graph: EventGraph, number: int, made: Ints, outer: Ints, step: Ints) -> pl.DataFrame:
    """Return which operators of a rank's optimizer use which gradients.

    ``op``, ``storage``, and ``made``: the operation that accumulated the gradient. Storages are
    named by their address, which is reused later: a gradient counts for the steps of optimizers
    that follow it before another gradient is accumulated.
    A sparse gradient has none and counts by itself: what else its accumulation writes is free at
    once, and used again by the optimizer.
    """
    trace = graph.job.traces[number]
    mine = graph.ops_of_trace(number)
    moment = graph.time[2 * np.where(step >= 0, step, np.arange(graph.num_ops))]
    begins = np.sort(graph.time[2 * np.unique(step[mine][step[mine] >= 0])])
    accumulated = np.sort(moment[np.unique(made[mine][made[mine] >= 0])])
    before = np.searchsorted(accumulated, begins, side="right")
    begins = begins[np.diff(before, prepend=0) > 0]
    operands = trace.operands.filter(pl.col("tensor") >= 0)
    op = graph.ops_of_rows(number)[operands["node"].to_numpy()]
    tensors = trace.tensors[operands["tensor"]]
    storage = tensors["storage_id"].to_numpy()
    storage = np.where(storage > 0, storage, -1 - tensors["tensor_id"].to_numpy())
    is_output = operands["is_output"].to_numpy()
    writes = (op >= 0) & is_output & (made[op] >= 0)
    is_sparse = np.zeros(graph.num_ops, dtype=np.bool_)
    is_sparse[made[op[writes & (storage < 0)]]] = True
    writes &= (storage < 0) | ~is_sparse[made[op]]
    reads = (op >= 0) & ~is_output & (outer[op] >= 0)

    next_step = np.searchsorted(begins, moment[op[writes]], side="left")
    own_step = np.searchsorted(begins, moment[op[reads]], side="right") - 1
    gradients = pl.DataFrame({
        "storage": storage[writes], "period": next_step, "made": made[op[writes]],
    })  # fmt: skip
    used = pl.DataFrame({"storage": storage[reads], "period": own_step, "op": outer[op[reads]]})
    found = used.join(
        gradients.unique(["storage", "period"], keep="last", maintain_order=True),
        on=["storage", "period"],
    )
    return found.select("op", "storage", "made").unique(maintain_order=True)


def _around_all(modules: list[int], parent: Ints) -> int:
    """Return the innermost module around all of some modules, or -1."""
    paths = []
    for module in modules:
        path = [module]
        while path[-1] >= 0:
            path.append(int(parent[path[-1]]))
        paths.append(path[::-1])
    common = -1
    for level in zip(*paths, strict=False):
        if len(set(level)) > 1:
            break
        common = level[0]
    return common


def _fill_sections(
    graph: EventGraph, outer: Ints, step: Ints, uses: pl.DataFrame, found: Ints
) -> None:
    """Attribute operators between those that use gradients, in steps that repeat by parameter."""
    operators = np.flatnonzero(outer == np.arange(graph.num_ops))
    operators = operators[np.argsort(graph.time[2 * operators], kind="stable")]
    code = graph.names(operators).rank("dense").to_numpy()
    place = np.empty(graph.num_ops, dtype=np.int64)
    place[operators] = np.arange(operators.size)
    first = uses.with_columns(step=step[uses["op"].to_numpy()], place=place[uses["op"].to_numpy()])
    first = first.group_by("step", "storage").agg(pl.col("place").min())
    for (one,), each in first.group_by("step", maintain_order=True):
        mine = np.flatnonzero(step[operators] == one)
        ops, names = operators[mine], code[mine]
        length = _section_length(names, np.searchsorted(mine, np.sort(each["place"].to_numpy())))
        if not length:
            continue
        sections = ops.reshape(-1, length)
        of_section = found[sections].max(axis=1, keepdims=True)
        if ((found[sections] >= 0) & (found[sections] != of_section)).any():
            continue
        found[sections] = of_section
        inner = np.flatnonzero((step == one) & (found < 0))
        begin, end = graph.time[2 * inner], graph.time[2 * inner + 1]
        number = np.searchsorted(graph.time[2 * sections[:, 0]], begin, side="right") - 1
        following = np.append(graph.time[2 * sections[1:, 0]], graph.time[2 * ops[-1] + 1])
        between = (number >= 0) & (end <= following[number])
        found[inner[between]] = of_section[number[between], 0]


def _section_length(names: Ints, first: Ints) -> int:
    """Return after how many operators an optimizer's step does the same for the next parameter.

    - ``names``: int64: a number for the name of each operator of the step, in order.
    - ``first``: int64, ascending: where the gradient of each known parameter is first used.
      Parameters that belong to no module are not known.
    - Returns: 0 if the step does not repeat.
    """
    apart = int(np.gcd.reduce(np.diff(first)))
    if not apart or names.size % apart:
        return 0
    # with parameters that are not known between them, two known ones are several sections apart
    all_known = names.size == apart * first.size
    for length in [apart] if all_known else range(1, apart + 1):
        if apart % length == 0 and (names.reshape(-1, length) == names[:length]).all():
            return length
    return 0


def backward_nodes(graph: EventGraph) -> BackwardNodes:
    """Find the nodes of the backward, and what made them.

    A node has the sequence number of the operator that made it, which is the last one to begin
    on its thread with this number: those before it made no node. Each thread counts for
    itself; where several threads used a number, the node's ``Fwd thread id`` decides. Flows
    (``fwdbwd``) say nothing else: PyTorch derives them from the same numbers. O(ops * depth).
    """
    is_operator = (graph.gather("category") == "operator").to_numpy()
    sequence = graph.numbers("sequence")
    is_gradient = is_operator & graph.named(_GRADIENT)
    is_node = is_operator & graph.named(_NODE) & ((sequence >= 0) | is_gradient)
    inside = nearest(graph.op_parent, graph.op_parent, is_node) >= 0
    same = inside & _repeats(graph, is_node, sequence)
    ops = np.flatnonzero(is_node & ~same)
    ops = ops[np.argsort(graph.time[2 * ops], kind="stable")]
    forward = np.flatnonzero(is_operator & ~is_node & (sequence >= 0))
    return BackwardNodes(ops, _origin(graph, ops, forward, sequence), is_gradient[ops])


def _repeats(graph: EventGraph, is_node: Bools, sequence: Ints) -> Bools:
    """Return which operations are the node that is evaluated by the node around them."""
    around = nearest(graph.op_parent, graph.op_parent, is_node)
    found: Bools = (around >= 0) & (sequence[around] == sequence)
    return found


def _origin(graph: EventGraph, nodes: Ints, forward: Ints, sequence: Ints) -> Ints:
    thread = graph.numbers("thread")
    begin = graph.time[0 : 2 * graph.num_ops : 2]

    def table(ops: Ints) -> pl.DataFrame:
        return pl.DataFrame({
            "trace": graph.op_trace[ops], "sequence": sequence[ops], "op": ops,
            "thread": thread[ops], "begin": begin[ops],
        })  # fmt: skip

    asked = table(nodes).filter(pl.col("sequence") >= 0).drop("thread")
    pairs = (
        asked.join(table(forward), on=["trace", "sequence"], suffix="_made")
        .filter(pl.col("begin_made") < pl.col("begin"))
        .sort("begin_made", maintain_order=True)
        .unique(["op", "thread"], keep="last", maintain_order=True)
    )
    if pairs["op"].is_duplicated().any():
        pairs = _on_their_thread(graph, pairs)
    origin = np.full(graph.num_ops, -1, dtype=np.int64)
    origin[pairs["op"].to_numpy()] = pairs["op_made"].to_numpy()
    return origin[nodes]


def _on_their_thread(graph: EventGraph, pairs: pl.DataFrame) -> pl.DataFrame:
    """Keep one operator of a node that has candidates on several threads.

    ``Fwd thread id`` counts threads in an order of its own. An id is the thread on which most of
    its nodes have a candidate, and no two ids are the same thread.
    """
    ops = pairs["op"].unique(maintain_order=True)
    said = pl.DataFrame({"op": ops, "said": _forward_threads(graph, ops.to_numpy())})
    named = pairs.join(said, on="op")
    votes = (
        named.group_by("trace", "said", "thread")
        .agg(count=pl.len(), first=pl.col("begin_made").min())
        .sort("count", "said", "first", descending=[True, False, False])
    )
    taken: set[tuple[int, int]] = set()
    thread_of: dict[tuple[int, int], int] = {}
    for trace, number, thread in votes.select("trace", "said", "thread").iter_rows():
        if (trace, number) not in thread_of and (trace, thread) not in taken:
            thread_of[trace, number] = thread
            taken.add((trace, thread))
    threads = pl.DataFrame(
        [(*key, thread) for key, thread in thread_of.items()],
        schema={name: named.schema[name] for name in ("trace", "said", "thread")}, orient="row",
    )  # fmt: skip
    several = pl.col("op").is_duplicated()
    decided = named.filter(several).join(threads, on=["trace", "said", "thread"], how="semi")
    return pl.concat([named.filter(~several), decided])


def _forward_threads(graph: EventGraph, ops: Ints) -> pl.Series:
    """Read ``Fwd thread id`` of operations; -1 where it is not stated."""
    found = np.full(ops.size, -1, dtype=np.int64)
    of = graph.op_trace[ops]
    for number in np.unique(of).tolist():
        trace, mine = graph.job.traces[number], np.flatnonzero(of == number)
        attributes = trace.attributes
        rows = attributes.rows_named("args")
        owner = attributes.node[rows]
        place = np.searchsorted(owner, graph.op_row[ops[mine]])
        place = np.minimum(place, max(owner.size - 1, 0))
        has = owner[place] == graph.op_row[ops[mine]] if owner.size else np.zeros(0, np.bool_)
        texts = [attributes.span(row).decode(errors="replace") for row in rows[place[has]].tolist()]
        said = pl.Series(texts, dtype=pl.String).str.extract(_FORWARD_THREAD)
        found[mine[has]] = said.cast(pl.Int64, strict=False).fill_null(-1).to_numpy()
    return pl.Series(found)


def node_before(graph: EventGraph, nodes: BackwardNodes) -> Ints:
    """Return the last node before each that computed gradients, on its thread.

    int64, shape (nodes,): a position among the nodes; that of the node itself if it accumulates no
    gradient; -1 without one. Autograd accumulates a gradient as soon as it is complete, before any
    other node.
    """
    place = np.arange(nodes.ops.size)
    table = pl.DataFrame({
        "trace": graph.op_trace[nodes.ops],
        "thread": graph.numbers("thread", nodes.ops),
        "around": graph.op_parent[nodes.ops],
        "computed": pl.Series(place).set(pl.Series(nodes.is_gradient), None),
    })  # fmt: skip
    before = pl.col("computed").forward_fill().over("trace", "thread", "around")
    return table.select(before.fill_null(-1)).to_series().to_numpy()


NO_LAYER, EVERY_LAYER = -1, -2


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
    found[(tree.module < 0) & (tree.phase == PHASES.index("optimizer"))] = EVERY_LAYER
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
