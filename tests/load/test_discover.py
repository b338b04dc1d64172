"""Finding the files of a job."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import nadi
from nadi.load.discover import list_files
from nadi.load.recordings import load_devices, load_job


def test_folders_of_ranks_with_equal_file_names_are_one_job(
    demo_folder: Path, tmp_path: Path
) -> None:
    for rank in range(4):
        folder = tmp_path / f"rank{rank}"
        folder.mkdir()
        for kind in ("host", "device"):
            shutil.copy(demo_folder / f"{kind}_{rank}.json.gz", folder / f"{kind}.json.gz")
    job = load_job(tmp_path)
    expected = load_job(demo_folder)
    assert job.ranks == expected.ranks
    for mine, other in zip(job.traces, expected.traces, strict=True):
        assert mine.nodes.equals(other.nodes)
        assert mine.deps.equals(other.deps)
    assert job.matches.equals(expected.matches)


def test_ranks_that_no_trace_states_are_told_by_the_folder(
    demo_folder: Path, tmp_path: Path
) -> None:
    text = '{"traceEvents":[{"ph":"X","cat":"cpu_op","name":"%s","ts":1,"dur":2}]}'
    for rank in (3, 11):
        folder = tmp_path / f"node_{rank}"
        folder.mkdir()
        (folder / "trace_0.json").write_text(text % f"op {rank}")
    traces = load_devices(tmp_path)
    assert [(t.rank, t.nodes["name"][0]) for t in traces] == [(3, "op 3"), (11, "op 11")]


def test_subfolders_of_several_jobs_are_not_one(demo_folder: Path, tmp_path: Path) -> None:
    for name, file in (("a", "host_0.json.gz"), ("b", "device_0.json.gz")):
        (tmp_path / name).mkdir()
        shutil.copy(demo_folder / file, tmp_path / name)
    with pytest.raises(nadi.errors.InputError, match="its subfolders are a, b"):
        list_files([tmp_path])


def test_a_job_behind_an_address(demo_folder: Path) -> None:
    from upath import UPath

    for name in ("host_0", "device_0", "host_1", "device_1"):
        content = (demo_folder / f"{name}.json.gz").read_bytes()
        UPath(f"memory://discover/job/{name}.json.gz").write_bytes(content)
    run = nadi.run("memory://discover/job")
    assert run.job.ranks == (0, 1)
    local = load_devices(*(demo_folder / f"device_{rank}.json.gz" for rank in (0, 1)))
    for mine, other in zip(load_devices("memory://discover/job"), local, strict=True):
        assert mine.nodes.equals(other.nodes)
