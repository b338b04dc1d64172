"""Jobs that hang: the culprit, known from how the job was made, is the one that is named."""

from __future__ import annotations

import json
import os
import pickle
import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nadi
import nadi.cli
from nadi.bottlenecks import Hang, find_hang
from nadi.files import pickle_kernels as kernels, plain_pickles
from nadi.files.flight_recorder import parse_dump
from nadi.files.plain_pickles import PickledValues, read_plain
from tests.formats.flight_records import Job

WORLD = {"0": range(8), "tp0": range(4), "tp1": range(4, 8)}


def _job(rounds: int = 3) -> Job:
    job = Job(WORLD)
    for _ in range(rounds):
        job.call("tp0")
        job.call("tp1")
        job.call("0", "_all_gather_base")
    return job


def _others(culprit: int) -> list[int]:
    return [rank for rank in range(8) if rank != culprit]


def _culprits(found: Hang) -> list[int]:
    return [rank for rank, _ in found.culprits]


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("culprit", [0, 3, 7])
def test_an_absent_rank_is_named(tmp_path: Path, culprit: int, as_json: bool) -> None:
    job = _job()
    job.call("0", "all_reduce", ranks=_others(culprit), state="started")
    found = find_hang(job.write(tmp_path / "d", as_json=as_json))
    assert _culprits(found) == [culprit]
    group = found.culprits[0][1]
    assert (group.finding, group.completed, group.number) == ("absent", 3, 4)
    assert group.operation == "all_reduce"
    assert list(group.waiting) == _others(culprit)
    assert found.ranks[culprit].operation == "_all_gather_base"
    assert found.ranks[culprit].state == "completed"


def test_dumps_of_torchtitan_are_found_in_the_folder_of_the_job(tmp_path: Path) -> None:
    job = _job()
    job.call("0", "all_reduce", ranks=_others(3), state="started")
    (tmp_path / "config.json").write_text("{}")
    job.write(tmp_path / "comm_traces")
    assert _culprits(find_hang(tmp_path)) == [3]


def test_a_rank_that_waits_elsewhere_is_not_the_cause(tmp_path: Path) -> None:
    job = _job()
    job.call("0", "all_reduce", ranks=[0, 4, 5, 6, 7], state="started")
    job.call("tp0", "all_reduce", ranks=[1, 2], state="started")  # they wait for 3
    found = find_hang(job.write(tmp_path / "d"))
    # rank 0 is absent from the group of 1 and 2, but waits in that of all ranks, for 3, too
    assert _culprits(found) == [3]


def test_a_rank_in_another_collective_is_named(tmp_path: Path) -> None:
    job = _job()
    job.call("0", "all_reduce", ranks=_others(5), state="started")
    job.call("0", "broadcast", ranks=[5], state="started")
    found = find_hang(job.write(tmp_path / "d"))
    assert _culprits(found) == [5]
    assert found.culprits[0][1].finding == "different"
    assert found.ranks[5].operation == "broadcast"


def test_a_rank_with_other_sizes_is_named(tmp_path: Path) -> None:
    job = _job()
    job.call("0", ranks=_others(2), state="started")
    job.call("0", ranks=[2], size=9, state="started")
    found = find_hang(job.write(tmp_path / "d"))
    assert _culprits(found) == [2]
    assert found.culprits[0][1].finding == "sizes"


def test_a_rank_whose_device_is_behind_is_named(tmp_path: Path) -> None:
    job = _job()
    job.call("0", ranks=_others(6), state="started")
    job.call("0", ranks=[6], state="scheduled")
    found = find_hang(job.write(tmp_path / "d"))
    assert _culprits(found) == [6]
    assert found.culprits[0][1].finding == "queued"


def test_a_rank_without_a_dump_is_named(tmp_path: Path) -> None:
    job = _job()
    job.call("0", state="started")
    found = find_hang(job.write(tmp_path / "d", without=[4]))
    assert _culprits(found) == [4]
    assert [i.code for i in found.issues if i.severity == "warning"] == ["hang.missing-dumps"]


def test_all_inside_blames_no_rank(tmp_path: Path) -> None:
    job = _job()
    job.call("0", state="started")
    found = find_hang(job.write(tmp_path / "d"))
    assert not found.culprits
    assert found.groups[0].finding == "inside"


def test_what_one_dump_tells_is_not_said_of_all_members(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = _job()
    folder = str(job.write(tmp_path / "ended", without=_others(0)))
    assert nadi.cli.main(["hang", folder]) == 0
    assert "7 ranks left none, and may be the cause" in capsys.readouterr().out
    job.call("0", state="started")
    dump = job.dumps()[0]
    dump["pg_config"] = {}  # as gloo, which states the group that was made last
    (tmp_path / "alone_0.json").write_text(json.dumps(dump))
    assert nadi.cli.main(["hang", str(tmp_path / "alone_0.json")]) == 0
    told = capsys.readouterr().out
    assert "Rank 0 is in all_reduce number 4 of group 0" in told
    assert "All members" not in told


def _count_on(job: Job, rank: int, by: int, *, from_id: int = 0) -> None:
    """Let a rank number its collectives otherwise than the others."""
    for entry in job.entries[rank]:
        entry["collective_seq_id"] += by
        entry["record_id"] += from_id


def test_ranks_may_count_from_other_numbers(tmp_path: Path) -> None:
    job = _job()
    _count_on(job, 2, 3)
    found = find_hang(job.write(tmp_path / "ended"))
    assert not found.culprits
    assert not any(issue.severity == "warning" for issue in found.issues)
    job.call("0", "all_reduce", ranks=_others(1), state="started")
    job.entries[2][-1]["collective_seq_id"] += 3
    assert _culprits(find_hang(job.write(tmp_path / "hangs"))) == [1]


def test_numbers_that_contradict_each_other_blame_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As dumps of different moments do: the job went on between them."""
    job = _job()
    early, late = Job(WORLD), job
    early.call("tp0")
    early.call("tp1")
    early.call("0", "_all_gather_base")
    late.entries[0] = early.entries[0]
    found = find_hang(late.write(tmp_path / "d"))
    assert not found.culprits
    assert {i.code: i.count for i in found.issues if i.severity == "warning"} == {"hang.numbers": 2}
    clipped = _job()
    _count_on(clipped, 2, 3, from_id=40)
    assert nadi.cli.main(["hang", str(clipped.write(tmp_path / "e"))]) == 0
    assert capsys.readouterr().out.startswith(
        "The dumps do not tell what hangs: the numbers of 2 groups contradict each other.\n"
    )


def test_a_circle_of_waits_is_a_deadlock(tmp_path: Path) -> None:
    job = Job({"0": range(2), "a": range(2), "b": range(2)})
    job.call("0")
    job.call("a", ranks=[0], state="started")
    job.call("b", ranks=[1], state="started")
    found = find_hang(job.write(tmp_path / "d"))
    assert found.is_circle
    assert sorted(_culprits(found)) == [0, 1]


def test_a_late_rank_is_named_where_nothing_hangs(tmp_path: Path) -> None:
    job = _job()
    job.call("0", late={3: 2_000_000_000})
    found = find_hang(job.write(tmp_path / "d"))
    assert not found.culprits
    assert found.latest == 3
    assert found.ranks[3].late_ns == pytest.approx(2_000_000_000, abs=1_000)


def test_a_receive_that_nobody_sends_names_the_sender(tmp_path: Path) -> None:
    job = Job({"0": range(4)})
    for source, dest in ((0, 1), (1, 2)):
        job.call("0", f"send {source}->{dest}", ranks=[source], is_p2p=True)
        job.call("0", f"recv {dest}<-{source}", ranks=[dest], is_p2p=True)
    job.call("0", "recv 3<-2", ranks=[3], is_p2p=True, state="started")
    found = find_hang(job.write(tmp_path / "d"))
    assert _culprits(found) == [2]
    assert found.culprits[0][1].waiting == (3,)


@pytest.mark.parametrize("seed", range(40))
def test_random_jobs_name_the_rank_that_stopped(tmp_path: Path, seed: int) -> None:
    """A rank stops at some call; the others go on until they wait for it, directly or not."""
    chance = random.Random(seed)
    culprit, stops_after = chance.randrange(8), chance.randrange(2, 20)
    job, blocked, done = Job(WORLD), set(), 0
    for _ in range(40):
        group = chance.choice(list(WORLD))
        members = [rank for rank in WORLD[group] if rank not in blocked]
        if culprit in members:
            done += 1
            if done > stops_after:
                members.remove(culprit)
        is_whole = len(members) == len(WORLD[group])
        if members:
            job.call(group, ranks=members, state="completed" if is_whole else "started")
        if not is_whole:
            blocked |= set(members)
    if not blocked:
        pytest.skip("nobody came to wait")
    assert _culprits(find_hang(job.write(tmp_path / "d"))) == [culprit]


_RECORDED = """
import os, sys, time
rank, case, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
import torch, torch.distributed as dist
from torch._C import _distributed_c10d as c10d
dist.init_process_group("gloo", rank=rank, world_size=3, init_method="file://" + folder + "/store")
ones = torch.ones(8)
for _ in range(3):
    dist.all_reduce(ones)
if case == "absent" and rank != 2:
    kept = dist.all_reduce(ones, async_op=True)
if case == "different":
    kept = (dist.broadcast(ones, 0, async_op=True) if rank == 1
            else dist.all_reduce(ones, async_op=True))
time.sleep(1)
content = c10d._dump_fr_trace(includeCollectives=True, includeStackTraces=True, onlyActive=False)
open(f"{folder}/dumps/trace_{rank}", "wb").write(content)
time.sleep(1)
os._exit(0)
"""


@pytest.mark.parametrize(("case", "culprit"), [("absent", 2), ("different", 1)])
def test_what_pytorch_records_names_the_culprit(tmp_path: Path, case: str, culprit: int) -> None:
    distributed = pytest.importorskip("torch._C._distributed_c10d")
    if not hasattr(distributed, "_dump_fr_trace"):
        pytest.skip("this PyTorch has no flight recorder for gloo")
    (tmp_path / "dumps").mkdir()
    program = tmp_path / "program.py"
    program.write_text(_RECORDED)
    environment = os.environ | {"TORCH_FR_BUFFER_SIZE": "100", "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen([sys.executable, str(program), str(rank), case, str(tmp_path)],
                         env=environment, stderr=subprocess.PIPE)
        for rank in range(3)
    ]  # fmt: skip
    messages = [rank.communicate(timeout=100)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0, 0], messages
    found = find_hang(tmp_path / "dumps")
    assert _culprits(found) == [culprit]
    group = found.culprits[0][1]
    assert (group.completed, group.number, group.finding) == (3, 4, case)
    assert "program.py" in next(one.place for one in found.ranks if one.rank == 0)
    # the dump of a single rank: it states who else is in the only group
    (left,) = {0, 1, 2} - {culprit, 0}
    for rank in {0, 1, 2} - {left}:
        (tmp_path / f"dumps/trace_{rank}").unlink()
    alone = find_hang(tmp_path / "dumps")
    assert _culprits(alone) == [rank for rank in range(3) if rank != left]
    assert alone.groups[0].finding == "no dump"


class _Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/nadi_was_here",)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("value", [_Evil(), {"entries": [_Evil()]}, print, {1, 2}, 1j, {2**72: 1}])
def test_a_pickle_of_anything_but_plain_values_is_refused(value: Any, protocol: int) -> None:
    content = pickle.dumps(value, protocol)
    with pytest.raises(nadi.errors.FormatError, match="only plain values are read"):
        read_plain(content, "dump")
    with pytest.raises(nadi.errors.FormatError, match="only plain values are read"):
        PickledValues.read(_bytes(content), "dump")


def _bytes(content: bytes) -> np.ndarray:
    return np.frombuffer(content, dtype=np.uint8)


def _rebuilt(values: PickledValues, one: int) -> Any:
    """Make the value of Python again, from columns; numbers and bytes by where they stand."""
    kind, at, number = values.values[one].tolist()
    if kind == kernels.DICTIONARY:
        names = {code: key for key, code in values.keys.items()}
        found = [row for row in values.pairs.tolist() if row[0] == one]
        return {names[key]: _rebuilt(values, value) for _, key, value in found}
    if kind in (kernels.LIST, kernels.TUPLE):
        _, inside = values.inside(np.array([one]))
        made = [_rebuilt(values, value) for value in inside.tolist()]
        return made if kind == kernels.LIST else tuple(made)
    if kind == kernels.REAL:
        return struct.unpack(">d", values.text[at : at + 8].tobytes())[0]
    if kind in (kernels.TEXT, kernels.OTHER):
        content = values.text[at : at + number].tobytes()
        return content.decode() if kind == kernels.TEXT else content
    simple = {kernels.NONE: None, kernels.TRUE: True, kernels.FALSE: False}
    return simple.get(kind, number)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_pickles_are_read_as_python_reads_them(protocol: int) -> None:
    value: dict[str, Any]
    value = {"a": [1, -1, 2**40, -(2**70), 1.5, None, True, False, "é" * 300],
             "b": [b"x" * 300] * (protocol > 2),
             "t": ((), (1,), (1, 2), (1, 2, 3), tuple(range(9))), "e": [{}, []],
             **{str(k): k * 300 for k in range(600)}}  # fmt: skip
    value["again"] = value["a"]
    content = pickle.dumps(value, protocol)
    assert read_plain(content, "dump") == value
    values = PickledValues.read(_bytes(content), "dump")
    # what has more than 64 bits is out of every range in columns
    value["a"][3] = -(2**63)
    assert _rebuilt(values, int(values.whole[0])) == value
    for end in range(0, len(content) - 1, 97):
        with pytest.raises(nadi.errors.FormatError):
            read_plain(content[:end], "dump")
        with pytest.raises(nadi.errors.FormatError):
            PickledValues.read(_bytes(content[:end]), "dump")


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"]r\xff\xff\xff\x7f.", "broken"),  # a list of 2 ** 31 places in Python's reader
        (b"\x8d" + b"\xff" * 8 + b"x.", "broken"),  # a text of a negative length
        (b"\x8d" + b"\xff" * 7 + b"\x7fx.", "broken"),
        (b"B\xff\xff\xff\xffx.", "broken"),
        (b"\x8a\x11" + b"\1" * 17 + b".", "longer than any counter"),
        (b"\x8b\xff\xff\xff\xff.", "longer than any counter"),
        (b"\x96" + b"\xff" * 8 + b".", "none of a plain value"),  # a bytearray
        (b"K\1", "broken"),
        (b"K", "broken"),
        (b"s.", "broken"),
        (b"]K\1s.", "broken"),
        (b"}h\7.", "broken"),
        (b".", "broken"),
    ],
)
def test_hostile_pickles_are_refused_at_once(body: bytes, what: str) -> None:
    with pytest.raises(nadi.errors.FormatError, match=what):
        read_plain(b"\x80\4" + body, "dump")
    with pytest.raises(nadi.errors.FormatError, match=what):
        PickledValues.read(_bytes(b"\x80\4" + body), "dump")


@pytest.mark.parametrize("place", ["profiling_name", "state", "frames", "pg_config", "ranks"])
def test_halves_of_characters_are_refused(place: str, tmp_path: Path) -> None:
    """A pickle may have them, and no file or terminal: they ended in a UnicodeEncodeError."""
    dump, half = _job().dumps()[0], "\ud800"
    if place == "frames":
        dump["entries"][0]["frames"] = [{"name": half, "filename": "a.py", "line": 1}]
    elif place == "pg_config":
        dump["pg_config"][half] = {"ranks": "[0]"}
    elif place == "ranks":
        dump["pg_config"]["0"] = {"ranks": half}
    else:
        dump["entries"][0][place] = half
    content = pickle.dumps(dump, 4)
    if place == "ranks":
        assert "0" not in parse_dump(content, "dump", 0).members
        return
    with pytest.raises(nadi.errors.FormatError, match="a text is no UTF-8"):
        parse_dump(content, "dump", 0)


def test_a_pickle_of_lists_alone_is_no_bomb(monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of gzip was 256 MB of empty lists, and these 18 GB of memory."""
    content = b"\x80\4]" + b"](" * 50_000 + b"]" * 100_000
    monkeypatch.setattr(plain_pickles, "available_memory", lambda: 10 << 20)
    with pytest.raises(nadi.errors.FormatError, match="too many for 5"):
        read_plain(content + b".", "dump")
    with pytest.raises(nadi.errors.FormatError, match="too many for 5"):
        PickledValues.read(_bytes(content + b"."), "dump")
    assert read_plain(pickle.dumps(list(range(1000))), "dump") == list(range(1000))


def test_lists_that_a_pickle_repeats_are_no_bomb(tmp_path: Path) -> None:
    """500 kB stood for 64 million frames, in 7 GB; and a few bytes for sizes that never end."""
    for name in ("frames", "input_sizes", "input_dtypes"):
        dump = _job().dumps()[0]
        values: list[Any] = [{"name": "f", "filename": "a.py", "line": 1}] * 5000
        if name != "frames":
            for _ in range(20):
                values = [values] * 10
        dump["entries"] = [{**dump["entries"][0], name: values}] * 5000
        content = pickle.dumps(dump)
        assert len(content) < 50_000
        with pytest.raises(nadi.errors.FormatError, match="than the file has bytes"):
            parse_dump(content, "dump", 0)
    dump = _job().dumps()[0]
    ranks = list(range(10_000))
    dump["pg_config"] = {str(group): {"ranks": ranks} for group in range(10_000)}
    members = parse_dump(pickle.dumps(dump), "dump", 0).members
    assert len(members) == 10_000
    assert len({id(of) for of in members.values()}) == 1


def test_two_dumps_of_a_rank_and_files_that_are_none(tmp_path: Path) -> None:
    folder = _job().write(tmp_path / "d")
    (folder / "notes.txt").write_text("x")
    (folder / "config.json").write_text("{}")
    found = find_hang(folder)
    assert {i.code: i.count for i in found.issues}["hang.ignored"] == 2
    (folder / "rank_3.json").write_text(json.dumps(_job().dumps()[3]))
    with pytest.raises(nadi.errors.PairError, match="two dumps have rank 3"):
        find_hang(folder)


def test_the_command_names_the_culprit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    from nadi.cli import main

    job = _job()
    job.call("0", ranks=_others(3), state="started")
    folder = str(job.write(tmp_path / "d"))
    assert main(["hang", folder]) == 0
    assert "Rank 3 has not called all_reduce number 4 of group 0" in capsys.readouterr().out
    assert main(["hang", folder, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["culprits"][0]["rank"] == 3
    assert told["culprits"][0]["at"] == "train.py:7 step"
