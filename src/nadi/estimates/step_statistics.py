"""The 96 statistics of Calculon, by its names, from the costs of a step."""

from __future__ import annotations

import numpy as np

from nadi.estimates.calculon.block_costs import StageCosts
from nadi.estimates.calculon.machine_description import MachineDescription
from nadi.estimates.calculon.memory_tiers_use import TensorBytes
from nadi.estimates.calculon.step_costs import StepCosts
from nadi.estimates.execution import Executions
from nadi.trace.arrays import Floats

__all__ = ["statistics_of"]

_SPACES = {
    "weight_space": "weights",
    "act_space": "activations",
    "act_checkpoint_size": "checkpoints",
    "act_grad_space": "activation_gradients",
    "weight_grad_space": "weight_gradients",
    "optimizer_space": "optimizer",
}


def statistics_of(
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
