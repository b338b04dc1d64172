"""What the loss keeps: float32 logits per micro-batch, and once those they are copied from."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from nadi.models import LanguageModel, llm_statistics

_MODEL = LanguageModel(layers=4, hidden=64, heads=4, ffn=128, vocab=1024, sequence=32)


def _added(stage: int, **plan: Any) -> int:
    """Return the bytes of activations that a vocabulary twice as large adds to a stage."""
    small, large = (
        llm_statistics(model, **plan).memory["activations"][stage]
        for model in (_MODEL, replace(_MODEL, vocab=2 * _MODEL.vocab))
    )
    return int(large - small)


@pytest.mark.parametrize(("dtype", "itemsize"), [("bfloat16", 2), ("float32", 4)])
@pytest.mark.parametrize(("tp", "micro_batch"), [(1, 1), (4, 1), (2, 3)])
def test_logits_are_held_twice_while_the_loss_is_computed(
    dtype: str, itemsize: int, tp: int, micro_batch: int
) -> None:
    logits = 32 * micro_batch * 1024 // tp
    assert _added(0, tp=tp, micro_batch=micro_batch, dtype=dtype) == logits * (4 + itemsize)


def test_only_one_micro_batch_is_at_its_loss() -> None:
    plan = {"pp": 2, "global_batch": 5, "schedule": "gpipe"}
    assert _added(1, **plan) == 32 * 1024 * (5 * 4 + 2)
    assert _added(0, **plan) == 0


def test_a_layer_computed_anew_takes_the_place_of_the_logits() -> None:
    wide = replace(_MODEL, ffn=1 << 16)
    kept, anew = (
        llm_statistics(model, recompute="full").memory["activations"][0]
        for model in (wide, replace(wide, vocab=2 * wide.vocab))
    )
    assert anew - kept == 32 * 1024 * 4


def test_no_loss_in_inference() -> None:
    assert _added(0, inference="prefill") == 0
