"""FlexGen's cost model: its program, the search for batches, and laws."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from nadi.errors import UsageError
from nadi.memory import (
    Inference,
    OffloadMachine,
    best_policy,
    inference_of_model,
    load_offload_machine,
    needed_bytes,
    place_block,
)
from nadi.memory.offloading.flexgen_policy import FREE, RangeBound, SharesGiven
from nadi.models import load_language_model
from nadi.models.llm.language_model import LanguageModel
from tests.amounts import examples
from tests.placement.flexgen_cases import CASES
from tests.reference.flexgen import seconds_of_block

pytest.importorskip("highspy", reason="the solver is an extra")
Case = tuple[Inference, OffloadMachine]
CLOSE = 1e-7
# free, or some of them fixed
SHARES = st.sampled_from([
    FREE, (0.25, 0.5, *FREE[2:]), (None, None, 0.0, 1.0, None, None),
    (0.0, 1.0, 0.0, 1.0, 0.0, 1.0), (1.0, 0.0, 1.0, 0.0, 1.0, 0.0),
])  # fmt: skip
T4 = load_offload_machine("t4")
OPT = inference_of_model(load_language_model("opt-30b"), 512, 32)


@settings(max_examples=examples(60), deadline=None)
@given(CASES, st.integers(1, 5), st.integers(1, 6))
def test_a_block_takes_what_the_program_written_out_in_fractions_takes(
    case: Case, batch: int, number: int
) -> None:
    found = place_block(*case, batch, number)
    wanted = seconds_of_block(*case, batch, number)
    if wanted is None:
        assert found is None
        return
    assert found is not None
    assert found.seconds == pytest.approx(float(wanted), rel=CLOSE)


@settings(max_examples=examples(80), deadline=None)
@given(CASES, st.integers(1, 5), st.integers(1, 20))
def test_a_policy_keeps_to_the_memories_and_says_its_own_time(
    case: Case, batch: int, number: int
) -> None:
    asked, machine = case
    found = place_block(*case, batch, number)
    needed = needed_bytes(*case, batch, number, FREE)
    if found is None:
        assert all(
            one > size * (1 - CLOSE) for one, size in zip(needed, machine.usable, strict=True)
        )
        return
    gpu, cpu, disk = machine.usable * (1 + 1e-6) + 1
    assert all(
        bytes_ <= most
        for bytes_, most in zip(found.memory, (gpu, cpu, gpu, cpu, disk), strict=True)
    )
    for kind in ("weights", "cache", "hidden"):
        shares = [share for name, share in found.shares.items() if name.startswith(kind)]
        assert sum(shares) == pytest.approx(1)
    times = found.prefill_seconds + (asked.generated - 1) * found.decode_seconds
    assert found.seconds == pytest.approx(times * asked.layers)
    assert found.rate == pytest.approx(batch * number * asked.generated / found.seconds)
    # the same shares, given, cost the same
    names = ("weights_gpu", "weights_cpu", "cache_gpu", "cache_cpu", "hidden_gpu", "hidden_cpu")
    again = place_block(*case, batch, number, tuple(found.shares[name] for name in names))
    assert again is None or again.seconds == pytest.approx(found.seconds, rel=1e-6)
    whole = place_block(*case, batch, number, whole_percent=True)
    if whole is not None:
        assert whole.seconds >= found.seconds * (1 - CLOSE)
        assert all(share == round(100 * share) / 100 for share in whole.shares.values())


@settings(max_examples=examples(60), deadline=None)
@given(CASES, st.integers(1, 4), st.integers(1, 8),
       st.sampled_from([n for n in OffloadMachine.__struct_fields__ if "slope" not in n]),
       st.floats(1.0, 8.0))  # fmt: skip
def test_more_of_anything_is_never_slower(
    case: Case, batch: int, number: int, name: str, factor: float
) -> None:
    asked, machine = case
    before = place_block(asked, machine, batch, number)
    more = msgspec.structs.replace(machine, **{name: getattr(machine, name) * factor})
    after = place_block(asked, more, batch, number)
    if before is not None:
        assert after is not None
        assert after.seconds <= before.seconds * (1 + CLOSE)


@settings(max_examples=examples(40), deadline=None)
@given(CASES, st.integers(1, 3), SHARES)
def test_the_search_by_bounds_finds_what_trying_all_numbers_finds(
    case: Case, batch: int, shares: SharesGiven
) -> None:
    best = best_policy(*case, batch=batch, given=shares).policy
    rate, number = 0.0, 0
    for number in range(1, 400):
        one = place_block(*case, batch, number, shares)
        if one is None:
            break
        rate = max(rate, one.rate)
    if not rate:
        assert best is None
    elif number < 399:  # else more would fit
        assert best is not None
        assert best.rate == pytest.approx(rate, rel=1e-8)
        theirs = best_policy(*case, batch=batch, given=shares, compat="flexgen").policy
        assert theirs is not None
        assert theirs.rate <= rate * (1 + 1e-8)


@settings(max_examples=examples(60), deadline=None)
@given(CASES, st.integers(1, 3), st.integers(1, 40), st.integers(0, 40), SHARES)
def test_no_number_of_a_range_is_below_its_bound(
    case: Case, batch: int, low: int, more: int, shares: SharesGiven
) -> None:
    bound, likely = RangeBound(*case, batch, shares).bound(low, low + more)
    assert low <= likely <= low + more
    for number in {low, low + more // 2, likely, low + more}:
        one = place_block(*case, batch, number, shares)
        assert one is None or one.seconds_per_sequence >= bound * (1 - 1e-6)


def test_the_search_tries_batches_that_flexgen_does_not() -> None:
    ours = best_policy(OPT, T4, num_batches=3).policy
    theirs = best_policy(OPT, T4, num_batches=3, compat="flexgen").policy
    assert ours is not None
    assert theirs is not None
    assert (ours.batch, theirs.batch) == (48, 32)
    assert ours.rate > theirs.rate


def test_what_is_needed_is_enough() -> None:
    small = msgspec.structs.replace(T4, cpu_memory=30 * 2**30, disk=0.0)
    assert place_block(OPT, small, 4, 4) is None
    _, cpu, disk = needed_bytes(OPT, small, 4, 4, FREE)
    for name, bytes_, share in (("cpu_memory", cpu, 0.8), ("disk", disk, 0.8)):
        enough = msgspec.structs.replace(small, **{name: bytes_ / share * (1 + 1e-6)})
        assert place_block(OPT, enough, 4, 4) is not None
        lacking = msgspec.structs.replace(small, **{name: bytes_ / share * 0.999})
        assert place_block(OPT, lacking, 4, 4) is None


def test_a_model_with_grouped_heads_stores_less() -> None:
    grouped = inference_of_model(load_language_model("llama3-70b"), 512, 32)
    assert grouped.cache_bytes == 4 * 8 * 128
    assert grouped.ffn == 2 * 28672
    assert OPT.cache_bytes == 4 * OPT.hidden
    assert OPT.weight_bytes == 8 * OPT.hidden**2 + 4 * OPT.hidden * OPT.ffn
    assert place_block(grouped, T4, 1, 1) is not None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: place_block(OPT, T4, 0, 1), "batch=0: not a number of sequences"),
        (lambda: place_block(OPT, T4, 1, -1), "num_batches=-1: not a number"),
        (lambda: best_policy(OPT, T4, batch=0), "batch=0: not a number"),
        (lambda: best_policy(OPT, T4, compat="calculon"), "compat='calculon': unknown rules"),
        (lambda: place_block(OPT, T4, 1, 1, (1.5, *FREE[1:])), "1.5 is not a share"),
        (lambda: inference_of_model(load_language_model("opt-13b"), 0, 1), "prompt=0: not a"),
        (lambda: inference_of_model(load_language_model("opt-13b"), 1, 0), "generate=0: not a"),
        (lambda: inference_of_model(load_language_model("mixtral-8x7b"), 1, 1), "mixture of"),
        (lambda: inference_of_model(load_language_model("deepseek-v3"), 1, 1), "mixture of"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked(wrong: object, message: str) -> None:
    assert callable(wrong)
    with pytest.raises(UsageError, match=message):
        wrong()


def test_latent_attention_is_refused() -> None:
    model = msgspec.structs.replace(load_language_model("deepseek-v3"), moe=None)
    assert isinstance(model, LanguageModel)
    with pytest.raises(UsageError, match="latent attention"):
        inference_of_model(model, 1, 1)
