"""Record a job of many ranks on fake tensors: a process for each rank that differs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from nadi.errors import InputError, Parameter, UsageError
from nadi.files import files as container
from nadi.files.whole_folders import whole_folder
from nadi.pytorch.fake.alike_ranks import RankClass, find_classes, ranges_of
from nadi.pytorch.fake.fake_rank import check_numbers
from nadi.pytorch.fake.fake_trace import RankSummary
from nadi.pytorch.fake.fake_worker import Order, Outcome
from nadi.recordings.rank_map import RANK_MAP, RankMap, Shared

__all__ = ["FakeJob", "FakeOptions", "RecordedRank", "record_fake_job"]

_PYTHONS = ("python", "python3")
_LAUNCHERS = ("torchrun",)


class RecordedRank(NamedTuple):
    """A rank that was recorded.

    Attributes
    ----------
    file
        Its trace.
    summary
        What it does, in numbers.
    num_alike
        Number of ranks that do the same, with itself; 1 if only some ranks were asked for.
    issues
        Rows of ``schema.ISSUES``.
    """

    file: Path
    summary: RankSummary
    num_alike: int
    issues: Sequence[tuple[str, str, int, str, str]]


class FakeJob(NamedTuple):
    """A recorded job.

    Attributes
    ----------
    world_size, steps
        Number of its ranks, and of recorded steps.
    ranks
        Those that were recorded and kept.
    num_recorded
        Number of ranks that were recorded, with those that turned out to be like others.
    """

    world_size: int
    steps: int
    ranks: tuple[RecordedRank, ...]
    num_recorded: int


class FakeOptions(NamedTuple):
    """What is to be recorded of a job.

    Attributes
    ----------
    world_size
        Number of ranks of the job.
    ranks
        The ranks to record; None to find those that differ.
    steps, warmup, device
        As for :func:`fake_recording`.
    """

    world_size: int
    ranks: Sequence[int] | None = None
    steps: int = 1
    warmup: int = 1
    device: str = "H100"


def record_fake_job(
    command: Sequence[str], folder: Path | str, options: FakeOptions, *, overwrite: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> FakeJob:  # fmt: skip
    """Run a program as ranks of a job, without devices, and record what they do.

    The folder gets ``rank.R.nadi`` for one of the ranks that do the same, and ``ranks.json``, which
    says for each rank which one it is like. ``nadi simulate`` plays all ranks of it.

    Parameters
    ----------
    command
        Such as ``["train.py", "--layers", "2"]`` or ``["python", "-m", "package.train"]``.
    folder
        Where the files go; it is made if necessary.
    options
        Number of ranks, and which to record.
    overwrite
        Whether files of an earlier recording are replaced.
    progress
        Called with a line of text before each recording.

    Raises
    ------
    UsageError
        If torch is missing or too old, a number or the command is wrong, or nothing was recorded.
    InputError
        If the program fails; the message has its line. Or if a file exists or cannot be written.
    """
    python, program = _split(command)
    world_size, ranks = options.world_size, options.ranks
    check_numbers(world_size, 0, options.steps, options.warmup)
    _check_ranks(ranks, world_size)
    place = Path(folder)
    stale = _refuse_existing(place, overwrite=overwrite)
    with tempfile.TemporaryDirectory(prefix="nadi-fake-") as held:
        order = Order(0, world_size, options.steps, options.warmup, options.device, program, "")
        with _Runner(python, order, Path(held), progress) as runner:
            if ranks is None:
                classes = _classes(runner, world_size)
            else:
                runner.sign(sorted(set(ranks)))
                classes = [RankClass(rank, (rank,)) for rank in sorted(set(ranks))]
        with whole_folder(place, overwrite=overwrite, instead_of=stale) as inside:
            return _written(runner, classes, (inside, place), world_size)


def _classes(runner: _Runner, world_size: int) -> list[RankClass]:
    runner.sign([0])
    try:
        return find_classes(world_size, runner.outcomes[0].families, runner.sign)
    except ValueError as error:
        raise InputError(
            "", f"the ranks that do the same cannot be found: {error}",
            ["name ranks yourself, such as ", Parameter("rank", "0,5")],
        ) from None  # fmt: skip


class _Runner:
    """Records ranks, each once, with a process that has imported torch."""

    def __init__(
        self, python: str, order: Order, folder: Path, progress: Callable[[str], None]
    ) -> None:
        self.order, self.folder, self.progress = order, folder, progress
        self.outcomes: dict[int, Outcome] = {}
        progress("importing torch")
        self._errors = (folder / "worker.log").open("w+b")
        try:
            self._worker = subprocess.Popen(  # noqa: S603  the user's own program
                [python, "-m", "nadi.pytorch.fake.fake_worker"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            )  # fmt: skip
        except OSError as error:
            self._errors.close()
            what = error.strerror or str(error)
            raise InputError(python, what, "name an interpreter that runs") from None

    def __enter__(self) -> _Runner:
        try:
            if refusal := self._answer():
                raise UsageError("", refusal)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.kill()
        self._worker.communicate()
        self._errors.close()

    def file(self, rank: int) -> Path:
        """Return where the trace of a rank is."""
        return self.folder / f"rank.{rank}.nadi"

    def sign(self, ranks: Sequence[int]) -> Mapping[int, str]:
        """Record ranks that are not yet recorded; return the signature of each."""
        missing = [rank for rank in ranks if rank not in self.outcomes]
        if missing:
            told = ", ".join(map(str, missing))
            self.progress(f"recording rank{'s' if len(missing) > 1 else ''} {told}")
            orders = [
                msgspec.structs.replace(self.order, rank=rank, output=str(self.file(rank)))
                for rank in missing
            ]
            assert self._worker.stdin is not None  # it is a pipe
            self._worker.stdin.write(msgspec.json.encode(orders) + b"\n")
            self._worker.stdin.flush()
            self._answer()
        for rank in missing:
            outcome = self._outcome(self.file(rank))
            if outcome.error:
                where = outcome.where or " ".join(self.order.command)
                raise InputError(f"{where} (rank {rank})", outcome.error, outcome.remedy)
            self.outcomes[rank] = outcome
        return {rank: self.outcomes[rank].signature for rank in ranks}

    def _answer(self) -> str:
        """Wait for the process; raises InputError if it ended."""
        assert self._worker.stdout is not None  # it is a pipe
        line = self._worker.stdout.readline()
        if line.endswith(b"\n"):
            return line.decode(errors="replace").strip()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines() or [""]
        raise InputError(
            "", f"the process that records ended with code {self._worker.wait()}: {lines[-1]}",
            "install nadi and torch in the environment of the interpreter",
        )  # fmt: skip

    @staticmethod
    def _outcome(output: Path) -> Outcome:
        result = output.with_suffix(".json")
        if result.exists():
            return msgspec.json.decode(result.read_bytes(), type=Outcome)
        log = output.with_suffix(".log")
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        return Outcome(
            f"the program ended its process: {lines[-1] if lines else 'it printed nothing'}", "",
            "it may be out of memory, or call os._exit",
        )  # fmt: skip


def _written(
    runner: _Runner, classes: Sequence[RankClass], folders: tuple[Path, Path], world_size: int
) -> FakeJob:
    """Write the traces of the classes, and the map of all ranks, to be moved to a second folder."""
    inside, folder = folders
    families = runner.outcomes[classes[0].recorded].families
    shared = [Shared(runner.file(one.recorded).name, ranges_of(one.ranks)) for one in classes]
    found = RankMap(
        world_size, shared, {name: [*map(list, groups)] for name, groups in families.items()}
    )
    kept = []
    for one in classes:
        outcome, source = runner.outcomes[one.recorded], runner.file(one.recorded)
        container.write_pieces(inside / source.name, [source.read_bytes()])
        assert outcome.summary is not None  # it has no error
        kept.append(
            RecordedRank(folder / source.name, outcome.summary, len(one.ranks), outcome.issues)
        )
    container.write_pieces(inside / RANK_MAP, [msgspec.json.encode(found)])
    steps = runner.outcomes[classes[0].recorded].steps
    return FakeJob(world_size, steps, tuple(kept), len(runner.outcomes))


def _split(command: Sequence[str]) -> tuple[str, list[str]]:
    """Return the interpreter, and a script or ``-m`` and a module, with their arguments."""
    words = list(command)
    python = sys.executable
    if words and Path(words[0]).name.startswith(_PYTHONS):
        python = words[0] if os.sep in words[0] else sys.executable
        words = words[1:]
    elif words and Path(words[0]).name in _LAUNCHERS:
        raise UsageError(
            " ".join(words), "a launcher starts processes, but one process is recorded at a time",
            "give what it starts: python train.py",
        )  # fmt: skip
    while words and words[0].startswith("-") and words[0] != "-m":
        words = words[1:]  # options of the interpreter, such as -u
    if not words or words == ["-m"]:
        raise UsageError("", "no program is given", "give a Python script, such as python train.py")
    if words[0] != "-m" and not Path(words[0]).is_file():
        raise InputError(words[0], "there is no such file", "give the path of a Python script")
    return python, words


def _check_ranks(ranks: Sequence[int] | None, world_size: int) -> None:
    if ranks is not None and not ranks:
        raise UsageError(Parameter("rank"), "no rank is given", "name at least one, or all")
    for rank in ranks or ():
        if not 0 <= rank < world_size:
            raise UsageError(
                Parameter("rank", rank), f"there is no such rank among {world_size:,}, counted "
                "from 0", "choose another rank",
            )  # fmt: skip


def _refuse_existing(folder: Path, *, overwrite: bool) -> list[Path]:
    """Return files of an earlier recording, which are to be replaced."""
    if folder.is_file():
        raise InputError(str(folder), "is a file, but traces are written into a folder",
                         "name a folder")  # fmt: skip
    found = [*folder.glob("rank.*.nadi"), *folder.glob(RANK_MAP)]
    if found and not overwrite:
        raise InputError(str(found[0]), "exists", ["pass ", Parameter("overwrite", True)])
    container.check_writable(folder / RANK_MAP)
    return found
