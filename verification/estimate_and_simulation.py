"""Estimates beside simulations of the generated jobs, on drawn configurations.

Both have the same operations, kernel prices and times of collectives; an estimate has closed forms
for what a simulation plays out. A configuration counts if both steps agree within 3 %. Drawn are
models, systems, all degrees of parallelism, what ZeRO shards, schedules, recomputation and
batches, until 40 (with --all 100) are within the rules that both have. Not drawn, as only one of
both has it:

- estimates alone: offloading, ``--overlap``, reductions after the backward, prices;
- simulations alone: gpipe, zero-bubble and dualpipe, links that several jobs share, algorithms
  other than rings.

    python verification/estimate_and_simulation.py [--all]
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from _report import Checks, Tally, takes_all

import nadi
from nadi.estimates import describe_step, estimate

NEAR = 0.03
DRAWN = 100 if takes_all() else 40
SEED = 20260525
MODELS = ("llama3-8b", "llama3-70b", "llama2-13b", "gpt3-6.7b", "gpt3-13b", "megatron-22b",
          "mixtral-8x7b", "qwen3-30b-a3b", "qwen3-14b")  # fmt: skip
SYSTEMS = ("dgx-a100", "dgx-h100", "hgx-h200", "gb200-nvl72")
MOST_WORK = 6000  # layers times microbatches of a rank, to end soon


class Drawn(NamedTuple):
    """One configuration."""

    model: str
    system: str
    plan: dict[str, Any]


def draw(chance: random.Random) -> Drawn:
    """Draw a configuration, which need not be possible."""
    tp, pp, dp, cp = (chance.choice(sizes) for sizes in (
        (1, 2, 4, 8), (1, 1, 2, 4, 8), (1, 2, 4, 8), (1, 1, 1, 2, 4)))  # fmt: skip
    interleaved = pp > 1 and chance.random() < 0.3
    microbatch = chance.choice((1, 1, 2, 4))
    rounds = pp * chance.choice((1, 2, 4)) if interleaved else chance.choice((1, 2, 5, 8, 16))
    model = chance.choice(MODELS)
    experts = model in ("mixtral-8x7b", "qwen3-30b-a3b")
    plan = {
        "tp": tp, "pp": pp, "dp": dp, "cp": cp,
        "ep": chance.choice((1, 2, 4, 8)) if experts else 1,
        "zero": chance.choice((0, 1, 2, 3)),
        "sequence_parallel": chance.choice((None, None, False)),
        "micro_batch": microbatch,
        "global_batch": microbatch * dp * rounds,
        "sequence": chance.choice((2048, 2048, 4096)),
        "schedule": "interleaved" if interleaved else "1f1b",
        "chunks": chance.choice((2, 3, 4)) if interleaved else 1,
        "recompute": chance.choice(("none", "selective", "full")),
        "attention": chance.choice(("flash", "unfused")),
        "inference": chance.choice(("", "", "", "", "", "", "prefill")),
    }  # fmt: skip
    if plan["inference"]:
        plan |= {"recompute": "none", "schedule": "1f1b", "chunks": 1, "zero": 0}
    return Drawn(model, chance.choice(SYSTEMS), plan)


def both(drawn: Drawn) -> tuple[float, float] | None:
    """Give the seconds of a step, estimated and simulated; None if it is not possible."""
    try:
        step = describe_step(drawn.model, drawn.system, drawn.plan)
        if step.model.num_blocks * drawn.plan["global_batch"] > MOST_WORK * drawn.plan["dp"]:
            return None
        estimated = estimate(step.model, step.machine, step.execution).seconds
    except nadi.NadiError:
        return None
    job = nadi.llm_job(drawn.model, **drawn.plan)
    done = nadi.simulate(job, nadi.load_system(drawn.system, len(job.traces)))
    if not drawn.plan["inference"]:
        return estimated, done.makespan / 1e9
    # steps of inference follow each other, so that the stages of a pipeline stay full
    return estimated, nadi.simulation.steady_step(done, feeds_back=False) / 1e9


def spread(differences: list[float]) -> str:
    """Say how large differences are."""
    ordered = sorted(differences)
    num = len(ordered)
    return (f"median {ordered[num // 2]:.2%}, 90th percentile {ordered[num * 9 // 10]:.2%}, "
            f"largest {ordered[-1]:.2%}")  # fmt: skip


def main() -> None:
    chance = random.Random(SEED)
    checks, tally = Checks(), Tally()
    differences: list[float] = []
    while len(differences) < DRAWN:
        drawn = draw(chance)
        found = both(drawn)
        if found is None:
            continue
        estimated, simulated = found
        difference = estimated / simulated - 1
        differences.append(abs(difference))
        tally.add(
            exact=abs(difference) <= NEAR,
            detail=f"{drawn.model} on {drawn.system}, {drawn.plan}: estimated "
            f"{estimated:.4f} s, simulated {simulated:.4f} s, {difference:+.1%}",
        )
    print(f"differences: {spread(differences)}")
    checks.add_tally("steps within 3 %", tally)
    checks.finish()


if __name__ == "__main__":
    main()
