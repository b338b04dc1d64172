"""Record a job of many ranks on fake tensors: a process for each rank that differs.

Find which ranks of a job do the same, by recording few of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from nadi.errors import InputError, Parameter, UsageError
from nadi.files import files as container
from nadi.files.whole_folders import whole_folder
from nadi.pytorch.fake.fake_trace import RankSummary, check_numbers
from nadi.pytorch.fake.fake_worker import FakeOrder, Outcome
from nadi.recordings.rank_map import RANK_MAP, RankMap, Shared
from nadi.results.declared import ALL, BYTES, COUNT, PLAIN, Column, Lines, Result, Rows, number
from nadi.results.text import issue_lines
from nadi.units import format_counted

Sign = Callable[[Sequence[int]], Mapping[int, str]]


class FakeRankClass(NamedTuple):
    """Ranks that do the same, and the one of them that was recorded."""

    recorded: int
    ranks: tuple[int, ...]


def find_classes(
    world_size: int, families: Mapping[str, Sequence[Sequence[int]]], sign: Sign
) -> list[FakeRankClass]:
    """Find the classes of all ranks.

    The first, the last and a middle rank are compared; if they do the same, all ranks do. Else
    ranks along each axis are compared: those of a group of each family, whose groups divide the
    ranks, or all ranks if there is no such family. Between two ranks of an axis that do the same,
    and the one in the middle between them too, all are taken to do the same.

    - ``families``: Process groups by what they are for, with their members.
    - ``sign``: Records ranks, if they are not yet; returns a text for each that is equal for ranks
      that do the same.
    - Raises ValueError: Never for a job whose ranks differ along its axes; if the last rank does
      something else than its class.
    """
    axes = _axes(world_size, families)
    places = {rank: tuple(axis.place[rank] for axis in axes) for rank in range(world_size)}
    at = {place: rank for rank, place in places.items()}
    middle = at.get(tuple(axis.size // 2 for axis in axes), world_size // 2)
    probes = sorted({0, middle, world_size - 1})
    signs = sign(probes)
    if len(set(signs.values())) == 1:
        return [FakeRankClass(0, tuple(range(world_size)))]
    labels = [_labels(axis, sign) for axis in axes]
    differing = [k for k, label in enumerate(labels) if len(set(label)) > 1]
    if len(at) != world_size or not differing:  # the axes do not tell ranks apart
        axes = [_whole(world_size)]
        labels, differing = [_labels(axes[0], sign)], [0]
        places = {rank: (rank,) for rank in range(world_size)}
        at = {(rank,): rank for rank in range(world_size)}
    return _combined(axes, labels, differing, places, at, sign)


class _Axis(NamedTuple):
    """Ranks along an axis through rank 0, and the place of each rank along it."""

    ranks: tuple[int, ...]
    place: Mapping[int, int]

    @property
    def size(self) -> int:
        return len(self.ranks)


def _whole(world_size: int) -> _Axis:
    ranks = tuple(range(world_size))
    return _Axis(ranks, dict(zip(ranks, ranks, strict=True)))


def _axes(world_size: int, families: Mapping[str, Sequence[Sequence[int]]]) -> list[_Axis]:
    """Return the axes along which ranks can differ: independent ones that tell ranks apart."""
    found: list[_Axis] = []
    distinct: dict[int, tuple[int, ...]] = dict.fromkeys(range(world_size), ())
    by_size = sorted(families.values(), key=lambda groups: max(map(len, groups), default=0))
    for groups in by_size:  # small ones first: larger ones may be made of several
        members = sorted(rank for group in groups for rank in group)
        sizes = {len(group) for group in groups}
        if members != list(range(world_size)) or len(sizes) != 1 or sizes == {1}:
            continue
        place = {rank: k for group in groups for k, rank in enumerate(group)}
        with_it = {rank: (*distinct[rank], place[rank]) for rank in distinct}
        if len(set(with_it.values())) < len(set(distinct.values())) * sizes.pop():
            continue  # it is not independent of the axes before
        distinct = with_it
        found.append(_Axis(tuple(next(group for group in groups if 0 in group)), place))
    rest = world_size // max(len(set(distinct.values())), 1)
    if rest > 1:  # ranks that no group connects, such as stages that only exchange messages
        alike: dict[tuple[int, ...], list[int]] = {}
        for rank in range(world_size):
            alike.setdefault(distinct[rank], []).append(rank)
        if {len(ranks) for ranks in alike.values()} == {rest}:
            place = {rank: k for ranks in alike.values() for k, rank in enumerate(ranks)}
            found.append(_Axis(tuple(alike[distinct[0]]), place))
    return found


def _labels(axis: _Axis, sign: Sign) -> list[int]:
    """Return, for each place along an axis, the first place that does the same."""
    size = axis.size
    label = [-1] * size
    todo = [(0, size - 1)]
    found: dict[int, str] = {}

    def signs(places: Iterable[int]) -> list[str]:
        wanted = sorted(set(places))
        ranks = [axis.ranks[one] for one in wanted if one not in found]
        known = sign(ranks)
        found.update({one: known[axis.ranks[one]] for one in wanted if one not in found})
        return [found[one] for one in places]

    while todo:
        first, last = todo.pop()
        middle = (first + last) // 2
        at_first, at_middle, at_last = signs([first, middle, last])
        if at_first == at_middle == at_last or last - first <= 1:
            for place in range(first, last + 1):
                label[place] = first if place < last or at_first == at_last else last
        else:
            todo += [(middle, last), (first, middle)]
    by_sign: dict[str, int] = {}
    return [by_sign.setdefault(found[one], one) for one in label]


def _combined(
    axes: Sequence[_Axis], labels: Sequence[Sequence[int]], differing: Sequence[int],
    places: Mapping[int, tuple[int, ...]], at: Mapping[tuple[int, ...], int], sign: Sign,
) -> list[FakeRankClass]:  # fmt: skip
    """Return a class for each combination of labels along the axes that matter."""
    choices = [sorted(set(labels[k])) for k in differing]
    recorded: dict[tuple[int, ...], int] = {}
    for chosen in product(*choices):
        place = [0] * len(axes)
        for k, one in zip(differing, chosen, strict=True):
            place[k] = one
        recorded[chosen] = at[tuple(place)]
    signs = sign(sorted(recorded.values()))
    first = {signs[rank]: rank for rank in sorted(recorded.values(), reverse=True)}
    ranks: dict[int, list[int]] = {}
    for rank, at_place in places.items():
        label = tuple(labels[k][at_place[k]] for k in differing)
        ranks.setdefault(first[signs[recorded[label]]], []).append(rank)
    classes = [FakeRankClass(one, tuple(members)) for one, members in sorted(ranks.items())]
    last = max(places)
    own = next(one.recorded for one in classes if last in one.ranks)
    if (known := sign([own, last]))[own] != known[last]:
        raise ValueError(f"rank {last} does something else than rank {own}, along no axis alone")
    return classes


def ranges_of(ranks: Sequence[int]) -> list[tuple[int, int]]:
    """Return ascending ranks as ranges: first, and one past the last."""
    found: list[tuple[int, int]] = []
    for rank in ranks:
        if found and found[-1][1] == rank:
            found[-1] = found[-1][0], rank + 1
        else:
            found.append((rank, rank + 1))
    return found


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
        order = FakeOrder(0, world_size, options.steps, options.warmup, options.device, program, "")
        with _Runner(python, order, Path(held), progress) as runner:
            if ranks is None:
                classes = _classes(runner, world_size)
            else:
                runner.sign(sorted(set(ranks)))
                classes = [FakeRankClass(rank, (rank,)) for rank in sorted(set(ranks))]
        with whole_folder(place, overwrite=overwrite, instead_of=stale) as inside:
            return _written(runner, classes, (inside, place), world_size)


def _classes(runner: _Runner, world_size: int) -> list[FakeRankClass]:
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
        self, python: str, order: FakeOrder, folder: Path, progress: Callable[[str], None]
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
    runner: _Runner, classes: Sequence[FakeRankClass], folders: tuple[Path, Path], world_size: int
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


def _described(job: FakeJob) -> dict[str, Any]:
    """Return what was recorded, as JSON values."""
    return {
        "world_size": job.world_size,
        "steps": job.steps,
        "recorded_ranks": job.num_recorded,
        "ranks": [
            {
                "file": str(one.file),
                "ranks_alike": one.num_alike,
                **one.summary._asdict(),
                "issues": [
                    dict(zip(("code", "severity", "count", "detail", "remedy"), row, strict=True))
                    for row in one.issues
                ],
            }
            for one in job.ranks
        ],
    }


def _headline(data: dict[str, Any]) -> str:
    ranks, steps = format_counted(data["world_size"], "rank"), format_counted(data["steps"], "step")
    return f"{ranks}, {format_counted(len(data['ranks']), 'kind')} of rank, {steps}"


def _warnings(data: dict[str, Any]) -> Iterable[str]:
    issues = {tuple(issue.values()): issue for rank in data["ranks"]
              for issue in rank["issues"] if issue["severity"] != "info"}  # fmt: skip
    return issue_lines(issues.values())


FAKE_JOB = Result(
    kind="fake_job", title="Recorded without devices", order=93, facts=_described,
    headline=_headline,
    parts=(
        Rows("ranks", lambda _: "", None, (
            Column("rank", "rank", PLAIN), Column("ranks_alike", "like it", COUNT),
            Column("operations", "operators", COUNT),
            Column("flops", "FLOPs", number(lambda flops: f"{flops:.3g}")),
            Column("collectives", "collectives", COUNT), Column("messages", "messages", COUNT),
            Column("comm_bytes", "sent", BYTES), Column("peak", "memory", BYTES),
        ), top=ALL),
        Lines(_warnings),
        Lines(lambda data: [f"written: {one['file']}" for one in data["ranks"]]),
    ),
)  # fmt: skip
