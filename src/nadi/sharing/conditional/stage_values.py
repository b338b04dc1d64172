"""Conditions of a job by name, and what they amount to on each stage of its pipeline."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

from nadi.errors import InputError
from nadi.trace.arrays import Ints
from nadi.trace.groups import groups_along

Conditions: TypeAlias = dict[str, int | str | bool]
"""What is known of a job: numbers, words, and whether something holds, by name."""

AXES = ("tp", "cp", "dp", "pp")
"""Parallel axes, in the order in which they number ranks, the first one fastest."""
NEEDED = ("layers", "hidden", "sequence", *AXES, "micro_batch", "global_batch")
LABEL = "family"
"""The condition that names others and decides nothing itself."""
EXPERTS = "experts"
"""The condition of a mixture of experts: how many there are; it needs those that follow."""
OF_EXPERTS = ("top_k", "expert_ffn")
SHARED = "ep"
"""The condition of how many ranks share the experts of a layer."""
_PROPORTIONS = ("heads", "head_dim", "kv_heads", "ffn")
_LARGEST = 1 << 31
_USUAL: Conditions = {"tp": 1, "cp": 1, "dp": 1, "pp": 1, "micro_batch": 1}
_NO_SIZES = {*AXES, SHARED, "layers", "micro_batch", "global_batch", "zero"}
_ENDS, _OF_EXPERTS = "ends of ", "experts "


class StageValues(NamedTuple):
    """What is known of a stage of a job.

    Attributes
    ----------
    sizes
        Numbers that sizes of operations may follow from.
    facts
        What holds: 1 or 0, and few numbers that count axes.
    layers
        Of the model, on this stage.
    stage, stages
        Its number, and how many there are.
    micro_batches
        Of a step.
    """

    sizes: dict[str, float]
    facts: dict[str, float]
    layers: range
    stage: int
    stages: int
    micro_batches: int


def with_usual(conditions: Mapping[str, int | str | bool], where: str) -> Conditions:
    """Return conditions with the usual ones put in.

    - Raises InputError if one that every job has is missing, or is no number that a job can have.
    """
    known = {**_USUAL, **conditions}
    if type(known["dp"]) is type(known["micro_batch"]) is int:
        known.setdefault("global_batch", int(known["dp"]) * int(known["micro_batch"]))
    numbers = {**dict.fromkeys(NEEDED, 1), "zero": 0}
    numbers |= {name: 1 for name in _PROPORTIONS if name in known}
    if EXPERTS in known:
        known.setdefault(SHARED, 1)
        numbers |= dict.fromkeys((EXPERTS, *OF_EXPERTS, SHARED), 1)
    for name, least in numbers.items():
        value = known.get(name, 0 if name == "zero" else None)
        if type(value) is not int or not least <= value < _LARGEST:
            what = "is missing" if value is None else f"is {value!r}"
            raise InputError(where, f"the condition {name} {what}", f"state {name} as a number")
    if EXPERTS in known and not is_shared_equally(known):
        what = f"the condition {SHARED} is {known[SHARED]}, which does not divide experts and ranks"
        raise InputError(where, what, f"state a {SHARED} that divides experts and tp * cp * dp")
    if not micro_batches_of(known):
        what = "global_batch is less than a micro-batch on each data parallel rank"
        raise InputError(where, what, "state at least dp * micro_batch")
    return known


def is_shared_equally(known: Conditions) -> bool:
    """Return whether ranks can share the experts of a layer as the conditions say."""
    shared, expert_tp = int(known[SHARED]), _expert_tp(known)
    return not int(known[EXPERTS]) % shared and not _ranks_of_stage(known) % (shared * expert_tp)


def _ranks_of_stage(known: Conditions) -> int:
    return int(known["tp"]) * int(known["cp"]) * int(known["dp"])


def _expert_tp(known: Conditions) -> int:
    """Return how many tensor parallel ranks share the widths of an expert."""
    return 1 if int(known[SHARED]) > 1 else int(known["tp"])


def _expert_ranks(known: Conditions) -> int:
    """Return how many ranks have the same experts."""
    return _ranks_of_stage(known) // (int(known[SHARED]) * _expert_tp(known))


def stage_layers(layers: int, stages: int, stage: int) -> range:
    """Return the layers of a stage; the last stages have one less where they differ."""
    least, more = divmod(layers, stages)
    first = stage * least + min(stage, more)
    return range(first, first + least + (stage < more))


def values_of_stages(known: Conditions) -> list[StageValues]:
    """Return what conditions amount to on each stage."""
    sizes = _sizes(known)
    facts = _facts(known)
    stages = int(known["pp"])
    found = []
    for stage in range(stages):
        own = stage_layers(int(known["layers"]), stages, stage)
        ends = {"first_stage": float(stage == 0), "last_stage": float(stage == stages - 1)}
        found.append(
            StageValues(
                {**sizes, "stage_layers": float(len(own)), **ends}, {**facts, **ends},
                own, stage, stages, micro_batches_of(known),
            )
        )  # fmt: skip
    return found


def micro_batches_of(known: Mapping[str, int | str | bool]) -> int:
    """Return the micro-batches of a step of one rank."""
    return int(known["global_batch"]) // (int(known["dp"]) * int(known["micro_batch"]))


def _sizes(known: Conditions) -> dict[str, float]:
    """Return the widths of a model, tokens, and one over the ranks of each axis."""
    found = {
        name: float(value) for name, value in known.items()
        if isinstance(value, int) and not isinstance(value, bool) and name not in _NO_SIZES
    }  # fmt: skip
    tp, dp, cp = (float(known[name]) for name in ("tp", "dp", "cp"))
    if {"heads", "head_dim"} <= known.keys():
        # fewer heads of keys than tensor parallel ranks are held by several
        keys = max(float(known.get("kv_heads", known["heads"])), tp)
        found["kv_heads"] = keys
        found["query"] = found["heads"] * found["head_dim"]
        found["key"] = keys * found["head_dim"]
    if EXPERTS in known:
        width, routed = found["expert_ffn"], found["top_k"]
        found["all_experts"] = found[EXPERTS] * width
        found["routed_width"] = routed * width
        found["routed_share"] = routed / found[EXPERTS]
        # what a rank has of them
        shared = float(known[SHARED])
        found["own_experts"] = found[EXPERTS] / shared
        found["own_width"] = width / _expert_tp(known)
        found["own_share"] = found["routed_share"] * shared
        found["sent_copies"] = routed * shared
        found["per_edp"] = 1 / _expert_ranks(known)
    elif "ffn" in found:
        found["dense_width"] = found["ffn"]
    batch = float(known["micro_batch"])
    tokens = batch * found["sequence"] / cp
    return {
        **found, "micro_batch": batch, "tokens": tokens,
        # outside of products that tensor parallel ranks share
        "own_tokens": tokens / tp if known.get("sequence_parallel") else tokens,
        "whole_tokens": batch * found["sequence"], "per_tp": 1 / tp, "per_dp": 1 / (dp * cp),
    }  # fmt: skip


def _facts(known: Conditions) -> dict[str, float]:
    # first, as equally good questions are asked in this order, and both axes share weights; then
    # what kind of layers there are, before how these are spread
    found = {"dp * cp > 1": float(int(known["dp"]) * int(known["cp"]) > 1)}
    if EXPERTS in known:
        found["has experts"] = 1.0
    found |= {f"{axis} > 1": float(int(known[axis]) > 1) for axis in AXES}
    if "kv_heads" in known:
        found["tp > kv_heads"] = float(int(known["tp"]) > int(known["kv_heads"]))
    if EXPERTS in known:
        found["expert_tp > 1"] = float(_expert_tp(known) > 1)
        found["ep > 1"] = float(int(known[SHARED]) > 1)
        found["edp > 1"] = float(_expert_ranks(known) > 1)
    for name, value in known.items():
        if isinstance(value, bool):
            found[name] = float(value)
        elif isinstance(value, str) and name != LABEL:
            found[f"{name} = {value}"] = 1.0
    for stage in range(1, int(known.get("zero", 0)) + 1):
        found[f"zero >= {stage}"] = 1.0
    return found


def group_ways() -> Iterator[str]:
    """Name the ways in which process groups may lie along the axes, those of few axes first."""
    for mask in sorted(range(1, 1 << len(AXES)), key=int.bit_count):
        yield "+".join(axis for place, axis in enumerate(AXES) if mask >> place & 1)
    yield from (_ENDS + axis for axis in AXES)
    yield from ("kv", _OF_EXPERTS + SHARED, f"{_OF_EXPERTS}edp")


def members_of(way: str, known: Conditions) -> Ints:
    """Return the groups of a way; int64, shape (groups, members), none without experts."""
    axes = {axis: int(known[axis]) for axis in AXES}
    if way == "kv":
        copies = _key_copies(known)
        return groups_along({"kv": copies, **axes, "tp": axes["tp"] // copies}, ["kv"])
    if way.startswith(_OF_EXPERTS):
        if EXPERTS not in known:
            return np.zeros((0, 0), dtype=np.int64)
        ranks = {"expert_tp": _expert_tp(known), SHARED: int(known[SHARED]),
                 "edp": _expert_ranks(known), "pp": axes["pp"]}  # fmt: skip
        return groups_along(ranks, [way.removeprefix(_OF_EXPERTS)])
    if way.startswith(_ENDS):
        whole = groups_along(axes, [way.removeprefix(_ENDS)])
        # of one stage, both ends are the same rank
        ends = [0, -1] if whole.shape[1] > 1 else [0]
        return np.ascontiguousarray(whole[:, ends])
    return groups_along(axes, way.split("+"))


def _key_copies(known: Conditions) -> int:
    return max(int(known["tp"]) // int(known.get("kv_heads", known["tp"])), 1)


def spans_stages(way: str) -> bool:
    """Return whether groups of a way have ranks of several stages."""
    return "pp" in way.removeprefix(_ENDS).split("+")
