"""Language models: counts from shapes, what is refused, and where descriptions come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from nadi.errors import FormatError, InputError, UsageError
from nadi.models.llm.language_model import (
    LanguageModel,
    MixtureOfExperts,
    language_model_from,
    load_language_model,
    shipped_language_models,
)

SMALL = {"layers": 2, "hidden": 8, "heads": 4, "vocab": 10, "ffn": 16}
EXPERTS = {"experts": 4, "top_k": 2, "expert_ffn": 6}
LATENT = {"kv_lora_rank": 4, "qk_nope_head_dim": 3, "qk_rope_head_dim": 2, "v_head_dim": 5}


def model(**changed: Any) -> LanguageModel:
    return language_model_from(SMALL | changed)


@pytest.mark.parametrize("name", shipped_language_models())
def test_shipped_models_have_the_published_number_of_parameters(name: str) -> None:
    found = load_language_model(name)
    stated = found.published
    assert found.name == name
    assert found.about
    assert found.source
    assert found.sequence
    assert stated is not None
    assert abs(found.total_parameters - stated.parameters) <= stated.tolerance
    assert stated.tolerance < 0.04 * stated.parameters


def test_the_families_are_there() -> None:
    names = shipped_language_models()
    counts = {"gpt3": 8, "megatron": 12, "llama2": 3, "llama3": 3, "mixtral": 2, "qwen3": 8}
    assert {f: sum(n.startswith(f) for n in names) for f in counts} == counts
    assert "deepseek-v3" in names
    kinds = {name: load_language_model(name).attention_kind for name in names}
    assert kinds["deepseek-v3"] == "mla"
    assert kinds["llama3-8b"] == kinds["llama2-70b"] == kinds["qwen3-0.6b"] == "gqa"
    assert kinds["gpt3-175b"] == kinds["llama2-7b"] == "mha"


def test_counts_by_hand() -> None:
    found = model(norm="layernorm", attention_bias=True, mlp_bias=True, position="learned",
                  max_positions=6, tied_embeddings=True).parameters()  # fmt: skip
    assert found._asdict() == {
        "embedding": 80, "position": 48, "attention": 2 * (4 * 64 + 4 * 8),
        "mlp": 2 * (2 * 8 * 16 + 16 + 8), "experts": 0, "shared_experts": 0, "router": 0,
        "norms": 5 * 16, "head": 0,
    }  # fmt: skip
    assert found.total == 80 + 48 + 576 + 560 + 80


def test_counts_of_experts_by_hand() -> None:
    moe = EXPERTS | {"shared_experts": 3, "shared_expert_ffn": 5, "first_dense_layers": 1,
                     "router_bias": True}  # fmt: skip
    found = model(layers=5, gated=True, norm="rmsnorm", kv_heads=2, qk_norm=True, moe=moe)
    assert found.layer_kinds == ("dense", "moe", "moe", "moe", "moe")
    one = found.layer_parameters("moe")
    assert one.attention == 2 * 64 + 2 * 8 * 4
    assert one.experts == 4 * 3 * 8 * 6
    assert one.shared_experts == 3 * 3 * 8 * 5
    assert one.router == 8 * 4 + 4
    assert one.norms == 2 * 8 + 2 * 2
    unused = 4 * 2 * 3 * 8 * 6  # two of four experts in four layers
    assert found.active_parameters() == found.total_parameters - unused
    assert found.active_parameters(embedding=False) == found.active_parameters() - 80
    every = model(layers=5, moe=EXPERTS | {"every": 2})
    assert every.layer_kinds == ("moe", "dense", "moe", "dense", "moe")


def test_latent_attention_by_hand() -> None:
    found = model(mla=LATENT | {"q_lora_rank": 7}, norm="rmsnorm")
    assert [(one.inputs, one.outputs) for one in found.attention_linears()] == [
        (8, 7), (7, 20), (8, 6), (4, 32), (20, 8),
    ]  # fmt: skip
    assert found.layer_parameters("dense").norms == 2 * 8 + 7 + 4
    assert (found.query_head_dim, found.value_head_dim) == (5, 5)
    plain = model(mla=LATENT)
    assert plain.attention_linears()[0].name == "query"


def test_multi_token_prediction_adds_a_layer_and_a_projection() -> None:
    found = model(mtp_layers=2, norm="rmsnorm", moe=EXPERTS)
    one = found.layer_parameters("moe").total + 2 * 64 + 3 * 8
    assert found.mtp_parameters().total == 2 * one
    assert found.total_parameters == model(norm="rmsnorm", moe=EXPERTS).total_parameters
    assert model().mtp_parameters().total == 0


def test_biases_of_queries_keys_and_values_alone() -> None:
    assert model(qkv_bias=True).total_parameters - model().total_parameters == 2 * 3 * 8
    assert model(attention_bias=True).total_parameters - model().total_parameters == 2 * 4 * 8


def test_defaults_follow_from_other_values() -> None:
    found = model(max_positions=64, moe={"experts": 2, "top_k": 1})
    assert (found.kv_heads, found.head_dim, found.sequence) == (4, 2, 64)
    assert found.moe == MixtureOfExperts(2, 1, expert_ffn=16, shared_expert_ffn=16)
    assert found.norm_bias is True
    assert model(norm="rmsnorm").norm_bias is False


@pytest.mark.parametrize(
    ("changed", "where", "what"),
    [
        ({"kv_heads": 3}, "$.kv_heads", "state one of 1, 2, 4"),
        ({"heads": 3}, "$.heads", "3 heads do not divide hidden, 8"),
        ({"layers": 0}, "$.layers", "0 is not 1 to 16384"),
        ({"hidden": -8}, "$.hidden", "-8 is not 1"),
        ({"layers": 1 << 30}, "$.layers", "is not 1 to 16384"),
        ({"ffn": 0}, "$.ffn", "it is missing"),
        ({"position": "learned"}, "$.max_positions", "it is missing"),
        ({"position": "alibi"}, "$.position", "expected one of: learned, none, rope"),
        ({"sequence": 9, "max_positions": 8}, "$.sequence", "9 is over max_positions, 8"),
        ({"widht": 1}, "$", "known keys: layers, hidden"),
        ({"moe": EXPERTS | {"top_k": 5}}, "$.moe.top_k", "5 is over the number of experts, 4"),
        ({"moe": EXPERTS | {"every": 0}}, "$.moe.every", "0 is not 1"),
        ({"moe": EXPERTS | {"first_dense_layers": 2}}, "$.moe", "none of the 2 layers"),
        ({"moe": EXPERTS | {"k": 2}}, "$.moe", "known keys: experts, top_k"),
        ({"moe": {"experts": 4}}, "$.moe", "missing required field `top_k`"),
        ({"mla": LATENT, "qk_norm": True}, "$.qk_norm", "has its own norms"),
        ({"mla": LATENT, "kv_heads": 2}, "$.kv_heads", "as many heads"),
        ({"vocab": "many"}, "$.vocab", "expected `int`, got `str`"),
    ],
)  # fmt: skip
def test_impossible_models_are_refused(changed: dict[str, Any], where: str, what: str) -> None:
    with pytest.raises(FormatError) as raised:
        language_model_from(SMALL | changed, "mine")
    assert raised.value.where == f"mine: {where}"
    assert what in str(raised.value)
    assert raised.value.remedy


def test_files_of_each_kind_are_read_alike(tmp_path: Path) -> None:
    described = SMALL | {"moe": EXPERTS}
    (tmp_path / "mine.json").write_text(json.dumps(described))
    (tmp_path / "mine.yaml").write_bytes(msgspec.yaml.encode(described))
    (tmp_path / "mine.toml").write_text(
        "".join(f"{key} = {value}\n" for key, value in SMALL.items())
        + "[moe]\n" + "".join(f"{key} = {value}\n" for key, value in EXPERTS.items())
    )  # fmt: skip
    found = [load_language_model(tmp_path / f"mine.{end}") for end in ("json", "yaml", "toml")]
    bare = [msgspec.structs.replace(one, name="") for one in found]
    assert bare[0] == bare[1] == bare[2]
    assert found[0].name == str(tmp_path / "mine.json")


def test_unknown_names_are_answered_with_similar_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean llama3-70b"):
        load_language_model("llama-3-70b")
    with pytest.raises(UsageError, match="known: deepseek-v3"):
        load_language_model("xyz")
    with pytest.raises(InputError, match=r"missing\.toml"):
        load_language_model(tmp_path / "missing.toml")
    with pytest.raises(UsageError, match="is a folder"):
        load_language_model(tmp_path)
    (tmp_path / "broken.toml").write_text("layers = ")
    with pytest.raises(FormatError, match="correct the syntax"):
        load_language_model(tmp_path / "broken.toml")


@given(
    layers=st.integers(1, 12), kv_heads=st.sampled_from([1, 2, 4]), gated=st.booleans(),
    tied=st.booleans(), biased=st.booleans(), experts=st.integers(0, 6), first=st.integers(0, 3),
    every=st.integers(1, 3), latent=st.booleans(),
)  # fmt: skip
def test_parameters_are_those_of_embedding_layers_and_head(
    layers: int, kv_heads: int, gated: bool, tied: bool, biased: bool, experts: int, first: int,
    every: int, latent: bool,
) -> None:  # fmt: skip
    given_values: dict[str, Any] = {"layers": layers, "gated": gated, "tied_embeddings": tied,
                                    "mlp_bias": biased}  # fmt: skip
    given_values |= {"mla": LATENT} if latent else {"kv_heads": kv_heads}
    if experts:
        moe = {"experts": experts, "top_k": 1, "first_dense_layers": first, "every": every}
        given_values["moe"] = moe
        if not any(i >= first and i % every == 0 for i in range(layers)):
            with pytest.raises(FormatError):
                model(**given_values)
            return
    found = model(**given_values)
    of_layers = sum(found.layer_parameters(kind).total for kind in found.layer_kinds)
    tables = 80 if tied else 160
    assert found.total_parameters == tables + of_layers + found.norm_parameters
    assert 0 < found.active_parameters() <= found.total_parameters
    if experts <= 1:
        assert found.active_parameters() == found.total_parameters
