"""A job of many ranks in a few traces."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import nadi
from nadi.errors import FormatError, InputError, PairError
from nadi.recordings import rank_map
from nadi.recordings.rank_map import RANK_MAP
from nadi.trace.schema import NODES

RANKS = 8
FAMILIES = {"data": [[0, 2, 4, 6], [1, 3, 5, 7]], "model": [[k, k + 1] for k in range(0, RANKS, 2)]}


def trace_of(rank: int, send: bool, receive: bool) -> nadi.Trace:
    """Make a rank that computes, reduces in its groups, and exchanges messages with rank + 2."""
    with nadi.JobBuilder(world_size=RANKS) as job:
        given = [members for family in FAMILIES.values() for members in family]
        groups = [job.group(str(number), members) for number, members in enumerate(given, 1)]
        for one in job.ranks:
            made = one.compute("aten::mm", duration="1 ms", bytes=10)
            for group in groups:
                if one.number in group.ranks:
                    made = one.stream(1).collective("all_reduce", 1024, group=group, after=made)
            if one.number >= 2:
                one.stream(2).recv(one.number - 2, 64, tag=0)
            if one.number < RANKS - 2:
                one.stream(3).send(one.number + 2, 64, tag=0)
    trace = job.job.traces[rank]
    described = ["data" if int(name) <= 2 else "model" for name in trace.groups["name"]]
    label = NODES.build(1, {"id": [10**6], "name": ["nn.Module: Linear"], "kind": ["METADATA"],
                            "category": ["python"]})  # fmt: skip
    nodes = trace.nodes.vstack(label)
    values = {name: getattr(trace, name) for name in ("deps", "issues", "provenance")}
    groups_table = trace.groups.with_columns(description=pl.Series(described, dtype=pl.String))
    return nadi.Trace(nodes=nodes, groups=groups_table, rank=rank, world_size=RANKS, **values)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for rank, does in ((0, (True, False)), (2, (True, True)), (6, (False, True))):
        nadi.write(trace_of(rank, *does), tmp_path / f"rank.{rank}.nadi")
    shared = [("rank.0.nadi", [[0, 2]]), ("rank.2.nadi", [[2, 6]]), ("rank.6.nadi", [[6, 8]])]
    content = {
        "world_size": RANKS, "families": FAMILIES,
        "shared": [{"trace": name, "ranks": ranks} for name, ranks in shared],
    }  # fmt: skip
    (tmp_path / RANK_MAP).write_text(json.dumps(content))
    return tmp_path


def own_traces(job: nadi.Job | list[nadi.Trace]) -> list[nadi.Trace]:
    if isinstance(job, list):
        return job
    return [job.own_trace(rank, numbered=True) for rank in range(RANKS)]


@pytest.mark.parametrize("is_regular", [True, False])
def test_each_rank_has_its_own_groups_and_peers(folder: Path, is_regular: bool) -> None:
    if not is_regular:  # a family of groups of two sizes
        content = json.loads((folder / RANK_MAP).read_text())
        content["families"]["model"].append([*range(RANKS)])
        (folder / RANK_MAP).write_text(json.dumps(content))
    job = nadi.recordings.read_job(folder)
    assert isinstance(job, nadi.Job) == is_regular
    for rank, trace in enumerate(own_traces(job)):
        assert nadi.trace.validate_trace(trace).is_empty()
        wanted = trace_of(rank, True, True)
        assert trace.rank == rank
        assert trace.groups["ranks"].to_list() == wanted.groups["ranks"].to_list()
        assert trace.groups["name"].to_list() == wanted.groups["name"].to_list()
        kept = wanted.nodes.filter(wanted.nodes["stream"] >= 0)
        for name in ("name", "src", "dst", "comm_bytes", "group"):
            assert trace.nodes[name].to_list() == kept[name].to_list(), (rank, name)
    traces = job.traces if isinstance(job, nadi.Job) else job
    assert traces[3].deps is traces[2].deps  # they share tables


def test_all_ranks_are_simulated(folder: Path) -> None:
    done = nadi.simulate(folder, nadi.load_system("dgx-h100", RANKS))
    assert done.makespan > 1_000_000
    assert done.cycles.size == RANKS


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [
        (lambda map_: map_["shared"].pop(), PairError, "rank 6 and 1 others of 8 are not recorded"),
        (lambda map_: map_.update(world_size=0), FormatError, "world_size"),
        (lambda map_: map_.update(more=1), FormatError, "more"),
        (lambda map_: map_["shared"][1]["ranks"].append([0, 2]), FormatError, "told twice"),
        (lambda map_: map_["shared"][2]["ranks"].append([7, 9]), FormatError, "are none"),
        (lambda map_: map_["shared"][0].update(trace="../x.nadi"), FormatError, "no name of a"),
        (lambda map_: map_["families"].pop("model"), InputError, "rank 0 is in no group 'model'"),
        (lambda map_: map_["shared"][2].update(trace="rank.2.nadi"), InputError, "not exist"),
    ],
    ids=["missing", "size", "unknown", "twice", "beyond", "outside", "family", "peer"],
)  # fmt: skip
def test_a_map_that_is_wrong_is_refused(
    folder: Path, change: Callable[[Any], Any], error: type[Exception], told: str
) -> None:
    content = json.loads((folder / RANK_MAP).read_text())
    change(content)
    (folder / RANK_MAP).write_text(json.dumps(content))
    with pytest.raises(error, match=told.replace("(", r"\(")):
        nadi.recordings.read_job(folder)


def test_each_trace_is_read_once(tmp_path: Path) -> None:
    """A map of a few kilobytes may name one file for each of a million ranks."""
    with nadi.JobBuilder(1) as job:
        job.all_ranks.stream(1).compute("x", duration="1 us")
    nadi.write(job.job.traces[0], tmp_path / "rank.0.nadi")
    shared = [{"trace": "rank.0.nadi", "ranks": [[k, k + 1]]} for k in range(2000)]
    (tmp_path / RANK_MAP).write_text(json.dumps({"world_size": 2000, "shared": shared}))
    told: list[str] = []
    found = nadi.recordings.read_job(tmp_path, told.append)
    assert isinstance(found, nadi.Job)
    assert len(found.traces) == 2000
    assert told == ["reading rank.0.nadi"]


@pytest.mark.parametrize("is_regular", [True, False])
def test_ranks_of_which_each_needs_a_trace_are_counted_first(
    is_regular: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_regular:
        content = json.loads((folder / RANK_MAP).read_text())
        content["families"]["model"].append([*range(RANKS)])
        (folder / RANK_MAP).write_text(json.dumps(content))
    monkeypatch.setattr(rank_map, "available_memory", lambda: 10_000)
    with pytest.raises(InputError, match=r"of their own, which need .* are free"):
        nadi.recordings.read_job(folder)


def test_a_trace_of_another_job_is_refused(folder: Path) -> None:
    content = json.loads((folder / RANK_MAP).read_text())
    content.update(world_size=6, families={})
    content["shared"] = [{"trace": "rank.6.nadi", "ranks": [[0, 6]]}]
    (folder / RANK_MAP).write_text(json.dumps(content))
    with pytest.raises(PairError, match="it is rank 6 of a job of 6"):
        nadi.recordings.read_job(folder)
