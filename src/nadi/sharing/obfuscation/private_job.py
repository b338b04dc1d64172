"""Level ``private``: noisy numbers only: how long ranks compute.

Order, types, number and sizes of communications, and the groups within an axis, name a model's
family; none of them is published. A rank computes for its noisy time in equal parts, and after each
part every axis has one all-reduce, of a size that is the same for every job.

Read the owner's key from a file.

The words that may leave with an obfuscated job: everything else becomes a pseudonym or goes.

The list is short and closed. A column, attribute or word that is not on it cannot leak, because
traces are built from it and not by taking things away.

Discrete Laplace and Gaussian noise, sampled exactly from integers: no rounding of floats can leak.

After Canonne, Kamath and Steinke, The Discrete Gaussian for Differential Privacy (2020),
algorithms 1 to 3.

The axes along which ranks of a job communicate: groups of one size that share no rank.

At level ``private`` what an axis is used for is not published, as it names a model's family: which
types of collectives there are, groups of a few ranks of an axis (experts, tied embeddings) and in
which direction messages go.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from random import Random, SystemRandom

import numpy as np
import polars as pl

from nadi.errors import InputError, Parameter, UsageError
from nadi.files.chakra.chakra_attributes import NAMES_OF_COLUMNS
from nadi.files.files import locate
from nadi.sharing.obfuscation.fidelity import PrivacyLoss
from nadi.sharing.obfuscation.secret_key import SecretKey, key_of
from nadi.trace.categories import HTA_CALLS, KERNEL_CLASSES, OTHER_KERNELS, kernel_class
from nadi.trace.groups import RankGroups
from nadi.trace.operations import DTYPE_NAMES, OP_CLASSES
from nadi.trace.schema import (
    CATEGORIES,
    COMM_TYPES,
    DEP_KINDS,
    DEPS,
    GROUPS,
    ISSUES,
    MATCHES,
    NODE_KINDS,
    NODES,
)
from nadi.trace.trace import Job, Provenance, Trace
from nadi.trace.work import OPERATORS
from nadi.version import __version__

_Members = tuple[int, ...]


def _axes_of(job: Job) -> RankGroups:
    """Return the axes of a job's communication: the groups of each, as roles of a job.

    Ranks that send messages to each other, in one or several steps, are a group. A group whose
    ranks are all in another one counts as that one. O(nodes + groups^2).
    """
    whole: dict[_Members, None] = {}
    pairs: dict[_Members, None] = {}
    for rank in range(len(job.traces)):
        for members, is_message in _uses(job, rank):
            (pairs if is_message else whole)[members] = None
    axes = _disjoint(_maximal([*whole, *_connected(pairs)]))
    groups = {f"group{number}": np.array(axis) for number, axis in enumerate(axes)}
    return RankGroups(groups, len(job.traces))


def _uses(job: Job, rank: int) -> Iterator[tuple[_Members, bool]]:
    """Yield each group in which a rank communicates, or it and a peer, and whether by messages."""
    trace = job.own_trace(rank)
    talks = pl.col("kind").is_in(["COMM_COLL", "COMM_SEND"])
    used = trace.nodes.filter(talks).select("kind", "group", "dst").unique(maintain_order=True)
    for kind, group, dst in used.iter_rows():
        if kind == "COMM_SEND":
            yield tuple(sorted({rank, dst})), True
        elif len(members := _members(trace, group, len(job.traces))) > 1:
            yield members, False


def _members(trace: Trace, group: int, num_ranks: int) -> _Members:
    ranks = trace.groups["ranks"][group].to_list() if group >= 0 else []
    return tuple(sorted(ranks)) or tuple(range(num_ranks))


def _connected(pairs: Iterable[_Members]) -> list[_Members]:
    """Return the sets of ranks that messages connect."""
    found: list[set[int]] = []
    for pair in pairs:
        near = [one for one in found if not one.isdisjoint(pair)]
        found = [one for one in found if one.isdisjoint(pair)]
        found.append(set(pair).union(*near))
    return [tuple(sorted(one)) for one in found]


def _maximal(groups: Iterable[_Members]) -> list[_Members]:
    """Return the groups that are in no other, the largest first."""
    found: list[_Members] = []
    sets: list[set[int]] = []
    for one in sorted(groups, key=lambda group: (-len(group), group)):
        if not any(set(one) <= other for other in sets):
            found.append(one)
            sets.append(set(one))
    return found


def _disjoint(groups: Sequence[_Members]) -> list[list[_Members]]:
    """Put groups of one size that share no rank together."""
    axes: list[list[_Members]] = []
    taken: list[set[int]] = []
    for group in groups:
        for axis, ranks in zip(axes, taken, strict=True):
            if len(axis[0]) == len(group) and ranks.isdisjoint(group):
                axis.append(group)
                ranks.update(group)
                break
        else:
            axes.append([group])
            taken.append(set(group))
    return axes


def discrete_laplace(scale: Fraction, random: Random) -> int:
    """Return a random integer k with a probability proportional to exp(-|k| / scale).

    Added to a number that a neighbor changes by at most ``scale * epsilon``, it spends epsilon.

    Parameters
    ----------
    scale
        More than 0.
    random
        Where uniform integers come from: ``random.SystemRandom()`` for what is published.
    """
    top, bottom = scale.numerator, scale.denominator
    while True:
        rest = random.randrange(top)
        if not _happens(Fraction(rest, top), random):
            continue
        whole = 0
        while _happens(Fraction(1), random):
            whole += 1
        size = (rest + top * whole) // bottom
        negative = random.randrange(2)
        if size or not negative:
            return -size if negative else size


def discrete_laplace_probability(value: int, scale: Fraction) -> float:
    """Return the probability of a value of :func:`discrete_laplace`."""
    from math import exp

    share = exp(-1 / scale)
    return float((1 - share) / (1 + share) * share ** abs(value))


def discrete_gaussian(variance: int, random: Random) -> int:
    """Return a random integer k with a probability proportional to exp(-k² / (2 variance)).

    Added to integers that a neighbor changes by at most s together (L2), it spends s² / (2
    variance) of zero-concentrated differential privacy. Algorithm 3 of the same paper.

    Parameters
    ----------
    variance
        1 or more.
    random
        As of :func:`discrete_laplace`.
    """
    scale = math.isqrt(variance) + 1
    while True:
        found = discrete_laplace(Fraction(scale), random)
        away = abs(found) * scale - variance
        if _happens(Fraction(away * away, 2 * variance * scale * scale), random):
            return found


def _happens(rate: Fraction, random: Random) -> bool:
    """Return True with probability exp(-rate)."""
    while rate > 1:
        if not _happens(Fraction(1), random):
            return False
        rate -= 1
    turn = 1
    # the chance of exactly n turns is that of the n-th term of the series of exp
    while random.randrange(rate.denominator * turn) < rate.numerator:
        turn += 1
    return turn % 2 == 1


_UNIT_NS = 100_000
_BYTES = 1 << 24  # of each all-reduce: one that followed from times would tell these twice
_PARTS = {"times": Fraction(3, 4), "count": Fraction(1, 4)}
LEAST_EPSILON, _MOST_EPSILON = 0.001, 1000.0
_LARGEST_BOTTOM = 10**6
_ROUNDS = 64  # the same for every job: the number of layers and of micro-batches is in none


def noisy_job(job: Job, epsilon: float, random: Random | None = None) -> tuple[Job, PrivacyLoss]:
    """Return a job of noisy times, and what it spends.

    - ``job``: Without names, from :func:`nadi.sharing.obfuscation.obfuscate.simulator_job`, with
      times.
    - ``epsilon``: The privacy loss of the whole release.
    - ``random``: By default the randomness of the operating system. It is not derived from a key:
      noise that comes again for a neighboring job would reveal their difference.
    - Returns job, loss: Ranks that shared a trace share one, whose time is published once.
      O(nodes).
    - Raises UsageError if epsilon is out of range.
    """
    if not LEAST_EPSILON <= epsilon <= _MOST_EPSILON:
        raise UsageError(
            Parameter("epsilon", epsilon), f"it must be {LEAST_EPSILON} to {_MOST_EPSILON:g}",
            "1 is common",
        )  # fmt: skip
    random = random or SystemRandom()
    whole = Fraction(int(epsilon * _LARGEST_BOTTOM), _LARGEST_BOTTOM)  # never more than stated
    part = {name: whole * share for name, share in _PARTS.items()}
    different = list({id(trace): trace for trace in job.traces}.values())
    noise = _UNIT_NS / part["times"]
    times = {id(one): _busiest(one) + discrete_laplace(noise, random) for one in different}
    axes = _axes_of(job)
    made: dict[tuple[int, tuple[str, ...]], Trace] = {}
    traces = []
    for rank, trace in enumerate(job.traces):
        own = tuple(role for role, place in axes.place.items() if place[0][rank] >= 0)
        if (id(trace), own) not in made:
            made[id(trace), own] = _rounds(trace, max(times[id(trace)], 1), own)
        traces.append(made[id(trace), own])
    count = sum(int((trace.nodes["kind"] == "COMP").sum()) for trace in different)
    loss = PrivacyLoss(
        epsilon, {name: float(one) for name, one in part.items()}, _UNIT_NS,
        max(count + discrete_laplace(1 / part["count"], random), 0),
    )  # fmt: skip
    groups = axes if axes.members else RankGroups({}, len(job.traces))
    return Job(tuple(traces), MATCHES.empty(), ISSUES.empty(), rank_groups=groups), loss


def _busiest(trace: Trace) -> int:
    """Return for how many ns the thread or stream that computes longest does so."""
    own, duration = trace.column("exclusive"), trace.column("duration")
    time = np.maximum(np.where(own >= 0, own, duration), 0)
    computes = (trace.nodes["kind"] == "COMP").to_numpy()
    lanes = np.stack([trace.column("thread"), trace.column("stream")], axis=1)[computes]
    _, lane = np.unique(lanes, axis=0, return_inverse=True)
    return int(np.bincount(lane.reshape(-1), time[computes]).max(initial=0))


def _rounds(trace: Trace, time: int, roles: Sequence[str]) -> Trace:
    """Return a trace of equal rounds: a computation, and then one all-reduce after the other."""
    per_round = 1 + len(roles)
    size = _ROUNDS * per_round
    place = np.arange(size) % per_round
    computes = place == 0
    ends = np.rint(np.linspace(0, time, _ROUNDS + 1)).astype(np.int64)
    nothing = np.full(size, -1, dtype=np.int64)

    duration = nothing.copy()
    duration[computes] = np.maximum(np.diff(ends), 1)
    nodes = NODES.build(size, {
        "id": np.arange(size), "kind": np.where(computes, "COMP", "COMM_COLL"),
        "name": np.where(computes, "block", "all_reduce"), "category": ["operator"] * size,
        "is_cpu": np.zeros(size, dtype=np.bool_), "duration": duration,
        "comm_type": np.where(computes, "none", "all_reduce"),
        "comm_bytes": np.where(computes, -1, _BYTES), "group": np.where(computes, -1, place - 1),
    })  # fmt: skip
    before = np.arange(size - 1)
    return Trace(
        nodes=nodes,
        deps=DEPS.build(size - 1, {
            "src": before, "dst": before + 1, "kind": ["data"] * (size - 1),
        }),
        groups=GROUPS.build(len(roles), {"name": list(roles), "ranks": [[] for _ in roles]}),
        issues=ISSUES.empty(), provenance=Provenance(__version__, ()),
        rank=trace.rank, world_size=trace.world_size,
    )  # fmt: skip


_LARGEST = 1 << 16


def read_secret(path: Path | str) -> SecretKey:
    """Read a key: at least 16 random bytes, or their text.

    - Raises InputError if the file cannot be read, or holds no key.
    """
    try:
        with locate(path).open("rb") as file:  # of a pipe, too, which a program of keys writes
            content = file.read(_LARGEST + 1)
    except OSError as error:
        what = f"the key cannot be read: {error.strerror or error}"
        raise InputError(str(path), what, "make one with: openssl rand -hex 32 > FILE") from None
    if len(content) > _LARGEST:
        what = f"a file of over {_LARGEST} bytes is no key"
        raise InputError(str(path), what, "name the file of the key")
    return key_of(content, str(path))


PHASES = ("forward", "backward", "recompute", "optimizer")
BACKENDS = ("nccl", "gloo", "mpi", "ucc", "rccl", "hccl", "cuda:nccl", "cpu:gloo")
ATTRIBUTES = ("op_class", "dtype", "gemm_shape", "comm_priority", "involved_dim")
"""Attributes of nodes that stay, if their values are words of this module or numbers."""

_RUNTIME = frozenset(HTA_CALLS) | {
    f"{runtime}{call}"
    for runtime in ("cuda", "hip")
    for call in (
        "DeviceSynchronize", "StreamSynchronize", "EventSynchronize", "EventRecord",
        "EventRecordWithFlags", "StreamWaitEvent", "EventQuery", "Memcpy", "MemcpyAsync",
        "MemsetAsync", "GraphLaunch", "LaunchKernel", "LaunchKernelExC", "Malloc", "Free",
        "StreamIsCapturing", "ThreadExchangeStreamCaptureMode",
    )
}  # fmt: skip
_STEP = re.compile(r"ProfilerStep#\d{1,9}")
_PREFIXES = ("c10d::", "gloo:", "nccl:")  # by which analyses recognize communication
# each word is of the class that a kernel of this name has
_KERNEL_WORDS = {
    "communication": "nccl", "attention": "attention", "convolution": "conv",
    "matrix multiplication": "gemm", "normalization": "norm", "optimizer": "multi_tensor_apply",
    "embedding": "embedding", "copy": "copy", "sort": "sort", "reduction": "reduce",
    "elementwise": "elementwise", OTHER_KERNELS: "kernel",
}  # fmt: skip
_ON_DEVICE = ("kernel", "memcpy", "memset")

WORDS = frozenset({
    *PHASES, *BACKENDS, *ATTRIBUTES, *_RUNTIME, *_KERNEL_WORDS.values(), *OP_CLASSES, *DTYPE_NAMES,
    *CATEGORIES, *COMM_TYPES, *DEP_KINDS, *NODE_KINDS, *KERNEL_CLASSES, *NAMES_OF_COLUMNS,
    "ProfilerStep", "block", "c10d", "gloo", "nccl",
    *(prefix + word for prefix in _PREFIXES for word in (*COMM_TYPES, *CATEGORIES)),
})  # fmt: skip
"""All words that can be in the files of an obfuscated job besides the names of their fields."""


_NUMBER = re.compile(r"\d+")
# of which the modules, products and messages of generated jobs are named
_GENERATED = frozenset({
    "act", "activation", "adaln", "add_time", "all_gather", "all_reduce", "all_to_all",
    "attention", "attn", "avgpool", "blocks", "bn", "bottom", "box", "boxes", "boxes_loss",
    "broadcast", "bucket", "buffers", "class_token", "classes", "classes_loss", "combine",
    "condition", "conv", "conv_act", "conv_in", "conv_norm_out", "conv_out", "conv_proj",
    "conv_shortcut", "core", "counters", "cross", "depthwise", "dispatch", "down",
    "downsample", "dp", "embedding", "expand", "experts", "fc", "ff", "final", "fpn",
    "from_experts", "gated_", "geglu", "gradient_norm", "gradient_sum", "gradients", "head",
    "image", "indices", "inner", "input", "input_gradient", "interaction", "join",
    "key_value_down", "key_value_norm", "key_value_up", "label", "largest", "layer", "layers",
    "linear", "ln", "ln_", "logits", "loss", "mask", "masks", "maxpool", "mid", "mlp",
    "modulate", "norm", "objectness", "objectness_loss", "optimizer", "out_proj", "output",
    "p", "pointwise", "pool", "pos_embed", "pos_embedding", "pp", "product", "proj",
    "proj_in", "proj_out", "project", "qk_norm", "qkv", "query_down", "query_norm",
    "query_up", "receive_activations", "receive_gradients", "reduce_scatter", "regions",
    "relu", "residual", "resnet", "rest", "rope", "router", "rpn", "send_activations",
    "send_gradients", "shared", "silu", "silu_time", "statistics", "stem", "sum", "sum_",
    "t_embedder", "tables", "time_emb_proj", "time_embedding", "to_experts", "to_kv",
    "to_out", "to_q", "to_qkv", "tokens", "top", "tp", "trunk", "unpatchify", "up", "up_relu",
    "upsample", "upsample_conv", "v", "w", "weight_gradient", "weights", "whole",
    "x_embedder", "y_embedder",
})  # fmt: skip
# of operators that PyTorch and its libraries define, kernels of theirs, and calls of runtimes
_LIBRARIES = (
    r"(aten|prims|prim|c#d|c#d_functional|_c#d_functional|gloo|nccl|fbgemm|torchvision)::[\w.#]+",
    r"gloo:\w+",
    r"nccl:\w+",
    r"(autograd::engine::evaluate_function: )?[\w#]+Backward#",
    r"(autograd::engine::evaluate_function: )?torch::autograd::(AccumulateGrad|CopySlices)",
    r"Optimizer\.(step|zero_grad)#(Adam|AdamW|SGD|RMSprop|Adagrad|NAdam|RAdam)\.(step|zero_grad)",
    r"(cuda|hip|cu)[A-Z][\w#]{2,60}",
    r"(Memcpy|Memset) [\w() >-]+",
    r"nccl\w+(\([\w *,:<>]*\))?",
    r"(void )?(at::native|at::cuda|cudnn|cublas\w*|cutlass\w*|cub|thrust)(::|<)[^/\\\"'@]+",
    r"(ampere|volta|turing|hopper|sm#|maxwell|pascal|implicit_convolve|Cijk)_[\w#]+",
    r"\((no operation|before the recording)\)",
    r"ProfilerStep##",
)
_LIBRARY = re.compile("|".join(f"(?:{one})" for one in _LIBRARIES))


def learned_label(name: str, category: str, comm_type: str, op_class: str) -> str:
    """Return what a model may know an operation by: a name that everybody has, or its class.

    Modules, annotations, files, users and kernels of a job's own become a word of a closed list.
    Numbers in names become ``#``.
    """
    label = _NUMBER.sub("#", name)
    generated = all(part.strip("#") in _GENERATED or part == "#" for part in label.split("."))
    if generated or label in WORDS or _LIBRARY.fullmatch(label):
        return label
    return _NUMBER.sub("#", class_word(name, category, comm_type, op_class)) or "operation"


def kept_name(name: str, category: str) -> bool:
    """Return whether the name of an operation stays: marks of steps, and calls of a runtime."""
    if category in ("runtime", "driver"):
        return name in _RUNTIME
    return _STEP.fullmatch(name) is not None


def class_word(name: str, category: str, comm_type: str, op_class: str) -> str:
    """Return the word before a pseudonym: what kind of operation it is, from a closed list."""
    prefix = next((one for one in _PREFIXES if name.startswith(one)), "")
    if comm_type != "none":
        return prefix + comm_type
    if category in _ON_DEVICE and not op_class:
        return _KERNEL_WORDS[kernel_class(name)]
    return prefix + (op_class or OPERATORS.get(name, ("",))[0] or category)
