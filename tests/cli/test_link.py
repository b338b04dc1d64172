"""`nadi link` as a user has it: what is printed, files, exit codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nadi.cli import main
from tests.conftest import PairWriter


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Any:
    """Run ``nadi link``; gives exit code, standard output and standard error."""

    def run_command(*arguments: str | Path) -> tuple[int, str, str]:
        code = main(["link", *(str(argument) for argument in arguments)])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run_command


def test_a_pair(run: Any, demo_folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "rank0.et"
    files = (demo_folder / "host_0.json.gz", demo_folder / "device_0.json.gz")
    code, out, _ = run(*files, "-o", target)
    assert code == 0
    assert f"rank 0: host_0.json.gz + device_0.json.gz -> {target} (chakra, " in out
    assert "matched by record function id: all operations" in out
    assert main(["info", "--check", str(target)]) == 0


def test_a_folder(run: Any, demo_folder: Path, tmp_path: Path) -> None:
    code, out, _ = run(demo_folder, "-o", tmp_path / "out", "--to", "nadi")
    assert code == 0
    assert [path.name for path in sorted((tmp_path / "out").glob("[!.]*"))] == [
        f"rank{rank}.nadi" for rank in range(4)
    ]
    assert "collectives matched across ranks: " in out
    assert out.index("rank 0: ") < out.index("rank 3: ")
    code, out, err = run(demo_folder, "-o", tmp_path / "out", "--to", "nadi")
    assert (code, out) == (2, "")
    assert "rank0.nadi: exists already; give another name, or --overwrite" in err


def test_force_is_not_overwrite(run: Any, pair: PairWriter) -> None:
    for number in range(10):
        pair.op(f"op{number}", 10 * number, 5)
        pair.events[-1]["name"] = "other"
    host, device = pair.write()
    target = pair.folder / "out.et"
    code, _, err = run(host, device, "-o", target)
    assert code == 2
    assert "0 of 10 operations (0.0 %)" in err
    assert not target.exists()
    code, out, _ = run(host, device, "-o", target, "--force")
    assert code == 0
    assert "warning: by " in out
    assert run(host, device, "-o", target, "--force")[0] == 2
    assert run(host, device, "-o", target, "--force", "--overwrite")[0] == 0


def test_a_host_trace_alone(run: Any, demo_folder: Path, tmp_path: Path) -> None:
    code, _, err = run(demo_folder / "host_0.json.gz", "-o", tmp_path / "out.et")
    assert code == 2
    assert "without a device trace" in err


def test_a_format_that_is_only_read(run: Any, demo_folder: Path, tmp_path: Path) -> None:
    code, _, err = run(demo_folder, "-o", tmp_path, "--to", "pytorch")
    assert code == 2
    assert "can only be read" in err


def test_for_a_simulator(run: Any, demo_folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    code, out, _ = run(demo_folder, "-o", target, "--for", "astra-sim")
    assert code == 0
    assert f"rank 3 -> {target}/trace.3.et (" in out
    assert f"process groups -> {target}/comm_group.json (" in out
    assert "barrier as all_reduce" in out
    assert len(list(target.glob("[!.]*"))) == 5
    code, out, err = run(demo_folder, "-o", target, "--for", "astra-sim")
    assert (code, out) == (2, "")
    assert "trace.0.et: exists already; give another name, or --overwrite" in err
    assert run(demo_folder, "-o", target, "--for", "astra-sim", "--overwrite")[0] == 0


def test_what_no_simulator_takes(run: Any, demo_folder: Path, tmp_path: Path) -> None:
    code, _, err = run(demo_folder, "-o", tmp_path, "--for", "simgrid")
    assert code == 2
    assert "--for simgrid: unknown simulator; use --for astra-sim" in err
    code, _, err = run(demo_folder, "-o", tmp_path, "--for", "astra-sim", "--to", "nadi")
    assert code == 2
    assert "the simulator determines the format; leave out --to and --schema" in err
    assert not list(tmp_path.iterdir())
