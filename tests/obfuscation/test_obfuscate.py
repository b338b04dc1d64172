"""Obfuscated jobs answer as their originals, hold no word of them, and are refused in one line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import nadi
from nadi.cli import main
from nadi.files.whole_folders import FILE_LIST
from nadi.sharing import GUARANTEES, LEVELS, Fidelity
from nadi.sharing.obfuscation.result import _systems_apart
from nadi.trace.attributes import AttributeBuilder
from nadi.trace.schema import NODES

pytestmark = pytest.mark.usefixtures("demo_read_once")

SECRET = "confidential_flagship"
LAYERS = 60


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("key") / "key"
    path.write_text("7f3a91c04d5e2b68f1a07c93d2e845b6\n")
    return path


@pytest.fixture(scope="module")
def job() -> nadi.Job:
    """Two ranks that compute and reduce gradients, under names that nobody should see."""
    with nadi.JobBuilder(2) as made:
        world = made.group(f"{SECRET}_group", (0, 1))
        for rank in made.ranks:
            for layer in range(LAYERS):
                rank.compute(f"{SECRET}.layers.{layer}", duration=f"{900 + 60 * layer} us")
            for layer in range(LAYERS):
                done = rank.compute(f"{SECRET}.back.{layer}", duration="2 ms")
                rank.stream(1).collective("all_reduce", "48 MiB", after=done, group=world)
            rank.compute(f"{SECRET}.optimizer", duration="3 ms")
    return made.job


@pytest.fixture(scope="module")
def written(job: nadi.Job, key: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {}
    for level in LEVELS:
        found[level] = tmp_path_factory.mktemp(level) / "shared"
        nadi.sharing.write_obfuscated(nadi.obfuscate(job, key, level), found[level])
    return found


@pytest.mark.parametrize("level", LEVELS)
def test_no_word_of_the_original_is_in_any_file(written: dict[str, Path], level: str) -> None:
    files = list(written[level].iterdir())
    assert {path.name for path in files} == {
        "trace.0.et", "trace.1.et", "comm_group.json", "obfuscation.json", FILE_LIST
    }  # fmt: skip
    for path in files:
        content = path.read_bytes()
        for word in (SECRET, "flagship", "layers.", "back."):
            assert word.encode() not in content, path.name


@pytest.mark.parametrize("level", ["names", "shapes", "structure"])
@pytest.mark.parametrize("system", ["dgx-h100", "pcie-workstation", "mi300x-node"])
def test_a_written_job_answers_as_its_original(
    job: nadi.Job, written: dict[str, Path], level: str, system: str
) -> None:
    machine = nadi.load_system(system, 2)
    before, after = nadi.simulate(job, machine), nadi.simulate(written[level], machine)
    allowed = GUARANTEES[level].tolerance * before.makespan
    assert abs(after.makespan - before.makespan) <= allowed
    paths = [nadi.simulation.simulated_path(one).by_kind() for one in (before, after)]
    for kind in {*paths[0], *paths[1]}:
        assert abs(paths[0].get(kind, 0) - paths[1].get(kind, 0)) <= allowed
    if level == "names":
        assert after.makespan == before.makespan


def test_what_is_not_on_the_list_is_missing(job: nadi.Job, key: Path) -> None:
    """Fields that nobody thought of: free text in every column and attribute that takes it."""
    texts = [name for name, dtype in NODES.dtypes.items() if dtype in (pl.String, pl.Categorical)]
    builder = AttributeBuilder()
    builder.add(-1, f"{SECRET}_host", "string", SECRET)
    builder.add(0, "dtype", "string", SECRET)
    builder.add(1, "op_class", "string", SECRET)
    builder.add(2, "gemm_shape", "string", SECRET)
    builder.add(3, "comm_priority", "string", SECRET)
    traces = [
        replace(
            trace,
            nodes=trace.nodes.with_columns(
                pl.lit(SECRET).cast(trace.nodes.schema[name]).alias(name) for name in texts
            ),
            groups=trace.groups.with_columns(
                description=pl.lit(SECRET), backend=pl.lit(SECRET), name=pl.lit(SECRET)
            ),
            given_attributes=builder.build(),
            process=4242,
        )
        for trace in job.traces
    ]
    done = nadi.obfuscate(replace(job, traces=tuple(traces)), key).job
    for trace in done.traces:
        shown = [str(frame.rows()) for frame in (trace.nodes, trace.groups, trace.attrs)]
        assert SECRET not in "".join(shown)
        assert (trace.process, trace.provenance.sources, trace.issues.height) == (-1, (), 0)


def test_times_start_at_0_and_numbers_are_given_anew(demo_folder: Path, key: Path) -> None:
    original = nadi.load_job(demo_folder)
    done = nadi.obfuscate(original, key)
    assert done.recorded
    starts = [trace.column("start") for trace in done.job.traces]
    assert min(int(start[start >= 0].min()) for start in starts) == 0
    for before, after in zip(original.traces, done.job.traces, strict=True):
        assert set(after.column("thread").tolist()) <= set(range(-1, 64))
        assert (before.column("duration") == after.column("duration")).all()
        assert (before.column("parent") == after.column("parent")).all()
        assert nadi.trace.validate_trace(after).height == nadi.trace.validate_trace(before).height


def test_a_recording_stays_one(demo_folder: Path, key: Path, tmp_path: Path) -> None:
    nadi.sharing.write_obfuscated(nadi.obfuscate(demo_folder, key), tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir())[-1] == "rank3.nadi"
    machine = nadi.load_system("dgx-h100", 4)
    after = nadi.simulate(tmp_path / "out", machine)
    assert after.makespan == nadi.simulate(demo_folder, machine).makespan


def test_the_owner_maps_names_back(
    job: nadi.Job, key: Path, written: dict[str, Path], tmp_path: Path
) -> None:
    names = nadi.sharing.reveal(job, key, written["names"])
    shared = nadi.read(written["names"] / "trace.0.et").nodes["name"].cast(pl.String).to_list()
    assert [names[name] for name in shared] == job.traces[0].nodes["name"].cast(str).to_list()
    other = tmp_path / "other"
    other.write_text("0123456789abcdef0123456789abcdee")
    with pytest.raises(nadi.NadiError, match="another key"):
        nadi.sharing.reveal(job, other, written["names"])
    with pytest.raises(nadi.NadiError, match="another job"):
        nadi.sharing.reveal(_timed().job, key, written["names"])
    with pytest.raises(nadi.NadiError, match="no pseudonyms"):
        nadi.sharing.reveal(job, key, written["structure"])


def test_the_same_key_gives_the_same_bytes_and_another_key_other_names(
    job: nadi.Job, key: Path, written: dict[str, Path], tmp_path: Path
) -> None:
    for level in ("names", "shapes", "structure"):
        again = tmp_path / level
        nadi.sharing.write_obfuscated(nadi.obfuscate(job, key, level), again)
        for path in again.iterdir():
            assert path.read_bytes() == (written[level] / path.name).read_bytes()
    other = tmp_path / "key"
    other.write_text("0123456789abcdef0123456789abcdee")
    names = [set(nadi.obfuscate(job, one).job.traces[0].nodes["name"].to_list())
             for one in (key, other)]  # fmt: skip
    assert not names[0] & names[1]


def test_structure_has_fewer_operations_and_their_whole_time(job: nadi.Job, key: Path) -> None:
    done = nadi.obfuscate(job, key, "structure").job
    for before, after in zip(job.traces, done.traces, strict=True):
        assert after.nodes.height < before.nodes.height
        assert set(after.nodes["name"].cast(str).to_list()) == {"block", "all_reduce"}
        whole = [int(one.column("duration").clip(0).sum()) for one in (before, after)]
        assert whole[0] == whole[1]


REFUSALS = (
    (["--key", "no_such_key"], "cannot be read"),
    (["--key", "short"], "can be guessed"),
    (["--key", "regular"], "not random"),
    (["--key", "good", "--level", "all"], "unknown level"),
    (["--key", "good", "--level", "private", "--epsilon", "0"], "must be"),
    (["--key", "good", "--level", "structure"], "no time"),
)


@pytest.mark.parametrize(("options", "message"), REFUSALS)
def test_refusals_are_one_line_and_write_nothing(
    options: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("short").write_text("abc")
    Path("regular").write_text("a" * 64)
    Path("good").write_text("7f3a91c04d5e2b68f1a07c93d2e845b6")
    with nadi.JobBuilder(2) as made:
        for rank in made.ranks:
            rank.compute("a", flops=10**12, bytes="1 GiB")
            rank.collective("all_reduce", "1 MiB")
    if message == "must be":
        made = _timed()
    nadi.models.write_job(made.job, "JOB")
    assert main(["obfuscate", "JOB", "-o", "OUT", *options]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert len(shown.strip().splitlines()) == 1
    assert not Path("OUT").exists()


def _timed() -> nadi.JobBuilder:
    with nadi.JobBuilder(2) as made:
        for rank in made.ranks:
            rank.compute("a", duration="1 ms")
            rank.collective("all_reduce", "1 MiB")
    return made


@pytest.mark.parametrize("level", ["structure", "private"])
def test_jobs_that_cannot_be_merged_are_refused(level: str, job: nadi.Job, key: Path) -> None:
    alone = replace(job.traces[0], world_size=2, rank=0)
    with pytest.raises(nadi.NadiError, match="1 of 2 ranks"):
        nadi.obfuscate([alone], key, level)
    first, second = job.traces
    uneven = second.nodes.with_columns(
        comm_bytes=pl.when(pl.col("comm_bytes") > 0).then(7).otherwise(-1).cast(pl.Int64)
    )
    with pytest.raises(nadi.NadiError, match="differ in type or size"):
        nadi.obfuscate([first, replace(second, nodes=uneven)], key, level)


def test_the_report_says_what_is_preserved_and_what_is_not(written: dict[str, Path]) -> None:
    for level, folder in written.items():
        report = json.loads((folder / "obfuscation.json").read_text())
        assert report["level"] == level
        assert all(report[part] for part in ("preserved", "removed", "against"))
        assert len(report["not_guaranteed"]) > 3
        assert ("how_far" in report) == (level in ("shapes", "structure"))
        assert ("privacy" in report) == (level == "private")


def test_systems_with_equal_figures_share_a_row() -> None:
    steps = {"a": 8, "b": 8, "c": 7, "d": 8}
    same = {"obfuscated_makespan_ns": 9, "makespan": 0.1, "critical_path": 0.2}
    rows = [{"system": name, "makespan_ns": step, **same} for name, step in steps.items()]
    shown = dict(_systems_apart({"differences": rows}))
    assert list(shown) == [("differences", 0), ("differences", 2)]
    assert shown["differences", 0]["alike"] == "a and 2 others, alike"
    assert "alike" not in shown["differences", 2]


def test_former_names_of_the_makespan_warn() -> None:
    found = Fidelity("any", 100, 90, 0.05)
    assert (found.makespan, found.largest) == (0.1, 0.1)
    with pytest.warns(DeprecationWarning, match="makespan_ns"):
        assert found.step_ns == found.makespan_ns
    with pytest.warns(DeprecationWarning, match="makespan"):
        assert found.step == found.makespan
