"""The optimizer's state in a second tier, beside bounds by hand: ../shared/peers/tier-truth.md.

Two steps of training that clip gradients by their norm, with the state of Adam behind 4 to 1,024
GB/s, full and half duplex. No schedule ends before SA: what is freed in the last backward, or
taken again in the next forward, holds state that was read ahead or is not yet written. None that
overlaps reads, updates and writes needs more than S1: small buffers, and nothing before the last
backward ends. ``nadi estimate``, ``nadi memory place`` and this program's own count of the schedule
that they state have to agree within 1 %, and lie between both within 1 %. Further: what is exposed
does not depend on the number of micro-batches, and more bandwidth is never longer.

    python verification/tier_truth.py
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from _report import Checks, Tally

import nadi
from nadi.estimates import describe_step, estimate, execution_of_plan, machine_of_system
from nadi.memory import ByRules, PlainStep, parse_rules, plain_step
from nadi.systems import second_tier

NEAR = 0.01
GBPS = (4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
GIB = 1.073741824  # 10^9 bytes
LAWS = (
    "between SA and S1", "as the schedule", "the same exposed for twice the micro-batches",
    "no longer than with less bandwidth",
)  # fmt: skip
PARTS = 64  # the update works in: the schedule as docs/cxl.md states it


class Job(NamedTuple):
    """A step, and what is known of it by hand: seconds, and the state and activations in GiB."""

    model: str
    plan: dict[str, Any]
    backward: float  # of the last micro-batch
    forward: float  # of the first one
    update: float
    state: float
    activations: float


JOBS = (
    Job("gpt3-13b",
        {"tp": 2, "dp": 2, "sequence": 2048, "micro_batch": 8, "global_batch": 512},
        0.76, 0.36, 0.051, 35.94, 51.7),
    Job("llama3-70b", {"tp": 8, "sequence": 8192, "global_batch": 32},
        0.73, 0.35, 0.139, 98.58, 21.5),
)  # fmt: skip


def bounds(job: Job, step: float, gbps: float, *, duplex: bool) -> tuple[float, float]:
    """Give SA and S1 of a step of so many seconds without a tier."""
    moved = job.state * GIB / gbps
    ahead = min(job.backward, job.activations * GIB / gbps, moved)
    behind = min(job.forward, job.activations * GIB / gbps, moved)
    if duplex:
        most = step + max(0.0, moved - job.update)
        least = step + max(0.0, moved - ahead, moved - behind)
    else:
        most = step + max(0.0, 2 * moved - job.update)
        least = step + max(0.0, 2 * moved - ahead - behind - job.update)
    return min(least, most), most


def stated(job: Job, step: float, gbps: float, *, duplex: bool) -> float:
    """Give the step by the schedule, part by part: load, update, store."""
    part = job.state * GIB / gbps / PARTS
    loaded = updated = stored = 0.0
    done = [0.0] * PARTS
    for number in range(PARTS):
        # half duplex: the link loads part n + 1 before it stores part n
        loaded = (loaded if duplex else max(loaded, stored)) + part
        updated = max(updated, loaded) + job.update / PARTS
        done[number] = updated
        if duplex:
            stored = max(stored, updated) + part
        elif number:
            stored = max(loaded, stored, done[number - 1]) + part
    if not duplex:
        stored = max(stored, done[-1]) + part
    return step - job.update + stored


class Answers:
    """What Nadi says of a job."""

    def __init__(self, job: Job, batches: int = 1) -> None:
        how = job.plan | {"global_batch": batches * job.plan["global_batch"]}
        described = describe_step(job.model, "dgx-h100", how)
        assert described.plan is not None
        self.plan, self.model = described.plan, described.model
        system = nadi.load_system("dgx-h100", self.plan.world_size)
        self.plain: PlainStep = plain_step(nadi.llm_job(job.model, **how), system)
        self.simulated = self.plain.ns / 1e9
        self.estimated = self._estimate(machine_of_system(system), ())

    def _estimate(self, machine: Any, offload: tuple[str, ...]) -> float:
        how = execution_of_plan(self.plan, machine, offload=offload)
        return estimate(self.model, machine, how).seconds

    def with_tier(self, gbps: float, *, duplex: bool) -> tuple[float, float]:
        """Give the seconds of an estimate and of a simulation."""
        tier = msgspec.structs.replace(second_tier(gbps, 1 << 44), duplex=duplex)
        system = msgspec.structs.replace(self.plain.system, tiers=(tier,))
        staging = self.plain.staging(system)
        where = self.plain.chosen(ByRules(parse_rules("optimizer=cxl")), system, staging)
        simulated = self.plain.placed(where, system, staging).ns / 1e9
        return self._estimate(machine_of_system(system), ("optimizer",)), simulated


def table(checks: Checks, job: Job) -> None:
    """Compare all bandwidths, both ways."""
    answers, longer = Answers(job), Answers(job, 2)
    without = (answers.estimated, answers.simulated)
    names = ("estimate", "simulated")
    for duplex in (True, False):
        way = f"{job.model}, {'full' if duplex else 'half'} duplex"
        tallies = {law: Tally() for law in LAWS}
        before = (float("inf"), float("inf"))
        for gbps in GBPS:
            found = answers.with_tier(gbps, duplex=duplex)
            twice = longer.with_tier(gbps, duplex=duplex)
            others = (longer.estimated, longer.simulated)
            for name, step, seconds, again, other, last in zip(
                names, without, found, twice, others, before, strict=True
            ):
                least, most = bounds(job, step, gbps, duplex=duplex)
                told = stated(job, step, gbps, duplex=duplex)
                line = (
                    f"{gbps:g} GB/s, {name} {seconds / step:.4f}: SA {least / step:.4f}, "
                    f"S1 {most / step:.4f}, schedule {told / step:.4f}"
                )
                print(f"       {line}")
                held = (
                    least * (1 - NEAR) <= seconds <= most * (1 + NEAR),
                    abs(seconds / told - 1) <= NEAR,
                    abs(seconds - step - (again - other)) <= 1e-3 * step,
                    seconds <= last + 1e-9,
                )
                for law, holds in zip(LAWS, held, strict=True):
                    tallies[law].add(exact=holds, detail=line)
            before = found
        for law, tally in tallies.items():
            checks.add_tally(f"{way}: {law}", tally)


def main() -> None:
    """Run all checks."""
    checks = Checks()
    for job in JOBS:
        table(checks, job)
    checks.finish()


if __name__ == "__main__":
    main()
