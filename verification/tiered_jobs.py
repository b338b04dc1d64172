"""Jobs whose tensors live in several tiers of memory: what must hold of any of them.

    python verification/tiered_jobs.py [unlimited|conserved|slower|offload ...]

- ``unlimited``: with room for all in the first tier, the step is that without tiers, to the ns.
- ``conserved``: what lives in all tiers together is what lives without tiers, at every moment; the
  accesses of every operation lie in a buffer while it runs; what was stored before is what is
  loaded; the role of every tensor that a generated job states is what its uses show.
- ``slower``: more bandwidth, less latency and more room never make a step longer.
- ``offload``: steps of generated jobs beside ``nadi estimate`` with the same tensors offloaded,
  which has Calculon's way of offloading: within 3 % where the rules agree, else by a rule with a
  name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import msgspec
import numpy as np
import polars as pl
from _report import SHARED, Checks, Tally, run_parts

import nadi
from nadi.estimates import describe_step, estimate, execution_of_plan
from nadi.memory import (
    ByRoom,
    ByRules,
    PlainStep,
    Staging,
    TierGrid,
    live_bytes,
    parse_rules,
    plain_step,
    sweep_tiers,
    with_bandwidth,
)
from nadi.systems import second_tier
from nadi.trace.operands import AttributesWithOperands

RECORDINGS = ("cpu_ddp4", "cpu_transformer4", "gpu_resnet_pair")
GENERATED = {
    "llama3-8b, tp 4, dp 2": ("llama3-8b", {"tp": 4, "dp": 2, "sequence": 2048,
                                            "global_batch": 8}),
    "llama3-8b, zero 3": ("llama3-8b", {"dp": 4, "zero": 3, "sequence": 2048, "global_batch": 8}),
    "gpt3-13b, pp 4, recomputed": ("gpt3-13b", {"tp": 2, "pp": 4, "recompute": "full",
                                               "global_batch": 8}),
    "mixtral-8x7b, ep 4": ("mixtral-8x7b", {"dp": 4, "ep": 4, "sequence": 2048,
                                           "global_batch": 8}),
    "llama3-8b, decode": ("llama3-8b", {"tp": 4, "inference": "decode", "sequence": 4096,
                                       "global_batch": 16}),
    "llama3-8b, prefix": ("llama3-8b", {"tp": 2, "dp": 2, "inference": "decode", "prefix": 3072,
                                       "sequence": 4096, "micro_batch": 4, "global_batch": 16}),
    "llama3-8b, prefill": ("llama3-8b", {"tp": 2, "dp": 2, "inference": "prefill", "prefix": 3072,
                                        "sequence": 4096, "micro_batch": 2, "global_batch": 8}),
}  # fmt: skip
ROLES = ("weights", "gradients", "optimizer", "activations", "kv", "prefix")
OFFLOADED = (
    ("llama3-70b", {"tp": 8, "pp": 4, "dp": 2, "sequence": 4096, "global_batch": 32}),
    ("llama3-8b", {"tp": 8, "sequence": 4096, "global_batch": 16}),
)
RATES = (32.0, 64.0, 128.0, 256.0)
NEAR = 0.03


def jobs() -> Iterator[tuple[str, PlainStep]]:
    """Give recordings and generated jobs, simulated without tiers."""
    for name in RECORDINGS:
        job = nadi.load_job(SHARED / "traces" / name)
        yield name, plain_step(job, nadi.load_system("dgx-h100", len(job.traces)))
    for name, (model, plan) in GENERATED.items():
        job = nadi.llm_job(model, **plan)
        yield name, plain_step(job, nadi.load_system("dgx-h100", len(job.traces)))


def unlimited(checks: Checks) -> None:
    """Compare steps with room for all with steps without tiers."""
    for name, plain in jobs():
        there = msgspec.structs.replace(
            plain.system, tiers=(second_tier(64.0),), memory_capacity=1 << 50
        )
        staging = plain.staging(there)
        for placer in (ByRoom(), ByRules(parse_rules("*=hbm"))):
            step = plain.placed(plain.chosen(placer, there, staging), there, staging)
            own = plain.tensors.simulation
            same = np.array_equal(step.simulation.start, own.start)
            same &= np.array_equal(step.simulation.end, own.end)
            checks.add(f"{name}: {type(placer).__name__}, every node as without tiers", bool(same))


def conserved(checks: Checks) -> None:
    """Look at every moment of placed jobs."""
    for name, plain in jobs():
        there = msgspec.structs.replace(plain.system, tiers=(second_tier(64.0),))
        placer = ByRules(parse_rules(",".join(f"{role}=cxl" for role in ROLES)))
        tier = plain.chosen(placer, there, Staging(0))
        total = max(one.table["bytes"].max() for one in plain.tensors.traces)
        step = plain.placed(tier, there, Staging(int(total)))
        moments = held = used = there_in_time = 0
        for number, tensors in enumerate(plain.tensors.traces):
            like = int(step.simulation.like[tensors.ranks[0]])
            first, last = step.simulation.program.first[like : like + 2]
            start, end = np.empty((2, last - first), dtype=np.int64)
            row = step.simulation.program.row[first:last]
            start[row] = step.simulation.start[first:last]
            end[row] = step.simulation.end[first:last]
            both = live_bytes(step.placed, number, (start, end), (1, 1))
            one = replace(step.placed, tier=tuple(of_trace * 0 for of_trace in tier))
            whole = live_bytes(one, number, (start, end), (1,))[0]
            at = [np.searchsorted(live.time, whole.time, side="right") - 1 for live in both]
            sums = sum(
                np.where(place >= 0, live.bytes[np.maximum(place, 0), :-1].sum(axis=1), 0)
                for place, live in zip(at, both, strict=True)
                if live.time.size
            )
            moments += whole.time.size
            held += int((sums == whole.bytes[:, :-1].sum(axis=1)).sum())
            moves = step.placed.moves[number]
            ok, count = _in_buffers(tensors, moves, tier[number], start, end)
            there_in_time, used = there_in_time + ok, used + count
        checks.add_many(f"{name}: moments at which bytes add up", held, moments)
        checks.add_many(f"{name}: accesses within buffers", there_in_time, used)
        table = plain.tensors.table
        if (table["source"] == "stated").any():
            _compare_roles(checks, name, plain)


def _in_buffers(tensors, moves, tier, start, end) -> tuple[int, int]:  # type: ignore[no-untyped-def]
    """Count accesses of lower tiers, and those during which a buffer holds the tensor."""
    low = np.flatnonzero(tier[tensors.life] > 0)
    life, row = tensors.life[low], tensors.accesses.first[low]
    last = tensors.accesses.last[low]
    order = np.lexsort((start[moves.begin], moves.life))
    lives, begin, until = moves.life[order], start[moves.begin[order]], end[moves.end[order]]
    span = int(max(end.max(), 1)) + 1
    at = np.searchsorted(lives * span + begin, life * span + start[row], side="right") - 1
    inside = (lives[at] == life) & (until[at] >= end[last])
    return int(inside.sum()), low.size


def _compare_roles(checks: Checks, name: str, plain: PlainStep) -> None:
    """Compare what a generated job states with what follows from uses."""
    job = plain.job
    assert isinstance(job, nadi.Job)
    stripped: dict[int, nadi.Trace] = {}
    for trace in job.traces:
        columns = trace.operand_columns
        assert columns is not None
        if id(trace) not in stripped:
            bare = columns._replace(roles=())
            given = AttributesWithOperands(
                lambda one=trace: one.attributes_without_operands, lambda bare=bare: bare
            )
            stripped[id(trace)] = replace(trace, given_attributes=given)
    unknown = replace(job, traces=tuple(stripped[id(trace)] for trace in job.traces))
    found = plain_step(unknown, plain.system).tensors.table
    stated = plain.tensors.table
    known = (stated["source"] == "stated").to_numpy()
    same = (stated["role"] == found["role"]).to_numpy()
    checks.add_many(f"{name}: roles that uses show", int((same & known).sum()), int(known.sum()))


def slower(checks: Checks) -> None:
    """Vary bandwidth, latency and room, one after the other."""
    for name, plain in jobs():
        peak = max(int((one.table["bytes"]).sum()) for one in plain.tensors.traces)
        there = msgspec.structs.replace(plain.system, tiers=(second_tier(64.0),))
        placer = ByRules(parse_rules("*=cxl"))
        staging = Staging(max(peak // 50, 1))
        tier = plain.chosen(placer, there, staging)
        base = plain.placed(tier, there, staging)
        by_rate = [plain.again(base.placed, with_bandwidth(there, rate)).ns
                   for rate in (8.0, 32.0, 128.0, 512.0)]  # fmt: skip
        by_latency = []
        for latency in (20_000.0, 2_000.0, 250.0, 0.0):
            own = msgspec.structs.replace(there.tiers[0], latency=latency, loaded=None)
            machine = msgspec.structs.replace(there, tiers=(own,))
            by_latency.append(plain.again(base.placed, machine).ns)
        sizes = tuple(int(peak * part) for part in (0.02, 0.05, 0.1, 0.3, 1.0))
        grid = TierGrid((32.0, 128.0), sizes)
        points = sweep_tiers(
            plain, [ByRoom(), ByRoom(by_time=False)], there, grid, (staging.buffers, 0)
        )
        by_room = [
            rows["ns"].fill_null(2**62).to_list()
            for _, rows in points.group_by("bandwidth", maintain_order=True)
        ]
        for what, times in (("bandwidth", by_rate), ("latency", by_latency),
                            *(("room", times) for times in by_room)):  # fmt: skip
            falls = [later <= earlier for earlier, later in pairwise(times)]
            checks.add_many(f"{name}: no step longer by {what}", sum(falls), len(falls))


_EDGES = "activations are stored beside the backward, too, and those of the last layers stay"


def offload(checks: Checks) -> None:
    """Compare with estimates that offload the same kind of tensors."""
    tally = Tally()
    for model, plan in OFFLOADED:
        step = describe_step(model, "dgx-h100", plan)
        assert step.plan is not None
        job = nadi.llm_job(model, **plan)
        plain = plain_step(job, nadi.load_system("dgx-h100", len(job.traces)))
        without = estimate(step.model, step.machine, step.execution).seconds
        for role in ("weights", "activations", "optimizer"):
            for rate in RATES:
                own = msgspec.structs.replace(second_tier(rate), loaded=None)
                there = msgspec.structs.replace(plain.system, tiers=(own,))
                machine = msgspec.structs.replace(step.machine, mem2=msgspec.structs.replace(
                    step.machine.mem2, GiB=1e6, GBps=rate, latency=own.latency / 1e9, duplex=True,
                ))  # fmt: skip
                execution = execution_of_plan(step.plan, machine, offload=[role])
                estimated = estimate(step.model, machine, execution).seconds / without
                staging = plain.staging(there)
                tier = plain.chosen(ByRules(parse_rules(f"{role}=cxl")), there, staging)
                placed = plain.placed(tier, there, staging)
                ratio = placed.ns / plain.ns
                bytes_moved = max(int(moves.bytes.sum()) for moves in placed.placed.moves)
                text = (
                    f"{model} {role} at {rate:g} GB/s: {ratio:.4f} simulated, "
                    f"{estimated:.4f} estimated"
                )
                print(f"       {text}")
                _count(tally, role, ratio, estimated, bytes_moved / rate / plain.ns, text)
    checks.add_tally(f"offloading within {NEAR:.0%} of an estimate", tally)


def _count(
    tally: Tally, role: str, ratio: float, estimated: float, whole: float, text: str
) -> None:  # fmt: skip
    """Count a comparison; ``whole`` is the time of all moves, over the step without tiers."""
    if abs(ratio / estimated - 1) <= NEAR:
        tally.add(exact=True)
    elif role == "activations" and ratio < estimated <= ratio + 0.1 * whole:
        tally.add(rule=_EDGES)
    else:
        tally.add(detail=text)


def main() -> None:
    pl.Config.set_tbl_rows(0)
    run_parts({"unlimited": unlimited, "conserved": conserved, "slower": slower,
               "offload": offload})  # fmt: skip


if __name__ == "__main__":
    main()
