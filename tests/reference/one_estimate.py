"""A step of one execution, worked out slowly: plain Python, one layer after the other.

Written from the description of the model: no arrays, no tables, names as in Calculon's results.
"""

from __future__ import annotations

import math
from typing import Any

BYTES = {"float8": 1, "float16": 2, "bfloat16": 2, "float32": 4}
AGAIN_WITH_ATTENTION = {
    "AttnBlock_Multihead_Fork", "AttnBlock_KV_Fork", "AttnBlock_Multihead_Key_Query",
    "AttnBlock_Multihead_SoftMax", "AttnBlock_Multihead_DropOut",
}  # fmt: skip
SHARED = {"Fork", "Residual", "Query", "Key", "Value"}
Values = dict[str, Any]


class Machine:
    """Times of single operations."""

    def __init__(self, system: Values, datatype: str) -> None:
        self.system = system
        self.engines = {name: system[name][datatype] for name in ("matrix", "vector")}

    def flops_time(self, engine: str, flops: float) -> float:
        told = self.engines[engine]
        share = next(s for least, s in told["gflops_efficiency"] if flops >= least * 1e9)
        return flops / (told["tflops"] * 1e12 * share)

    def memory_time(self, tier: str, size: float) -> float:
        told = self.system[tier]
        share = next(s for least, s in told["MB_efficiency"] if size >= least * 1e6)
        return size / (told["GBps"] * 1e9 * share)

    def network_time(self, tier: int, op: str, size: float, members: int) -> float:
        if op != "p2p" and (members == 1 or size == 0):
            return 0.0
        network = self.system["networks"][tier]
        factor, offset = network["ops"][op]
        factor *= 1 + (offset or 0) / members
        speed = network["bandwidth"] * 1e9 * network["efficiency"]
        return network["latency"] + size * factor / speed

    def together(self, flops_time: float, memory_time: float) -> float:
        if self.system["processing_mode"] == "roofline":
            return max(flops_time, memory_time)
        return flops_time + memory_time


def layers_of(app: Values, e: Values) -> list[Values]:  # noqa: C901  a layer after the other
    """List the layers of a block with flops, bytes and what is kept."""
    t, b = e["tensor_par"], BYTES[e["datatype"]]
    seq, hidden, inner = app["seq_size"], app["hidden"], app["feedforward"] / e["tensor_par"]
    rows = e["microbatch_size"] * seq
    whole = rows * hidden
    split = e["tensor_par_comm_type"] == "rs_ag"
    local = whole / t if split else whole
    merged = e["tensor_par_overlap"] != "none" and t > 1
    shares = e["data_par"] if e["optimizer_sharding"] else 1
    layers: list[Values] = []

    def add(name: str, engine: str, fw: float, ag: float, wg: float, inputs: float, outputs: float,
            weights: float = 0, **other: Any) -> None:  # fmt: skip
        act, grad = other.get("act", inputs * b), other.get("grad", outputs * b)
        layers.append({
            "name": name, "engine": engine, "fw_flops": fw, "agrad_flops": ag, "wgrad_flops": wg,
            "weight": weights * b, "act": act, "grad": grad, "output": outputs * b,
            "side": other.get("side"), "merged": other.get("merged", False),
            "fw_bytes": other.get("fw_bytes", (inputs + outputs + weights) * b),
            "agrad_bytes": other.get("agrad_bytes", weights * b + act + grad),
            "wgrad_bytes": weights * b + act + grad if weights else 0,
            "optim_flops": 11 * weights / shares, "weight_grad": weights * b / shares,
            "optim_bytes": ((4 if b < 4 else 0) + 8) * weights / shares,
        })  # fmt: skip

    def linear(name: str, m: float, n: float, k: float, **other: Any) -> None:
        add(name, "matrix", *[2 * m * n * k] * 3, m * k, m * n, n * k, **other)

    def beside(name: str, side: str, m: float, n: float, k: float) -> None:
        act = m * k * b
        grad = 2 * m * n * b
        if side == "F":
            act, grad = (act / t, m * n * b) if split else (act, 0)
        else:
            act, grad = (act, grad / t) if split else (0, grad)
        linear(name, m, n, k, act=act, grad=grad, side=side, merged=True)

    def communication(name: str, side: str) -> None:
        sums = (t - 1) / t * whole
        moved = 2 * whole * b if t > 1 else 0
        there = whole * b if t > 1 else 0
        kept = (there / t, there / t) if split else (0, there)
        flops, bytes_ = (0, sums), (moved if split else 0, moved)
        if side == "G":
            kept, flops, bytes_ = kept[::-1], flops[::-1], bytes_[::-1]
        add(name, "vector", *flops, 0, 0, 0, act=kept[0], grad=kept[1], side=side,
            fw_bytes=bytes_[0], agrad_bytes=bytes_[1])  # fmt: skip

    def fork(name: str, size: float, uses: int) -> None:
        add(name, "vector", 0, uses * size, 0, size, 0, fw_bytes=0,
            agrad_bytes=(uses + 1) * size * b)  # fmt: skip

    def norm(name: str) -> None:
        add(name, "vector", 9 * local, 14 * local, 7 * local, local, local, 2 * hidden)

    def dropout(name: str, size: float) -> None:
        moved = (2 * b + 1) * size
        add(name, "vector", size, size, 0, size, size, act=size, grad=size, fw_bytes=moved,
            agrad_bytes=moved)  # fmt: skip

    def residual(name: str) -> None:
        add(name, "vector", local, 2 * local, 0, 2 * local, local)

    query = app["attn_size"] * app["attn_heads"] / t
    heads_share = e["attention_type"] == "multiquery"
    key = app["attn_size"] if heads_share else query
    fork("AttnBlock_Fork", local, 2)
    norm("AttnBlock_LayerNorm")
    if not merged:
        communication("AttnBlock_F", "F")
        fork("AttnBlock_Multihead_Fork", whole, 3)
        linear("AttnBlock_Query", rows, query, hidden)
    elif heads_share:
        beside("AttnBlock_Query_AG", "F", rows, query, hidden)
        fork("AttnBlock_KV_Fork", whole, 2)
    else:
        beside("AttnBlock_QKV_AG", "F", rows, 3 * query, hidden)
    if heads_share or not merged:
        linear("AttnBlock_Key", rows, key, hidden)
        linear("AttnBlock_Value", rows, key, hidden)
    n = e["microbatch_size"] * app["attn_heads"] / t
    flops, scores, values = 2 * n * seq * seq * app["attn_size"], n * seq * seq, n * seq * (
        app["attn_size"]
    )  # fmt: skip
    add("AttnBlock_Multihead_Key_Query", "matrix", flops, 2 * flops, 0, 2 * values, scores)
    add("AttnBlock_Multihead_SoftMax", "vector", 5 * scores, 8 * scores, 0, scores, scores,
        agrad_bytes=2 * scores * b)  # fmt: skip
    dropout("AttnBlock_Multihead_DropOut", scores)
    add("AttnBlock_Multihead_Attn", "matrix", flops, 2 * flops, 0, scores + values, values)
    if merged:
        beside("AttnBlock_MLP_RS", "G", rows, hidden, query)
    else:
        linear("AttnBlock_MLP", rows, hidden, query)
        communication("AttnBlock_G", "G")
    dropout("AttnBlock_DropOut", local)
    residual("AttnBlock_Residual")
    fork("MlpBlock_Fork", local, 2)
    norm("MlpBlock_LayerNorm")
    if merged:
        beside("MlpBlock_Mlp1_AG", "F", rows, inner, hidden)
    else:
        communication("MlpBlock_F", "F")
        linear("MlpBlock_Mlp1", rows, inner, hidden)
    size = rows * inner
    stored = 0 if e["fused_activation"] else size * b
    add("MlpBlock_GeLU", "vector", 8 * size, 13 * size, 0, size, size, act=stored, grad=stored,
        agrad_bytes=2 * size * b)  # fmt: skip
    if merged:
        beside("MlpBlock_Mlp2_RS", "G", rows, hidden, inner)
    else:
        linear("MlpBlock_Mlp2", rows, hidden, inner)
        communication("MlpBlock_G", "G")
    dropout("MlpBlock_DropOut", local)
    residual("MlpBlock_Residual")
    return layers


def beside_network(
    machine: Machine, e: Values, flops: float, memory: float, network: float
) -> tuple[float, float]:
    """Give the seconds of a product beside communication, and what is exposed."""
    t = e["tensor_par"]
    usage = machine.system["networks"][e["tensor_par_net"]]["processor_usage"]
    whole = machine.together(flops, memory)
    slow, tile = flops / (1 - usage), network / t
    if tile > slow / t:
        took = whole / t + (t - 1) * machine.together(slow, memory) / t
        exposed = (t - 1) * (tile - slow / t)
    else:
        took, exposed = whole + (t - 1) * tile * usage, 0.0
    extra = tile if e["tensor_par_overlap"] == "pipe" else 0.0
    return took + extra, exposed + extra


def operations(e: Values, side: str, stage: str) -> tuple[str | None, str | None]:
    """Name what the base and the edge block do."""
    into = (side == "F") == (stage == "fw")
    if into:
        return {"ar": (None, None), "p2p_rs_ag": (None, "all_gather"),
                "rs_ag": ("all_gather", "all_gather")}[e["tensor_par_comm_type"]]  # fmt: skip
    return {"ar": ("all_reduce",) * 2, "p2p_rs_ag": ("all_reduce", "reduce_scatter"),
            "rs_ag": ("reduce_scatter",) * 2}[e["tensor_par_comm_type"]]  # fmt: skip


def block_of(app: Values, e: Values, machine: Machine) -> Values:
    """Sum all layers of a block: Calculon's statistics of blocks."""
    layers = layers_of(app, e)
    t, train, b = e["tensor_par"], e["training"], BYTES[e["datatype"]]
    whole = e["microbatch_size"] * app["seq_size"] * app["hidden"]
    recompute = e["activation_recompute"]
    s: Values = {}

    def plus(name: str, value: float) -> None:
        s[name] = s.get(name, 0) + value

    before = dict.fromkeys(("flops", "flops_time", "mem_accessed", "mem_time"), 0.0)
    for layer in layers:
        name, short = layer["name"], layer["name"].split("_", 1)[1]
        took: Values = {}
        for stage in ("fw", "agrad", "wgrad", "optim"):
            engine = "vector" if stage == "optim" else layer["engine"]
            flops, moved = layer[f"{stage}_flops"], layer[f"{stage}_bytes"]
            times = machine.flops_time(engine, flops), machine.memory_time("mem1", moved)
            layer[stage] = times
            took[stage] = machine.together(*times)
            counts = 1 if train or stage == "fw" else 0
            for what, value in zip(before, (flops, times[0], moved, times[1]), strict=True):
                plus(f"block_{stage}_{what}", counts * value)
        if layer["side"]:
            exchange(s, plus, layer, took, e, machine, whole * b)
        for stage, seconds in took.items():
            plus(f"block_{stage}_time", seconds if train or stage == "fw" else 0)
        alone = layer["side"] is not None and not layer["merged"]
        again = recompute == "full" and not alone
        again = again or (recompute == "attn_only" and name in AGAIN_WITH_ATTENTION)
        again = again or (e["seq_par_ag_redo"] and short in ("Multihead_Fork", "KV_Fork"))
        done = (layer["fw_flops"], layer["fw"][0], layer["fw_bytes"], layer["fw"][1])
        for what, value in zip(before, done, strict=True):
            before[what] += value
            plus(f"block_re_{what}", before[what] if again and train else 0)
        plus("block_re_time", took["fw"] if again and train else 0)
        kept = layer["act"]
        plus("block_act_working_space", 0 if short in SHARED else kept)
        plus("block_act_storage_space", stored_of(layer, short, e))
        plus("block_weight_space", layer["weight"])
        plus("block_weight_grad_space", layer["weight_grad"] if train else 0)
        plus("block_act_grad_space", layer["grad"] if train else 0)
        plus("block_optimizer_space", layer["optim_bytes"] if train else 0)
    for kind in ("baseblock", "edgeblock"):
        for name in ("fw_tp", "agrad_tp", "recomm"):
            for what in ("time", "time_exposed"):
                s.setdefault(f"{kind}_{name}_{what}", 0)
        for name in ("fw_tp", "bw_tp", "recomm"):
            s.setdefault(f"{kind}_{name}_size", 0)
    s["block_weight_grad_space_no_sharding"] = s["block_weight_space"] / b * 4 if train else 0
    s["block_act_checkpoint_size"] = whole * b if recompute == "full" else 0
    s.setdefault("tp_bw_overlap_req", 0)
    boundary = whole * b / (1 if e["tensor_par_comm_type"] == "ar" else t)
    piped = e["pipeline_par"] > 1
    s["block_fw_pp_size"] = boundary if piped else 0
    s["block_bw_pp_size"] = boundary if piped and train else 0
    s["block_dp_size"] = s["block_weight_space"] if e["data_par"] > 1 and train else 0
    return s


def stored_of(layer: Values, short: str, e: Values) -> float:
    """Give what a layer keeps for its backward pass."""
    recompute = e["activation_recompute"]
    if not e["training"]:
        return layer["act"]
    if recompute == "full" or short in SHARED or short == "G":
        return 0
    if recompute == "attn_only":
        if short in ("Multihead_Fork", "KV_Fork", "Multihead_SoftMax", "Multihead_DropOut"):
            return 0
        if short == "Multihead_Attn":
            return layer["output"]
    if e["seq_par_ag_redo"] and short in ("Multihead_Fork", "KV_Fork", "Mlp1"):
        return 0
    return layer["act"]


def exchange(
    s: Values, plus: Any, layer: Values, took: Values, e: Values, machine: Machine, size: float
) -> None:
    """Add what a layer exchanges, and set its own seconds."""
    t, train, side = e["tensor_par"], e["training"], layer["side"]
    if not layer["merged"]:
        took["fw"] = took["agrad"] = 0.0
    if t == 1:
        return
    usage = machine.system["networks"][e["tensor_par_net"]]["processor_usage"]
    sums = machine.flops_time("vector", (t - 1) / t * size / BYTES[e["datatype"]])
    recompute = e["activation_recompute"]
    attention = recompute == "attn_only" and layer["name"].startswith("Attn")
    again = recompute == "full" or (side == "F" and (e["seq_par_ag_redo"] or attention))
    for stage, called, sized in (("fw", "fw_tp", "fw_tp"), ("agrad", "agrad_tp", "bw_tp")):
        flops, memory = layer[stage]
        counts = 1 if train or stage == "fw" else 0
        hidden_base = 0.0
        ops = operations(e, side, stage)
        for kind, op in zip(("baseblock", "edgeblock"), ops, strict=True):
            alone = machine.network_time(e["tensor_par_net"], op, size, t) if op else 0.0
            exposed = time = 0.0
            if op and layer["merged"]:
                time = alone + (sums if op != "all_gather" else 0)
                beside, exposed = beside_network(machine, e, flops, memory, time)
                need = size * (1 - usage) / flops
                s["tp_bw_overlap_req"] = max(s.get("tp_bw_overlap_req", 0), need)
                if kind == "baseblock":
                    took[stage] = beside
                    if again and stage == "fw":
                        took["wgrad"] = beside_network(machine, e, *layer["wgrad"], alone)[0]
            elif op:
                exposed = time = alone + machine.together(flops, memory)
            if kind == "baseblock":
                hidden_base = exposed
            elif layer["merged"]:
                exposed = hidden_base
            plus(f"{kind}_{called}_time", counts * time)
            plus(f"{kind}_{called}_time_exposed", counts * exposed)
            plus(f"{kind}_{sized}_size", counts * (size if op else 0))
            if stage == "fw" and again and train:
                plus(f"{kind}_recomm_time", alone)
                plus(f"{kind}_recomm_time_exposed", exposed if layer["merged"] else alone)
                plus(f"{kind}_recomm_size", size if op else 0)


def step_of(app: Values, system: Values, e: Values) -> Values:
    """Work out a step: all of Calculon's statistics."""
    machine = Machine(system, e["datatype"])
    s = block_of(app, e, machine)
    p, d, il, train = (e[k] for k in ("pipeline_par", "data_par", "pipeline_interleaving",
                                      "training"))  # fmt: skip
    microbatches = e["batch_size"] // d // e["microbatch_size"]
    blocks = math.ceil(app["num_blocks"] / p)
    chunk = blocks // il
    transfer = [machine.network_time(e["pipeline_par_net"], "p2p", s[f"block_{k}_pp_size"], p)
                for k in ("fw", "bw")]  # fmt: skip
    over = offloading(s, e, machine, transfer)
    times = [
        [
            s["block_fw_time"] + s[f"{kind}_fw_tp_time_exposed"] + over[k][0],
            s["block_agrad_time"] + s["block_wgrad_time"] + s["block_re_time"]
            + s[f"{kind}_agrad_tp_time_exposed"] + s[f"{kind}_recomm_time_exposed"] + over[k][1],
        ]
        for k, kind in enumerate(("baseblock", "edgeblock"))
    ]  # fmt: skip

    def both(name: str) -> float:
        return microbatches * ((blocks - il) * s[f"baseblock_{name}"] + il * s[f"edgeblock_{name}"])

    s["fw_time"] = microbatches * blocks * s["block_fw_time"]
    s["bw_time"] = microbatches * blocks * (s["block_agrad_time"] + s["block_wgrad_time"])
    s["optim_step_time"] = blocks * s["block_optim_time"]
    s["recompute_time"] = microbatches * blocks * s["block_re_time"]
    s["recomm_link_time"], s["recomm_exposed_time"] = both("recomm_time"), both(
        "recomm_time_exposed"
    )  # fmt: skip
    s["tp_comm_link_time"] = both("fw_tp_time") + both("agrad_tp_time")
    s["tp_comm_exposed_time"] = both("fw_tp_time_exposed") + both("agrad_tp_time_exposed")
    piped = microbatches * il * transfer[0] * (2 if train else 1) if p > 1 else 0
    s["pp_comm_link_time"] = s["pp_comm_exposed_time"] = piped
    for k, name in enumerate(("fw", "bw")):
        s[f"{name}_offload_exposed_time"] = microbatches * (
            (blocks - il) * over[0][k] + il * over[1][k]
        )
    base, edge = sum(times[0]), sum(times[1]) + sum(transfer)
    a_chunk = (chunk - 1) * base + edge
    waits = (il - 1) * (p - microbatches % p) if microbatches % p else 0
    saved = -app["num_blocks"] % p * ((base + edge) / 2 if chunk > 1 else edge)
    s["bubble_time"] = (p - 1 + waits) * a_chunk - saved
    reduction(s, e, machine, (blocks, chunk), [times[0][1], times[1][1]], transfer[0])
    memory(s, e, blocks, microbatches)
    s["total_time"] = sum(s[name] for name in (
        "fw_time", "bw_time", "optim_step_time", "fw_offload_exposed_time",
        "bw_offload_exposed_time", "recompute_time", "recomm_exposed_time", "bubble_time",
        "tp_comm_exposed_time", "pp_comm_exposed_time", "dp_comm_exposed_time",
    ))  # fmt: skip
    work = s["fw_time"] + s["bw_time"] + s["optim_step_time"]
    s["useful_flops"] = sum(s[f"block_{k}_flops"] for k in ("fw", "agrad", "wgrad", "optim"))
    peak = machine.engines["matrix"]["tflops"] * 1e12
    s["compute_efficiency"] = blocks * microbatches * s["useful_flops"] / peak / work
    s["system_efficiency"] = work / s["total_time"]
    s["total_efficiency"] = s["compute_efficiency"] * s["system_efficiency"]
    s["sample_rate"] = e["batch_size"] / s["total_time"]
    return s


def rate(size: float, seconds: float) -> float:
    """Give the bandwidth that moves so many bytes."""
    return 0.0 if size == 0 else size / seconds if seconds else math.inf


def offloading(s: Values, e: Values, machine: Machine, transfer: list[float]) -> list[list[float]]:
    """Give by how much offloading extends base and edge blocks, forward and backward."""
    full = e["activation_recompute"] == "full"
    act = s["block_act_checkpoint_size"] if full else s["block_act_storage_space"]
    forward = s["block_fw_time"] + s["baseblock_fw_tp_time_exposed"] - s["block_fw_mem_time"]
    backward = (
        s["block_agrad_time"] + s["block_wgrad_time"] + s["baseblock_agrad_tp_time_exposed"]
        + s["block_re_time"] + s["baseblock_recomm_time_exposed"]
        - s["block_agrad_mem_time"] - s["block_wgrad_mem_time"]
    )  # fmt: skip
    gradients = s["block_weight_grad_space"] + s["block_optimizer_space"]
    s["act_offload_bw_req"] = rate(act, forward)
    s["weight_offload_bw_req"] = rate(s["block_weight_space"], forward)
    s["optim_offload_bw_req"] = rate(gradients, backward)
    weights = s["block_weight_space"] if e["weight_offload"] else 0
    acts = act if e["activations_offload"] else 0
    optimizer = s["block_optimizer_space"] if e["optimizer_offload"] else 0
    moved = (max(weights, acts), weights + acts + optimizer if e["training"] else 0)
    s["offload_mem_bw_req"] = max(rate(moved[0], forward), rate(moved[1], backward))
    return [
        [
            max(0, machine.memory_time("mem2", size) - free - also) if size else 0
            for size, free, also in zip(moved, (forward, backward), more, strict=True)
        ]
        for more in ((0, 0), transfer)
    ]


def reduction(
    s: Values, e: Values, machine: Machine, shape: tuple[int, int], backward: list[float],
    transfer: float,
) -> None:  # fmt: skip
    """Add the reduction of gradients."""
    blocks, chunk = shape
    p, il, sharded = e["pipeline_par"], e["pipeline_interleaving"], e["optimizer_sharding"]
    size, tier, d = s["block_dp_size"], e["data_par_net"], e["data_par"]
    ops = ("reduce_scatter", "all_gather") if sharded else ("all_reduce",)
    one = sum(machine.network_time(tier, op, size, d) for op in ops) if size else 0
    s["dp_comm_link_time"] = s["dp_comm_exposed_time"] = blocks * one
    s["dp_bw_overlap_req_chunk"] = s["dp_bw_overlap_req_tail"] = 0
    if not (e["data_par_overlap"] and size):
        return
    usage = machine.system["networks"][tier]["processor_usage"]
    optimizer = 0 if sharded else s["block_optim_flops_time"]
    stages = ("agrad", "wgrad", "re")
    accesses = sum(s[f"block_{k}_mem_time"] for k in stages)
    flops = sum(s[f"block_{k}_flops_time"] for k in stages) + optimizer
    base, edge = backward
    scalars = machine.system["networks"][tier]["ops"]
    times = sum(scalars[op][0] for op in ops)
    window = ((chunk - 1) * base + (edge - base - transfer) / 2 - chunk * accesses
              + (chunk + 1) * optimizer)  # fmt: skip
    moving = (chunk - 1) * one
    if window + usage * moving > 0:
        s["dp_bw_overlap_req_tail"] = size * chunk * times / (window + usage * moving)
    exposed = one + max(moving - window + usage * flops, usage * moving)
    if il > 1:
        a_chunk = (chunk - 1) * base + edge
        work = p * (a_chunk + chunk * (optimizer - accesses))
        slowed = usage * p * chunk * flops
        wide = work + slowed + (p - 1) * transfer
        if wide > 0:
            s["dp_bw_overlap_req_chunk"] = size * chunk * times / (wide * (il - 1))
        met = min(p, chunk * one // (a_chunk + chunk * optimizer + transfer))
        free = work - slowed + (p - met) * transfer
        exposed += (il - 1) * max(chunk * one - free, usage * chunk * one)
    s["dp_comm_exposed_time"] = exposed


def memory(s: Values, e: Values, blocks: int, microbatches: int) -> None:
    """Add the bytes of a step."""
    p, il, train = e["pipeline_par"], e["pipeline_interleaving"], e["training"]
    flying = min(microbatches, p) * (1 + (p - 1) / (il * p) if il > 1 else 1)
    work, store = s["block_act_working_space"], s["block_act_storage_space"]
    check, state = s["block_act_checkpoint_size"], s["block_optimizer_space"]
    whole, share = s["block_weight_grad_space_no_sharding"], s["block_weight_grad_space"]
    keeps = train and e["activation_recompute"] != "full"
    full = {
        "weight_space": blocks * s["block_weight_space"],
        "act_space": work + store * (blocks * flying - 1) if keeps else work,
        "act_checkpoint_size": blocks * flying * check if train else 0,
        "act_grad_space": s["block_act_grad_space"],
        "weight_grad_space": whole + share * (blocks - 1),
        "optimizer_space": blocks * state,
    }
    part = {
        "weight_space": 2 * s["block_weight_space"],
        "act_space": work + store,
        "act_checkpoint_size": 2 * check if train else math.nan,
        "act_grad_space": s["block_act_grad_space"],
        "weight_grad_space": whole + share,
        "optimizer_space": 2 * state,
    }
    s |= full | {f"{name}_with_offload": size for name, size in part.items()}
    moved = {
        "weight_space": e["weight_offload"], "act_space": e["activations_offload"],
        "act_checkpoint_size": e["activations_offload"], "act_grad_space": False,
        "weight_grad_space": e["optimizer_offload"], "optimizer_space": e["optimizer_offload"],
    }  # fmt: skip
    away = full | {"weight_grad_space": blocks * share}
    if e["activation_recompute"] == "full":
        away["act_space"] = 0
    part["act_checkpoint_size"] = 2 * check
    s["proc_mem_tier1_cap_req"] = sum((part if moved[k] else full)[k] for k in full)
    s["proc_mem_tier2_cap_req"] = sum(away[k] for k in full if moved[k])
