"""What a private model reveals is bounded, added up, and made of noisy sums alone."""

from __future__ import annotations

import csv
import json
import math
import time
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import Random

import numpy as np
import polars as pl
import pytest

import nadi
from nadi.cli import main
from nadi.errors import InputError, UsageError
from nadi.sharing.conditional.conditional_model import ConditionalModel
from nadi.sharing.conditional.corpora import Ranges, drawn_conditions, generated_jobs
from nadi.sharing.conditional.generators import generator_job, learn_generator, read_generator
from nadi.sharing.conditional.privacy_ledger import epsilon_of, rho_of, spend
from nadi.sharing.conditional.private_learning import contribution, release
from nadi.sharing.conditional.released_corpus import (
    CLASSES,
    MARGINS,
    WHOLE,
    bins_of,
    drawn_of,
    margins_of,
    times_of,
)
from nadi.sharing.obfuscation.private_job import discrete_gaussian
from nadi.systems.library import load_device
from nadi.systems.prices.priced_traces import price_trace
from nadi.trace import Job

SMALL = Ranges(hidden=(256, 512), sequence=(256, 256), stage_layers=(1, 1), ranks=1)
H100 = load_device("h100")


def slowed(job: Job, factor: float) -> Job:
    """Give a job the times of a device that is slower than an H100."""
    trace = price_trace(job.traces[0], H100)[0]
    longer = pl.col("duration") * factor
    slow = replace(trace, nodes=trace.nodes.with_columns(longer.round().cast(pl.Int64)))
    return replace(job, traces=(slow,) * len(job.traces))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("secret_corpus")
    rows = []
    for number, (job, known, _) in enumerate(generated_jobs(2, 3, SMALL)):
        nadi.models.write_job(slowed(job, 1.5), folder / f"secret_job{number}")
        words = {n: str(v).lower() if isinstance(v, bool) else v for n, v in known.items()}
        rows.append({"job": f"secret_job{number}", **words})
    with (folder / "secret_jobs.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return folder / "secret_jobs.csv"


@pytest.mark.parametrize("variance", [1, 30])
def test_noise_has_the_probabilities_of_a_discrete_gaussian(variance: int) -> None:
    random, count = Random(1), 4000
    seen = Counter(discrete_gaussian(variance, random) for _ in range(count))
    weight = {k: math.exp(-k * k / (2 * variance)) for k in range(-60, 61)}
    total = sum(weight.values())
    expected = {k: count * own / total for k, own in weight.items()}
    often = [k for k in expected if expected[k] >= 10]
    square = sum((seen[k] - expected[k]) ** 2 / expected[k] for k in often)
    assert square < len(often) + 4 * math.sqrt(2 * len(often))


def test_conversion_is_that_of_the_paper() -> None:
    known = {0.5: 0.0085, 1: 0.0306, 2: 0.108, 4: 0.373, 8: 1.230}
    for epsilon, rho in known.items():
        assert float(rho_of(epsilon)) == pytest.approx(rho, rel=5e-3)
        assert epsilon_of(rho_of(epsilon)) <= epsilon


@pytest.mark.parametrize("factor", [0.01, 1.0, 1.5, 100.0])
def test_what_a_job_adds_is_bounded(factor: float) -> None:
    ((job, known, _),) = generated_jobs(1, 1, SMALL)
    own = contribution(slowed(job, factor), known, "job", H100)
    found = release([own], Fraction(1), "h100", Random(0))
    for one in found.releases:
        assert float((own[one.what].astype(float) ** 2).sum()) <= one.sensitivity
    assert own["conditions"].sum() == len(MARGINS)
    assert own["spread"].sum() <= WHOLE
    assert sum(one.rho for one in found.releases) <= 1


def test_with_little_noise_conditions_and_times_come_back() -> None:
    jobs = list(generated_jobs(12, 2, SMALL))
    own = [contribution(slowed(job, 1.5), known, where, H100) for job, known, where in jobs]
    found = release(10 * own, rho_of(90), "h100", Random(0))
    assert found.size == pytest.approx(120, rel=0.02)
    times = times_of(found)
    assert times is not None
    assert np.allclose(list(times.efficiency.values()), math.log(1.5), atol=0.02)
    assert times.slowest[0] > 0.98


def test_what_is_drawn_is_as_frequent_as_the_corpus_says() -> None:
    random = np.random.default_rng(0)
    learned = [
        drawn_conditions(random, Ranges(families=("llama",) if number % 2 else ("gpt",)))
        for number in range(200)
    ]
    sums = [contribution([], known, "job") for known in learned]
    found = release(sums, rho_of(20), "", Random(0))
    drawn = np.array([bins_of(one) for one in drawn_of(found, random, 1000)])
    for own, bins, shares in zip(drawn.T, MARGINS.values(), margins_of(found), strict=True):
        assert np.abs(np.bincount(own, minlength=len(bins)) / 1000 - shares).max() < 0.06
    assert times_of(found) is None


def test_the_whole_way(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "shared.nadimodel"
    line = ["learn", "--conditions", str(table), "--epsilon", "2", "--device", "h100",
            "--generated", "6", "-o", str(path), "--overwrite"]  # fmt: skip
    assert main([*line, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["epsilon"] == pytest.approx(2, rel=5e-3)
    assert [one["what"] for one in said["ledger"]] == [
        "conditions", "efficiency", "spread", "slowest rank",
    ]  # fmt: skip
    assert b"secret" not in path.read_bytes()
    model = read_generator(path)
    assert model.private is not None
    assert "whether any one job" in model.private.protected
    public = learn_generator(generated=6)
    assert replaced(model) == public
    assert main(line) == 0
    assert "of the table together: epsilon 2.9" in capsys.readouterr().out
    assert main([*line[:-2], str(tmp_path / "more"), "--budget", "3"]) == 2
    assert "would have spent 3.7 of 3; without it 2.94" in capsys.readouterr().err
    job = generator_job(path, ranks=2, tp=1, pp=1, seed=1)
    computes = job.traces[0].nodes.filter(pl.col("kind") == "COMP")
    assert (computes["duration"] > 0).all()
    assert nadi.simulate(job, nadi.load_system("dgx-h100", 2)).makespan > 0


def replaced(model: ConditionalModel) -> ConditionalModel:
    import msgspec

    found: ConditionalModel = msgspec.structs.replace(model, private=None)
    return found


def test_options_that_do_not_fit_are_refused(table: Path, tmp_path: Path) -> None:
    out = ["-o", str(tmp_path / "model")]
    assert main(["learn", "--generated", "3", "--epsilon", "1", *out]) == 2
    assert main(["learn", "--generated", "3", "--device", "h100", *out]) == 2
    line = ["learn", "--conditions", str(table), "--generated", "3", *out]
    assert main([*line, "--epsilon", "1", "--device", "mine.toml"]) == 2
    assert main([*line, "--epsilon", "1000"]) == 2


def test_a_damaged_ledger_is_refused_and_one_model_more_is_counted(tmp_path: Path) -> None:
    table = tmp_path / "jobs.csv"
    first = spend(table, rho_of(1), 2)
    assert first == pytest.approx(1, rel=1e-3)
    assert spend(table, rho_of(1), 2) > first
    with pytest.raises(UsageError, match="would have spent"):
        spend(table, rho_of(2), 2)
    huge = f'{{"rho":[[{"9" * 400},1]]}}'
    for damaged in ("", "{}x", huge, '{"rho":[[1,0]]}', '{"rho":[[-1,2]]}', '{"spent":1}'):
        Path(f"{table}.privacy.json").write_text(damaged)
        with pytest.raises(InputError, match="ledger is damaged"):
            spend(table, rho_of(1), 8)


def test_one_job_is_said_to_teach_nothing(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = "\n".join(table.read_text().splitlines()[:2])
    own = table.with_name("one.csv")
    own.write_text(first + "\n")
    line = ["learn", "--conditions", str(own), "--epsilon", "1", "--generated", "3"]
    assert main([*line, "-o", str(tmp_path / "model")]) == 0
    assert "of one job nothing can be learned privately" in capsys.readouterr().out


def test_larger_classes_have_less_noise() -> None:
    assert list(CLASSES.values()) == sorted(CLASSES.values(), reverse=True)


def test_a_long_ledger_of_odd_fractions_is_added_up_soon(tmp_path: Path) -> None:
    """Their exact sum has a million digits."""
    random = Random(0)
    odd = [[1, random.getrandbits(61) | 1] for _ in range(100_000)]
    (tmp_path / "jobs.csv.privacy.json").write_text(json.dumps({"rho": odd}))
    begin = time.process_time()
    assert spend(tmp_path / "jobs.csv", rho_of(0.1), 8.0) == pytest.approx(0.1, rel=1e-3)
    assert time.process_time() - begin < 5
