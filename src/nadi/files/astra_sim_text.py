"""ASTRA-sim 1.0's text workloads: the layers of a model and their parallelism.

The first line names the parallelism, the second the number of layers, and each further line
is a layer: its name, a reserved number, then for the forward pass, the gradient of the input
and the gradient of the weights the time to compute, the type and the bytes of the
communication, and last the time to update the weights.  With
``HYBRID_CUSTOMIZED``, one more field states the parallelism of the layer.

One pass of training becomes a trace, the same for every rank, as Chakra's text converter
makes it: node ids and names, order of dependencies, attributes.  Times are microseconds, as
that converter reads them; ASTRA-sim 1.0 itself called them cycles, of 1 ns.  Where the first line
states ``model_parallel_NPU_group:``, as SimAI and AICB write it, they are ns: the converter does
not read such files.  SimAI appends to a communication's type the ranks that perform it, such as
``ALLGATHER_DP_EP``.  This reader differs from the converter as follows:

- It numbers the nodes of the second rank on from the last of the first.  Here ids begin at 0,
  because identical ranks share one trace.
- It turns ``NONE`` into an all-reduce of 0 bytes, and every unknown type into an
  all-reduce.  Here ``NONE`` makes no node, as in ASTRA-sim, and an unknown type is an error.
- It reads as many layers as there are, whatever the second line says.  Here they must agree.
- It refuses ``HYBRID_TRANSFORMER``, its variant that computes forward again, and
  ``HYBRID_CUSTOMIZED``, ``DISTRIBUTED_INFERENCE``.  Here they follow ASTRA-sim 1.0's
  training loops.

One difference from ASTRA-sim 1.0 is kept: in DLRM the last bottom layer waits for the embeddings'
exchange, where ASTRA-sim lets only the first top layer wait.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import polars as pl

from nadi.errors import FormatError, Parameter, UsageError
from nadi.files.files import RawFile
from nadi.trace.attributes import AttributeBuilder, Attributes
from nadi.trace.groups import MOST_RANKS, RankGroups, groups_along
from nadi.trace.issues import IssueLog, summed_issues
from nadi.trace.schema import DEPS, GROUPS, ISSUES, MATCHES, NODES
from nadi.trace.trace import Job, Provenance, Trace
from nadi.version import __version__

_FORMAT = "ASTRA-sim text workload"
_SCHEMA = "1.0.2-chakra.1.0.0"  # what the text converter calls its output
_LINE_END = re.compile(r"\r\n|\r|\n")
_HEAD = re.compile(rb"\s*([A-Z][A-Z_]*)(?:[ \t][^\r\n]*)?[\r\n]+[ \t]*(\S*)")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_DEGREE = re.compile(r"[1-9][0-9]{0,6}")
_US = 1000
_NS = 1
_IN_NS = "model_parallel_NPU_group:"  # in the first line of SimAI and AICB
_LARGEST = 2**63 - 1
_FIELDS = 12
# per word of the text our name and Chakra's number
_COMM_TYPES = {
    "ALLREDUCE": ("all_reduce", 0),
    "ALLGATHER": ("all_gather", 2),
    "ALLTOALL": ("all_to_all", 6),
    "REDUCESCATTER": ("reduce_scatter", 7),
    "BROADCAST": ("broadcast", 5),
}
# whose ranks communicate, where it is not the usual group: SimAI's, at the end of the type
_OF_GROUP = {"_DP_EP": "dp_ep", "_EP": "ep", "_DP": "dp", "_TP": "tp"}
_AXES = {"tp": ("tp",), "ep": ("ep",), "dp_ep": ("dp_ep",), "dp": ("ep", "dp_ep")}
_ASSIGNED = ("astra.dimensions", "astra.groups")  # issues of a trace without groups
_NO_COMM = "NONE"
_WITHIN_RANK = "DATA_REORDER"  # a rank rearranges its own data
_CUSTOMIZED = "HYBRID_CUSTOMIZED"


@dataclass(frozen=True, slots=True)
class _Phase:
    """Work of a layer: time in ns, then a communication of some type and bytes."""

    duration: int
    comm_type: str
    comm_bytes: int
    role: str  # of the ranks that communicate

    def silenced(self) -> _Phase:
        """Return the same work without its communication."""
        return _Phase(self.duration, _NO_COMM, 0, "")


@dataclass(frozen=True, slots=True)
class _Layer:
    name: str
    forward: _Phase
    input_gradient: _Phase
    weight_gradient: _Phase
    update: int
    num_stated: int  # communications that the text gives it
    num_reordered: int  # rearrangements within the rank


@dataclass(frozen=True, slots=True)
class _Workload:
    parallelism: str
    layers: tuple[_Layer, ...]
    last_bottom: int = 0  # DLRM's
    checkpoints: frozenset[int] = frozenset()
    recomputing: frozenset[int] = frozenset()  # layers whose backward pass first goes forward
    options: tuple[str, ...] = ()  # further words of the first line


Rows = tuple[int, ...]


class _Nodes:
    """The nodes so far, and the dependencies of each."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.durations: list[int] = []
        self.comm_types: list[str] = []  # as in the text; empty for compute
        self.comm_bytes: list[int] = []
        self.roles: list[str] = []  # of the ranks that communicate
        self.sources: list[int] = []
        self.targets: list[int] = []

    def compute(self, layer: _Layer, suffix: str, duration: int, waits: Rows) -> int:
        """Add a computation; returns its row."""
        return self._add(f"COMP_NODE_{layer.name}_{suffix}", _Phase(duration, "", -1, ""), waits)

    def communicate(self, layer: _Layer, phase: _Phase, wait: int, suffix: str = "") -> Rows:
        """Add a communication after a computation; returns its row, or none for ``NONE``."""
        if phase.comm_type == _NO_COMM:
            return ()
        name = f"COMM_COLL_NODE_{layer.name}{suffix}_{phase.comm_type}"
        waits = (wait,) if wait >= 0 else ()
        return (self._add(name, replace(phase, duration=-1), waits),)

    def _add(self, name: str, work: _Phase, waits: Rows) -> int:
        row = len(self.names)
        self.names.append(name)
        self.durations.append(work.duration)
        self.comm_types.append(work.comm_type)
        self.comm_bytes.append(work.comm_bytes)
        self.roles.append(work.role)
        self.sources += waits
        self.targets += [row] * len(waits)
        return row


def _forward(nodes: _Nodes, layers: Sequence[_Layer], waits: Rows, suffix: str = "FWD") -> Rows:
    """Add the forward pass of layers, each after the communication of the one before."""
    for layer in layers:
        row = nodes.compute(layer, suffix, layer.forward.duration, waits)
        waits = nodes.communicate(layer, layer.forward, row) or (row,)
    return waits


def _micro(nodes: _Nodes, workload: _Workload) -> None:
    for layer in workload.layers:
        nodes.communicate(layer, layer.weight_gradient, -1)


def _inference(nodes: _Nodes, workload: _Workload) -> None:
    _forward(nodes, workload.layers, ())


def _data(nodes: _Nodes, workload: _Workload) -> None:
    waits: Rows = ()
    for layer in workload.layers:
        waits = (nodes.compute(layer, "FWD", layer.forward.duration, waits),)
    for index, layer in reversed(list(enumerate(workload.layers))):
        weights = nodes.compute(layer, "BWD_WG", layer.weight_gradient.duration, waits)
        nodes.communicate(layer, layer.weight_gradient, weights)
        if index > 0:
            waits = (nodes.compute(layer, "BWD_IG", layer.input_gradient.duration, (weights,)),)


def _overlapping(
    nodes: _Nodes, workload: _Workload, *, with_weights: bool = True, suffix: str = ""
) -> None:
    """Hide the exchange of input gradients behind the gradient of the same layer's weights."""
    waits = _forward(nodes, workload.layers, ())
    for index, layer in reversed(list(enumerate(workload.layers))):
        inputs = nodes.compute(layer, "BWD_IG", layer.input_gradient.duration, waits)
        exchange: Rows = ()
        if index > 0:  # there is no layer before the first that would want its gradient
            exchange = nodes.communicate(layer, layer.input_gradient, inputs, suffix)
        weights = nodes.compute(layer, "BWD_WG", layer.weight_gradient.duration, (inputs,))
        if with_weights:
            nodes.communicate(layer, layer.weight_gradient, weights)
        waits = (weights, *exchange)


def _model(nodes: _Nodes, workload: _Workload) -> None:
    _overlapping(nodes, workload, with_weights=False)


def _data_model(nodes: _Nodes, workload: _Workload) -> None:
    _overlapping(nodes, workload, suffix="_IG_COMM_")  # the only one that the converter marks


def _transformer(nodes: _Nodes, workload: _Workload) -> None:
    """Wait for each exchange of input gradients before the gradient of the weights."""
    layers = workload.layers
    waits = _forward(nodes, layers, ())
    for index, layer in reversed(list(enumerate(layers))):
        if index in workload.recomputing:
            kept = max(c for c in workload.checkpoints if c <= index)
            waits = _forward(nodes, layers[kept:index], waits, "FWD_IN_BCKWD")
        inputs = nodes.compute(layer, "BWD_IG", layer.input_gradient.duration, waits)
        waits = nodes.communicate(layer, layer.input_gradient, inputs) or (inputs,)
        weights = nodes.compute(layer, "BWD_WG", layer.weight_gradient.duration, waits)
        nodes.communicate(layer, layer.weight_gradient, weights)
        waits = (weights,)


def _dlrm(nodes: _Nodes, workload: _Workload) -> None:
    """Exchange embeddings, layer 0, beside the bottom layers; gradients likewise."""
    layers, first = workload.layers, workload.layers[0]
    waits: Rows = ()
    embeddings: Rows = ()
    for index, layer in enumerate(layers):
        if index == workload.last_bottom:
            waits += embeddings
        row = nodes.compute(layer, "FWD", layer.forward.duration, waits)
        waits = (row,)
        if layer.forward.comm_type == "ALLTOALL":
            exchange = nodes.communicate(layer, layer.forward, row)
            embeddings = exchange if index == 0 else embeddings
    gradients: Rows = ()
    for index, layer in reversed(list(enumerate(layers))):
        if index == 0:
            waits += gradients
        weights = nodes.compute(layer, "BWD_WG", layer.weight_gradient.duration, waits)
        nodes.communicate(layer, layer.weight_gradient, weights)
        if index > 0:
            waits = (nodes.compute(layer, "BWD_IG", layer.input_gradient.duration, (weights,)),)
        if index == workload.last_bottom + 1:
            gradients = nodes.communicate(first, first.input_gradient, waits[0])


_BUILDERS: dict[str, Callable[[_Nodes, _Workload], None]] = {
    "DATA": _data,
    "MODEL": _model,
    "HYBRID_DATA_MODEL": _data_model,
    "HYBRID_MODEL_DATA": _overlapping,
    "HYBRID_TRANSFORMER": _transformer,
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD": _transformer,
    "HYBRID_DLRM": _dlrm,
    "HYBRID_DLRM_ENHANCED": _dlrm,
    _CUSTOMIZED: _overlapping,
    "DISTRIBUTED_INFERENCE": _inference,
    "MICRO": _micro,
}
PARALLELISMS = tuple(_BUILDERS)
# where a layer of HYBRID_CUSTOMIZED communicates: the rest has no dimension of the network
_WEIGHTS_ONLY = ("DATA", "HYBRID_DLRM", "HYBRID_DLRM_ENHANCED", "MICRO")
_NO_WEIGHTS = ("MODEL", "DISTRIBUTED_INFERENCE")
# ASTRA-sim 1.0 gives each of these its own dimensions of the network for data and for model
_SPLITS_NETWORK = tuple(p for p in PARALLELISMS if p.startswith("HYBRID_") and "DLRM" not in p)


def looks_like(head: bytes) -> bool:
    """Return whether a file's first bytes are those of a text workload.

    A known parallelism is sufficient, so that a damaged second line raises a clear error.
    An unknown one also requires a number in the second line.
    """
    found = _HEAD.match(head.removeprefix(b"\xef\xbb\xbf") + b"\n")
    if not found:
        return False
    return found[1].decode() in _BUILDERS or found[2].isdigit()


def decode(raw: RawFile) -> Trace:
    """Read a text workload.

    - Returns: One training pass of any rank: nodes with ids from 0, in the order in which Chakra's
      converter writes them, and ``data`` dependencies; no start, and no duration of communications,
      which the text does not state.  The whole text is the attribute ``input_file``.  O(layers).
    - Raises FormatError if the workload is invalid; the error states the line.
    """
    text = _text(raw)
    lines = _Lines(raw.name, text)
    workload = _read(lines)
    nodes = _Nodes()
    _BUILDERS[workload.parallelism](nodes, workload)
    source = raw.source(f"{_FORMAT}, {workload.parallelism}")
    return Trace(
        nodes=NODES.build(len(nodes.names), _columns(nodes)),
        deps=DEPS.build(
            len(nodes.sources), {"src": nodes.sources, "dst": nodes.targets, "kind": "data"}
        ),
        groups=GROUPS.empty(),
        issues=_issues(workload, nodes).table(),
        provenance=Provenance(__version__, (source,)),
        given_attributes=_attributes(nodes, text),
    )


def is_text_workload(trace: Trace) -> bool:
    """Return whether a trace was read from a text workload."""
    return any(one.format.startswith(_FORMAT) for one in trace.provenance.sources)


def job_of_text(trace: Trace, num_ranks: int = 0) -> Job | list[Trace]:
    """Let all ranks of a text workload run its trace, in the groups that its first line states.

    The first line of SimAI and AICB states the degrees of tensor (``model_parallel_NPU_group:``),
    expert (``ep:``) and pipeline parallelism (``pp:``), and all ranks (``all_gpus:``). As in SimAI,
    communication for gradients of weights is among data parallel ranks, and other communication
    among tensor parallel ones, where its type does not name others. Tensor parallel ranks follow
    each other, then those of an expert's group, then replicas, then stages. Without these words all
    communication is among all ranks.

    - ``trace``: As :func:`decode` gives it.
    - ``num_ranks``: How many ranks there are; 0 for those that the file states, else one.
    - Returns Job or list of Trace: A job whose groups are roles, if the file states them; else the
      trace of each rank.
    - Raises UsageError if the degrees do not divide the ranks, or there are too many.
    """
    (row,) = trace.attributes.rows_named("input_file").tolist()
    source = trace.provenance.sources[0]
    workload = _read(_Lines(source.path, str(trace.attributes.python_value(row))))
    stated = _degrees(workload.options)
    has_groups = _IN_NS in stated and workload.parallelism in _SPLITS_NETWORK
    tp, ep, pp = (stated.get(key, 1) if has_groups else 1 for key in (_IN_NS, "ep:", "pp:"))
    world = num_ranks or (stated.get("all_gpus:", tp) if has_groups else 1)
    if world % (tp * ep * pp) or world > MOST_RANKS:
        raise UsageError(
            Parameter("ranks", num_ranks or None),
            f"{source.path}: {world} ranks are no multiple of tp {tp} times ep {ep} times pp {pp}, "
            f"or more than {MOST_RANKS}", "give a smaller multiple",
        )  # fmt: skip
    if not has_groups:
        return [trace] * world
    sizes = {"tp": tp, "ep": ep, "dp_ep": world // (tp * ep * pp), "pp": pp}
    log = IssueLog()
    log.add(
        "astra.ranks", "info", world,
        f"ranks as {'given' if num_ranks else 'the file states'}: tp {tp}, ep {ep}, "
        f"dp {world // (tp * pp)}, pp {pp}; communication in groups of one rank takes no time",
        "" if num_ranks else "--ranks gives another number of ranks",
    )  # fmt: skip
    return _in_groups(trace, workload, sizes, log)


def _in_groups(trace: Trace, workload: _Workload, sizes: Mapping[str, int], log: IssueLog) -> Job:
    """Return the job of ranks along axes, the first of which is the fastest."""
    nodes = _Nodes()
    _BUILDERS[workload.parallelism](nodes, workload)
    roles = [role for role in _AXES if role in nodes.roles]
    kept = trace.issues.filter(~pl.col("code").is_in(_ASSIGNED))
    shared = replace(
        trace,
        nodes=trace.nodes.with_columns(
            group=pl.Series([roles.index(role) if role else -1 for role in nodes.roles])
            .cast(trace.nodes.schema["group"])
        ),
        groups=GROUPS.build(len(roles), {"name": roles, "ranks": [[] for _ in roles]}),
        issues=summed_issues([kept, log.table()]),
    )  # fmt: skip
    world = math.prod(sizes.values())
    groups = RankGroups({role: groups_along(sizes, _AXES[role]) for role in roles}, world)
    return Job((shared,) * world, MATCHES.empty(), ISSUES.empty(), rank_groups=groups)


def _degrees(options: Sequence[str]) -> dict[str, int]:
    """Return the numbers above 0 of the first line that follow a word with a colon."""
    return {
        key: int(value) for key, value in pairwise(options)
        if key.endswith(":") and _DEGREE.fullmatch(value)
    }  # fmt: skip


def _columns(nodes: _Nodes) -> dict[str, object]:
    types = [_comm_type(word)[0] if word else "none" for word in nodes.comm_types]
    return {
        "id": list(range(len(nodes.names))),
        "name": nodes.names,
        "kind": ["COMM_COLL" if word else "COMP" for word in nodes.comm_types],
        "category": "kernel",
        "duration": nodes.durations,
        "is_cpu": False,
        "comm_type": types,
        "comm_bytes": nodes.comm_bytes,
    }


def _comm_type(word: str) -> tuple[str, int]:
    """Return our name and Chakra's number of a type that may end in a group."""
    return _COMM_TYPES[_without_group(word)]


def _without_group(word: str) -> str:
    ending = next((group for group in _OF_GROUP if word.endswith(group)), "")
    return word.removesuffix(ending)


def _attributes(nodes: _Nodes, text: str) -> Attributes:
    builder = AttributeBuilder()
    builder.add(-1, "version", "operand", "")  # the peer states none; it marks a Chakra trace
    builder.add(-1, "schema", "string", _SCHEMA)
    builder.add(-1, "input_file", "string", text)
    for row, word in enumerate(nodes.comm_types):
        if word:
            builder.add(row, "comm_type", "int64", _comm_type(word)[1])
            builder.add(row, "comm_size", "int64", nodes.comm_bytes[row])
    return builder.build()


def _issues(workload: _Workload, nodes: _Nodes) -> IssueLog:
    log = IssueLog()
    stated = sum(layer.num_stated for layer in workload.layers)
    made = sum(word != "" for word in nodes.comm_types)
    log.add(
        "astra.communication-left-out", "info",
        max(stated - made, 0),  # those made twice were all made once
        f"communications are left out, because {workload.parallelism} does not perform them",
    )  # fmt: skip
    log.add(
        "astra.update-time", "info", sum(layer.update > 0 for layer in workload.layers),
        "layers state a weight update time per KiB, for which the trace has no node",
    )  # fmt: skip
    log.add(
        "astra.dimensions", "info", int(workload.parallelism in _SPLITS_NETWORK),
        f"ASTRA-sim runs data and model parallelism of {workload.parallelism} on separate network "
        "dimensions; in the trace every communication is among all ranks",
        "assign process groups to the communications if that matters",
    )  # fmt: skip
    of_groups = sum(word != "" and word != _without_group(word) for word in nodes.comm_types)
    log.add(
        "astra.groups", "info", of_groups,
        "communications name the ranks that perform them, such as EP; in the trace they are among "
        "all ranks",
        "assign process groups to the communications if that matters",
    )  # fmt: skip
    log.add(
        "astra.reorder", "warning", sum(layer.num_reordered for layer in workload.layers),
        f"phases have {_WITHIN_RANK} instead of a communication; its time is not stated",
        "it is read as no communication",
    )  # fmt: skip
    return log


class _Lines:
    """The lines that are not blank, with their numbers; creates errors with the line."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.ns_per_unit = _US
        numbered = enumerate(_LINE_END.split(text), start=1)
        self.words = [(number, line.split()) for number, line in numbered if line.strip()]

    def error(self, number: int, what: str, remedy: str) -> FormatError:
        return FormatError(f"{self.path}, line {number}", what, remedy)

    def whole(self, number: int, word: str, meaning: str, largest: int = _LARGEST) -> int:
        """Read an integer of 0 or more."""
        value = self.integer(number, word, meaning)
        if value < 0:
            raise self.error(
                number, f"{meaning} is {_short(word)}; it must be 0 or more", "correct the number"
            )
        if value > largest:
            raise self.error(
                number, f"{meaning} is {_short(word)}; the maximum is {largest}",
                "correct the number",
            )  # fmt: skip
        return value

    def integer(self, number: int, word: str, meaning: str) -> int:
        if not _WHOLE.fullmatch(word):
            raise self.error(
                number, f"{meaning} is {_short(word)!r}; it must be a whole number",
                "correct the number, or the fields before it",
            )  # fmt: skip
        # twenty digits are too large already; Python refuses to read thousands
        value = int(word.lstrip("+-0")[:20] or "0")
        return -value if word.startswith("-") else value


def _short(word: str) -> str:
    return word if len(word) <= 30 else f"{word[:27]}..."


def _text(raw: RawFile) -> str:
    """Return the text with every line end as one character."""
    content = raw.content.tobytes()
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise FormatError(
            f"{raw.name}, line {line}", f"not valid UTF-8: byte {content[error.start]:#04x}",
            "save the workload as UTF-8 text",
        ) from None  # fmt: skip
    if (at := text.find("\0")) >= 0:
        raise FormatError(
            f"{raw.name}, line {text.count(chr(10), 0, at) + 1}",
            "the file contains a NUL byte; a workload is plain text", "write the workload again",
        )  # fmt: skip
    return _LINE_END.sub("\n", text)


def _read(lines: _Lines) -> _Workload:
    if len(lines.words) < 2:
        met = "only one line" if lines.words else "nothing"
        raise FormatError(
            lines.path,
            f"the file has {met}; a workload begins with its parallelism and its number of layers",
            "check whether the file was cut off",
        )
    (first, header), (second, counted), *rest = lines.words
    parallelism = header[0]
    if parallelism not in _BUILDERS:
        raise lines.error(
            first, f"unknown parallelism {_short(parallelism)!r}; known are "
            f"{', '.join(PARALLELISMS)}", "correct the first line",
        )  # fmt: skip
    if len(counted) != 1:
        raise lines.error(
            second, f"{len(counted)} words; the second line is the number of layers",
            "write only the number",
        )  # fmt: skip
    num_layers = lines.whole(second, counted[0], "the number of layers")
    if num_layers == 0:
        raise lines.error(second, "0 layers; a workload has at least one", "describe a layer")
    if len(rest) != num_layers:
        number = rest[num_layers][0] if len(rest) > num_layers else lines.words[-1][0]
        raise lines.error(
            number, f"{len(rest)} layers, but line {second} states {num_layers}",
            "correct the number, or check whether the file was cut off",
        )  # fmt: skip
    lines.ns_per_unit = _NS if _IN_NS in header else _US
    layers = tuple(_layer(lines, number, words, parallelism) for number, words in rest)
    return _with_header(lines, first, header, layers)


def _layer(lines: _Lines, number: int, words: list[str], parallelism: str) -> _Layer:
    customized = parallelism == _CUSTOMIZED
    expected = _FIELDS + customized
    if len(words) != expected:
        raise lines.error(
            number, f"{len(words)} fields; a layer of {parallelism} has {expected}: name, "
            "reserved number, then time, communication and bytes three times, update time"
            + (", parallelism" if customized else ""),
            "correct the line",
        )  # fmt: skip
    lines.integer(number, words[1], "the reserved number")
    forward = _phase(lines, number, words[2:5], "forward")
    inputs = _phase(lines, number, words[5:8], "input gradient")
    weights = _phase(lines, number, words[8:11], "weight gradient")
    num_stated = sum(phase.comm_type != _NO_COMM for phase in (forward, inputs, weights))
    num_reordered = sum(words[at] == _WITHIN_RANK for at in (3, 6, 9))
    update = lines.whole(number, words[11], "the update time")
    if customized:
        own = _own_parallelism(lines, number, words[12])
        if own in _WEIGHTS_ONLY:
            forward, inputs = forward.silenced(), inputs.silenced()
        elif own in _NO_WEIGHTS:
            weights = weights.silenced()
    return _Layer(words[0], forward, inputs, weights, update, num_stated, num_reordered)


def _own_parallelism(lines: _Lines, number: int, word: str) -> str:
    known = [p for p in PARALLELISMS if p != _CUSTOMIZED]
    if word not in known:
        raise lines.error(
            number, f"unknown parallelism of a layer {_short(word)!r}; known are "
            f"{', '.join(known)}", "correct the last field",
        )  # fmt: skip
    return word


def _phase(lines: _Lines, number: int, words: list[str], meaning: str) -> _Phase:
    time, comm_type, size = words
    unit = "microseconds" if lines.ns_per_unit == _US else "ns"
    longest = _LARGEST // lines.ns_per_unit
    duration = lines.whole(number, time, f"the {meaning} time in {unit}", longest)
    if comm_type == _WITHIN_RANK:
        comm_type = _NO_COMM
    if comm_type != _NO_COMM and _without_group(comm_type) not in _COMM_TYPES:
        raise lines.error(
            number, f"unknown {meaning} communication {_short(comm_type)!r}; known are "
            f"{', '.join(_COMM_TYPES)} and {_NO_COMM}", "use one of these",
        )  # fmt: skip
    comm_bytes = lines.whole(number, size, f"the {meaning} communication's bytes")
    role = "dp" if meaning == "weight gradient" else "tp"
    role = next((_OF_GROUP[end] for end in _OF_GROUP if comm_type.endswith(end)), role)
    return _Phase(duration * lines.ns_per_unit, comm_type, comm_bytes, role)


def _with_header(
    lines: _Lines, number: int, header: list[str], layers: tuple[_Layer, ...]
) -> _Workload:
    """Read the options after the parallelism in the first line."""
    parallelism, options = header[0], header[1:]
    if "DLRM" in parallelism:
        words = [word for word in options if word != "DLRM_LAST_BOTTOM_LAYER:"]
        if len(words) != 1:
            raise lines.error(
                number, f"{len(words)} numbers after {parallelism}; expected one, the number of "
                "the last bottom layer, counted from 0", f"write it as {parallelism} 4",
            )  # fmt: skip
        last_bottom = lines.whole(number, words[0], "the last bottom layer")
        if not 0 < last_bottom < len(layers) - 1:
            raise lines.error(
                number, f"the last bottom layer is {last_bottom} of {len(layers)} layers counted "
                "from 0; it must come after the embeddings, 0, and before the first top layer",
                "correct the number",
            )  # fmt: skip
        return _Workload(parallelism, layers, last_bottom=last_bottom)
    if not parallelism.endswith("FWD_IN_BCKWD"):
        return _Workload(parallelism, layers, options=tuple(options))
    checkpoints = _numbers_after(lines, number, options, "checkpoints:", len(layers))
    recomputing = _numbers_after(lines, number, options, "checkpoint_initiates:", len(layers))
    if recomputing and min(recomputing) < min(checkpoints, default=len(layers)):
        raise lines.error(
            number, f"layer {min(recomputing)} recomputes the forward pass, but no layer up to it "
            "is a checkpoint", "make an earlier layer a checkpoint",
        )  # fmt: skip
    return _Workload(parallelism, layers, checkpoints=checkpoints, recomputing=recomputing,
                     options=tuple(options))  # fmt: skip


def _numbers_after(
    lines: _Lines, number: int, options: list[str], key: str, num_layers: int
) -> frozenset[int]:
    """Read layer numbers: their count follows the key, then the numbers."""
    if key not in options:
        raise lines.error(
            number, f"{key!r} is missing; it is followed by a count and as many layer numbers",
            f"write, for example, {key} 2 4 8",
        )  # fmt: skip
    words = options[options.index(key) + 1 :]
    count = lines.whole(number, words[0] if words else "", f"the count after {key!r}")
    if len(words) <= count:
        raise lines.error(
            number, f"{max(len(words) - 1, 0)} numbers after {key!r}, but the count is {count}",
            "correct the count",
        )  # fmt: skip
    return frozenset(
        lines.whole(number, word, f"a layer after {key!r}", num_layers - 1)
        for word in words[1 : count + 1]
    )
