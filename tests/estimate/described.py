"""Models, machines and executions for tests of estimates, and strategies that draw them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from nadi.estimates import CALCULON, Estimate, Execution, MachineDescription, ModelDescription
from nadi.estimates.single_estimate import estimate as estimate_by_rules

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "estimate"


def read(name: str) -> dict[str, Any]:
    """Read one of the examples."""
    found: dict[str, Any] = json.loads((EXAMPLES / f"{name}.json").read_text())
    return found


MODEL = {"hidden": 768, "feedforward": 3072, "seq_size": 512, "attn_heads": 8, "attn_size": 96,
         "num_blocks": 12}  # fmt: skip
steps = st.lists(st.integers(1, 500), min_size=1, max_size=3, unique=True)


@st.composite
def efficiencies(draw: st.DrawFn) -> list[list[float]]:
    sizes = [*sorted(draw(steps), reverse=True), 0]
    return [[size, draw(st.floats(0.05, 1))] for size in sizes]


@st.composite
def networks(draw: st.DrawFn, size: int) -> dict[str, Any]:
    def ratio() -> list[float]:
        return [draw(st.floats(0.5, 2)), draw(st.sampled_from([-1, 0, 1]))]

    return {
        "bandwidth": draw(st.floats(1, 1000)), "efficiency": draw(st.floats(0.1, 1)),
        "size": size, "latency": draw(st.floats(0, 1e-3)),
        "ops": {"p2p": [1.0, None], "reduce_scatter": ratio(), "all_gather": ratio(),
                "all_reduce": ratio()},
        "must_be_filled": False, "processor_usage": draw(st.floats(0, 0.5)),
    }  # fmt: skip


@st.composite
def machines(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a machine as in a file; nothing is too large for it."""

    def engine() -> dict[str, Any]:
        return {"tflops": draw(st.floats(1, 1000)), "gflops_efficiency": draw(efficiencies())}

    def memory() -> dict[str, Any]:
        return {"GiB": 1e6, "GBps": draw(st.floats(1, 5000)), "MB_efficiency": draw(efficiencies())}

    return {
        "matrix": {"float16": engine(), "float8": engine(), "float32": engine()},
        "vector": {"float16": engine(), "float8": engine(), "float32": engine()},
        "mem1": memory(), "mem2": memory(),
        "processing_mode": draw(st.sampled_from(["no_overlap", "roofline"])),
        "networks": [draw(networks(4096)), draw(networks(4096))],
    }  # fmt: skip


@st.composite
def executions(draw: st.DrawFn, **fixed: Any) -> dict[str, Any]:
    """Draw an execution that breaks no rule."""
    degree, replicas = draw(st.sampled_from([1, 2, 4, 8])), draw(st.sampled_from([1, 2, 6]))
    stages = draw(st.sampled_from([1, 2, 3, 4, 5, 8, 12]))
    blocks = -(-MODEL["num_blocks"] // stages)
    chunks = [one for one in range(1, blocks + 1) if blocks % one == 0] if stages > 1 else [1]
    chunks = [one for one in chunks if one == 1 or one * stages <= MODEL["num_blocks"]]
    microbatch = draw(st.sampled_from([1, 2, 4]))
    training = fixed.get("training", draw(st.integers(0, 4)) > 0)
    communication = draw(st.sampled_from(["ar", "p2p_rs_ag", "rs_ag"]))
    flag = st.booleans()
    moves = blocks >= 3
    drawn = {
        "num_procs": degree * stages * replicas,
        "tensor_par": degree, "pipeline_par": stages, "data_par": replicas,
        "tensor_par_net": draw(st.integers(0, 1)), "pipeline_par_net": draw(st.integers(0, 1)),
        "data_par_net": draw(st.integers(0, 1)),
        "batch_size": replicas * microbatch * draw(st.integers(1, 20)),
        "microbatch_size": microbatch,
        "datatype": draw(st.sampled_from(["float16", "float8", "float32"])),
        "fused_activation": draw(flag),
        "attention_type": draw(st.sampled_from(["multihead", "multiquery"])),
        "activation_recompute": draw(st.sampled_from(["none", "attn_only", "full"]))
        if training else "none",
        "pipeline_interleaving": draw(st.sampled_from(chunks)),
        "optimizer_sharding": training and replicas > 1 and draw(flag),
        "tensor_par_comm_type": communication,
        "tensor_par_overlap": draw(st.sampled_from(["none", "ring", "pipe"])),
        "seq_par_ag_redo": training and communication == "rs_ag" and draw(flag),
        "data_par_overlap": training and replicas > 1 and draw(flag),
        "weight_offload": moves and draw(flag),
        "activations_offload": moves and draw(flag),
        "optimizer_offload": moves and training and draw(flag),
        "training": training,
    }  # fmt: skip
    return drawn | fixed


def model(told: dict[str, Any] | None = None) -> ModelDescription:
    """Give a model, by default the small one."""
    return msgspec.convert(told or MODEL, ModelDescription)


def machine(told: dict[str, Any] | None = None) -> MachineDescription:
    """Give a machine, by default that of the examples."""
    return msgspec.convert(told or read("machine"), MachineDescription)


def execution(told: dict[str, Any] | None = None, **changed: Any) -> Execution:
    """Give an execution, by default that of the examples."""
    return msgspec.convert((told or read("execution")) | changed, Execution)


def estimate(model: ModelDescription, machine: MachineDescription, one: Execution) -> Estimate:
    """Estimate as Calculon does."""
    return estimate_by_rules(model, machine, one, CALCULON)


def with_faster(system: dict[str, Any], what: str, factor: float) -> dict[str, Any]:
    """Describe a machine with a faster engine, memory tier or network."""
    faster = copy.deepcopy(system)
    if what in ("matrix", "vector"):
        for engine in faster[what].values():
            engine["tflops"] *= factor
    elif what.startswith("mem"):
        faster[what]["GBps"] *= factor
    else:
        faster["networks"][int(what[-1])]["bandwidth"] *= factor
    return faster
