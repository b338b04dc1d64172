"""A plan of a language model's job as an execution: the same run, by both names."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from nadi.errors import Parameter, UsageError
from nadi.estimates.calculon.machine_description import MachineDescription
from nadi.estimates.execution import Execution
from nadi.models.llm.parallel_plan import ParallelPlan
from nadi.trace.operations import ITEMSIZE

PLAN_NAMES = {
    "tp": "tensor_par", "pp": "pipeline_par", "dp": "data_par", "cp": "context_par",
    "ep": "expert_par", "expert_tp": "expert_tensor_par",
    "micro_batch": "microbatch_size", "global_batch": "batch_size", "dtype": "datatype",
    "recompute": "activation_recompute", "chunks": "pipeline_interleaving",
    "overlap": "tensor_par_overlap", "zero": "optimizer_sharding",
}  # fmt: skip
"""Fields of plans, and what executions call the same."""

OFFLOADED = ("weights", "activations", "optimizer")
_RECOMPUTE = {"none": "none", "selective": "attn_only", "full": "full"}
_SCHEDULES = ("1f1b", "interleaved")


def by_execution_names(given: Mapping[str, Iterable[Any]]) -> dict[str, tuple[Any, ...]]:
    """Give values of fields by the names of executions; ``zero`` keeps its own, as it is three."""
    found = {}
    for name, values in given.items():
        if name == "recompute":
            values = (_RECOMPUTE.get(value, value) for value in values)
        found[name if name == "zero" else PLAN_NAMES.get(name, name)] = tuple(values)
    return found


def execution_of_plan(
    plan: ParallelPlan, machine: MachineDescription, *, has_experts: bool = False,
    offload: Collection[str] = (),
) -> Execution:  # fmt: skip
    """Give the execution that a plan is.

    Parameters
    ----------
    plan
        With every default put in (``ParallelPlan.of``).
    has_experts
        Whether the model has; tensor parallel ranks can be replicas of them.
    offload
        What lives in the second tier, of ``OFFLOADED``.

    Raises
    ------
    UsageError
        If an estimate does not have what the plan is; the message names what it has.
    """
    check_offload(offload)
    _refuse_others(plan)
    splits, tiers = plan.sequence_parallel and plan.tp > 1, _tiers(plan, machine)
    replicates = plan.dp * plan.cp > 1 or (has_experts and plan.tp > plan.ep * plan.expert_tp)
    usual = 1 if plan.ep > 1 or plan.tp == 1 else plan.tp
    training = not plan.inference
    sharded = plan.zero if training and replicates else 0
    return Execution(
        num_procs=plan.world_size, tensor_par=plan.tp, pipeline_par=plan.pp, data_par=plan.dp,
        tensor_par_net=tiers[0], data_par_net=tiers[1], pipeline_par_net=tiers[2],
        batch_size=plan.global_batch,
        microbatch_size=plan.micro_batch,
        datatype=_datatype(plan.dtype),  # type: ignore[arg-type]
        fused_activation=False,
        attention_type="multihead",
        activation_recompute=_RECOMPUTE[plan.recompute],  # type: ignore[arg-type]
        pipeline_interleaving=plan.chunks if plan.schedule == "interleaved" else 1,
        optimizer_sharding=sharded > 0,
        tensor_par_comm_type="rs_ag" if splits else "ar",
        tensor_par_overlap=plan.overlap,
        seq_par_ag_redo=bool(splits) and training,
        data_par_overlap=training and replicates,
        weight_offload="weights" in offload,
        activations_offload="activations" in offload,
        optimizer_offload="optimizer" in offload,
        training=training,
        flash_attention=plan.attention == "flash",
        expert_par=plan.ep,
        decoding=plan.inference == "decode",
        context_par=plan.cp,
        gradient_sharding=sharded > 1,
        weight_sharding=sharded == 3,
        ends_as_layers=plan.ends_as_layers and plan.pp > 1,
        lora=plan.lora,
        expert_tensor_par=0 if plan.expert_tp == usual else plan.expert_tp,
    )  # fmt: skip


def _refuse_others(plan: ParallelPlan) -> None:
    """Raise UsageError for what is generated and not estimated."""
    rules = [
        ("schedule", plan.schedule, plan.schedule in _SCHEDULES, " or ".join(_SCHEDULES)),
        ("prefix", plan.prefix, not plan.prefix, "none"),
        ("gradient_dtype", plan.gradient_dtype, plan.gradient_dtype == "float32", "float32"),
    ]
    for name, value, fits, known in rules:
        if not fits:
            what = f"{value} is generated and not estimated"
            raise UsageError([Parameter(name)], what, f"an estimate has {known}")


def tier_of_offload(offload: Collection[str]) -> tuple[tuple[str, ...], str]:
    """Return what is offloaded, and to which tier: one for all, empty for the system's first.

    - ``offload``: Such as ``optimizer`` or ``optimizer=cxl``.
    - Raises UsageError if there are no such tensors, or several tiers.
    """
    tensors = tuple(one.partition("=")[0].strip() for one in offload)
    tiers = dict.fromkeys(name.strip() for _, _, name in (one.partition("=") for one in offload))
    if len(tiers) > 1:
        raise UsageError(
            [Parameter("offload", ",".join(offload))], "an estimate has one second tier",
            "name the same tier for all",
        )  # fmt: skip
    check_offload(tensors)
    return tensors, next(iter(tiers), "")


def check_offload(offload: Collection[str]) -> None:
    """Raise UsageError for what cannot live in the second memory tier."""
    for one in offload:
        if one not in OFFLOADED:
            raise UsageError(
                [Parameter("offload", one)], "no such tensors", f"known: {', '.join(OFFLOADED)}"
            )


def _datatype(name: str) -> str:
    if ITEMSIZE[name] == 1 and name.startswith("float8"):
        return "float8"
    if name in ("float16", "bfloat16", "float32"):
        return name
    raise UsageError(
        [Parameter("dtype", name)], "an estimate does not have it",
        "use float16, bfloat16, float32 or float8_e4m3fn",
    )  # fmt: skip


def _tiers(plan: ParallelPlan, machine: MachineDescription) -> list[int]:
    """Give the tier of tensor, data and pipeline parallelism: the first that holds their ranks."""
    found, ranks = [], 1
    last = len(machine.networks) - 1
    for degree in (plan.tp, plan.dp * plan.cp, plan.pp):
        ranks *= degree
        fitting = (k for k, tier in enumerate(machine.networks) if tier.size >= ranks)
        found.append(next(fitting, last) if degree > 1 else 0)
    return found
