"""The transformer draws as a slow model says, jobs of it run, and without torch it is refused."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import nadi
from nadi.cli import main
from nadi.sharing import TraceModel
from nadi.sharing.synthesis import transformer_training
from nadi.sharing.synthesis.learned_model import END, FIRST_START
from nadi.sharing.synthesis.model_bytes import decode_model, encode_model
from nadi.sharing.synthesis.tokens import Token
from nadi.sharing.synthesis.transformer import LayerWeights, Transformer, TransformerDraws
from nadi.trace import validate_trace
from tests.amounts import examples
from tests.reference.whole_attention import likeliness

HAS_TORCH = importlib.util.find_spec("torch") is not None
NEEDS_TORCH = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
WIDTH = 16


def untrained(symbols: list[int], starts: list[int], seed: int, layers: int = 2) -> Transformer:
    random = np.random.default_rng(seed)

    def drawn(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32) / 3

    of_layer = [
        LayerWeights(
            drawn(WIDTH) + 1, drawn(WIDTH, 3 * WIDTH), drawn(WIDTH, WIDTH), drawn(WIDTH) + 1,
            drawn(WIDTH, 4 * WIDTH), drawn(4 * WIDTH, WIDTH),
        )
        for _ in range(layers)
    ]  # fmt: skip
    return Transformer(
        np.array(symbols), drawn(len(symbols), WIDTH), drawn(len(symbols)), np.array(starts),
        drawn(len(starts), WIDTH), drawn(WIDTH) + 1, tuple(of_layer),
    )  # fmt: skip


@given(st.lists(st.integers(0, 3), max_size=12), st.integers(0, 99))
@settings(max_examples=examples(16))
def test_symbols_one_by_one_are_as_likely_as_all_at_once(symbols: list[int], seed: int) -> None:
    known = untrained([-1, 0, 1, 2, 3, END], [50, 60], seed)
    draws = TransformerDraws(known, 1.0)
    past = draws.begin(60)
    for one in symbols:
        draws.next(past, np.random.default_rng(0))
        past.append(one)
    assert np.allclose(draws.logits(past), likeliness(known, 60, symbols), atol=1e-3)


def test_only_the_last_positions_are_attended_to() -> None:
    known = untrained([0, 1, END], [5], 3, layers=1)
    symbols = np.random.default_rng(1).integers(0, 2, 300).tolist()
    found = []
    for first in (0, 1):
        draws = TransformerDraws(known, 1.0)
        past = draws.begin(5)
        for one in [first, *symbols]:
            past.append(one)
        found.append(draws.logits(past))
    assert np.allclose(*found, atol=1e-6)


def test_temperature_0_is_the_likeliest_and_options_are_in_order() -> None:
    known = untrained([0, 1, 2, 3, END], [5], 4)
    options = TransformerDraws(known, 0.0).next(
        (draws := TransformerDraws(known, 0.0)).begin(5), np.random.default_rng(0)
    )
    logit = draws.logits(draws.begin(5))
    assert options[0] == options[1] == known.symbol[logit.argmax()]
    assert sorted(options[1:]) == known.symbol.tolist()


@pytest.fixture(scope="module")
def model() -> TraceModel:
    """What was learned of a small job, with a transformer that knows nothing."""
    with nadi.JobBuilder(4) as made:
        pairs = [made.group("pair", (0, 1)), made.group("pair2", (2, 3))]
        for number, rank in enumerate(made.ranks):
            for _ in range(4):
                for layer in range(5):
                    done = rank.compute(f"forward.{layer % 2}", duration="1 ms")
                rank.collective("all_reduce", "1 MiB", after=done, group=pairs[number // 2])
                if number % 2:
                    rank.recv(number - 1, "1 MiB")
                else:
                    rank.send(number + 1, "1 MiB")
            rank.collective("all_gather", "1 MiB")
    known = nadi.sharing.learn(made.job)
    starts = {one for job in known.templates for role in job.roles for one in role[1:]}
    starts |= {FIRST_START + number for number in range(len(known.rules))}
    symbols = [*range(-len(known.rules), len(known.tokens)), END]
    return replace(known, counts=(), transformer=untrained(symbols, sorted(starts), 1))


@given(st.integers(0, 99), st.sampled_from([0.0, 1.0, 300.0]))
@settings(max_examples=examples(40))
def test_whatever_it_draws_is_valid_and_runs(
    model: TraceModel, seed: int, temperature: float
) -> None:
    short = replace(model, longest=40)
    job = nadi.sharing.synthesize(short, seed=seed, temperature=temperature)
    assert not any(validate_trace(trace).height for trace in job.traces)
    nadi.simulate(job, nadi.load_system("dgx-h100", len(job.traces)))


def test_it_is_the_same_from_its_file_and_damage_is_found(model: TraceModel) -> None:
    content = encode_model(model)
    assert encode_model(decode_model(content, "m")) == content
    assert model.transformer is not None
    narrow = model.transformer._replace(norm=model.transformer.norm[:-1])
    few = model.transformer._replace(start=model.transformer.start + 1)
    for wrong in (replace(model, transformer=narrow), replace(model, transformer=few),
                  replace(model, transformer=None)):  # fmt: skip
        with pytest.raises(nadi.errors.FormatError, match="damaged"):
            decode_model(encode_model(wrong), "m")


def test_without_torch_it_is_refused_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nothing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(transformer_training.importlib, "import_module", nothing)
    words = ["learn", str(tmp_path / "no-job"), "-o", str(tmp_path / "m")]
    for kind, expected in (("transformer", "nadi[learn]"), ("lstm", "ngram, transformer")):
        assert main([*words, "--model", kind]) == 2
        shown = capsys.readouterr().err
        assert expected in shown
        assert shown.count("\n") == 1
    assert not list(tmp_path.iterdir())


def _tokens(count: int) -> list[Token]:
    return [Token(f"op{n}", 4, 0, 0, 0, True, 0, -1, (), -1, 0, 0, ()) for n in range(count)]


@NEEDS_TORCH
def test_a_sequence_is_learned_and_numpy_goes_on_as_torch_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("_ROWS", 4), ("_LENGTH", 64), ("_LEAD", 8), ("_UPDATES", 120)):
        monkeypatch.setattr(transformer_training, name, value)
    random = np.random.default_rng(2)
    of = {start: [*random.integers(0, 6, 30).tolist(), END] for start in (100, 101)}
    sequences = [((start, *symbols), 1 + start) for start, symbols in of.items()]
    known = transformer_training.train_transformer(sequences, _tokens(6))
    draws = TransformerDraws(known, 0.0)
    for start, symbols in of.items():
        past, found = draws.begin(start), []
        for _ in symbols:
            found.append(draws.next(past, random)[0])
            past.append(found[-1])
        assert found == symbols
    again = transformer_training.train_transformer(sequences, _tokens(6))
    assert again.embedding.tobytes() == known.embedding.tobytes()
