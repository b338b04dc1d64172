"""A job of a network: a trace for all ranks, or for each different share of its tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from nadi.errors import Parameter, UsageError
from nadi.models.job_rows import ADAM_STATE
from nadi.models.llm.stage_traces import plan_from
from nadi.models.networks.layer_kinds import KINDS, Attention, EmbeddingBag, Loss
from nadi.models.networks.network_file import NeuralNetwork
from nadi.models.networks.network_plan import NetworkPlan, TableShare, load_network, table_shares
from nadi.models.networks.network_rows import NetworkStep, step_of, step_rows
from nadi.models.row_traces import StepOrder, job_by_role, step_totals, trace_of_rows
from nadi.trace.arrays import Ints
from nadi.trace.trace import Job, Trace
from nadi.trace.work import Work

_MOST = 1 << 60  # operations or bytes of a node


def job_of_network(network: NeuralNetwork, plan: NetworkPlan) -> Job:
    """Make the job of a training step of a network, or of its inference.

    - ``network``: Its layers.
    - ``plan``: Ranks, samples, and what ranks shard.
    - Returns: ``plan.ranks`` ranks, with groups by role. Those that have as much of the tables
      share a trace. Computations state FLOPs, bytes, class and shape, but no duration.
    - Raises UsageError if network and plan do not fit together.
    """
    steps, kinds = steps_of_kinds(network, plan)
    made = [_trace(step) for step in steps]
    return job_by_role([made[kind] for kind in kinds], plan.groups())


def steps_of_kinds(
    network: NeuralNetwork, plan: NetworkPlan
) -> tuple[list[NetworkStep], list[int]]:
    """Return the step of each kind of rank, and of which kind each rank is.

    Ranks of a kind have as much of the tables.

    - Raises UsageError if network and plan do not fit together.
    """
    plan.check(network)
    of_ranks = shares_of_ranks(network, plan)
    widest = {table: max(own[table].columns for own in of_ranks) for table in of_ranks[0]}
    numbers: dict[tuple[TableShare, ...], int] = {}
    kinds = [numbers.setdefault(tuple(own.values()), len(numbers)) for own in of_ranks]
    shares = [of_ranks[kinds.index(kind)] for kind in range(len(numbers))]
    return [step_of(network, plan, own, widest) for own in shares], kinds


def shares_of_ranks(network: NeuralNetwork, plan: NetworkPlan) -> list[dict[int, TableShare]]:
    """Return what each rank has of the tables of each layer whose tables are shared."""
    found: list[dict[int, TableShare]] = [{} for _ in range(plan.ranks)]
    for number, layer in enumerate(network.layers):
        if isinstance(layer.kind, EmbeddingBag) and layer.kind.spread:
            for own, share in zip(found, table_shares(layer.kind, plan.ranks), strict=True):
                own[number] = share
    return found


def _trace(step: NetworkStep) -> Trace:
    pieces, plan = step_rows(step), step.plan
    largest = max(
        (max(row.work.flops, row.work.bytes) if row.work else row.comm_bytes)
        for rows in pieces
        for row in rows
    )
    if largest > _MOST:
        what = f"an operation of {plan.batch} samples has more work than int64 can count"
        raise UsageError([Parameter("batch")], what, "use a smaller one")
    micro_batch = np.array([0, 0, -1][: len(pieces)], dtype=np.int64)
    order = StepOrder(pieces, np.arange(len(pieces)), micro_batch)
    return trace_of_rows(order, list(plan.groups()), plan.ranks)


def network_job(network: str | Path | NeuralNetwork, **plan: Any) -> Job:
    """Make the job of a training step of a network, or of its inference.

    Parameters
    ----------
    network
        The name of a network that ships with Nadi (:func:`nadi.models.shipped_networks`), the path
        of a file in TOML, YAML or JSON, or a network.
    plan
        Fields of :class:`nadi.models.NetworkPlan`: ``ranks``, ``batch``, ``zero`` and others.

    Returns
    -------
    Job
        For :func:`nadi.simulate` and :func:`nadi.models.write_job`. Ranks that do the same share
        a trace; see ``Job.rank_groups``.

    Raises
    ------
    UsageError
        If network and plan do not fit together; the message names values that would.
    InputError, FormatError
        If there is no such network, or its file is invalid.

    Examples
    --------
    >>> job = nadi.models.network_job("resnet50", ranks=8, batch=256)
    >>> nadi.simulate(job, nadi.load_system("dgx-h100", 8))
    """
    return job_of_network(*planned_network(network, plan))


def network_statistics(network: str | Path | NeuralNetwork, **plan: Any) -> NetworkStatistics:
    """Compute parameters, FLOPs, communication and memory of a job, as :func:`network_job`."""
    return statistics_of_network(*planned_network(network, plan))


def planned_network(
    network: str | Path | NeuralNetwork, fields: Mapping[str, Any]
) -> tuple[NeuralNetwork, NetworkPlan]:
    """Find a network, and make a plan from its fields, checked against it.

    - Raises UsageError if there is no such field, its value is of another type or range, or the
      plan does not fit the network.
    - Raises InputError, FormatError if there is no such network, or its file is invalid.
    """
    found = network if isinstance(network, NeuralNetwork) else load_network(str(network))
    plan = plan_from(NetworkPlan, fields)
    plan.check(found)
    return found, plan


_PRODUCTS = ("conv", "gemm", "attention")
_ROW_STATE = 4  # bytes of the optimizer for a row of a table
_NAMES = {kind: name for name, kind in KINDS.items()}


@dataclass(frozen=True, eq=False)
class NetworkStatistics:
    """The size of a job of a network.

    Ranks that have as much of the tables of a network are of one kind; without such tables there
    is one kind of rank.

    Attributes
    ----------
    world_size, samples
        Ranks, and samples of a step of all ranks.
    dtype
        Of weights and activations.
    parameters, table_parameters
        Of the network; and those in tables that ranks share.
    kinds
        int64, shape (ranks,): the kind of each rank.
    layers
        A row per layer: ``name``, ``part`` (the outermost block), ``kind``, ``output`` (shape of
        a sample), ``parameters``, ``macs`` (multiplications and additions of a sample's forward,
        a pair as one, in convolutions, matrix products and attention), ``backward_macs`` (those of
        its gradients, without what is computed again), and of a rank in a step
        ``forward_flops``, ``backward_flops`` and ``forward_bytes``.
    flops
        A row per kind of rank: ``kind``, and the FLOPs of one of its ranks in a step: ``forward``,
        ``backward``, ``recompute``, ``optimizer``.
    communication
        A row per kind of rank, role of the group and type: ``kind``, ``role``, ``type``, ``ranks``
        of a group, ``count`` and ``bytes`` of one rank in a step.
    memory
        A row per kind of rank, with the bytes of one of its ranks: ``kind``, ``weights``,
        ``gradients``, ``optimizer``, ``tables`` (with their optimizer), ``activations``, ``total``.
    """

    world_size: int
    samples: int
    dtype: str
    parameters: int
    table_parameters: int
    kinds: Ints
    layers: pl.DataFrame
    flops: pl.DataFrame
    communication: pl.DataFrame
    memory: pl.DataFrame

    @property
    def macs(self) -> int:
        """Multiplications and additions of a sample's forward, a pair as one, in products."""
        return int(self.layers["macs"].sum())

    @property
    def model_flops(self) -> int:
        """FLOPs of products, forward and backward, of a step of all ranks."""
        return 2 * self.samples * (self.macs + int(self.layers["backward_macs"].sum()))


def statistics_of_network(
    network: NeuralNetwork, plan: NetworkPlan, job: Job | None = None
) -> NetworkStatistics:
    """Compute the statistics of a job.

    - ``network``, ``plan``: As for :func:`~nadi.models.networks.network_jobs.job_of_network`.
    - ``job``: The job, if it was made already.
    - Raises UsageError if network and plan do not fit together.
    """
    made = job_of_network(network, plan) if job is None else job
    of_ranks = shares_of_ranks(network, plan)
    traces = list(dict.fromkeys(made.traces))
    flops, communication = step_totals(made, "kind")
    number = {trace: kind for kind, trace in enumerate(traces)}
    first = [made.traces.index(trace) for trace in traces]
    step = step_of(network, plan, of_ranks[0], {})
    steps = [step._replace(shares=of_ranks[rank]) for rank in first]
    memory = [{"kind": n, **memory_of_step(one)} for n, one in enumerate(steps)]
    return NetworkStatistics(
        world_size=plan.ranks,
        samples=plan.samples,
        dtype=plan.dtype,
        parameters=network.total_parameters,
        table_parameters=network.table_parameters,
        kinds=np.array([number[trace] for trace in made.traces], dtype=np.int64),
        layers=_layers(step),
        flops=flops,
        communication=communication,
        memory=pl.DataFrame(memory),
    )


def _layers(step: NetworkStep) -> pl.DataFrame:
    rows = []
    network = step.network
    parts = zip(network.layers, step.works, network.is_trained, strict=True)
    for layer, work, is_trained in parts:
        is_product = work.forward is not None and work.forward.op_class in _PRODUCTS
        weight_gradient = work.weight_gradient if layer.has_weights else None
        products = [work.forward]
        if is_trained and not step.plan.inference:
            passes_on = any(network.is_trained[one] for one in layer.sources if one >= 0)
            products += [work.input_gradient if passes_on else None, weight_gradient]
        if isinstance(layer.kind, Attention):  # its backward forms scores again, which counts not
            products[1:] = 2 * products[:1] * (len(products) > 1)
        macs = [_flops(one) // (2 * step.plan.batch) * is_product for one in products]
        rows.append({
            "name": layer.name, "part": layer.part, "kind": _NAMES[type(layer.kind)],
            "output": layer.output.told(), "parameters": layer.parameters,
            "macs": macs[0], "backward_macs": sum(macs[1:]),
            "forward_flops": _flops(work.forward),
            "backward_flops": _flops(work.input_gradient) + _flops(weight_gradient),
            "forward_bytes": work.forward.bytes if work.forward else 0,
        })  # fmt: skip
    return pl.DataFrame(rows)


def _flops(work: Work | None) -> int:
    return work.flops if work else 0


def memory_of_step(step: NetworkStep) -> dict[str, int]:
    """Return the bytes of one rank, by what they are for, as ``NetworkStatistics.memory``."""
    plan, shares = step.plan, step.shares
    count = sum(bucket.elements for bucket in step.buckets)
    trains = not plan.inference

    def held(size: int, from_stage: int) -> int:
        return -(-count * size // plan.ranks) if plan.zero >= from_stage else count * size

    fixed = sum(layer.fixed for layer in step.network.layers) * plan.itemsize
    tables = sum(share.parameters for share in shares.values()) * plan.itemsize
    state = sum(share.rows for share in shares.values()) * _ROW_STATE
    found = {
        "weights": held(plan.itemsize, 3) + fixed,
        "gradients": held(plan.gradient_itemsize, 2) if trains else 0,
        "optimizer": held(ADAM_STATE, 1) if trains else 0,
        "tables": tables + state * trains,
        "activations": _kept(step) if trains else _largest(step),
    }
    return {**found, "total": sum(found.values())}


def _kept(step: NetworkStep) -> int:
    """Return the bytes that stay from the forward to the backward, each tensor once."""
    network, plan = step.network, step.plan
    origin: list[int] = []  # of what a view shows
    for number, layer in enumerate(network.layers):
        source = layer.sources[0] if layer.kind.is_view else number
        origin.append(origin[source] if 0 <= source < number else source)
    kept: set[int] = set()
    other = 0
    for number, (layer, work) in enumerate(zip(network.layers, step.works, strict=True)):
        if not network.is_trained[number]:
            continue
        given = [layer.sources[place] for place in work.keeps_inputs]
        kept.update(origin[source] if source >= 0 else source for source in given)
        kept.update([number] if work.keeps_output else [])
        other += work.keeps
    inputs = list(network.inputs.values())
    sizes = [network.layers[n].output if n >= 0 else inputs[-1 - n] for n in kept]
    return plan.batch * plan.itemsize * sum(size.elements for size in sizes) + other


def _largest(step: NetworkStep) -> int:
    """Return the bytes of the input and output of the layer that has most of them."""
    sizes = [
        sum(one.elements for one in layer.inputs) + layer.output.elements
        for layer in step.network.layers
        if not isinstance(layer.kind, Loss)
    ]
    return step.plan.batch * step.plan.itemsize * max(sizes)
