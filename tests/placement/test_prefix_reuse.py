"""Prefixes that sequences share: what is computed, moved and kept, by counting."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings, strategies as st

import nadi
from nadi.errors import UsageError
from nadi.memory.placed_tensors import holders_of_copies, replica_numbers
from nadi.memory.placement.placed_steps import PlacedStep, PlainStep, plain_step
from nadi.memory.placement_choice import ByRoom, ByRules, parse_rules, rooms_of
from nadi.models import LanguageModel
from nadi.systems.memory_tiers import second_tier
from nadi.systems.system import System
from tests.amounts import examples

LAYERS, WIDTH = 3, 2 * 2 * 64  # keys and values of two heads
MODEL = LanguageModel(
    layers=LAYERS, hidden=512, heads=8, kv_heads=2, ffn=1024, gated=True, norm="rmsnorm",
    vocab=1000, sequence=1024,
)  # fmt: skip
BYTES = 2 * WIDTH  # of a token in a layer


def plain_of(**plan: Any) -> PlainStep:
    job = nadi.llm_job(MODEL, **plan)
    return plain_step(job, nadi.load_system("dgx-h100", len(job.traces)))


def with_pool(plain: PlainStep, rate: float = 64.0, capacity: int = 0, ranks: int = 1) -> System:
    tier = second_tier(rate, capacity, shared_by=ranks)
    return msgspec.structs.replace(plain.system, tiers=(tier,))


def placed(plain: PlainStep, rules: str, system: System) -> PlacedStep:
    staging = plain.staging(system, distance=1)
    return plain.placed(plain.chosen(ByRules(parse_rules(rules)), system, staging), system, staging)


def moved(step: PlacedStep, role: str) -> tuple[int, int]:
    """Give the bytes of a role that all ranks load and store."""
    use, place = step.accounts.tiers[1], pl.Series(nadi.trace.schema.TENSOR_ROLES).to_list()
    return int(use.read[place.index(role)]), int(use.written[place.index(role)])


@settings(max_examples=examples(24))
@given(
    micro_batch=st.sampled_from([1, 2, 4]), prefix=st.integers(0, 900),
    suffix=st.integers(1, 64),
)  # fmt: skip
def test_a_decode_step_loads_a_prefix_once_for_each_micro_batch(
    micro_batch: int, prefix: int, suffix: int
) -> None:
    plain = plain_of(
        inference="decode", sequence=prefix + suffix, prefix=prefix, micro_batch=micro_batch,
        global_batch=4,
    )  # fmt: skip
    of_role = dict(plain.tensors.table.group_by("role").agg(pl.col("bytes").sum()).iter_rows())
    assert of_role["kv"] == LAYERS * 4 * suffix * BYTES
    assert of_role.get("prefix", 0) == LAYERS * prefix * BYTES
    step = placed(plain, "prefix=cxl,kv=cxl", with_pool(plain))
    assert moved(step, "prefix") == (LAYERS * 4 // micro_batch * prefix * BYTES, 0)
    loaded, stored = moved(step, "kv")
    assert stored == LAYERS * 4 * BYTES
    # one token of each sequence is given by the step; shares are whole bytes
    assert abs(loaded - LAYERS * 4 * (suffix - 1) * BYTES) <= LAYERS * 4
    assert step.ns >= plain.ns


def test_a_prefill_step_computes_and_writes_what_follows_the_prefix() -> None:
    sizes = {"sequence": 1024, "global_batch": 4, "micro_batch": 2, "inference": "prefill"}
    whole, part = (plain_of(prefix=prefix, **sizes) for prefix in (0, 768))
    linear = [
        one.tensors.traces[0].trace.nodes.filter(pl.col("name").cast(pl.String).str.ends_with("up"))
        for one in (whole, part)
    ]
    assert linear[0]["flops"].sum() == 4 * linear[1]["flops"].sum()
    core = [
        one.tensors.traces[0]
        .trace.nodes.filter(pl.col("name").cast(pl.String).str.ends_with("core"))["flops"]
        .sum()
        for one in (whole, part)
    ]
    # fewer queries, as many keys, of which the mask leaves more
    assert core[0] / (1 / 2) == 4 * core[1] / (1 - 256 / 2048)
    assert part.ns < whole.ns
    step = placed(part, "prefix=cxl,kv=cxl", with_pool(part))
    assert moved(step, "prefix") == (LAYERS * 2 * 768 * BYTES, 0)
    assert moved(step, "kv") == (0, LAYERS * 4 * 256 * BYTES)


def test_sharing_a_prefix_is_never_slower_and_never_takes_more() -> None:
    times, peaks = [], []
    for prefix in (0, 512, 768, 1000):
        plain = plain_of(
            inference="decode", sequence=1024, prefix=prefix, micro_batch=4, global_batch=8
        )
        step = placed(plain, "kv=cxl,prefix=cxl", with_pool(plain, rate=1.0))
        times.append(step.ns)
        peaks.append(step.accounts.tiers[1].peak)
    assert times == sorted(times, reverse=True)
    assert peaks == sorted(peaks, reverse=True)


@pytest.mark.parametrize(("tp", "ranks", "holders"), [(1, 8, 8), (2, 8, 4), (2, 2, 1), (1, 0, 8)])
def test_replicas_keep_one_copy_of_a_prefix_in_a_pool(tp: int, ranks: int, holders: int) -> None:
    plain = plain_of(
        inference="decode", tp=tp, dp=8 // tp, sequence=1024, prefix=1000, micro_batch=2,
        global_batch=16 // tp,
    )  # fmt: skip
    assert replica_numbers(plain.tensors.simulation).tolist() == [rank // tp for rank in range(8)]
    size = LAYERS * 1000 * BYTES // tp
    found = holders_of_copies(plain.tensors.simulation, np.full(8, size), ranks)
    assert found.tolist() == [holders] * 8
    whole = size * 8 // holders * (ranks or 8) // 8  # of all copies in a pool
    system = with_pool(plain, capacity=whole, ranks=ranks)
    step = placed(plain, "prefix=cxl", system)
    assert step.accounts.tiers[1].peak == size // holders
    assert step.accounts.tiers[1].replicas == holders
    assert not step.accounts.tiers[1].excess
    assert moved(step, "prefix")[0] == 8 * size  # each replica reads it
    less = with_pool(plain, capacity=whole - 8, ranks=ranks)
    assert placed(plain, "prefix=cxl", less).accounts.tiers[1].excess
    rooms = rooms_of(msgspec.structs.replace(system, memory_capacity=1 << 30), 1 << 20)
    assert len(ByRoom()(plain.tensors, rooms)) == len(plain.tensors.traces)


def test_replicas_on_one_pool_wait_for_each_other() -> None:
    plain = plain_of(
        inference="decode", dp=8, sequence=1024, prefix=1000, micro_batch=2, global_batch=16
    )
    times = [
        placed(plain, "prefix=cxl,kv=cxl", with_pool(plain, ranks=ranks)).ns for ranks in (1, 2, 8)
    ]
    assert times == sorted(times)
    assert times[0] < times[2]


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({}, "prefix: training computes all of each sequence"),
        ({"inference": "decode", "prefix": 1024}, "at most 1023"),
        ({"inference": "prefill", "cp": 2}, "use cp=1"),
        ({"inference": "prefill", "tp": 2, "prefix": 511}, "512 would fit|1023 would fit"),
    ],
)
def test_a_prefix_that_cannot_be_is_refused(plan: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        nadi.llm_job(MODEL, **{"prefix": 512, "sequence": 1024, **plan})
