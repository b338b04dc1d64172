"""Compare placements of offloaded inference with FlexGen's linear program.

    python verification/flexgen_lp.py [FILE...]

Each record is either one program, whose least time per sequence, placement and times of a layer
are compared, or a search for the best batches. FlexGen's solver writes eight digits. Several
placements may cost the same: the record has the range of each share over all of them, and Nadi's
must lie in it. Also counts by how much Nadi's own search is faster than FlexGen's.
"""

from __future__ import annotations

import gzip
import json
from typing import Any

from _report import Checks, Tally, arguments

from nadi.memory import (
    FlexGenSearch,
    Inference,
    OffloadMachine,
    OffloadPolicy,
    best_policy,
    place_block,
)

CLOSE = 1e-6
# the names of FlexGen's file
SHARES = {
    "weights_gpu": "wg", "weights_cpu": "wc", "weights_disk": "wn", "cache_gpu": "cg",
    "cache_cpu": "cc", "cache_disk": "cn", "hidden_gpu": "hg", "hidden_cpu": "hc",
}  # fmt: skip
MACHINE = {
    "gpu_memory": "gmem", "cpu_memory": "cmem", "disk": "nmem", "usable_gpu": "alpha_g",
    "usable_cpu": "alpha_c", "usable_disk": "alpha_n", "cpu_to_gpu": "ctog_bdw",
    "gpu_to_cpu_cache": "gtoc_bdw_cache", "gpu_to_cpu_hidden": "gtoc_bdw_hidden",
    "disk_to_cpu": "dtoc_bdw", "cpu_to_disk_cache": "ctod_bdw_cache_p",
    "cpu_to_disk_decode": "ctod_bdw_g", "prefill_matmul": "mm_flops_p",
    "prefill_attention": "bmm_flops_p", "decode_matmul": "mm_flops_g",
    "decode_attention": "bmm_flops_g", "cpu_attention": "cpu_flops", "joint_slope": "c1",
    "batch_slope": "c2", "width_slope": "c3",
}  # fmt: skip


def main() -> None:
    checks = Checks()
    for path in arguments("golden/flexgen_lp/records.json.gz"):
        records = json.loads(gzip.decompress(path.read_bytes()))["records"]
        compare_programs(checks, [one for one in records if one["kind"] == "single_lp"])
        compare_searches(checks, [one for one in records if one["kind"] == "search"])
    checks.finish()


def compare_programs(checks: Checks, records: list[dict[str, Any]]) -> None:
    """Compare single programs."""
    objectives, times, placements = Tally(), Tally(), Tally()
    worst = 0.0
    for record in records:
        asked, machine = described(record)
        found = place_block(
            asked, machine, record["gpu_batch_size"], record["num_gpu_batches"],
            given(record["percent"]),
        )  # fmt: skip
        if found is None or record["status"] != "optimal":
            same = found is None and record["status"] != "optimal"
            objectives.add(exact=same, detail=f"{record['id']}: {record['status']}, {found}")
            continue
        wanted = record["objective_T_per_block"]
        off = abs(found.seconds_per_sequence / wanted - 1)
        worst = max(worst, off)
        objectives.add(exact=off < CLOSE, detail=f"{record['id']}: off by {off:.1e}")
        variables = record["variables"]
        pairs = ((found.prefill_seconds, "Tpre_i"), (found.decode_seconds, "Tgen_i"))
        exact = all(abs(mine / variables[name] - 1) < CLOSE for mine, name in pairs)
        # one phase may be slower if the other is faster
        is_split = asked.layers * (
            variables["Tpre_i"] + (asked.generated - 1) * variables["Tgen_i"]
        )
        ties = abs(found.seconds / is_split - 1) < CLOSE
        rule = "of equal sums: another split between the phases" if ties and not exact else ""
        times.add(exact=exact, rule=rule, detail=f"{record['id']}: {found}")
        outside = outside_range(found, record["placement_range_at_optimum"])
        placements.add(exact=not outside, detail=f"{record['id']}: {outside}")
    checks.add_tally(f"least time per sequence, within {CLOSE:.0e} (worst {worst:.1e})", objectives)
    checks.add_tally("times of a layer in both phases", times)
    checks.add_tally("placement in the range of the best ones", placements)


def outside_range(found: OffloadPolicy, ranges: dict[str, list[float]]) -> list[str]:
    """Name the shares outside the range of all best placements, which has seven digits."""
    wrong = []
    for name, share in found.shares.items():
        low, high = ranges[SHARES[name]]
        if not low - CLOSE <= share <= high + CLOSE:
            wrong.append(f"{name} {share:.7f}, not {low:.7f} to {high:.7f}")
    return wrong


def compare_searches(checks: Checks, records: list[dict[str, Any]]) -> None:
    """Compare searches with FlexGen's way to search, and with Nadi's own."""
    policies, rates, own = Tally(), Tally(), Tally()
    gains = []
    for record in records:
        asked, machine = described(record)
        fixed = record["constraints"]
        numbers = (fixed["gpu_batch_size"], fixed["num_gpu_batches"], given(fixed["percent"]))
        same_way = best_policy(asked, machine, *numbers, compat="flexgen")
        better = best_policy(asked, machine, *numbers)
        if record["status"] != "optimal":
            exact = same_way.policy is None is better.policy
            policies.add(exact=exact, detail=f"{record['id']}: {record['status']}, {same_way}")
            continue
        wanted = (record["best_gpu_batch_size"], record["best_num_gpu_batches"])
        met = batches_of(same_way)
        policies.add(exact=met == wanted, detail=f"{record['id']}: {met}, not {wanted}")
        if same_way.policy is None or better.policy is None:
            continue
        off = abs(same_way.policy.rate / record["throughput_token_s"] - 1)
        rates.add(exact=off < CLOSE, detail=f"{record['id']}: off by {off:.1e}")
        gain = better.policy.rate / same_way.policy.rate - 1
        own.add(exact=gain > -CLOSE, detail=f"{record['id']}: {gain:.1e}")
        if gain > CLOSE:
            gains.append(f"{record['id']} {100 * gain:+.1f} % with {batches_of(better)}")
    checks.add_tally("searches: batch and number of batches", policies)
    checks.add_tally(f"searches: rate, within {CLOSE:.0e}", rates)
    checks.add_tally("Nadi's own search is not slower", own)
    print(f"     it is faster for {len(gains)}: {', '.join(gains) or 'none'}")


def batches_of(search: FlexGenSearch) -> tuple[int, int] | None:
    policy = search.policy
    return None if policy is None else (policy.batch, policy.num_batches)


def given(percent: list[int | None] | None) -> tuple[float | None, ...]:
    """Give the shares that a record fixes."""
    return tuple(None if one is None else one / 100 for one in percent or [None] * 6)


def described(record: dict[str, Any]) -> tuple[Inference, OffloadMachine]:
    """Describe the inference and the machine of a record."""
    inputs = record["inputs"]
    hidden, ffn = inputs["h1"], inputs["h2"]
    matrices = 8.0 * hidden**2 + 4.0 * hidden * ffn  # bytes, and operations for a token
    weights = matrices / 4 if record["compress_weight"] else matrices
    asked = Inference(
        inputs["s"], inputs["n"], inputs["l"], hidden, inputs["nh"], ffn, weights, matrices,
        4.0 * hidden,
    )  # fmt: skip
    return asked, OffloadMachine(**{mine: inputs[theirs] for mine, theirs in MACHINE.items()})


if __name__ == "__main__":
    main()
