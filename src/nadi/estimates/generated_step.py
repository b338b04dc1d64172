"""The seconds and bytes of a whole step by the default rules: the default for ``step_costs``.

Stages differ: the first has the embedding, the last the head and the loss, and where the layers do
not divide, the last ones have one less.

The 96 statistics of Calculon, by its names, from the costs of a step.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nadi.estimates.calculon.block_costs import BlockCosts, OptimizerCosts, StageCosts
from nadi.estimates.calculon.machine_description import MachineDescription
from nadi.estimates.calculon.memory import (
    MemoryUse,
    OffloadTimes,
    TensorBytes,
    memory_use,
)
from nadi.estimates.calculon.overlap import DataParallel
from nadi.estimates.calculon.step_costs import StepCosts, StepSeconds
from nadi.estimates.estimated_model import ModelDescription
from nadi.estimates.execution import Executions, StepShape, shape_of
from nadi.estimates.generated_blocks import EVEN_VISITS, Awaited, GeneratedCosts, VisitShares
from nadi.estimates.rings import RankGroup, message_seconds, share_a_link
from nadi.estimates.shared_tiers import (
    Followed,
    Pipelines,
    SharedMoves,
    at_least,
    pipelines_of,
)
from nadi.estimates.staged_passes import Passes, StagedMoves
from nadi.estimates.step_ends import PartEnds, StepEnds
from nadi.estimates.uneven_pipelines import ChunkSeconds, followed_seconds, is_followed
from nadi.estimates.weight_gathers import GatherSeconds, gather_seconds
from nadi.systems.memory_tiers import streamed_seconds, usual_buffers
from nadi.trace.arrays import Floats

_NO_TIER = np.zeros(1, dtype=np.int64)
_GRADIENT, _STATE, _ADAM_FLOPS = 4.0, 12.0, 11.0


class _Stages(NamedTuple):
    """Seconds of one microbatch on stages; of the first three while they wait for it."""

    first: Floats
    middle: Floats
    last: Floats
    slowest: Floats  # of the slowest stage while others come before and after
    hop: Floats  # of a message to the next stage
    tail: Floats = np.zeros(1)  # of a microbatch after its message to the stage before
    # there, back: for which a forward and a backward wait for a message, and the slowest stage
    there: Floats = np.zeros(1)
    back: Floats = np.zeros(1)
    waiting: Floats = np.zeros(1)

    def with_gathers(self, stages: Floats, added: GatherSeconds) -> _Stages:
        """Add what ZeRO 3 does in each."""
        first, last = self.first + added.first, self.last + added.last
        several = np.maximum(first, last) - np.maximum(self.first, self.last)
        slowest = self.slowest + np.where(stages > 1, several, added.first)
        return self._replace(
            first=first, middle=self.middle + added.middle, last=last, slowest=slowest,
            tail=added.tail,
        )  # fmt: skip

    def with_messages(
        self, shape: StepShape, there: Floats, back: Floats
    ) -> _Stages:  # fmt: skip
        """Add what passes wait for messages on their links, and messages for them.

        ``there`` and ``back`` are seconds of a forward and a backward behind a message that a stage
        sent: behind a forward comes a backward, and the other way round.
        """
        some = np.maximum(shape.chunks - 1, 0.0)
        first = self.first + some * there + shape.chunks * back
        last = self.last + shape.chunks * there + some * back
        middle = self.middle + shape.chunks * (there + back)
        alone, has_middle = shape.stages == 1, shape.stages > 2
        before, after = (
            np.maximum(np.maximum(one, other), np.where(has_middle, between, 0.0))
            for one, between, other in ((self.first, self.middle, self.last), (first, middle, last))
        )
        waiting = np.where(alone, 0.0, after - before)
        return self._replace(
            first=np.where(alone, self.first, first), middle=middle, last=last,
            slowest=self.slowest + waiting, hop=self.hop + (there + back) / 2,
            there=there, back=back, waiting=waiting,
        )  # fmt: skip

    def total(self, stages: Floats) -> Floats:
        """Of all stages."""
        return np.where(stages > 1, self.first + self.last + (stages - 2) * self.middle, self.first)


def generated_step(
    model: ModelDescription, machine: MachineDescription, executions: Executions,
    costs: GeneratedCosts, ends: StepEnds, *, pipelines: Pipelines | None = None,
    follows: bool = True,
) -> StepCosts:  # fmt: skip
    """Put a step together, or what it takes at least if moves of stages are not followed."""
    shape = shape_of(model, executions)
    block, layers, training = costs.block, shape.blocks, executions.training == 1
    optimizer = _optimizer(executions, shape, block, ends)
    moves = _moves_of_update(machine, executions, shape, block, ends)
    gathered = _gathered(executions, shape, ends)
    moved, plain, (turning, first) = _stages(machine, executions, shape, costs, ends)
    stages = plain.with_gathers(shape.stages, gather_seconds(executions, shape, costs, ends))
    gathering, waiting = stages.slowest - plain.slowest, plain.waiting
    closed = _pipeline(shape, stages, executions)
    slowest, transfers, bubble = _followed(model, executions, shape, costs, stages, closed)
    passes, own, late = _slowest_passes(shape, costs, moved, turning, first)
    together = _moving_together(machine, executions, shape, costs, ends)
    shared = _moves_of_stages(executions, costs, ends, moved, stages.hop)
    on_all = _followed_moves(machine, executions, shape, costs, shared, pipelines, follows=follows)
    late = on_all.into(late, on_all.backward - on_all.of(moved.plain[1]))
    reduction, reduced = _reduction(executions, shape, costs, ends, np.maximum(late, 0.0))
    if not follows:  # all gradients can be reduced beside the first states that are loaded
        reduced = on_all.into(reduced, np.full(on_all.rows.size, np.inf))
    extra, bubble = _shared(executions, shape, on_all, (slowest, transfers, bubble), together)
    passes, slowest = passes._replace(forward=passes.forward + extra), slowest + extra
    update, exposed, rate = _streamed(
        machine, executions, moves, gathered, ends, on_all, reduced + _before_update(shape, ends)
    )
    offload, every = moved.times(layers, own, passes, rate), shape.microbatches * layers
    exposed = exposed - _gathered_beside_stores(
        machine, executions, moves, update, exposed,
        moved.before_update + reduced + _drained(machine, executions, shape, moved, on_all),
        gathered,
    )  # fmt: skip
    own_seconds = _layer_seconds(block, offload)
    times = StepSeconds(
        forward=every * block.forward.time,
        backward=every * block.activation.time,
        optimizer=update + _before_update(shape, ends),
        forward_offload=every * offload.forward[0],
        backward_offload=every * offload.backward[0],
        update_offload=exposed,
        computed_again=every * block.again.time,
        exchanged_again=every * block.exchange_again[0].exposed,
        bubble=bubble,
        tensor_parallel=every
        * (block.forward_exchange[0].exposed + block.backward_exchange[0].exposed),
        pipeline_parallel=transfers + shape.microbatches * waiting,
        data_parallel=reduction.exposed + shape.microbatches * gathering,
        ends=shape.microbatches * (slowest - gathering - waiting - layers * own_seconds),
    )
    exchanges = block.forward_exchange, block.backward_exchange, block.exchange_again
    link = [every * one[0].time for one in exchanges]
    hops = shape.microbatches * shape.chunks * stages.hop * (1 + training)
    return StepCosts(
        shape, block, optimizer, times, link[0] + link[1], hops * (shape.stages > 1), link[2],
        offload, reduction, _memory(executions, shape, costs, optimizer, ends),
    )  # fmt: skip


def generated_pipelines(
    model: ModelDescription, machine: MachineDescription, executions: Executions,
    costs: GeneratedCosts, ends: StepEnds,
) -> Pipelines:  # fmt: skip
    """Find the pipelines whose moves are followed, for any bandwidth of the second tier.

    With them, :func:`generated_step` knows more of what steps take at least.
    """
    moved = StagedMoves(machine, executions, costs, executions.procs_of_stage)
    hop = _hop(machine, executions, costs.block)
    shared = _moves_of_stages(executions, costs, ends, moved, hop)
    return pipelines_of(machine, executions, shape_of(model, executions), costs, shared)


def _followed_moves(
    machine: MachineDescription, executions: Executions, shape: StepShape, costs: GeneratedCosts,
    moves: SharedMoves, pipelines: Pipelines | None, *, follows: bool,
) -> Followed:  # fmt: skip
    """Follow the moves of stages; if not ``follows``, give what is known without it."""
    if pipelines is None and not follows:
        return at_least(executions, shape, costs, moves)
    if pipelines is None:
        pipelines = pipelines_of(machine, executions, shape, costs, moves)
    return pipelines.followed(machine.mem2, follows=follows)


def _hop(machine: MachineDescription, executions: Executions, block: BlockCosts) -> Floats:
    """Give the seconds of a message to the next stage."""
    group = RankGroup(
        executions.pipeline_par, executions.tensor_par * executions.replicas,
        executions.pipeline_par_net,
    )  # fmt: skip
    return message_seconds(machine, block.boundary, group)


def _waits_for_messages(
    machine: MachineDescription, executions: Executions, costs: GeneratedCosts, hop: Floats
) -> tuple[Floats, Floats]:
    """Give the seconds for which a forward and a backward wait while a message is sent.

    A rank of a switch has one link. On it the first collective of tensor parallel ranks behind a
    message has its turn beside the message, and each is later by what both move at once. Not
    where tensors live in the second tier, whose moves are followed without these turns.
    """
    tensors = RankGroup(executions.tensor_par, np.ones(1, dtype=np.int64), _NO_TIER)
    stages = RankGroup(
        executions.pipeline_par, executions.tensor_par * executions.replicas, _NO_TIER
    )
    e = executions
    moves = (e.weight_offload | e.activations_offload | e.optimizer_offload) == 1
    meets = share_a_link(machine, tensors, stages) & (e.training == 1) & ~moves
    found = []
    for part in (costs.forward, costs.backward):
        late: Floats = np.zeros(1)
        for one in part.awaited[0][:1]:
            late = np.clip(hop - one.latest, 0.0, one.end - one.start)
        found.append(np.where(meets, late, 0.0))
    return found[0], found[1]


def _slowest_passes(
    shape: StepShape, costs: GeneratedCosts, moved: StagedMoves, turning: Passes, first: Passes
) -> tuple[Passes, Floats, Floats]:
    """Give the passes of the slower one of both ends, its layers, and how late a backward is.

    The latter are seconds of a layer on the first stage, in the last micro-batch.
    """
    alone = shape.stages == 1
    is_last = alone | (turning.whole >= first.whole + costs.first.seconds)
    passes = Passes(*(np.where(is_last, *pair) for pair in zip(turning, first, strict=True)))
    few = np.maximum(shape.first, 1.0)
    backward = np.where(alone, turning.backward / shape.blocks, first.last_backward / few)
    return passes, np.where(is_last, shape.last, shape.first), backward - moved.plain[1]


def _stages(
    machine: MachineDescription, executions: Executions, shape: StepShape, costs: GeneratedCosts,
    ends: StepEnds,
) -> tuple[StagedMoves, _Stages, tuple[Passes, Passes]]:  # fmt: skip
    """Work out a micro-batch on each stage, and the passes of the last and of the first one.

    Each has a tier that stages share for itself; what they move at once is followed apart.
    """
    block, alone = costs.block, shape.stages == 1
    moved = StagedMoves(machine, executions, costs, executions.procs_of_stage)
    turning = moved.turning(shape.last, costs.last.seconds, ends.head * _element(block, ends))
    first = moved.passing(shape.first, is_first=True)
    middle = moved.passing(shape.blocks, is_first=False)
    embedding = costs.first.seconds
    stages = _Stages(
        np.where(alone, turning.alone, first.alone) + embedding, middle.alone, turning.alone,
        np.where(
            alone, turning.whole + embedding,
            np.maximum(
                np.maximum(turning.whole, first.whole + embedding),
                np.where(shape.stages > 2, middle.whole, 0.0),
            ),
        ),
        _hop(machine, executions, block),
    )  # fmt: skip
    waits = _waits_for_messages(machine, executions, costs, stages.hop)
    return moved, stages.with_messages(shape, *waits), (turning, first)


def _moving_together(
    machine: MachineDescription,
    executions: Executions,
    shape: StepShape,
    costs: GeneratedCosts,
    ends: StepEnds,
) -> Floats:
    """Give the seconds in which a tier that all stages share moves what a micro-batch needs.

    It is the mean of the stages, as others take what one leaves. While the pipeline fills and
    drains, half of them move.
    """
    moves = StagedMoves(machine, executions, costs, executions.num_procs)
    last = moves.moving(shape.last, ends.head * _element(costs.block, ends))
    first = moves.moving(shape.first, costs.looked_up)
    others = moves.moving(shape.blocks, np.zeros(1))
    found = (first + last + (shape.stages - 2) * others) / shape.stages
    return np.where(machine.mem2.shared_by > executions.procs_of_stage, found, 0.0)


def _moves_of_stages(
    executions: Executions, costs: GeneratedCosts, ends: StepEnds, moved: StagedMoves, hop: Floats
) -> SharedMoves:
    """Say what stages move to the second tier and back."""
    states = _STATE * executions.optimizer_offload
    head = ends.head * _element(costs.block, ends) * executions.weight_offload
    visits = VisitShares(*(
        np.where(moved.loaded_again > 0, one, even)
        for one, even in zip(costs.visits, EVEN_VISITS, strict=True)
    ))  # fmt: skip
    return SharedMoves(
        moved.forward, moved.backward, hop, moved.weights * (1.0 - costs.counts.expert_weights),
        moved.weights * costs.counts.expert_weights, moved.activations, moved.stored_again,
        moved.loaded_again, visits, moved.rows, head,
        states * ends.layer.share, states * ends.first.share, states * ends.last.share,
        moved.latency,
    )  # fmt: skip


def _most_of_groups(
    shape: StepShape, sharing: Floats, layer: Floats, first: Floats, last: Floats
) -> Floats:
    """Give the mean of the stages that share a tier, of those that have most.

    ``layer``, ``first`` and ``last`` are of a layer, the embedding and the head.
    """
    rest = shape.stages - sharing * np.floor((shape.stages - 1) / sharing)  # of the last group
    lone = shape.blocks - shape.first  # embedding and head count as layers
    begin = (sharing * shape.blocks - lone) * layer + first
    end = (rest * shape.blocks - np.minimum(shape.missing, rest) - lone) * layer + last
    every = (shape.num_blocks * layer + first + last) / shape.stages
    found: Floats = np.where(sharing < shape.stages, np.maximum(begin / sharing, end / rest), every)
    return found


def _shared(
    executions: Executions, shape: StepShape, on_all: Followed,
    pipeline: tuple[Floats, Floats, Floats], together: Floats,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Give by how much a tier that stages share extends a microbatch, and the bubble then.

    In inference all stages move at once, so the slowest stage waits for all of them.
    """
    slowest, transfers, bubble = pipeline
    extra = np.where(executions.training == 0, np.maximum(together - slowest, 0.0), 0.0)
    if not on_all.rows.size:
        return extra, bubble
    slowest, transfers, own, count = map(on_all.of, (*pipeline, shape.microbatches))
    rest = on_all.passes - transfers
    kept = np.clip(rest - count * slowest, 0.0, own)
    return on_all.into(extra, (rest - kept) / count - slowest), on_all.into(bubble, kept)


def _layer_seconds(block: BlockCosts, offload: OffloadTimes) -> Floats:
    """Give the seconds of a layer's forward and backward, with all that extends them."""
    return (
        block.forward.time + block.activation.time + block.again.time
        + block.forward_exchange[0].exposed + block.backward_exchange[0].exposed
        + block.exchange_again[0].exposed + offload.forward[0] + offload.backward[0]
    )  # fmt: skip


def _pipeline(
    shape: StepShape, stages: _Stages, executions: Executions
) -> tuple[Floats, Floats, Floats]:
    """Give the seconds of the slowest stage's microbatch, of exposed transfers, and the bubble.

    Steps of inference follow each other, so that the stages stay full: ``steady_step`` is the same
    rule of a simulation. In decoding a microbatch has to pass all stages before its next token.

    Stages wait for the first microbatch to arrive and for the last one to return. With one
    chunk a stage has as many microbatches under way as stages follow it; so each time that these
    have gone and come, it waits for the transfers in between (1F1B).
    """
    num, training = shape.stages, executions.training == 1
    slowest = stages.slowest
    total = stages.total(num) - (num - 1) * shape.chunks * stages.tail
    ways = np.where(training, 2.0, 1.0)
    across = ways * stages.hop * (shape.chunks * num - 1)
    spare = num * slowest - total  # of stages that are faster than the slowest one
    rounds = np.floor((shape.microbatches - 1) / num)
    waits = rounds * np.maximum(across - spare, 0.0) * training
    waits = np.where(shape.chunks > 1, 0.0, waits)
    rest = np.mod(shape.microbatches, num)
    lacking = np.where(
        (rest > 0) & (shape.chunks > 1), (shape.chunks - 1) * (num - rest), 0.0
    )  # fmt: skip
    # the first chunk of each stage has most layers where they differ
    uneven = shape.chunk_blocks / shape.blocks
    bubble = (total - slowest) * uneven + lacking * slowest / shape.chunks
    # before the stages are full, each chunk waits for the slower ones of the stages at both ends
    both = np.minimum(stages.first, stages.last) - stages.middle
    bubble = bubble + np.where(shape.chunks > 1, num * np.maximum(both, 0.0), 0.0)
    transfers = np.where(num > 1, across + waits, 0.0)
    beside = (shape.microbatches - 1) * slowest  # what other microbatches do meanwhile
    late = np.where(executions.decoding == 1, total - slowest + across - beside, 0.0)
    late = np.where(num > 1, np.maximum(late, 0.0), 0.0)
    sent = np.minimum(late, across)
    return (
        slowest, np.where(training, transfers, sent), np.where(training, bubble, late - sent)
    )  # fmt: skip


def _followed(
    model: ModelDescription, executions: Executions, shape: StepShape, costs: GeneratedCosts,
    stages: _Stages, closed: tuple[Floats, Floats, Floats],
) -> tuple[Floats, Floats, Floats]:  # fmt: skip
    """Give the same as :func:`_pipeline` where chunks have different numbers of layers."""
    e = executions
    places = model.num_blocks + 2 * e.ends_as_layers
    moves = (e.weight_offload | e.activations_offload | e.weight_sharding) == 1
    chosen = is_followed(e.pipeline_par, e.pipeline_interleaving, places, e.ends_as_layers)
    chosen = np.broadcast_to(chosen & (e.training == 1) & ~moves, e.num_executions)
    rows = np.flatnonzero(chosen)
    if not rows.size:
        return closed
    parts = [
        one.whole
        for part in (costs, costs.first, costs.last)
        for one in (part.forward, part.backward)
    ]
    fields = (e.pipeline_par, e.pipeline_interleaving, shape.microbatches, e.ends_as_layers, *parts,
              stages.there, stages.back, stages.hop)  # fmt: skip
    table = np.stack([np.broadcast_to(one, e.num_executions)[rows] for one in fields], axis=1)
    different, number = np.unique(table, axis=0, return_inverse=True)
    columns = different.T
    seconds = followed_seconds(
        model.num_blocks, columns[:4].astype(np.int64),
        ChunkSeconds(columns[4:6], columns[6:8], columns[8:10], columns[10:12], columns[12]),
    )  # fmt: skip
    slowest, transfers, bubble = (np.broadcast_to(one, e.num_executions).copy() for one in closed)
    whole, num = seconds[number.reshape(-1)], np.broadcast_to(shape.microbatches, chosen.size)[rows]
    slowest[rows] = np.minimum(slowest[rows], whole / num)
    rest = whole - num * slowest[rows]
    transfers[rows] = np.minimum(transfers[rows], rest)
    bubble[rows] = rest - transfers[rows]
    return slowest, transfers, bubble


def _reduction(
    executions: Executions, shape: StepShape, costs: GeneratedCosts, ends: StepEnds,
    offloading: Floats,
) -> tuple[DataParallel, Floats]:  # fmt: skip
    """Reduce gradients beside the last microbatch's backward, and gather sharded weights.

    ``offloading`` are the seconds by which moves to the second tier lengthen a layer's backward.

    The first stage is the last one to end its backward. A layer's gradients are reduced while the
    layers before it compute; what is left when the first layer is done is exposed, and
    the embedding's: those seconds are returned, too. Where both use the same links, collectives of
    tensor parallelism, and tokens on the way to experts, wait for those of gradients.
    """
    block = costs.block
    alone = shape.stages == 1
    backward = (
        block.activation.time + block.again.time + block.backward_exchange[0].exposed
        + block.exchange_again[0].exposed + offloading
    )  # fmt: skip
    count = shape.chunk_blocks
    # for which the first collective of the next layer waits, and the one after the head
    beside, after_head = (
        _delay(part.shared, costs.backward.awaited) for part in (ends.layer, ends.last)
    )
    # while a layer waits for its tensors, the reduction before it goes on
    beside = np.maximum(beside - offloading, 0.0)
    longer = backward + beside
    # reductions that take longer than the backward begin less often
    slowest = np.maximum(ends.layer.reduce, ends.layer.reduce_experts)
    beside = beside * np.minimum(longer / np.maximum(slowest, 1e-30), 1.0)
    # chunks of the last microbatch are as many microbatches apart as there are stages
    between = (shape.chunks - 1) * shape.stages * (count * longer - beside)

    overlaps = executions.data_par_overlap == 1
    # the last microbatch goes through all stages, and waits for each layer but a chunk's last
    layers = shape.num_blocks - shape.chunks * shape.stages
    waits = np.where(overlaps, layers * beside + after_head, 0.0)

    def late(layer: Floats, first: Floats, last: Floats) -> Floats:
        of_last = np.where(alone, last, 0.0)
        queue = np.maximum(count * layer - (count - 1) * longer, layer)
        queue = np.maximum(queue, of_last - after_head + count * (layer - longer))
        all_chunks = shape.first * layer - between - (count - 1) * longer
        whole = shape.first * layer + of_last
        return np.where(overlaps, np.maximum(queue, all_chunks), whole) + first

    layer, first, last = ends.layer, ends.first, ends.last
    left = np.maximum(
        late(layer.reduce, first.reduce, last.reduce),
        late(layer.reduce_experts, first.reduce_experts, last.reduce_experts),
    )
    is_late = executions.weight_sharding == 0  # else each micro-batch does (``gather_seconds``)
    left, waits = left * is_late, waits * is_late
    gathered = _gathered(executions, shape, ends)
    whole = shape.first * (layer.reduce + layer.reduce_experts) + first.reduce + gathered
    reduces = (executions.data_par > 1) & (executions.training == 1)
    size, none = np.where(reduces, layer.trained * _GRADIENT, 0.0), np.zeros(1)
    return DataParallel(size, whole, waits + left + gathered, none, none), left


def _delay(shared: tuple[Floats, ...], awaited: tuple[tuple[Awaited, ...], ...]) -> Floats:
    """Give how long the first collectives of a layer wait for others on their links."""
    found: Floats = np.zeros(1)
    for seconds, of_role in zip(shared, awaited, strict=True):
        for one in of_role[:1]:
            found = np.maximum(found, seconds - one.latest)
    return found


def _gathered(executions: Executions, shape: StepShape, ends: StepEnds) -> Floats:
    """Give the seconds of gathering the new weights, which ZeRO 3 does when they are used."""
    first, last = ends.first.gathers, ends.last.gathers
    both = np.where(shape.stages == 1, first + last, np.maximum(first, last))
    found: Floats = np.where(shape.stages == 1, shape.blocks, shape.first) * ends.layer.gathers
    found = found + both
    return np.where(executions.weight_sharding == 1, 0.0, found)


def _most(name: str, shape: StepShape, ends: StepEnds) -> Floats:
    """Give what the stage has that has most of it."""
    layer, first, last = (getattr(one, name) for one in (ends.layer, ends.first, ends.last))
    several = np.maximum(shape.first * layer + first, shape.last * layer + last)
    several = np.where(shape.stages > 2, np.maximum(several, shape.blocks * layer), several)
    found: Floats = np.where(shape.stages > 1, several, shape.blocks * layer + first + last)
    return found


def _before_update(shape: StepShape, ends: StepEnds) -> Floats:
    """Give the seconds of the norm of gradients, and of sums among ranks."""
    summed = _most("summed", shape, ends)
    seconds: Floats = ends.norm + ends.table + ends.sum_latency + summed * ends.sum_each
    return seconds


def _element(block: BlockCosts, ends: StepEnds) -> Floats:
    """Give the bytes of a weight."""
    return block.weights / np.maximum(ends.layer.weight, 1)


class _UpdateMoves(NamedTuple):
    """Bytes of the states, and of what an update writes to the second tier."""

    states: Floats
    own: Floats  # of weights that a rank updates itself
    # of those that are gathered after it, that rank's own, and all
    own_gathered: Floats
    gathered: Floats
    mean: Floats  # of the stage that has most, what the mean of all stages has

    def seconds(
        self, machine: MachineDescription, executions: Executions, read: Floats, written: Floats
    ) -> Floats:
        """Give the seconds of moves of the stage that has most, while all stages move theirs."""
        tier = machine.mem2
        found: Floats = np.maximum(
            tier.moving_time(read * self.mean, written * self.mean, executions.num_procs),
            tier.moving_time(read, written, executions.procs_of_stage),
        )
        return found


def _moves_of_update(
    machine: MachineDescription, executions: Executions, shape: StepShape, block: BlockCosts,
    ends: StepEnds,
) -> _UpdateMoves:  # fmt: skip
    share = _most("share", shape, ends)
    away = _element(block, ends) * executions.weight_offload
    gathered = _most("gathered", shape, ends)
    own_gathered = share - (_most("trained", shape, ends) - gathered)  # others have no shares
    sharing = machine.mem2.stages_together(executions).astype(np.float64)
    mean = _most_of_groups(
        shape, sharing, ends.layer.share, ends.first.share, ends.last.share
    )  # fmt: skip
    return _UpdateMoves(
        _STATE * share,
        share * away,
        own_gathered * away,
        gathered * away,
        np.where(share > 0, mean / np.maximum(share, 1.0), 1.0),
    )


def _streamed(
    machine: MachineDescription, executions: Executions, moves: _UpdateMoves, gathered: Floats,
    ends: StepEnds, on_all: Followed, before: Floats,
) -> tuple[Floats, Floats, Floats]:  # fmt: skip
    """Give the seconds of the update, by which its moves extend it, and what rate hides them.

    Stages that are done load states while others work, and in the seconds ``before`` it. Weights
    are stored with the states, part by part. Where they are gathered then, a layer is loaded and
    another one is stored meanwhile.
    """
    states, own, own_gathered, all_gathered, _ = moves
    update: Floats = ends.update + states / _STATE * ends.update_each
    none, tier = np.zeros(1), machine.mem2
    rate = states * (1.0 if tier.duplex else 2.0) / np.maximum(update, 1e-30)
    states = states * executions.optimizer_offload
    load = whole = moves.seconds(machine, executions, states, none)
    if on_all.rows.size:
        held = moves.seconds(
            machine, executions, np.minimum(states, usual_buffers(machine.mem1.capacity)), none
        )
        left = np.maximum(on_all.loaded - on_all.of(before), 0.0)
        load = on_all.into(load, on_all.of(load) + np.minimum(left - on_all.of(held), 0.0))
    store = moves.seconds(machine, executions, none, states + own)
    around = moves.seconds(machine, executions, own_gathered, all_gathered)
    read = states * np.divide(load, whole, out=np.zeros_like(load), where=whole > 0)
    both = np.maximum(moves.seconds(machine, executions, read, states + own), load)
    all_of_it = streamed_seconds(states + own, load, update, store, both)
    exposed = all_of_it - update
    exposed = exposed + np.where(gathered > 0, np.maximum(around - gathered, 0.0), 0.0)
    return update, np.where(executions.training == 1, exposed, 0.0), rate


def _drained(
    machine: MachineDescription, executions: Executions, shape: StepShape, moved: StagedMoves,
    on_all: Followed,
) -> Floats:  # fmt: skip
    """Give the seconds in which stages that share a tier with the first one are done before it.

    They load states meanwhile, with its part of the tier. Those that are followed move others.
    """
    others = machine.mem2.stages_together(executions) - 1
    found: Floats = others * shape.chunk_blocks * moved.backward
    return on_all.into(found, np.zeros(on_all.rows.size))


def _gathered_beside_stores(
    machine: MachineDescription, executions: Executions, moves: _UpdateMoves, update: Floats,
    exposed: Floats, before: Floats, gathered: Floats,
) -> Floats:  # fmt: skip
    """Give the seconds of gathering weights while the last states are still stored.

    States are loaded into buffers in the seconds ``before`` the update: those of the last backward,
    and while the last gradients are reduced. So the update is done before the stores are.
    """
    none, states = np.zeros(1), moves.states * executions.optimizer_offload
    load, held = (
        moves.seconds(machine, executions, size, none)
        for size in (states, usual_buffers(machine.mem1.capacity))
    )
    if not machine.mem2.duplex:  # the last states are loaded between stores
        load = moves.seconds(machine, executions, states, states + moves.own)
    early = np.minimum(before, held)
    updated = np.maximum(update, load - early)
    moved = (executions.optimizer_offload == 1) & (executions.training == 1)
    return np.where(moved, np.clip(update + exposed - updated, 0.0, gathered), 0.0)


def _optimizer(
    executions: Executions, shape: StepShape, block: BlockCosts, ends: StepEnds
) -> OptimizerCosts:
    """Give the optimizer's step of a block."""
    share = ends.layer.share
    trained = block.whole_weight_gradient > 0
    time = share * ends.update_each
    moved = share * (2 * _STATE + _GRADIENT)
    return OptimizerCosts(
        StageCosts(share * _ADAM_FLOPS * trained, time, moved * trained, time, time),
        _kept_gradients(executions, shape, ends.layer) * trained,
        share * _STATE * trained,
    )


def _kept_gradients(executions: Executions, shape: StepShape, part: PartEnds) -> Floats:
    """Give the bytes of a part's gradients that stay till the update.

    ZeRO 2 sums whole ones over micro-batches, and reduces them once; ZeRO 3 reduces each.
    """
    sharded = (executions.gradient_sharding | executions.weight_sharding) == 1
    is_once = (executions.weight_sharding == 0) & (shape.microbatches > 1)
    whole = np.where(sharded & ~is_once, 0.0, part.trained)
    kept: Floats = _GRADIENT * (whole + np.where(sharded, part.share, 0.0))
    return kept


def _memory(
    executions: Executions, shape: StepShape, costs: GeneratedCosts, optimizer: OptimizerCosts,
    ends: StepEnds,
) -> MemoryUse:  # fmt: skip
    """Sum the bytes of the stage that needs most: the first, the one after it, or the last."""
    trained = (executions.training == 1).astype(float)
    block, keeps_whole = costs.block, executions.weight_sharding == 0
    element = _element(block, ends)
    # of gathered weights two layers are there at once
    two = np.where(keeps_whole, 0.0, 2.0 * block.weights)
    own = np.where(keeps_whole, block.weights, ends.layer.own * element)
    block = block._replace(weights=own)
    moves = executions.optimizer_offload == 1
    alone = shape.stages == 1
    cached = shape.blocks * costs.cache * (executions.batch_size // executions.data_par)

    def with_end(
        end: PartEnds, kept: Floats, blocks: Floats, most: Floats = shape.microbatches
    ) -> MemoryUse:  # fmt: skip
        """Sum those of a stage that has blocks, an end, and at most so many microbatches."""
        own = shape._replace(blocks=blocks, microbatches=np.minimum(shape.microbatches, most))
        use = memory_use(executions, own, block, optimizer, gradients_move=False)
        states, none = end.share * _STATE * trained, np.zeros(1)
        extra = TensorBytes(
            np.where(keeps_whole, end.weight, end.own) * element + two,
            kept,
            none,
            none,
            _kept_gradients(executions, shape, end) * trained,
            states,
            cached,
        )
        first = extra._replace(optimizer=np.where(moves, 0.0, states))
        return use._replace(
            whole=TensorBytes(*(a + b for a, b in zip(use.whole, extra, strict=True))),
            tier1=TensorBytes(*(a + b for a, b in zip(use.tier1, first, strict=True))),
            tier2=use.tier2._replace(
                optimizer=use.tier2.optimizer + np.where(moves, states, 0.0)
            ),
        )  # fmt: skip

    both, none = ends.first.with_other(ends.last, np.where(alone, 1.0, 0.0)), np.zeros(1)
    neither = ends.first.with_other(ends.first, -np.ones(1))
    found = with_end(
        both, np.where(alone, costs.last.kept, 0.0), np.where(alone, shape.blocks, shape.first)
    )
    for other in (
        with_end(neither, none, shape.blocks, np.maximum(shape.stages - 1, 1.0)),
        with_end(ends.last, costs.last.kept, shape.blocks, np.ones(1)),
    ):
        is_other = ~alone & (other.tier1_bytes > found.tier1_bytes)
        found = MemoryUse(*(
            TensorBytes(*(np.where(is_other, b, a) for a, b in zip(*pair, strict=True)))
            for pair in zip(found, other, strict=True)
        ))  # fmt: skip
    return found


_SPACES = {
    "weight_space": "weights",
    "act_space": "activations",
    "act_checkpoint_size": "checkpoints",
    "act_grad_space": "activation_gradients",
    "weight_grad_space": "weight_gradients",
    "optimizer_space": "optimizer",
}


def step_statistics(
    machine: MachineDescription, executions: Executions, costs: StepCosts
) -> dict[str, Floats]:
    """Give all statistics: float64, shape (executions,) each.

    Times are seconds, sizes bytes, bandwidths bytes a second. The checkpoints' size with
    offloading has no value in inference: NaN.
    """
    found = _block_statistics(executions, costs) | _step_statistics(machine, executions, costs)
    num = executions.num_executions
    return {name: np.broadcast_to(np.asarray(one, float), num) for name, one in found.items()}


def _block_statistics(executions: Executions, costs: StepCosts) -> dict[str, Floats]:
    block, optimizer = costs.block, costs.optimizer
    stages = {
        "fw": block.forward,
        "re": block.again,
        "agrad": block.activation,
        "wgrad": block.weight,
        "optim": optimizer.step,
    }
    found: dict[str, Floats] = {}
    for name, stage in stages.items():
        found |= _stage(name, stage)
    exchanges = {
        ("fw_tp_time", "fw_tp_size"): block.forward_exchange,
        ("agrad_tp_time", "bw_tp_size"): block.backward_exchange,
        ("recomm_time", "recomm_size"): block.exchange_again,
    }
    for (time, size), pair in exchanges.items():
        for kind, exchange in zip(("baseblock", "edgeblock"), pair, strict=True):
            found[f"{kind}_{time}"] = exchange.time
            found[f"{kind}_{time}_exposed"] = exchange.exposed
            found[f"{kind}_{size}"] = exchange.size
    piped = executions.pipeline_par > 1
    training = executions.training == 1
    overlaps = ~executions.is_named("tensor_par_overlap", "none")
    return found | {
        "block_fw_pp_size": np.where(piped, block.boundary, 0.0),
        "block_bw_pp_size": np.where(piped & training, block.boundary, 0.0),
        "block_dp_size": costs.reduction.size,
        "tp_bw_overlap_req": np.where(overlaps, block.required_bandwidth, 0.0),
        "dp_bw_overlap_req_chunk": costs.reduction.chunk_bandwidth,
        "dp_bw_overlap_req_tail": costs.reduction.tail_bandwidth,
        "block_weight_space": block.weights,
        "block_act_working_space": block.working,
        "block_act_storage_space": block.stored,
        "block_act_checkpoint_size": block.checkpoint,
        "block_weight_grad_space": optimizer.weight_gradient,
        "block_weight_grad_space_no_sharding": block.whole_weight_gradient,
        "block_act_grad_space": block.activation_gradient,
        "block_optimizer_space": optimizer.state,
    }


def _stage(name: str, stage: StageCosts) -> dict[str, Floats]:
    return {
        f"block_{name}_flops": stage.flops,
        f"block_{name}_flops_time": stage.flops_time,
        f"block_{name}_mem_accessed": stage.bytes,
        f"block_{name}_mem_time": stage.memory_time,
        f"block_{name}_time": stage.time,
    }


def _spaces(tensors: TensorBytes, suffix: str) -> dict[str, Floats]:
    return {name + suffix: getattr(tensors, field) for name, field in _SPACES.items()}


def _step_statistics(
    machine: MachineDescription, executions: Executions, costs: StepCosts
) -> dict[str, Floats]:
    times, offload, memory, block = costs.times, costs.offload, costs.memory, costs.block
    training = executions.training == 1
    resident = memory.resident._replace(
        checkpoints=np.where(training, memory.resident.checkpoints, np.nan)
    )
    work = times.forward + times.backward + times.optimizer
    total = times.total
    useful = (
        block.forward.flops + block.activation.flops + block.weight.flops
        + costs.optimizer.step.flops
    )  # fmt: skip
    peak = machine.matrix_peak(executions.datatype)
    compute = costs.shape.blocks * costs.shape.microbatches * useful / peak / work
    return _spaces(resident, "_with_offload") | _spaces(memory.whole, "") | {
        "fw_time": times.forward,
        "bw_time": times.backward,
        "optim_step_time": times.optimizer,
        "recompute_time": times.computed_again,
        "recomm_link_time": costs.link_again,
        "recomm_exposed_time": times.exchanged_again,
        "bubble_time": times.bubble,
        "tp_comm_link_time": costs.tensor_link,
        "pp_comm_link_time": costs.pipeline_link,
        "dp_comm_link_time": costs.reduction.time,
        "tp_comm_exposed_time": times.tensor_parallel,
        "pp_comm_exposed_time": times.pipeline_parallel,
        "dp_comm_exposed_time": times.data_parallel,
        "fw_offload_exposed_time": times.forward_offload,
        "bw_offload_exposed_time": times.backward_offload,
        "total_time": total,
        "act_offload_bw_req": offload.activation_bandwidth,
        "weight_offload_bw_req": offload.weight_bandwidth,
        "optim_offload_bw_req": offload.optimizer_bandwidth,
        "offload_mem_bw_req": offload.bandwidth,
        "proc_mem_tier1_cap_req": memory.tier1_bytes,
        "proc_mem_tier2_cap_req": memory.tier2_bytes,
        "useful_flops": useful,
        "compute_efficiency": compute,
        "system_efficiency": work / total,
        "total_efficiency": compute * work / total,
        "sample_rate": executions.batch_size / total,
    }  # fmt: skip
