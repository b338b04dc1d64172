"""Studies of a second memory tier for several models and systems, in processes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from nadi.errors import UsageError
from nadi.estimates.calculon.estimate_rules import DEFAULT, EstimateRules
from nadi.estimates.estimate_files import read_machine, read_model
from nadi.estimates.search_layouts import search_space
from nadi.forks import refuse_in_fork
from nadi.memory.tiers.study import TierStudy, study_second_tier
from nadi.progress import tell
from nadi.results.terminal.workers import worker_processes
from nadi.systems.memory_tiers import MemoryTier

__all__ = ["STUDIED_MODELS", "STUDIED_SYSTEMS", "StudiedJob", "TierQuestion", "study_second_tiers"]

STUDIED_MODELS = {
    "13b": ("gpt3-13b", 4), "22b": ("megatron-22b", 8), "175b": ("gpt3-175b", 64),
    "530b": ("megatron-530b", 128), "1t": ("megatron-1t", 128),
}  # fmt: skip
"""Short names of models, and on how many ranks they are studied by default."""
STUDIED_SYSTEMS = {"a100": "dgx-a100", "h100": "dgx-h100", "h200": "hgx-h200"}
_RANKS = 64  # of a model without a short name
_ALWAYS: dict[str, Any] = {
    "tensor_par_comm_type": ["rs_ag"], "seq_par_ag_redo": [False], "optimizer_sharding": [True],
}  # fmt: skip
_SPACE = _ALWAYS | {"data_par_overlap": [True]}
# that of the study in verification/calculon.py, with more interleavings
_SPACE_OF_CALCULON = _ALWAYS | {
    "data_par_overlap": [False], "tensor_par_overlap": ["none"], "tensor_par": [1, 2, 4, 8],
    "microbatch_size": [1, 2, 4, 8],
}  # fmt: skip


class TierQuestion(NamedTuple):
    """What is studied of each model and system.

    Attributes
    ----------
    bandwidths, capacities
        Of a tier, in 10^9 bytes a second and in 2^30 bytes.
    tier
        What the tier is otherwise; None for full duplex memory behind CXL.
    ranks
        How many; 0 for the number that ``STUDIED_MODELS`` has.
    global_batch
        Sequences of a step.
    """

    bandwidths: tuple[float, ...] = (32.0, 64.0, 128.0, 256.0, 512.0)
    capacities: tuple[float, ...] = (64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0)
    tier: MemoryTier | None = None
    ranks: int = 0
    global_batch: int = 512


class StudiedJob(NamedTuple):
    """A study of a model on a system, by the names that were given."""

    model: str
    system: str
    ranks: int
    global_batch: int
    study: TierStudy


def study_second_tiers(
    models: Sequence[str] = (), systems: Sequence[str] = (),
    question: TierQuestion | None = None, *, rules: EstimateRules = DEFAULT,
    executor: Executor | None = None,
) -> tuple[StudiedJob, ...]:  # fmt: skip
    """Study what a second memory tier changes for models on systems.

    The space of executions: all degrees of tensor, pipeline and data parallelism, micro-batches,
    interleavings, recomputations, overlaps of tensor parallelism, and all kinds of tensors that can
    be offloaded; with sequence parallelism, a sharded optimizer and overlapped reductions wherever
    there is something to split. By Calculon's rules, nothing overlaps, and at most 8 ranks
    share a tensor and 8 sequences a micro-batch.

    Parameters
    ----------
    models, systems
        Names or files, or short names; by default all of ``STUDIED_MODELS`` and of
        ``STUDIED_SYSTEMS``.
    executor
        Where they are worked out; by default processes, or this one if there is one study.

    Raises
    ------
    InputError
        If a model or a system cannot be read.
    UsageError
        If there is no such name, or no execution fits the ranks and the batch.
    """
    refuse_in_fork()
    asked = question or TierQuestion()
    pairs = [
        (model, system, asked, rules)
        for model in models or STUDIED_MODELS
        for system in systems or STUDIED_SYSTEMS
    ]
    found = []
    tell(0, len(pairs))
    with _mapping(executor, len(pairs)) as mapped:
        for one in mapped(_study, pairs):
            found.append(one)
            tell(len(found), len(pairs))
    return tuple(found)


@contextmanager
def _mapping(executor: Executor | None, num: int) -> Iterator[Any]:
    """Give what applies a function to values, each where there is room."""
    workers = min(os.cpu_count() or 1, num)
    if executor is not None:
        yield executor.map
    elif workers < 2:
        yield map
    else:
        with worker_processes(workers) as pool:
            yield pool.map


def _study(asked: tuple[str, str, TierQuestion, EstimateRules]) -> StudiedJob:
    model, system, question, rules = asked
    name, usual = STUDIED_MODELS.get(model.lower(), (model, _RANKS))
    ranks = question.ranks or usual
    described = read_model(name)
    machine = read_machine(STUDIED_SYSTEMS.get(system.lower(), system), ranks)
    if not machine.mem2.GiB:  # there is one, of which the study says how large it is
        machine = msgspec.structs.replace(
            machine, mem2=msgspec.structs.replace(machine.mem2, GiB=1.0)
        )
    chosen = _SPACE_OF_CALCULON if rules.blocks_of_calculon else _SPACE
    try:
        space = search_space(described, machine, ranks, question.global_batch, chosen, rules=rules)
    except UsageError as error:
        raise UsageError(f"{model} on {ranks} {system}: {error.where}", error.what,
                         error.remedy) from None  # fmt: skip
    study = study_second_tier(space, question.bandwidths, question.capacities, question.tier)
    return StudiedJob(model, system, ranks, question.global_batch, study)
