"""Weights that all tensor parallel ranks have: gradients are summed where tokens are shared."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from nadi.models import LanguageModel, llm_job, llm_statistics, load_language_model

_LAYERS, _HIDDEN = 2, 64
_NORMS = (2 * _LAYERS + 1) * _HIDDEN
_SHAPE = {"layers": _LAYERS, "hidden": _HIDDEN, "heads": 4, "ffn": 128, "vocab": 512}


def _summed(model: LanguageModel | str, **plan: Any) -> int:
    """Return the bytes of the gradients that a step sums in the tensor parallel group."""
    nodes = llm_job(model, sequence=64, **plan).traces[0].nodes
    names = nodes["name"].to_list()
    found = [n for n, name in enumerate(names) if name == "whole.gradients.all_reduce"]
    return int(nodes["comm_bytes"][found[0]]) if found else 0


@pytest.mark.parametrize(
    ("fields", "parameters"),
    [
        ({"norm": "rmsnorm"}, _NORMS),
        ({"norm": "layernorm"}, 2 * _NORMS),
        # the biases after the two products whose outputs are scattered; others are shared
        ({"norm": "rmsnorm", "attention_bias": True}, _NORMS + _LAYERS * _HIDDEN),
        ({"norm": "rmsnorm", "mlp_bias": True}, _NORMS + _LAYERS * _HIDDEN),
        ({"norm": "rmsnorm", "qk_norm": True}, _NORMS + _LAYERS * 2 * 16),
    ],
)
def test_summed_with_sequence_parallelism(fields: dict[str, Any], parameters: int) -> None:
    model = LanguageModel(**_SHAPE, **fields)
    assert _summed(model, tp=2) == 4 * parameters
    assert _summed(model, tp=2, gradient_dtype="bfloat16") == 2 * parameters
    assert _summed(model, tp=1) == 0


def test_each_rank_has_all_tokens_without_sequence_parallelism() -> None:
    model = LanguageModel(**_SHAPE, norm="layernorm", attention_bias=True, mlp_bias=True)
    assert _summed(model, tp=2, sequence_parallel=False) == 0


def test_norms_of_heads_are_summed_also_without_sequence_parallelism() -> None:
    model = LanguageModel(**_SHAPE, norm="rmsnorm", qk_norm=True)
    assert _summed(model, tp=2, sequence_parallel=False) == 4 * _LAYERS * 2 * 16


@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_copies_of_heads_of_keys_are_summed(sequence_parallel: bool, bias: bool) -> None:
    model = LanguageModel(**_SHAPE, kv_heads=2, qkv_bias=bias)
    plan = {"tp": 4, "dp": 2, "sequence": 64, "sequence_parallel": sequence_parallel}
    job = llm_job(model, **plan)
    assert job.rank_groups is not None
    assert job.rank_groups.members["kv"].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    sums = llm_statistics(model, **plan).communication.filter(pl.col("role") == "kv")
    one = 2 * 16 * (_HIDDEN + bias)  # a head of keys and one of values on each rank
    assert sums.select("type", "ranks", "count", "bytes").rows() == [
        ("all_reduce", 2, 1, _LAYERS * one * 4)
    ]


def test_heads_of_keys_without_copies_are_not_summed() -> None:
    model = LanguageModel(**_SHAPE, kv_heads=2)
    for tp in (1, 2):
        names = llm_job(model, tp=tp, sequence=64).traces[0].nodes["name"].cast(pl.String)
        assert not names.str.contains("key_value").any()


def test_routers_are_summed() -> None:
    model = load_language_model("mixtral-8x7b")
    norms = (2 * model.layers + 1) * model.hidden
    assert model.moe is not None
    routers = model.layers * model.hidden * model.moe.experts
    assert _summed(model, tp=2, ep=2) == 4 * (norms + routers)


def test_compressions_of_latent_attention_are_summed() -> None:
    model = load_language_model("deepseek-v3")
    assert model.moe is not None
    assert model.mla is not None
    mla = model.mla
    compressions = model.hidden * (mla.q_lora_rank + mla.kv_lora_rank + mla.qk_rope_head_dim)
    norms = 2 * model.hidden + mla.q_lora_rank + mla.kv_lora_rank
    routers = (model.layers - model.moe.first_dense_layers) * (model.hidden + 1) * model.moe.experts
    of_layers = model.layers * (compressions + norms)
    assert _summed(model, tp=2, ep=2) == 4 * (of_layers + routers + model.hidden)
