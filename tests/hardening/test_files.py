"""Files that are no files, claim more than they are, or have to be the same each time."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import nadi
from nadi.files.native.arrow import bytes_claimed
from nadi.systems import load_astra_sim_system
from tests.feed.traces import content, message
from tests.fuzz.corpus import samples

posix_only = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")


@posix_only
@pytest.mark.parametrize(
    "open_",
    [
        nadi.load_system,
        nadi.read,
        nadi.simulation.ETFeeder,
        lambda path: load_astra_sim_system(path, path),
        lambda path: nadi.systems.read_comm_groups(path),
    ],
    ids=["system", "trace", "feeder", "astra-sim", "groups"],
)
def test_pipes_and_devices_are_refused(open_: Callable[[Path], object], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    link = tmp_path / "link.json"
    link.symlink_to("/dev/zero")
    for path in (pipe, link):
        with pytest.raises(nadi.errors.InputError, match="is not a regular file; save it"):
            open_(path)


def test_a_huge_file_is_no_system(tmp_path: Path) -> None:
    path = tmp_path / "huge.toml"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(nadi.errors.InputError, match="over 64 MiB"):
        nadi.load_system(path)


# the peak of a process that feeds a file whose gzip content is far larger than a trace's
_FEED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
import nadi
try:
    feeder = nadi.simulation.ETFeeder(sys.argv[1], 1000)
    while feeder.has_nodes_to_issue():
        node = feeder.get_next_issuable_node()
        feeder.free_children_nodes(node.id)
        feeder.remove_node(node.id)
except nadi.NadiError as error:
    print(error)
status = open("/proc/self/status").read()  # ru_maxrss may be that of who started this
print(int(status.split("VmHWM:")[1].split()[0]) >> 10)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_a_zip_bomb_costs_the_feeder_little(tmp_path: Path) -> None:
    # one message that claims two GB, of which nearly all are zeros
    begin = content([message(1)]) + bytes((0xF0, 0xFF, 0xFF, 0xFF, 0x07))
    path = tmp_path / "bomb.et.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(begin)
        for _ in range(400):
            file.write(bytes(1 << 20))
    done = subprocess.run(
        [sys.executable, "-c", _FEED, str(path)], capture_output=True, text=True, check=True
    )
    told, peak = done.stdout.splitlines()
    assert "over 200 times its gzip size" in told
    assert int(peak) < 1600  # MiB, of which imports are 200; it was 3400


def test_compressed_files_are_the_same_each_time(
    tmp_path: Path, demo_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = nadi.read(demo_folder / "device_0.json.gz")
    for number, suffix in enumerate((".json.gz", ".json.gz")):
        monkeypatch.setattr(time, "time", lambda number=number: 1e9 + 1e6 * number)
        nadi.write(trace, tmp_path / str(number) / f"a{suffix}", to="kineto")
    first, second = (tmp_path / str(number) / "a.json.gz" for number in range(2))
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes()[4:8] == bytes(4)  # where the time would stand


def _own_with(name: str, data: bytes) -> bytes:
    """Give a file of Nadi's own with another member, and right checksums."""
    with zipfile.ZipFile(io.BytesIO(samples()["nadi"].content)) as whole:
        members = {member: whole.read(member) for member in whole.namelist()}
    members[name] = data
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as changed:
        for member, stored in members.items():
            changed.writestr(zipfile.ZipInfo(member), stored)
    return out.getvalue()


def _arrow(frame: pl.DataFrame) -> bytes:
    out = io.BytesIO()
    frame.write_ipc(out, compression="zstd")
    return out.getvalue()


def test_buffers_that_claim_too_much_are_not_decompressed(tmp_path: Path) -> None:
    """Such a size is allocated by polars, which ends the process where there is not so much."""
    frame = pl.DataFrame({"id": range(15_000)})
    stored = _arrow(frame)
    assert bytes_claimed(stored) == 8 * 15_000
    size = (8 * 15_000).to_bytes(8, "little")  # stands before what is compressed
    assert stored.count(size) == 1
    huge = stored.replace(size, (1 << 62).to_bytes(8, "little"))
    assert bytes_claimed(huge) == 1 << 62
    path = tmp_path / "huge.nadi"
    path.write_bytes(_own_with("nodes.arrow", huge))
    with pytest.raises(nadi.errors.FormatError, match="far more bytes than the file"):
        nadi.read(path)


@pytest.mark.parametrize("flip", [0x80, 0x01, 0xFF])
def test_polars_never_panics_at_a_changed_byte(
    flip: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A panic prints a trace of polars's own code before any message of ours."""
    frame = pl.DataFrame({
        "name": pl.Series(["a", "b"], dtype=pl.Categorical()),
        "kind": pl.Series(["x", None], dtype=pl.Enum(["x", "yz"])),
        "ranks": [[1, 2], []], "text": ["t" * 20, ""],
    })  # fmt: skip
    stored = _arrow(frame)
    refused = 0
    for at in range(8, len(stored)):
        changed = bytes(stored[:at]) + bytes([stored[at] ^ flip]) + bytes(stored[at + 1 :])
        try:
            if bytes_claimed(changed) <= 1 << 28:
                pl.read_ipc(changed)
        except (ValueError, OSError, pl.exceptions.PolarsError):
            refused += 1
    assert refused > 100
    assert capfd.readouterr().err == ""


def test_a_panic_of_polars_is_a_damaged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no Exception, so that nothing else would catch it."""

    def panic(_: bytes) -> pl.DataFrame:
        raise pl.exceptions.PanicException("called `Option::unwrap()` on a `None` value")

    path = tmp_path / "panic.nadi"
    path.write_bytes(samples()["nadi"].content)
    monkeypatch.setattr(pl, "read_ipc", panic)
    with pytest.raises(nadi.errors.FormatError, match=r"nodes\.arrow: called"):
        nadi.read(path)
