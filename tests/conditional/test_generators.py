"""A generator makes jobs that were not learned, says what is beyond them, refuses the rest."""

from __future__ import annotations

import contextlib
import csv
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest

import nadi
from nadi.cli import main
from nadi.errors import InputError, NadiError, UsageError
from nadi.sharing.conditional import learned_times
from nadi.sharing.conditional.conditional_jobs import conditional_job
from nadi.sharing.conditional.conditional_model import (
    ConditionalModel,
    decode_generator,
    write_generator,
)
from nadi.sharing.conditional.corpora import (
    Ranges,
    drawn_conditions,
    generated_job,
    generated_jobs,
    listed_jobs,
)
from nadi.sharing.conditional.decision_trees import DecisionTree
from nadi.sharing.conditional.generators import generator_job, learn_generator, read_generator
from nadi.sharing.conditional.program_learning import generator_of_jobs
from nadi.sharing.conditional.stage_values import Conditions, members_of, with_usual
from nadi.sharing.conditional.wished_conditions import wished_conditions
from nadi.systems.prices.priced_traces import price_trace
from nadi.trace import Job, Trace, validate_trace
from tests.amounts import some

SMALL = Ranges(hidden=(256, 1024), sequence=(256, 512), stage_layers=(1, 3), micro_batches=(1, 4))


@pytest.fixture(scope="module")
def generator() -> ConditionalModel:
    return generator_of_jobs(generated_jobs(60, 0, SMALL))


def held_out(count: int, seed: int) -> list[tuple[Job, Conditions]]:
    return [(job, known) for job, known, _ in generated_jobs(count, seed, SMALL)]


def content(trace: Trace) -> list[tuple[str, ...]]:
    columns = ("name", "kind", "comm_type", "phase", "stream", "layer", "micro_batch")
    return list(trace.nodes.select(pl.col(columns).cast(pl.String)).iter_rows())


def test_what_was_learned_comes_back(generator: ConditionalModel) -> None:
    fit = generator.fit
    assert fit.stages_alike == fit.stages > 60
    assert fit.laws_alike >= 0.97 * fit.laws


def test_jobs_that_were_left_out_have_all_operations_in_their_order(
    generator: ConditionalModel,
) -> None:
    alike = stages = right = stated = 0
    for real, known in held_out(12, 7):
        made = conditional_job(generator, with_usual(known, ""))
        for a, b in dict.fromkeys(zip(real.traces, made.traces, strict=True)):
            stages += 1
            alike += content(a) == content(b)
            waits = [set(one.deps.select("src", "dst").iter_rows()) for one in (a, b)]
            right += len(waits[0] & waits[1])
            stated += len(waits[0] | waits[1])
    assert alike == stages
    assert right >= 0.997 * stated


def test_sizes_and_groups_are_those_of_jobs_that_were_left_out(
    generator: ConditionalModel,
) -> None:
    apart = []
    for real, known in held_out(12, 7):
        made = conditional_job(generator, with_usual(known, ""))
        for a, b in dict.fromkeys(zip(real.traces, made.traces, strict=True)):
            if content(a) != content(b):
                continue
            apart += [
                abs(b.column(name).sum() / a.column(name).sum() - 1)
                for name in ("flops", "bytes", "comm_bytes")
            ]
        groups = [job.own_trace(0).groups["ranks"].to_list() for job in (real, made)]
        assert sorted(groups[0]) == sorted(groups[1])
    assert np.quantile(apart, 0.9) < 1e-3


@pytest.mark.parametrize("seed", some(range(6)))
def test_drawn_requests_are_valid_and_run(generator: ConditionalModel, seed: int) -> None:
    random = np.random.default_rng(seed)
    job = generator_job(
        generator, family=str(random.choice(["gpt", "llama", "qwen"])), seed=seed, ranks=16,
        hidden=1024 * int(random.integers(1, 5)), layers=8, tp=2, pp=int(2 ** random.integers(3)),
        zero=int(random.integers(4)),
    )  # fmt: skip
    for trace in set(job.traces):
        assert validate_trace(trace).is_empty()
    system = nadi.load_system("dgx-h100", 16)
    assert nadi.simulate(job, system).makespan > 0


def test_both_ends_of_one_stage_are_one_rank() -> None:
    """A model learned with noise has operations between the ends of a pipeline without stages."""
    axes = {"tp": 2, "cp": 1, "dp": 1}
    assert members_of("ends of pp", {**axes, "pp": 1}).tolist() == [[0], [1]]
    assert members_of("ends of pp", {**axes, "pp": 3}).tolist() == [[0, 4], [1, 5]]


def test_what_is_beyond_the_learned_jobs_is_said(generator: ConditionalModel) -> None:
    wished = wished_conditions(generator, {"hidden": 8192, "layers": 40, "pp": 2}, ranks=8)
    assert wished.beyond[0].startswith("hidden 8,192 (learned 256 to ")
    assert any(one.startswith("layers of a stage 20") for one in wished.beyond)
    inside = wished_conditions(generator, {"hidden": 512, "layers": 2, "pp": 1}, ranks=2)
    assert not any("hidden" in one for one in inside.beyond)


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"schedule": "interleaved"}, "what it does was not learned; learned was 1f1b, gpipe"),
        ({"colour": 3}, "no learned job states it"),
        ({"hidden": "wide"}, "it has to be a whole number of 1 or more"),
        ({"zero": 7}, "what it does was not learned"),
        ({"tp": 3, "ranks": 64}, "= 3 does not divide them"),
        ({"heads": 7, "tp": 2}, "tp = 2 does not divide it"),
        ({"layers": 1, "pp": 4}, "there are 4 stages"),
        ({"layers": 1 << 30}, "too many operations"),
        ({"ranks": 1 << 22}, "are made"),
    ],
)
def test_other_requests_are_refused(
    generator: ConditionalModel, wishes: dict[str, int], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        generator_job(generator, **wishes)


def test_a_generator_is_the_same_from_its_file(generator: ConditionalModel, tmp_path: Path) -> None:
    path = tmp_path / "generator.nadimodel"
    write_generator(generator, path)
    assert read_generator(path) == generator
    with pytest.raises(InputError):
        write_generator(generator, path)


@pytest.mark.parametrize("seed", range(20))
def test_damaged_generators_are_refused_or_make_a_job(
    generator: ConditionalModel, tmp_path: Path, seed: int
) -> None:
    path = tmp_path / "generator.nadimodel"
    write_generator(generator, path)
    raw = bytearray(path.read_bytes())
    random = np.random.default_rng(seed)
    for at in random.integers(20, len(raw), 3).tolist():
        raw[at] = int(random.integers(256))
    with contextlib.suppress(NadiError):
        found = decode_generator(bytes(raw), "file")
        conditional_job(found, wished_conditions(found, {}, seed=1).conditions)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jobs")
    rows = []
    for number, (job, known) in enumerate(held_out(4, 3)):
        nadi.models.write_job(job, folder / f"job{number}")
        words = {n: str(v).lower() if isinstance(v, bool) else v for n, v in known.items()}
        rows.append({"job": f"job{number}", **words})
    with (folder / "jobs.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return folder / "jobs.csv"


def test_written_jobs_are_learned_as_those_in_memory(table: Path) -> None:
    found = learn_generator(table)
    direct = generator_of_jobs((job, known, "") for job, known in held_out(4, 3))
    assert found.templates == direct.templates
    assert found.jobs == direct.jobs
    families = [known["family"] for _, known, _ in listed_jobs(table)]
    assert families == [one["family"] for one in found.jobs]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("layers", "depth", "line 2: the condition layers is missing"),
        ("job0,", "job0,1,", "line 2: it has another number of values"),
        ("job,", "path,", "it lists no jobs in a column job"),
        ("job3", "job9", "job9"),
    ],
)
def test_tables_that_say_something_wrong_are_refused(
    table: Path, old: str, new: str, message: str
) -> None:
    other = table.with_name("other.csv")
    other.write_text(table.read_text().replace(old, new, 1))
    with pytest.raises(NadiError, match=message):
        learn_generator(other)


def test_conditions_that_a_job_does_not_have_are_refused() -> None:
    ((job, known),) = held_out(1, 5)
    with pytest.raises(InputError, match="layers, but"):
        generator_of_jobs(
            [(job, {**known, "layers": int(known["layers"]) + int(known["pp"])}, "x")]
        )
    with pytest.raises(InputError, match="ranks, but"):
        generator_of_jobs([(job, {**known, "dp": 2 * int(known["dp"]), "global_batch": 64}, "x")])


def test_a_recording_states_no_layers(demo_folder: Path) -> None:
    known: Conditions = {
        "layers": 2, "hidden": 128, "sequence": 8, "dp": 4, "global_batch": 4,
    }  # fmt: skip
    with pytest.raises(InputError, match="operations state no phase"):
        generator_of_jobs([(nadi.load_job(demo_folder), known, "demo")])


def test_equal_seeds_draw_equal_conditions() -> None:
    one, other = (drawn_conditions(np.random.default_rng(4), SMALL) for _ in range(2))
    assert one == other
    assert generated_job(one).num_nodes == generated_job(other).num_nodes


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "generator.nadimodel")
    assert main(["learn", "--generated", "20", "-o", path]) == 0
    assert "20 jobs" in capsys.readouterr().out
    line = ["synthesize", path, "-o", str(tmp_path / "job"), "--family", "llama"]
    assert main([*line, "--hidden", "6144", "--tp", "2", "--ranks", "4", "--set", "zero=1"]) == 0
    printed = capsys.readouterr().out
    assert "stated: tp 2, family llama, hidden 6144, zero 1" in printed
    assert "beyond what was learned: hidden 6,144" in printed
    assert len(list((tmp_path / "job").glob("*.et"))) == 4
    assert main([*line, "--steps", "3"]) == 2
    assert main([*line, "--set", "zero"]) == 2
    assert main(["learn", "-o", path]) == 2
    assert main(["learn", "demo", "--generated", "3", "-o", path, "--overwrite"]) == 2


def test_few_jobs_with_experts_are_enough_beside_dense_ones() -> None:
    ranges = SMALL._replace(ranks=1, stage_layers=(1, 2), experts=(4, 8))
    jobs = list(generated_jobs(8, 4, ranges))
    model = generator_of_jobs(
        [*generated_jobs(16, 0, ranges._replace(experts=None)), *jobs[2:]]
    )  # fmt: skip
    wished = wished_conditions(model, {"experts": 16, "hidden": 2048}, seed=1)
    assert wished.conditions["experts"] == 16
    assert "experts 16 (learned 4 to 8)" in wished.beyond
    job = conditional_job(model, wished.conditions)
    names = job.traces[0].nodes["name"].cast(pl.String).to_list()
    assert any("experts.up" in name for name in names)
    for real, known, _ in jobs[:2]:
        made = conditional_job(model, with_usual(known, ""))
        a, b = real.traces[0], made.traces[0]
        optimizer = [
            one.filter(pl.col("name") == "optimizer")["bytes"].sum() for one in (a.nodes, b.nodes)
        ]
        assert optimizer[1] == pytest.approx(optimizer[0], rel=0.05)


def test_ranks_share_experts_as_conditions_say() -> None:
    """Groups, sizes and operations of experts that ranks share come back, and some are refused."""
    ranges = SMALL._replace(ranks=4, stage_layers=(1, 2), micro_batches=(1, 2), experts=(4, 8))
    jobs = list(generated_jobs(12, 4, ranges._replace(sharing=4)))
    model = generator_of_jobs(jobs)
    assert model.fit.stages_alike == model.fit.stages
    (shared, known, _) = next(one for one in jobs if one[1]["ep"] == 4 and int(one[1]["dp"]) > 1)
    made = conditional_job(model, with_usual(known, ""))
    for a, b in zip(shared.traces, made.traces, strict=True):
        assert a.nodes["name"].to_list() == b.nodes["name"].to_list()
        assert exchanged(b) == exchanged(a) > 0
    groups = made.rank_groups
    assert groups is not None
    assert groups.members["experts ep"].shape == (len(made.traces) // 4, 4)
    eight = {"ep": 8, "experts": 16, "tp": 1, "cp": 1, "pp": 1, "dp": 8}
    assert "ep 8 (learned 1 to 4)" in wished_conditions(model, eight, seed=1).beyond
    with pytest.raises(UsageError, match="does not divide experts"):
        wished_conditions(model, {"ep": 3}, seed=1)
    same_tokens = {"ep": 2, "tp": 2, "experts": 8, "dp": 2, "sequence_parallel": False}
    with pytest.raises(UsageError, match="hold the same tokens"):
        wished_conditions(model, same_tokens, seed=1)


def exchanged(trace: Trace) -> int:
    return int(trace.nodes.filter(pl.col("comm_type") == "all_to_all")["comm_bytes"].sum())


def test_who_has_no_counterpart_does_not_communicate(generator: ConditionalModel) -> None:
    """Trees of few jobs with many stages may say that stages in the middle have the ends' group."""
    always = decide_always(generator)
    known = dict(next(one for one in generator.jobs if int(one["pp"]) > 1))
    known |= {"pp": 4, "layers": 4, "tp": 1, "cp": 1, "sequence_parallel": False}
    job = conditional_job(always, with_usual(known, ""))
    for rank in range(len(job.traces)):
        own = job.own_trace(rank)
        peers = own.nodes.filter(pl.col("kind").is_in(["COMM_SEND", "COMM_RECV"]))
        assert peers.select(pl.max_horizontal("src", "dst").is_between(0, 3))[:, 0].all()


def decide_always(model: ConditionalModel) -> ConditionalModel:
    """Return a generator that has all communication everywhere."""
    yes = DecisionTree(answer=1)
    templates = tuple(
        msgspec.structs.replace(one, present=yes) if one.way or one.peer else one
        for one in model.templates
    )
    return msgspec.structs.replace(model, templates=templates)


@pytest.mark.parametrize(
    ("wishes", "ranks", "said"),
    [
        ({"dp": 3}, 100, "dp \\* tp \\* cp \\* pp is 3"),
        ({"tp": 4}, 13, "tp \\* cp \\* pp = 4 does not divide them"),
        ({"tp": "eight"}, 0, "has to be a whole number"),
        ({"tp": 1, "sequence_parallel": True}, 0, "one tensor parallel rank"),
        ({"sequence": 512, "max_positions": 256}, 0, "max_positions is 256"),
        ({"tp": 1, "heads": 6, "kv_heads": 4}, 0, "kv_heads = 4 does not divide them"),
    ],
)
def test_requests_that_contradict_themselves_are_refused(
    generator: ConditionalModel, wishes: Conditions, ranks: int, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        wished_conditions(generator, wishes, ranks=ranks)


def test_what_no_job_of_the_family_has_is_said(generator: ConditionalModel) -> None:
    found = wished_conditions(generator, {"family": "gpt", "gated": True})
    assert "gated true of family gpt (learned false)" in found.beyond
    longer = wished_conditions(generator, {"sequence": 4096}).conditions
    assert int(longer["max_positions"]) >= 4096
    stated = wished_conditions(generator, {"tp": 1, "kv_heads": 4}).conditions
    assert int(stated["heads"]) % 4 == 0


def test_shared_traces_are_priced_once(
    generator: ConditionalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    priced: list[Trace] = []

    def counted(trace: Trace, *given: Any) -> Any:
        priced.append(trace)
        return price_trace(trace, *given)

    monkeypatch.setattr(learned_times, "price_trace", counted)
    job = generator_job(generator, ranks=16, device="h100", tp=2, pp=1, layers=2)
    assert (len(job.traces), len(priced)) == (16, 1)
