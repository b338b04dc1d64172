"""Estimates and searches against Calculon's own.

Each point is a model, a machine and an execution, with the 96 statistics that Calculon gives, or
its refusal. All statistics must agree within 1e-9 of their value, and what it refuses must be
refused for the same reason. The study of a second memory tier has the fastest execution of a
small space for each of 24 bandwidths and machines: execution, rate and counts must be the same, and
the rates that ``nadi memory plan`` has in a space with these executions and more. Calculon's own
search of 530 billion parameters on 5,128 ranks must count the same executions.

    python verification/calculon.py [POINTS.json.gz [STUDY.json.gz]]
"""

from __future__ import annotations

import gzip
import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from _report import Checks, Tally, arguments

import nadi.estimates
from nadi.estimates import Execution, MachineDescription, ModelDescription

DEFAULTS = ("golden/calculon/points.json.gz", "golden/calculon/cxl_study.json.gz")
NEAR = 1e-9
# what Calculon says, and the rule of Nadi that it is
REFUSALS = {
    r"Mem tier1 needs (.*) but only has (.*)": "tier1",
    r"Mem tier2 needs (.*) but only has (.*)": "tier2",
    r"Network tier\d isn't big enough": "network",
    r"We should split \d+ attn_heads between \d+ TP partitions evenly": "heads",
    r"": "microbatches",  # an assertion without words: 16 sequences in microbatches of 5
}
SIZES = {"gpt3-175B": (12288, 96, 128, 96), "megatron-1T": (25600, 160, 160, 128)}
# weights, activations, optimizer; of equally fast ones the study names the first
MOVES = [(False, False, False), (True, False, False), (False, True, False), (False, False, True),
         (True, False, True), (True, True, True), (False, True, True)]  # fmt: skip
UNITS = {"GiB": 2**30, "TiB": 2**40}


def read(path: Path) -> list[dict[str, Any]]:
    """Read a list of objects."""
    with gzip.open(path) as file:
        found: list[dict[str, Any]] = json.load(file)
    return found


def described(point: dict[str, Any]) -> tuple[ModelDescription, MachineDescription, Execution]:
    """Give a point's model, machine and execution, as they are in Calculon's files."""
    return (
        msgspec.convert(point["app"], ModelDescription),
        msgspec.convert(point["system"], MachineDescription),
        msgspec.convert(point["execution"], Execution),
    )


def compare_statistics(point: dict[str, Any], tally: Tally) -> None:
    """Compare all statistics of a point, and the model's parameters."""
    one = nadi.estimates.estimate(*described(point), nadi.estimates.CALCULON)
    expected = point["stats"] | {"num_parameters": point["num_parameters"]}
    found = one.statistics | {"num_parameters": one.model.num_parameters}
    if one.lacks:
        tally.add(detail=f"{point['id']}: {one.lacks}")
    for name, value in expected.items():
        wanted = math.nan if value is None else value
        got = found.get(name, math.inf)
        same = (math.isnan(wanted) and math.isnan(got)) or abs(got - wanted) <= NEAR * abs(wanted)
        tally.add(exact=same, detail=f"{point['id']} {name}: {got}, Calculon {wanted}")


def compare_refusal(point: dict[str, Any], tally: Tally) -> None:
    """Compare why a point is refused, and of memory how much it would need."""
    model, machine, execution = described(point)
    (lacks,) = nadi.estimates.evaluate(
        model, machine, nadi.estimates.columns_of([execution]), nadi.estimates.CALCULON
    ).lacks()
    told = next(
        (match, rule) for pattern, rule in REFUSALS.items()
        if (match := re.fullmatch(pattern, point["error"]))
    )  # fmt: skip
    same = lacks == told[1]
    if same and told[1].startswith("tier"):
        one = nadi.estimates.estimate(model, machine, execution, nadi.estimates.CALCULON)
        needed = one.statistics[f"proc_mem_{told[1]}_cap_req"]
        number, unit = told[0][1].split()
        same = f"{needed / UNITS[unit]:.3f}" == number
    tally.add(exact=same, detail=f"{point['id']}: {lacks!r}, Calculon {point['error']!r}")


def study_space(row: dict[str, Any], blocks: int) -> list[Execution]:
    """Lay out the executions that the study tried for a row."""
    processors, batch = row["num_procs"], row["batch"]
    moves = MOVES if row["mem2_GBps"] else MOVES[:1]
    found = []
    for degree, stages in itertools.product((1, 2, 4, 8), range(1, blocks + 1)):
        if processors % (degree * stages) or blocks % stages:
            continue
        replicas, on_stage = processors // degree // stages, blocks // stages
        chunks = {one for one in (1, 2, 3, 4, 6, on_stage) if on_stage % one == 0}
        for chunk, microbatch, recompute, move in itertools.product(
            sorted(chunks) if stages > 1 else [1], (1, 2, 4, 8), ("full", "attn_only", "none"),
            moves,
        ):  # fmt: skip
            if batch % (replicas * microbatch):
                continue
            found.append(Execution(
                num_procs=processors, tensor_par=degree, pipeline_par=stages,
                data_par=replicas, tensor_par_net=0, pipeline_par_net=1, data_par_net=1,
                batch_size=batch, microbatch_size=microbatch, datatype="float16",
                fused_activation=True, attention_type="multihead",
                activation_recompute=recompute, pipeline_interleaving=chunk,
                optimizer_sharding=replicas > 1,
                tensor_par_comm_type="rs_ag" if degree > 1 else "ar",
                tensor_par_overlap="none", seq_par_ag_redo=False, data_par_overlap=False,
                weight_offload=move[0], activations_offload=move[1], optimizer_offload=move[2],
                training=True,
            ))  # fmt: skip
    return found


def compare_study(row: dict[str, Any], systems: dict[str, Any], tally: Tally) -> None:
    """Search a row's space, and compare the fastest execution, its rate, and the counts."""
    hidden, heads, size, blocks = SIZES[row["app"]]
    model = ModelDescription(
        hidden=hidden, feedforward=4 * hidden, seq_size=2048, attn_heads=heads, attn_size=size,
        num_blocks=blocks,
    )  # fmt: skip
    machine = msgspec.convert(row.get("system_json") or systems[row["system"]], MachineDescription)
    executions = study_space(row, blocks)
    columns = nadi.estimates.columns_of(executions)
    found = nadi.estimates.evaluate(model, machine, columns, nadi.estimates.CALCULON)
    can_be = [k for k, lacks in enumerate(found.lacks()) if not lacks]
    name = f"{row['app']} on {row['system']}, tier 2 {row['mem2_GBps']} GB/s"
    counts = (len(executions), len(can_be))
    wanted = (row["configs"], row["feasible"])
    tally.add(exact=counts == wanted, detail=f"{name}: {counts} executions, Calculon {wanted}")
    if not row["feasible"]:
        return
    best = min(can_be, key=lambda k: found.seconds[k])
    rate = row["batch"] / found.seconds[best]
    near = abs(rate - row["sample_rate"]) <= NEAR * rate
    tally.add(exact=near, detail=f"{name}: {rate} a second, Calculon {row['sample_rate']}")
    same = all(getattr(executions[best], key) == value for key, value in row["exe"].items())
    tally.add(exact=same, detail=f"{name}: {executions[best]}, Calculon {row['exe']}")


def compare_curve(rows: list[dict[str, Any]], machine: dict[str, Any], tally: Tally) -> None:
    """Compare the rates by bandwidth of ``nadi memory plan``, whose space has the study's, too."""
    hidden, heads, size, blocks = SIZES[rows[0]["app"]]
    model = ModelDescription(
        hidden=hidden, feedforward=4 * hidden, seq_size=2048, attn_heads=heads, attn_size=size,
        num_blocks=blocks,
    )  # fmt: skip
    described = msgspec.convert(machine, MachineDescription)
    space = nadi.estimates.search_space(
        model, described, rows[0]["num_procs"], rows[0]["batch"],
        {
            "tensor_par_comm_type": ["rs_ag"], "seq_par_ag_redo": [False],
            "tensor_par": [1, 2, 4, 8], "microbatch_size": [1, 2, 4, 8],
            "optimizer_sharding": [True], "data_par_overlap": [False],
            "tensor_par_overlap": ["none"],
        },
        rules=nadi.estimates.CALCULON,
    )  # fmt: skip
    with_tier = [row for row in rows if row["mem2_GBps"] not in (0, "inf")]
    found = nadi.memory.study_second_tier(
        space, [row["mem2_GBps"] for row in with_tier], [machine["mem2"]["GiB"]]
    )
    rates = {float(row["mem2_GBps"]): row.get("sample_rate", 0.0) for row in rows}
    given = dict(zip(found.bandwidths, found.best[0], strict=True)) | {0.0: found.without}
    got = {bandwidth: one.rate if one else 0.0 for bandwidth, one in given.items()}
    got[math.inf] = found.break_even.limit
    for bandwidth, rate in rates.items():
        near = abs(got[bandwidth] - rate) <= NEAR * rate
        name = f"{rows[0]['app']} on {rows[0]['system']}, tier 2 {bandwidth} GB/s"
        tally.add(exact=near, detail=f"{name}: {got[bandwidth]} a second, Calculon {rate}")


def factors(number: int) -> list[int]:
    """Give all divisors."""
    return [one for one in range(1, number + 1) if number % one == 0]


def count_of_calculon(
    model: ModelDescription, machine: MachineDescription, processors: int, batch: int
) -> int:
    """Count what Calculon's own search tries with ``-m``.

    It tries every network tier for each kind of parallelism; communication of tensors even where
    nothing is split; no offloading of activations with full recomputation; and of choices larger
    microbatches only while a smaller one is possible on some tiers.
    """
    tried = 0
    tiers = range(len(machine.networks))
    for degree in factors(processors):
        if model.hidden % degree or model.attn_heads % degree:
            continue
        for stages in factors(min(processors // degree, model.num_blocks)):
            replicas = processors // degree // stages
            if processors % (degree * stages) or model.num_blocks % stages or replicas > batch:
                continue
            local = batch // replicas
            layout = {"tensor_par": degree, "pipeline_par": stages, "data_par": replicas,
                      "num_procs": processors, "batch_size": local * replicas}  # fmt: skip
            nets = [dict(zip(("tensor_par_net", "pipeline_par_net", "data_par_net"), one,
                             strict=True))
                    for one in itertools.product(*(
                        tiers if each > 1 else [0] for each in (degree, stages, replicas)
                    ))]  # fmt: skip
            chunks = [1] if stages == 1 else factors(model.num_blocks // stages)
            groups = [
                [Execution(**layout, **choice, **one, pipeline_interleaving=chunk,
                           microbatch_size=microbatch) for one in nets]
                for chunk, choice in itertools.product(
                    chunks, choices_of_calculon(degree, replicas)
                )
                for microbatch in factors(local)
            ]  # fmt: skip
            columns = nadi.estimates.columns_of(list(itertools.chain(*groups)))
            found = nadi.estimates.evaluate(model, machine, columns, nadi.estimates.CALCULON)
            can_be = np.reshape(found.reason == 0, (-1, len(factors(local)), len(nets))).any(2)
            # the sizes of a microbatch up to the first that is not possible, and that one
            sizes = np.where(can_be.all(1), can_be.shape[1], can_be.argmin(1) + 1)
            tried += int(sizes.sum()) * len(nets)
    return tried


def choices_of_calculon(degree: int, replicas: int) -> list[dict[str, Any]]:
    """Give the choices of Calculon's search for a machine with a second tier."""
    found = []
    several, splits = [True, False] if replicas > 1 else [False], degree > 1
    for recompute, sharding, communication, redo, reduces, overlap, *moves in itertools.product(
        ("full", "attn_only", "none"), several, ("ar", "p2p_rs_ag", "rs_ag"), (True, False),
        several, ("none", "ring", "pipe") if splits else ("none",), *[(True, False)] * 3,
    ):  # fmt: skip
        if (redo and (communication != "rs_ag" or recompute == "full")) or (
            moves[1] and recompute == "full"
        ):
            continue
        found.append({
            "datatype": "float16", "fused_activation": True, "attention_type": "multihead",
            "activation_recompute": recompute, "optimizer_sharding": sharding,
            "tensor_par_comm_type": communication, "tensor_par_overlap": overlap,
            "seq_par_ag_redo": redo, "data_par_overlap": reduces, "weight_offload": moves[0],
            "activations_offload": moves[1], "optimizer_offload": moves[2], "training": True,
        })  # fmt: skip
    return found


def main() -> None:
    checks = Checks()
    paths = arguments(*DEFAULTS)
    points = read(paths[0])
    statistics, refusals, study = Tally(), Tally(), Tally()
    for point in points:
        if point["status"] == "ok":
            compare_statistics(point, statistics)
        else:
            compare_refusal(point, refusals)
    checks.add_tally("statistics of executions", statistics)
    checks.add_tally("refusals", refusals)
    if len(paths) > 1 or paths[0] == arguments(*DEFAULTS)[0]:
        rows = read(paths[1])
        systems = {row["system"]: row["system_json"] for row in rows if row["mem2_GBps"] == 0
                   and "system_json" in row}  # fmt: skip
        for row in rows:
            compare_study(row, systems, study)
        checks.add_tally("searches with a second memory tier", study)
        curves = Tally()
        for _, group in itertools.groupby(rows, key=lambda row: (row["app"], row["system"])):
            several = list(group)
            told = next(row["system_json"] for row in several if row["mem2_GBps"] == 32)
            compare_curve(several, told, curves)
        checks.add_tally("rates by bandwidth, as nadi memory plan has them", curves)
        app = next(point["app"] for point in points if point["app_name"] == "turing-530B")
        system = next(point["system"] for point in points if point["system_name"] == "a100_80g")
        count = count_of_calculon(
            msgspec.convert(app, ModelDescription), msgspec.convert(system, MachineDescription),
            5128, 2520,
        )  # fmt: skip
        checks.add("executions of a search of Calculon's: 8,112", count == 8112)
    checks.finish()


if __name__ == "__main__":
    main()
