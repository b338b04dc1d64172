"""One question, one answer: what commands say of one plan on one system.

Drawn are plans of dense models, models with experts and recommendation models; training, prefill
and decode; without a tier, and with each kind of tensors in one of a drawn bandwidth. Of training
without a tier, more are drawn that shard gradients or weights (ZeRO 2 and 3), share sequences
(context parallelism), have stages of unequal layers, in chunks and not, count embedding and head as
layers, train adapters alone, or cut products into tiles beside their communication. Of training
with a tier that stages share, plans of several stages are drawn, in chunks and not, with each kind
of recomputation and of placed tensors, and in chunks with a tier of each rank's own. Of each plan,
on each shipped system in turn, an estimate (``nadi estimate``), the simulation of the generated job
(``nadi generate``, ``nadi simulate``), the study of a tier (``nadi memory plan``) and the placement
in it (``nadi memory place``) have to agree within 3 %: all four with a tier, and without one the
first two. Of inference without a tier, the study and a step of a server (``nadi serve``) do, too. A
plan that does not fit its device is asked of one with 1 TiB. What a command does not know of a plan
has no answer, and counts as one that differs. Of each shipped system ``nadi estimate --check`` has
to be within 5 %, and within 3 % with each kind of tensors in each tier of its file, of which some
read or write, and do not do both at once.

    python verification/one_answer.py [PART ...]

Parts are the kinds of plans (``dense-training``, ``dense-training-weights``, ``dense-sharded`` ...)
``check`` and ``tiers``.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from _report import Checks, Tally

import nadi
from nadi.estimates import (
    describe_step,
    estimate,
    estimate_network,
    execution_of_plan,
    search_space,
)
from nadi.estimates.plan_execution import OFFLOADED
from nadi.estimates.single.checks import check_estimate
from nadi.memory import ByRules, parse_rules, plain_step, study_second_tier
from nadi.memory.placement.command import simulate_offloaded
from nadi.models import network_job
from nadi.models.networks.network_jobs import planned_network
from nadi.serving import measures
from nadi.systems import second_tier, shipped_systems

NEAR, CHECKED = 0.03, 0.05
DRAWN, DRAWN_OF_FORMS, DRAWN_OF_SHARED, DRAWN_OF_TILED = 40, 36, 12, 12
SEED = 20261124
MODELS = {
    "dense": ("llama3-8b", "llama2-13b", "gpt3-6.7b", "qwen3-8b"),
    "experts": ("mixtral-8x7b", "qwen3-30b-a3b"),
    "dlrm": ("dlrm-kaggle", "dlrm-dcnv2"),
}
KINDS = [
    ("dense", "training", ""), ("dense", "training", "optimizer"),
    ("dense", "training", "activations"), ("dense", "training", "weights"),
    ("dense", "prefill", ""), ("dense", "prefill", "weights"), ("dense", "decode", ""),
    ("experts", "training", ""), ("experts", "training", "optimizer"), ("dlrm", "training", ""),
]  # fmt: skip
FORMS = [
    ("dense", "sharded", ""), ("dense", "context", ""), ("dense", "uneven", ""),
    ("experts", "sharded", ""), ("dense", "ends", ""), ("dense", "adapters", ""),
]  # fmt: skip
SHARED = [
    ("dense", "shared", "activations"), ("dense", "shared", "weights"),
    ("dense", "shared", "activations,weights"), ("dense", "shared", "optimizer"),
    ("experts", "shared", "activations"), ("dense", "shared", "activations,optimizer"),
]  # fmt: skip
CHUNKED = [
    (family, "chunked", placed) for placed in ("weights", "activations", "activations,weights")
    for family in ("dense", "experts")
]  # fmt: skip
TILED = [("dense", "tiled", ""), ("experts", "tiled", "")]


class Drawn(NamedTuple):
    """A plan on a system."""

    family: str
    phase: str
    placed: str  # what lives in the tier; empty without one
    model: str
    system: str
    plan: dict[str, Any]
    gbps: float
    sharing: int  # how many ranks share the tier

    @property
    def kind(self) -> str:
        """What it is called among the parts."""
        return "-".join(filter(None, (self.family, self.phase, self.placed.replace(",", "-"))))


def fits(system: str, ranks: int) -> bool:
    """Tell whether a system has so many ranks."""
    try:
        nadi.load_system(system, ranks)
    except nadi.NadiError:
        return False
    return True


def draw() -> Iterator[Drawn]:
    """Draw plans that fit the node of their system."""
    parts = (
        (KINDS, DRAWN), (FORMS, DRAWN_OF_FORMS), (SHARED, DRAWN_OF_SHARED),
        (CHUNKED, DRAWN_OF_SHARED), (TILED, DRAWN_OF_TILED),
    )  # fmt: skip
    for kinds, count in parts:
        yield from _drawn(random.Random(SEED), kinds, count)


def _drawn(chance: random.Random, kinds: list[tuple[str, str, str]], count: int) -> Iterator[Drawn]:
    systems = list(shipped_systems())
    for number in range(count):
        family, phase, placed = kinds[number % len(kinds)]
        system = systems[number * 7 % len(systems)]
        sizes = [size for size in (1, 2, 4, 8) if fits(system, size)]
        is_form = kinds is not KINDS  # which few ranks do not have
        ranks = sizes[-1] if is_form else chance.choice(sizes)
        model = chance.choice(MODELS[family])
        if family == "dlrm":
            plan: dict[str, Any] = {"ranks": ranks, "batch": 2048 * ranks}
        else:
            most = max(ranks // 2, 1) if is_form else ranks
            tp = chance.choice([size for size in (1, 2, 4, 8) if size <= most])
            plan = {"tp": tp, "dp": ranks // tp, "sequence": 2048}
            if phase == "training":
                pp = chance.choice([size for size in (1, 2, 4) if plan["dp"] % size == 0])
                plan |= {"pp": pp, "dp": plan["dp"] // pp}
            if family == "experts":
                plan |= {"tp": 1, "pp": 1, "dp": ranks, "ep": ranks}
            plan["global_batch"] = plan["dp"] * chance.choice((2, 4, 8))
            plan["inference"] = phase if phase in ("prefill", "decode") else ""
            if plan["inference"]:  # as engines: all ranks have all tokens, and all requests at once
                requests = plan["global_batch"] // plan["dp"]
                plan |= {"sequence_parallel": False, "expert_tp": plan["tp"],
                         "micro_batch": requests}  # fmt: skip
            plan |= _form(chance, phase, plan)
        gbps = float(chance.choice((32, 64, 128, 256)))
        sharing = chance.choice((1, 2, 4)) * ranks if phase == "shared" else 1
        yield Drawn(family, phase, placed, model, system, plan, gbps, sharing)


def _form(chance: random.Random, phase: str, plan: dict[str, Any]) -> dict[str, Any]:
    """Draw what is special about a plan."""
    replicas = plan["dp"]
    if phase == "sharded":
        return {"zero": chance.choice((2, 3)), "recompute": chance.choice(("none", "full"))}
    if phase == "context":
        shared = chance.choice([size for size in (1, 2, 4, 8) if size <= replicas])
        return {"cp": shared, "dp": replicas // shared, "zero": chance.choice((1, 3))}
    if phase == "adapters":
        return {"lora": chance.choice((8, 64)), "zero": chance.choice((1, 3))}
    if phase == "tiled":
        ranks = plan["tp"] * plan["dp"]
        tp = chance.choice([size for size in (2, 4, 8) if ranks % size == 0] or [1])
        trains = chance.random() < 0.75
        pp = chance.choice([size for size in (1, 2) if ranks // tp % size == 0]) if trains else 1
        dp = ranks // tp // pp
        recompute = chance.choice(("none", "full", "selective"))
        return {"tp": tp, "pp": pp, "dp": dp, "global_batch": dp * pp * chance.choice((2, 4)),
                "ep": 1, "overlap": chance.choice(("ring", "pipe")), "zero": chance.choice((0, 1)),
                "sequence_parallel": chance.random() < 0.75,
                "recompute": recompute if trains else "none",
                "inference": "" if trains else "prefill"}  # fmt: skip
    if phase in ("shared", "chunked"):
        stages = chance.choice([size for size in (2, 4, 8) if replicas % size == 0] or [1])
        chunks = chance.choice((1, 1, 2) if phase == "shared" else (2,)) if stages > 1 else 1
        micro_batches = chance.choice((2, 5, 8)) if chunks == 1 else 2 * stages
        dp = replicas // stages
        return {"pp": stages, "dp": dp, "global_batch": dp * micro_batches, "sequence": 1024,
                "schedule": "interleaved" if chunks > 1 else "1f1b", "chunks": chunks,
                "ep": dp if plan.get("ep") else 1, "zero": chance.choice((0, 1)),
                "recompute": chance.choice(("none", "full", "selective"))}  # fmt: skip
    if phase in ("uneven", "ends"):
        chunks = 3 if replicas > 1 and chance.random() < 0.5 else 1
        return {"pp": replicas, "dp": 1, "global_batch": replicas * chance.choice((2, 4)),
                "schedule": "interleaved" if chunks > 1 else "1f1b", "chunks": chunks,
                "ends_as_layers": phase == "ends"}  # fmt: skip
    return {}


def answers(drawn: Drawn) -> dict[str, float | None]:
    """Give the seconds of a step by command; None where it has no answer."""
    is_network = drawn.family == "dlrm"
    make = network_job if is_network else nadi.llm_job
    job = make(drawn.model, **drawn.plan)
    system = nadi.load_system(drawn.system, len(job.traces))
    found: dict[str, float | None] = {"estimate": None}
    if not drawn.placed:
        found["simulate"] = nadi.simulate(job, system).makespan / 1e9
        found["estimate"] = _estimated(drawn, system)
        if drawn.phase in ("prefill", "decode"):
            tier, roomy = second_tier(drawn.gbps, 1 << 50), system
            if not _fits(drawn, system):
                roomy = msgspec.structs.replace(system, memory_capacity=1 << 40)
            found["memory plan"] = _with_tier(drawn, roomy, tier)["memory plan"]
            found["serve"] = _served(drawn)
        return found
    tier = second_tier(drawn.gbps, 1 << 50, shared_by=drawn.sharing)
    plain = plain_step(job, system)
    there = msgspec.structs.replace(plain.system, tiers=(tier,))
    if not _fits(drawn, there):
        there = msgspec.structs.replace(there, memory_capacity=1 << 40)
    staging = plain.staging(there)
    where = plain.chosen(ByRules(parse_rules(_rules(drawn))), there, staging)
    found["memory place"] = plain.placed(where, there, staging).ns / 1e9
    found |= _with_tier(drawn, there, tier)
    return found


def _rules(drawn: Drawn) -> str:
    return ",".join(f"{role}=cxl" for role in drawn.placed.split(","))


def _estimated(drawn: Drawn, system: nadi.System) -> float | None:
    if drawn.family == "dlrm":
        return estimate_network(*planned_network(drawn.model, drawn.plan), system).seconds
    try:
        step = describe_step(drawn.model, drawn.system, drawn.plan)
        return estimate(step.model, step.machine, step.execution).seconds
    except nadi.NadiError:
        return None


def _served(drawn: Drawn) -> float:
    """Serve requests whose only two steps are prefill and decode of all of them."""
    plan = drawn.plan
    requests, before = plan["micro_batch"], plan["sequence"]
    found = nadi.serve(
        drawn.model, drawn.system, tp=plan["tp"], concurrency=requests, number=requests,
        input=before, output=2, budget=requests * before, sequences=requests, graphs=False,
        blocks=requests * (before // 16 + 2), prefix_caching=False,
    )  # fmt: skip
    values = measures(found.runs[0])["ttft" if drawn.phase == "prefill" else "tpot"]
    return float(values.max()) / 1e9


def _offloaded(drawn: Drawn, system: Any) -> tuple[Any, Any, Any]:
    """Give the model, the machine and the execution with what lives in the tier."""
    step = describe_step(drawn.model, drawn.system, drawn.plan)
    machine = nadi.estimates.machine_of_system(system)
    assert step.plan is not None
    how = execution_of_plan(
        step.plan, machine, has_experts=step.model.language_model.moe is not None,
        offload=drawn.placed.split(",") if drawn.placed else [],
    )  # fmt: skip
    return step.model, machine, how


def _fits(drawn: Drawn, system: Any) -> bool:
    try:
        return not estimate(*_offloaded(drawn, system)).lacks
    except nadi.NadiError:
        return True


def _with_tier(drawn: Drawn, system: Any, tier: Any) -> dict[str, float | None]:
    """Estimate with a tier, and study the space that has this execution alone."""
    try:
        model, machine, how = _offloaded(drawn, system)
        seconds = estimate(model, machine, how).seconds
    except nadi.NadiError:
        return {"estimate": None, "memory plan": None}
    values = msgspec.to_builtins(how)
    sizes = values.pop("num_procs"), values.pop("batch_size")
    space = {name: [value] for name, value in values.items()}
    try:
        chosen = search_space(model, machine, *sizes, space)
        best = study_second_tier(chosen, [drawn.gbps], [1 << 30], tier).best[0][0]
    except nadi.NadiError:
        best = None
    return {"estimate": seconds, "memory plan": best.seconds if best else None}


def checked_systems(checks: Checks) -> None:
    """Check an estimate of each system."""
    tally = Tally()
    for name in shipped_systems():
        tp = max(size for size in (1, 2, 4, 8) if fits(name, size))
        try:
            step = describe_step("llama3-8b", name, {"tp": tp, "global_batch": 8, "sequence": 4096})
            found = estimate(step.model, step.machine, step.execution)
        except nadi.NadiError as error:
            tally.add(detail=f"{name}: no estimate, {error}")
            continue
        done = check_estimate(step, name, found, "llama3-8b")
        gap = found.seconds / done.simulated - 1
        print(f"       {name}, tp {tp}: {gap:+.2%}")
        tally.add(exact=abs(gap) <= CHECKED, detail=f"{name}: {gap:+.2%}")
    checks.add_tally("estimate --check of each system within 5 %", tally)


def shipped_tiers(checks: Checks) -> None:
    """Check estimates of what lives in each tier of a shipped system."""
    tally = Tally()
    for system in shipped_systems():
        ranks = max(size for size in (1, 2, 4, 8) if fits(system, size))
        plans: list[dict[str, Any]] = [{"tp": ranks, "global_batch": 4}]
        if ranks > 1:
            plans.append({"dp": ranks, "zero": 1, "global_batch": 2 * ranks})
            plans.append({"tp": ranks // 2, "pp": 2, "global_batch": 4})
        for tier in nadi.load_system(system, ranks).tiers:
            for kind, plan in itertools.product(OFFLOADED, plans):
                plan = plan | {"sequence": 2048}
                step = describe_step("llama3-8b", system, plan, offload=[f"{kind}={tier.name}"])
                found = estimate(step.model, step.machine, step.execution)
                done = check_estimate(step, system, found, placed=simulate_offloaded)
                gap = found.seconds / done.simulated - 1
                line = f"{system}, {kind} in {tier.name}, {plan}: {gap:+.2%}"
                print(f"       {line}")
                tally.add(exact=abs(gap) <= NEAR, detail=line)
    checks.add_tally("each tier of each system within 3 %", tally)


def main() -> None:
    asked = set(sys.argv[1:])
    checks = Checks()
    tallies: dict[str, Tally] = defaultdict(Tally)
    spreads: dict[str, list[float]] = defaultdict(list)
    for drawn in draw():
        if asked and drawn.kind not in asked:
            continue
        found = answers(drawn)
        known = [seconds for seconds in found.values() if seconds is not None]
        gap = max(known) / min(known) - 1
        told = ", ".join(
            f"{name} {'none' if seconds is None else f'{seconds:.4f} s'}"
            for name, seconds in found.items()
        )
        line = f"{drawn.model} on {drawn.system} {drawn.plan}, {drawn.gbps:g} GB/s: {told}"
        print(f"       {drawn.kind}: {gap:.2%} {line}")
        whole = len(known) == len(found)
        tallies[drawn.kind].add(exact=whole and gap <= NEAR, detail=line)
        if whole:
            spreads[drawn.kind].append(gap)
    for kind, tally in sorted(tallies.items()):
        gaps = sorted(spreads[kind])
        told = f"median {gaps[len(gaps) // 2]:.2%}, largest {gaps[-1]:.2%}" if gaps else "no answer"
        checks.add_tally(f"{kind}, {told}", tally)
    if not asked or "check" in asked:
        checked_systems(checks)
    if not asked or "tiers" in asked:
        shipped_tiers(checks)
    checks.finish()


if __name__ == "__main__":
    main()
