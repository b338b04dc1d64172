"""What follows the last backward of a step: reductions, the optimizer, and new weights for all.

Each depends on few fields of executions, so it is worked out for their distinct values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from nadi.estimates.calculon.layer_sizes import distinct
from nadi.estimates.calculon.machine_description import MachineDescription
from nadi.estimates.estimated_model import ModelDescription
from nadi.estimates.execution import ELEMENT_BYTES, Executions
from nadi.estimates.layer_programs import PartSizes, Variant, layer_shares, sizes_of
from nadi.estimates.rings import (
    LinkTurns,
    RankGroup,
    collective_seconds,
    link_turns,
    shared_seconds,
)
from nadi.estimates.row_prices import kernel_seconds
from nadi.models.llm.language_model import LanguageModel
from nadi.trace.arrays import Bools, Floats, Ints
from nadi.trace.operations import dtype_code, no_operations, op_class_code

_FIELDS = (
    "tensor_par", "pipeline_par", "data_par", "optimizer_sharding", "expert_par", "datatype",
    "tensor_par_comm_type", "attention_type", "training", "tensor_par_net", "pipeline_par_net",
    "data_par_net", "context_par", "weight_sharding", "lora",
    "expert_tensor_par",
)  # fmt: skip
_GRADIENT = 4.0  # bytes of a weight's gradient
_STATE = 12.0  # bytes of a weight's copy and its two moments
_ADAM_FLOPS = 11.0
_NORM = 4.0  # bytes of the gradients' norm
_SHARING = ("tp", "ep", "cp")  # roles whose collectives wait for those of gradients


class PartEnds(NamedTuple):
    """Of a layer, the embedding or the head: float64, shape (ways,)."""

    weight: Floats  # parameters on a rank
    trained: Floats  # of these, those with gradients
    own: Floats  # of all, those that it holds where weights are sharded
    share: Floats  # of these, those whose optimizer's state it has
    gathered: Floats  # of those with gradients, those that replicas gather after the update
    summed: Floats  # of these, those whose gradients tensor parallel ranks sum
    reduce: Floats  # seconds of reducing dense gradients
    reduce_experts: Floats  # and those of experts
    gather: Floats  # seconds of gathering sharded dense weights
    gather_experts: Floats  # and those of experts
    # seconds of reducing on links of tensor parallelism, on those on which tokens go to experts,
    # and on those of context parallelism
    shared: tuple[Floats, ...]
    # when gathers of dense weights, and those of experts, keep these links
    gather_turns: tuple[tuple[tuple[LinkTurns, ...], ...], ...]

    def with_other(self, other: PartEnds, times: Floats) -> PartEnds:
        """Add the parameters of another part, so many times."""
        return self._replace(
            weight=self.weight + times * other.weight, trained=self.trained + times * other.trained,
            own=self.own + times * other.own, share=self.share + times * other.share,
        )  # fmt: skip

    @property
    def gathers(self) -> Floats:
        """Seconds of gathering all sharded weights."""
        return self.gather + self.gather_experts


class StepEnds(NamedTuple):
    """What the end of a step is made of, float64 of shape (ways,)."""

    layer: PartEnds
    first: PartEnds
    last: PartEnds
    head: Floats  # parameters that the head reads, those of the embedding too where it is its table
    norm: Floats  # seconds of the gradients' norm
    table: Floats  # seconds of summing the embedding's gradient, where the head is its table
    sum_latency: Floats  # seconds of summing one gradient among tensor parallel ranks
    sum_each: Floats  # and of each further one
    update: Floats  # seconds of updating no weight
    update_each: Floats  # and of each weight


def step_ends(
    model: ModelDescription, machine: MachineDescription, executions: Executions
) -> tuple[Ints, StepEnds]:
    """Give each execution's way, and what the end of a step is made of in each."""
    number, ways = distinct(executions, _FIELDS)
    num = ways.num_executions
    language = model.language_model
    parts = [_parts(language, ways, way) for way in range(num)]
    group = _groups(ways)
    layer, first, last = (
        _part_ends(machine, ways, group, np.array([part[k] for part in parts])) for k in range(3)
    )
    element = ELEMENT_BYTES[ways.datatype]
    alone = np.zeros(num)
    sharded = np.where(ways.optimizer_sharding == 1, 1.0, 0.0)
    norm = alone
    for name, there in (("dp", sharded), ("tp", 1.0), ("pp", 1.0)):
        norm = norm + there * _reduced(machine, "all_reduce", np.array([_NORM]), group[name])
    rows = -(-language.vocab // ways.tensor_par)
    table = rows.astype(np.float64) * language.hidden
    both = _reduced(machine, "all_reduce", table * _GRADIENT, group["ends"])
    splits = ways.is_named("tensor_par_comm_type", "rs_ag") & (ways.tensor_par > 1)
    few, many = (
        np.where(
            splits, _reduced(machine, "all_reduce", np.array([size]), group["tp"]), 0.0
        )
        for size in (_GRADIENT, _GRADIENT * (1 << 20))
    )  # fmt: skip
    least, most = (_update(machine, ways, element, count) for count in (0.0, 1e9))
    trained = (ways.training == 1).astype(float)
    tied = float(language.tied_embeddings)
    head = last.weight + tied * table * (ways.pipeline_par == 1)
    rest = (
        norm, tied * both * (ways.lora == 0), few, (many - few) / (1 << 20), least,
        (most - least) / 1e9,
    )  # fmt: skip
    return number, StepEnds(
        layer, first, last, head, *(np.broadcast_to(one * trained, num) for one in rest)
    )


def _parts(language: LanguageModel, ways: Executions, way: int) -> list[tuple[float, ...]]:
    """Give dense and expert weights of a layer, the embedding and the head, and what is summed."""
    row = {name: int(column[way if column.size > 1 else 0])
           for name, column in zip(ways._fields, ways, strict=True)}  # fmt: skip
    fixed = {"microbatch_size": 1, "activation_recompute": 0, "seq_par_ag_redo": 1,
             "fused_activation": 0, "flash_attention": 1, "decoding": 0}  # fmt: skip
    variant = Variant(*((row | fixed)[name] for name in Variant._fields))
    *layers, embedding, last = sizes_of(language, variant).parts
    shares = layer_shares(language).values()

    def values(part: PartSizes) -> tuple[float, ...]:
        return tuple(map(float, (
            part.weight, part.expert_weight, part.trained, part.trained_experts, part.summed,
        )))  # fmt: skip

    layer = np.zeros(5)
    for share, part in zip(shares, layers, strict=True):
        layer += share * np.array(values(part))
    head = values(last)
    if language.tied_embeddings and row["pipeline_par"] == 1:
        table = -(-language.vocab // row["tensor_par"]) * language.hidden
        is_trained = row["lora"] == 0
        head = (head[0] - table, head[1], head[2] - table * is_trained, *head[3:])
    return [tuple(layer.tolist()), values(embedding), head]


def _groups(ways: Executions) -> dict[str, RankGroup]:
    tp, dp, pp, ep = ways.tensor_par, ways.replicas, ways.pipeline_par, ways.expert_par
    one = np.ones(1, dtype=np.int64)
    expert_tp = ways.expert_shares
    inner = tp * dp
    return {
        "tp": RankGroup(tp, one, ways.tensor_par_net),
        "cp": RankGroup(ways.context_par, tp, ways.data_par_net),
        "ep": RankGroup(ep, expert_tp, ways.data_par_net),
        "dp": RankGroup(dp, tp, ways.data_par_net),
        "edp": RankGroup(
            np.maximum(inner // (ep * expert_tp), 1), ep * expert_tp, ways.data_par_net
        ),
        "pp": RankGroup(pp, inner, ways.pipeline_par_net),
        "ends": RankGroup(
            np.where(pp > 1, 2, 1), inner * np.maximum(pp - 1, 1), ways.pipeline_par_net
        ),
    }


def _reduced(machine: MachineDescription, operation: str, size: Floats, group: RankGroup) -> Floats:
    return collective_seconds(machine, operation, size, group)


def _part_ends(
    machine: MachineDescription, ways: Executions, group: dict[str, RankGroup], sizes: Floats
) -> PartEnds:
    """Work out a part; ``sizes`` has dense and expert weights, and what is summed."""
    dense, experts, trained_dense, trained_experts, summed = sizes.T
    sharded = ways.optimizer_sharding == 1
    trained = ways.training == 1
    element = ELEMENT_BYTES[np.broadcast_to(ways.datatype, dense.size)]
    element = np.maximum(element, 2)  # of 8-bit floats, weights are 16-bit ones
    gradients = {"dp": trained_dense * _GRADIENT, "edp": trained_experts * _GRADIENT}
    # ZeRO 3 gathers all weights, and others those that were updated
    every = ways.weight_sharding == 1
    parts = {
        "dp": np.where(every, dense, trained_dense) * element / group["dp"].members,
        "edp": np.where(every, experts, trained_experts) * element / group["edp"].members,
    }
    seconds = []
    for role, size in gradients.items():
        reduced = np.where(
            sharded,
            _reduced(machine, "reduce_scatter", size, group[role]),
            _reduced(machine, "all_reduce", size, group[role]),
        )
        gathered = _reduced(machine, "all_gather", parts[role], group[role])
        seconds.append((reduced * trained, np.where(sharded, gathered, 0.0) * trained))

    def shared(operation: str, moved: dict[str, Floats], other: str) -> Floats:
        # parts of a collective come to each dimension behind those before them, so they wait once
        kept = [shared_seconds(machine, operation, size, group[role], group[other])
                for role, size in moved.items()]  # fmt: skip
        found: Floats = np.sum(kept, axis=0).max(0) * trained
        return found

    reducing = (
        np.where(sharded, shared("reduce_scatter", gradients, other),
                 shared("all_reduce", gradients, other))
        for other in _SHARING
    )  # fmt: skip
    gathering = (
        tuple(tuple(_gather_turns(machine, every & trained, size, group[role], group[other]))
              for other in _SHARING)
        for role, size in parts.items()
    )  # fmt: skip
    trained_all = trained_dense + trained_experts
    share = np.where(
        sharded, trained_dense / group["dp"].members + trained_experts / group["edp"].members,
        trained_all,
    )  # fmt: skip
    own = dense / group["dp"].members + experts / group["edp"].members
    gathered = sharded * (
        trained_dense * (group["dp"].members > 1) + trained_experts * (group["edp"].members > 1)
    )
    (reduce, gather), (reduce_experts, gather_experts) = seconds
    return PartEnds(
        dense + experts, trained_all, own, np.broadcast_to(share, dense.size), gathered, summed,
        reduce, reduce_experts, gather, gather_experts, tuple(reducing), tuple(gathering),
    )  # fmt: skip


def _gather_turns(
    machine: MachineDescription, gathers: Bools, size: Floats, group: RankGroup, other: RankGroup
) -> Iterator[LinkTurns]:
    """Give when gathers keep links that another group uses, too, of links of which some do."""
    if gathers.any():
        for one in link_turns(machine, "all_gather", size, group, other):
            parts = np.where(gathers, one.parts, 0.0)
            if parts.any():
                yield LinkTurns(*np.broadcast_arrays(*one[:3], parts))


def _update(machine: MachineDescription, ways: Executions, element: Floats, count: float) -> Floats:
    """Give the seconds of Adam's update of so many weights."""
    num = ways.num_executions
    element = np.broadcast_to(np.maximum(element, 2), num)
    moved = count * (2 * _STATE + _GRADIENT + element)
    operations = no_operations(num)._replace(
        flops=np.full(num, int(_ADAM_FLOPS * count), dtype=np.int64),
        bytes=moved.astype(np.int64),
        op_class=np.full(num, op_class_code("optimizer"), dtype=np.int64),
        dtype=np.full(num, dtype_code("float32"), dtype=np.int64),
    )
    return kernel_seconds(machine, operations, np.broadcast_to(ways.datatype, num))
