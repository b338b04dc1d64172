"""Jobs made from models: like what was learned, of any size, and they run."""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import nadi
from nadi.cli import main
from nadi.errors import FormatError, InputError
from nadi.sharing import TraceModel, columns_of_job, read_trace_model, write_trace_model
from nadi.sharing.synthesis import synthetic_jobs
from nadi.sharing.synthesis.back_off import count_contexts
from nadi.sharing.synthesis.drawn_quantities import drawn_steps
from nadi.sharing.synthesis.grammar import Repeat, of_layer
from nadi.sharing.synthesis.job_columns import JobColumns
from nadi.sharing.synthesis.learned_model import END, FIRST_START
from nadi.sharing.synthesis.model_bytes import _HEAD, decode_model, encode_model
from nadi.systems import Dimension, Network
from nadi.trace import validate_trace
from nadi.trace.schema import NODE_KINDS
from tests.amounts import examples

NARROW = """
layers = {layers}
hidden = {hidden}
heads = 4
ffn = {ffn}
vocab = 1000
sequence = 128
gated = false
norm = "layernorm"
position = "rope"
"""


def language_model(folder: Path, hidden: int, layers: int = 6, **plan: int) -> nadi.Job:
    file = folder / f"{hidden}-{layers}.toml"
    file.write_text(NARROW.format(layers=layers, hidden=hidden, ffn=4 * hidden))
    return nadi.llm_job(file, **({"tp": 2, "pp": 2, "dp": 2, "global_batch": 8} | plan))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def model(folder: Path) -> TraceModel:
    return nadi.sharing.learn([language_model(folder, 256), language_model(folder, 512)])


def test_a_learned_job_comes_back(model: TraceModel, folder: Path) -> None:
    made = nadi.sharing.synthesize(model, hidden=256, seed=1)
    found = nadi.compare(language_model(folder, 256), made, systems="dgx-h100")
    assert max(one.distance for one in found.measures) < 0.01


def test_a_model_whose_content_is_far_larger_than_its_file(tmp_path: Path) -> None:
    """A megabyte became a gigabyte, and 16 MB all the memory there is."""
    path = tmp_path / "bomb.nadi"
    path.write_bytes(_HEAD + zlib.compress(bytes(300 << 20), 1))
    with pytest.raises(FormatError, match="its content is far too large"):
        read_trace_model(path)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(FormatError, match="cut off"):
        read_trace_model(path)


def test_a_model_that_states_any_lengths_ends(model: TraceModel) -> None:
    """A file of kilobytes says how long sequences are, and that each goes on for ever."""
    start = model.templates[0].roles[0].first_step
    roles = [
        one._replace(roles=tuple(r._replace(first_step=start, later_step=start) for r in one.roles))
        for one in model.templates
    ]
    looped = replace(
        model, counts=count_contexts([((start, *[0] * 40), 1)]), longest=2**31, largest=2**31,
        templates=tuple(roles),
    )  # fmt: skip
    made = nadi.sharing.synthesize(decode_model(encode_model(looped), "m"))
    assert 0 < made.num_nodes < 1_000_000


def test_repeats_in_repeats_in_repeats_end(
    model: TraceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of 5,000 rules is in the next: writing them out went as deep, and doubled each time."""
    monkeypatch.setattr(synthetic_jobs, "available_memory", lambda: 1 << 30)
    number = 5_000
    start = FIRST_START + number  # the symbol after those of the rules
    rules = tuple(Repeat((-one, 0) if one else (0, 0), 2) for one in range(number))
    bodies = [((FIRST_START + one, *rule.body, END), 1) for one, rule in enumerate(rules)]
    roles = [
        one._replace(roles=tuple(r._replace(first_step=start, later_step=start) for r in one.roles))
        for one in model.templates
    ]
    deep = replace(
        model, counts=count_contexts([((start, -number, END), 1), *bodies]), rules=rules,
        templates=tuple(roles), largest=2**31,
    )  # fmt: skip
    with pytest.raises(InputError, match="more than the memory that is free holds"):
        nadi.sharing.synthesize(deep, steps=1)


def _lies(model: TraceModel) -> dict[str, TraceModel]:
    """Give models of which one part contradicts the others."""
    known, counts = model.quantities, model.counts[0]
    first, token = model.templates[0], model.tokens[0]
    rule = Repeat((0,), 2)

    def templates(**changed: Any) -> TraceModel:
        return replace(model, templates=(first._replace(**changed),))

    def quantities(**changed: Any) -> TraceModel:
        return replace(model, quantities=known._replace(**changed))

    return {
        "a kind": replace(model, tokens=(token._replace(kind=99), *model.tokens[1:])),
        "a lane": replace(model, tokens=(token._replace(waits=((2**50, 0),)), *model.tokens[1:])),
        "a symbol": replace(model, counts=(counts._replace(symbol=counts.symbol + 2**50),
                                           *model.counts[1:])),
        "where symbols begin": replace(model, counts=(counts._replace(first=counts.first[::-1]),
                                                      *model.counts[1:])),
        "a rule of itself": replace(model, rules=(Repeat((-1,), 2),)),
        "no layers": replace(model, rules=(rule._replace(per_layers=0),)),
        "tokens in disorder": quantities(token=known.token[::-1]),
        "a size": quantities(flops=np.full_like(known.flops, 2**62)),
        "no number": quantities(duration=np.full_like(known.duration, np.nan)),
        "one role too many": templates(roles=(*first.roles, first.roles[0])),
        "a rank": templates(groups=(((0, 999),),) * len(first.role)),
        "an endless load": templates(load=np.full_like(first.load, np.inf)),
        "storages of another": templates(memory=first.memory._replace(lasting=())),
        "a storage": templates(memory=first.memory._replace(lasting=(-5,) * len(first.role))),
        "no steps": templates(num_steps=0, load=first.load[:, :0], course=first.course[:, :0]),
    }  # fmt: skip


def test_models_that_contradict_themselves_are_refused(model: TraceModel) -> None:
    """Most of these were taken, and ended in an exception, or in numbers without a meaning."""
    decode_model(encode_model(model), "m")
    for name, changed in _lies(model).items():
        with pytest.raises(FormatError, match="the model is damaged"):
            decode_model(encode_model(changed), name)


def test_a_width_and_a_depth_that_were_not_learned(model: TraceModel, folder: Path) -> None:
    made = nadi.sharing.synthesize(model, hidden=384, layers=10, seed=1)
    true = language_model(folder, 384, 10)
    found = nadi.compare(true, made, systems="dgx-h100")
    for measure in ("operation sequences", "sizes", "depth", "degrees", "critical path"):
        assert found[measure].is_near
    a, b = found.makespan_ns["dgx-h100", ""]
    assert abs(b - a) < 0.02 * a


@pytest.mark.parametrize(("hidden", "dp", "layers"), [(384, 2, 6), (512, 4, 6), (384, 4, 6)])
def test_memory_and_sizes_at_numbers_of_ranks_that_were_not_learned(
    folder: Path, grown: TraceModel, hidden: int, dp: int, layers: int
) -> None:
    made = nadi.sharing.synthesize(grown, hidden=hidden, ranks=4 * dp, layers=layers, seed=1)
    true = language_model(folder, hidden, layers, dp=dp, global_batch=4 * dp)
    found = nadi.compare(true, made, systems="dgx-h100")
    assert found["live memory"].distance < 0.05
    assert found["sizes"].distance < 0.05
    assert found["communication"].distance < 0.01 or hidden == 384


@pytest.fixture(scope="module")
def grown(folder: Path) -> TraceModel:
    """Of two widths, and two numbers of data parallel ranks."""
    sizes = ((256, 2), (512, 2), (256, 4))
    return nadi.sharing.learn(
        [language_model(folder, hidden, dp=dp, global_batch=4 * dp) for hidden, dp in sizes]
    )


def test_storages_are_those_that_were_learned(folder: Path, model: TraceModel) -> None:
    true = columns_of_job(language_model(folder, 256)).ranks
    made = columns_of_job(nadi.sharing.synthesize(model, hidden=256, steps=3, seed=1)).ranks
    for one, other in zip(true, made, strict=True):
        was_there = [int(own.lives.bytes[own.lives.begin < 0].sum()) for own in (one, other)]
        is_made = [int(own.lives.bytes[own.lives.begin >= 0].sum()) for own in (one, other)]
        assert was_there[0] == was_there[1]
        assert is_made[1] == 3 * is_made[0]


@given(
    st.integers(1, 4), st.integers(2, 6), st.integers(1, 2), st.integers(0, 99)
)  # fmt: skip
@settings(max_examples=examples(40))
def test_any_job_is_valid_and_runs(
    model: TraceModel, copies: int, layers: int, steps: int, seed: int
) -> None:
    job = nadi.sharing.synthesize(
        model, ranks=4 * copies, layers=2 * layers, steps=steps, seed=seed
    )
    assert len(job.traces) == 4 * copies
    assert not any(validate_trace(trace).height for trace in job.traces)
    network = Network((Dimension("switch", 4 * copies, bandwidth=100.0, latency=500.0),))
    system = nadi.load_system("dgx-h100", 8)
    system = msgspec.structs.replace(system, network=network, nccl=None)
    assert nadi.simulate(job, system).makespan > 0


def test_a_recording_keeps_the_type_and_number_of_its_communications(demo_folder: Path) -> None:
    job = nadi.load_job(demo_folder)
    model = nadi.sharing.learn(job)
    for seed in range(3):
        made = nadi.sharing.synthesize(model, seed=seed)
        assert _communications(columns_of_job(made)) == _communications(columns_of_job(job))


def _communications(columns: JobColumns) -> list[Counter[tuple[int, int]]]:
    """Count what each rank communicates, by kind and type."""
    computes = NODE_KINDS.index("COMP")
    return [
        Counter(
            (kind, comm_type)
            for kind, comm_type in zip(one.kind.tolist(), one.comm_type.tolist(), strict=True)
            if kind != computes
        )
        for one in columns.ranks
    ]


def test_a_recording_keeps_its_structure_and_its_time(demo_folder: Path) -> None:
    job = nadi.load_job(demo_folder)
    model = nadi.sharing.learn(job)
    found = nadi.compare(job, nadi.sharing.synthesize(model, seed=5), systems="dgx-h100")
    assert found["operation sequences"].distance < 0.1
    assert found["live memory"].distance < 0.1
    made = [nadi.sharing.synthesize(model, seed=seed) for seed in range(5)]
    own, *others = (nadi.simulate(one, "dgx-h100").makespan for one in (job, *made))
    assert abs(np.median(others) - own) < 0.1 * own
    longer = columns_of_job(nadi.sharing.synthesize(model, steps=6))
    assert longer.num_operations > columns_of_job(job).num_operations


def test_equal_seeds_give_equal_files(model: TraceModel, tmp_path: Path) -> None:
    write_trace_model(model, tmp_path / "m.nadimodel")
    for name, seed in (("a", "4"), ("b", "4"), ("c", "6")):
        words = ["synthesize", str(tmp_path / "m.nadimodel"), "-o", str(tmp_path / name)]
        assert main([*words, "--seed", seed]) == 0
    contents = {
        name: [file.read_bytes() for file in sorted((tmp_path / name).iterdir())] for name in "abc"
    }
    assert contents["a"] == contents["b"] != contents["c"]


def test_a_model_is_the_same_from_its_file(model: TraceModel, tmp_path: Path) -> None:
    write_trace_model(model, tmp_path / "m.nadimodel")
    again = read_trace_model(tmp_path / "m.nadimodel")
    assert encode_model(again) == encode_model(model)
    assert again.tokens == model.tokens


@pytest.mark.parametrize("cut", [0, 5, 40, -3])
def test_damaged_models_are_refused(model: TraceModel, cut: int) -> None:
    content = encode_model(model)
    with pytest.raises(nadi.errors.FormatError, match="model"):
        decode_model(content[:cut] + content[cut + 7 :], "m")


def test_wishes_that_cannot_be_met_are_refused_in_one_line(
    model: TraceModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_trace_model(model, tmp_path / "m.nadimodel")
    for name, layers in (("one", 6), ("shallow", 4)):
        learned = nadi.sharing.learn(language_model(tmp_path, 256, layers))
        write_trace_model(learned, tmp_path / f"{name}.nadimodel")
    for name, option, value, expected in (
        ("m", "--ranks", "7", "a multiple of 4"),
        ("m", "--layers", "5", "a multiple of 2"),
        ("m", "--layers", "2", "give at least 2 for each rank"),
        ("shallow", "--layers", "8", "not all operations of a layer repeat"),
        ("m", "--steps", "99999999999999", "are more than 4,194,304"),
        ("one", "--hidden", "999", "at two widths or more"),
        ("none", "--seed", "1", "none.nadimodel"),
    ):
        words = ["synthesize", str(tmp_path / f"{name}.nadimodel"), "-o", str(tmp_path / "out")]
        assert main([*words, option, value]) == 2
        error = capsys.readouterr().err
        assert expected in error
        assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_learning_writes_nothing_over_a_model(model: TraceModel, tmp_path: Path) -> None:
    write_trace_model(model, tmp_path / "m.nadimodel")
    assert main(["learn", str(tmp_path), "-o", str(tmp_path / "m.nadimodel")]) == 2
    with pytest.raises(nadi.NadiError, match="at least one job"):
        nadi.sharing.learn([])


def test_repeats_of_layers_grow_and_others_stay() -> None:
    assert of_layer(36, 12) == 3
    assert of_layer(11, 12) == 1
    assert of_layer(3, 12) == 0


@pytest.mark.parametrize(
    ("name", "layers", "of_layer"), [("h100_bert", 4, 605), ("amd_mi300_vit", 12, 491)]
)
def test_layers_of_a_recording_are_modules(
    shared_traces: Path, name: str, layers: int, of_layer: int
) -> None:
    job = nadi.load_job(shared_traces.parent / "wild" / f"{name}.json.gz")
    columns = columns_of_job(job)
    model = nadi.sharing.learn(job)
    assert model.templates[0].num_layers == layers
    for wished in (layers // 2, 24):
        made = columns_of_job(nadi.sharing.synthesize(model, layers=wished))
        more = (wished - layers) * of_layer
        assert made.num_operations == columns.num_operations + more
        kinds = [_named(one) for one in (columns, made)]
        for word, many in (("aten::addmm", 12), ("aten::scaled_dot_product_attention", 2)):
            assert kinds[1][word] == kinds[0][word] + many * (wished - layers)


def test_a_depth_of_which_only_the_forward_repeats_is_refused(demo_folder: Path) -> None:
    model = nadi.sharing.learn(demo_folder)
    with pytest.raises(nadi.errors.UsageError, match="not all operations of a layer repeat"):
        nadi.sharing.synthesize(model, layers=8)


def _named(columns: JobColumns) -> Counter[str]:
    return Counter(columns.labels[one] for rank in columns.ranks for one in rank.label.tolist())


def test_who_is_slow_stays_slow(shared_traces: Path) -> None:
    """Ranks of a role have unlike programs, and a new one may have the program of another."""
    job = nadi.load_job(shared_traces / "gpu_dlrm8")
    made = nadi.sharing.synthesize(nadi.sharing.learn(job), seed=1)
    sums = [
        np.array([np.maximum(one.duration[one.comm_bytes < 0], 0).sum() for one in columns.ranks])
        for columns in map(columns_of_job, (job, made))
    ]
    slow, made_slow = (one / one.mean() for one in sums)
    assert slow.max() > 1.1
    np.testing.assert_allclose(slow, made_slow, rtol=0.01)


def test_times_are_those_of_another_model(shared_traces: Path) -> None:
    wild = shared_traces.parent / "wild"
    bert, vit = (nadi.load_job(wild / f"h100_{name}.json.gz") for name in ("bert", "vit"))
    model, other = nadi.sharing.learn(vit), nadi.sharing.learn(bert)
    made = nadi.sharing.synthesize(model, times=other)
    real, span = (nadi.simulate(one, nadi.load_system("dgx-h100", 1)).makespan
                  for one in (vit, made))  # fmt: skip
    assert 0.8 * real < span < 1.2 * real
    with pytest.raises(nadi.errors.UsageError, match="different devices would be mixed"):
        nadi.sharing.learn([bert, nadi.load_job(wild / "amd_mi300_bert.json.gz")])


def test_durations_have_the_sum_that_was_learned(demo_folder: Path) -> None:
    job = nadi.load_job(demo_folder)
    learned = columns_of_job(job)
    made = columns_of_job(nadi.sharing.synthesize(nadi.sharing.learn(job), seed=2))
    # communication has its wait time, which ranks exchange with each other
    total, other = (
        sum(int(np.maximum(rank.duration[rank.comm_bytes < 0], 0).sum()) for rank in one.ranks)
        for one in (learned, made)
    )
    assert abs(other - total) < 0.05 * total


def test_steps_are_as_slow_as_learned_ones_in_an_order_of_chance(tmp_path: Path) -> None:
    learned_job = nadi.sharing.learn(language_model(tmp_path, 128)).templates[0]
    load = np.linspace(1.0, 2.0, 60)  # each slower than the one before
    template = learned_job._replace(role=(0,), load=load[None])
    learned, is_copy = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.bool_)
    lags = []
    for seed in range(20):
        _, step = drawn_steps(template, learned, is_copy, 60, np.random.default_rng(seed))
        assert step[0] == 0
        assert sorted(step.tolist()) == list(range(60))
        lags.append(np.corrcoef(load[step[2:]], load[step[1:-1]])[0, 1])
    assert abs(np.mean(lags)) < 0.15
    random = np.random.default_rng(0)
    _, more = drawn_steps(template, learned, is_copy, 150, random)
    assert np.bincount(more[1:], minlength=60)[1:].min() >= 2
    _, alone = drawn_steps(template, learned, is_copy, 1, random)
    assert alone.tolist() == [0]
