"""Obfuscate a job, write it, and map pseudonyms back for the owner of the key.

Level ``structure``: as few intervals as keep makespan and critical path within a bound.

Level ``shapes``: sizes moved by secret amounts, as far as simulated answers stay.

Nothing that leaves is a true number times a factor: of two such numbers that follow from the same
sides, the sides could be computed. FLOPs and bytes of a product are computed from its moved sides,
and every other number is rounded to a grid, up or down as the key says.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from secrets import token_bytes
from typing import NamedTuple

import msgspec
import numpy as np
import polars as pl

from nadi.errors import InputError, Parameter, UsageError, checked
from nadi.files.files import check_target, locate, read_settings, write_pieces
from nadi.files.settings_text import decode_json
from nadi.files.trace_files import write
from nadi.files.whole_folders import refuse_partial, whole_folder
from nadi.models.job_files import check_place, write_job
from nadi.recordings.folded.folded_job import FoldedJob, unfold_job
from nadi.recordings.jobs import given_job
from nadi.sharing.obfuscation.fidelity import (
    GUARANTEES,
    IN_BOX,
    LEVELS,
    Answer,
    Fidelity,
    ObfuscatedJob,
    Yardstick,
    answers,
    compared,
    largest_difference,
)
from nadi.sharing.obfuscation.merged_work import (
    RankWork,
    Splits,
    WorkBeside,
    free_schedule,
    merge_work,
    slack_of,
    time_cuts,
    works_of,
)
from nadi.sharing.obfuscation.private_job import noisy_job, read_secret
from nadi.sharing.obfuscation.product_numbers import (
    MOST_MOVED,
    Forms,
    bytes_forms,
    flops_forms,
    moved_side,
)
from nadi.sharing.obfuscation.renamed_traces import names_of_job, rename_job, spans
from nadi.sharing.obfuscation.secret_key import SecretKey, job_digest
from nadi.simulation.work.recorded_work import nodes_of_job
from nadi.systems.library import load_system, shipped_systems
from nadi.systems.prices.priced_traces import price_job
from nadi.systems.prices.traced_operations import distinct_values
from nadi.systems.system import System
from nadi.systems.system_file import SystemFile
from nadi.trace.arrays import Floats, Ints
from nadi.trace.attributes import Attributes, Part, combined
from nadi.trace.protobuf_values import pack_list
from nadi.trace.schema import COMM_TYPES, GIVEN_DEPS, ISSUES, MATCHES, NODES
from nadi.trace.trace import Job, Trace

UNTIMED = (pl.col("kind") == "COMP") & (pl.col("duration") <= 0) & (pl.col("flops") > 0)
"""Computations without a time, which are simulated by what they cost."""

_INTERVALS = (8, 16, 32, 64, 128, 256, 512)
# the number of collectives between two cuts: one, else powers of 4, 2 and sqrt(2)
_BASES = (np.inf, 4.0, 2.0, 2.0**0.5)
_SPREADS = (1.5, 0.5, 0.0)  # of the sizes of parts and messages
_TRIED = 4  # numbers of intervals, before parts are more alike
_STARTS = 3  # of the numbers of intervals, the first is one of so many
_SHIFT = 0.4  # of a cut, as a part of an interval
_CLASSES = 6  # of slack


def simulator_job(job: Job) -> Job:
    """Return a job whose nodes a simulator can run as they are: a recording is converted.

    - Raises NadiError if it cannot be converted.
    """
    if job.rank_groups is not None:
        return job
    played = frozenset(COMM_TYPES) - {"none", "send", "recv"}
    traces, _ = nodes_of_job(job, played, at_once=True)
    return Job(tuple(traces), MATCHES.empty(), ISSUES.empty())


def check_mergeable(job: Job, level: str) -> None:
    """Raise InputError if operations of a job cannot be merged."""
    if job.world_size > len(job.traces):
        raise InputError(
            "job", f"it has the traces of {len(job.traces)} of {job.world_size} ranks: level "
            f"{level} needs all members of a collective", "give all ranks, or use level shapes",
        )  # fmt: skip
    for rank, trace in enumerate(job.traces):
        if trace in job.traces[:rank]:
            continue
        kinds = set(trace.nodes["kind"].unique().to_list())
        if {"MEM_LOAD", "MEM_STORE"} & kinds or trace.attributes.rows_named("involved_dim").size:
            raise InputError(
                f"rank {rank}", f"it accesses remote memory, or involves some dimensions only: "
                f"level {level} cannot merge that", "use level shapes",
            )  # fmt: skip


def check_timed(job: Job, level: str) -> None:
    """Raise InputError if computations have no time of their own, but a price on each system."""
    for rank, trace in enumerate(job.traces):
        if trace in job.traces[:rank]:
            continue
        untimed = trace.nodes.filter(UNTIMED)
        if untimed.height:
            raise InputError(
                f"rank {rank}", f"{untimed.height} computations have no time, by which level "
                f"{level} is checked", ["name the system that it ran on with ", Parameter("system"),
                                        ", or use level names"],
            )  # fmt: skip


def merge_job(
    job: Job, key: SecretKey, systems: Mapping[str, System], before: Mapping[str, Answer]
) -> tuple[Job, list[Fidelity]]:
    """Merge the operations of a job as far as its answers stay within the tolerance of structure.

    Where the job is cut, and into how many intervals at least, follows from the key.

    - ``job``: Without names, from :func:`simulator_job`, with times.
    - ``key``: With the salt of the job.
    - ``systems``: On which both jobs are simulated.
    - ``before``: The answers of the original.
    - Raises InputError if the job cannot be merged, or not within the tolerance.
    """
    tolerance = GUARANTEES["structure"].tolerance
    done = free_schedule(job)
    works = works_of(job, done)
    yardstick = Yardstick(before, systems, tolerance)
    least = int((key.unit("intervals") + 1) / 2 * _STARTS)
    for spread in _SPREADS:
        splits = Splits(lambda meeting, part: key.unit("part", str(meeting), str(part)), spread)
        for intervals in _INTERVALS[least : least + _TRIED if spread else None]:
            grid = _grid(max(done.makespan, 1), intervals, key)
            for base in _BASES:
                merged = _merged(job, works, grid, base, splits)
                if yardstick.measure(merged) is not None and (
                    found := yardstick.measure(_as_written(merged))
                ):
                    return merged, found
    raise InputError(
        "job", f"its answers differ by more than {tolerance:.0%} even if it is merged into "
        f"{intervals} intervals, so that level structure cannot keep its promise",
        "use level shapes",
    )  # fmt: skip


def _as_written(job: Job) -> Job:
    """Return a job as who reads its files gets it: each rank has a trace of its own.

    Ranks that share one are simulated as one, also where at one moment several groups of it begin
    to communicate, which ranks of their own do in an order.
    """
    if job.rank_groups is None:
        return job
    own = tuple(job.own_trace(rank) for rank in range(len(job.traces)))
    return Job(own, MATCHES.empty(), ISSUES.empty())


def _grid(end: int, intervals: int, key: SecretKey) -> Ints:
    """Return where to cut: evenly, but for a secret shift of each cut."""
    shifts = [_SHIFT * key.unit("cut", str(intervals), str(n)) for n in range(1, intervals)]
    places = (np.arange(1, intervals) + np.array(shifts)) / intervals
    return np.unique(np.concatenate([[0], np.rint(places * end), [end]]).astype(np.int64))


def _merged(job: Job, works: Sequence[RankWork], grid: Ints, base: float, splits: Splits) -> Job:
    factor = _of_messages(works, splits)
    different = list({id(work): work for work in works}.values())
    beside = _beside(different, [slack_of(work, grid) for work in different])
    done: dict[int, Trace] = {}
    for work, own in zip(different, beside, strict=True):
        sizes = work.trace.nodes["comm_bytes"].to_numpy()[work.row]
        for node in _messages(work).tolist():
            sizes[node] = max(round(int(sizes[node]) * factor[int(work.meeting[node])]), 1)
        done[id(work)] = merge_work(work, time_cuts(work, grid), sizes, own, base, splits)
    return replace(job, traces=tuple(done[id(work)] for work in works), matches=MATCHES.empty())


def _messages(work: RankWork) -> Ints:
    return np.flatnonzero(~work.computes & ~work.collective & (work.meeting >= 0))


def _of_messages(works: Sequence[RankWork], splits: Splits) -> dict[int, float]:
    """Return a factor for the size of each message, by its number; their volume stays."""
    volume: dict[int, int] = {}
    for work in works:
        sizes = work.trace.nodes["comm_bytes"].to_numpy()
        for node in _messages(work).tolist():
            volume[int(work.meeting[node])] = int(sizes[work.row[node]])
    if not splits.spread or not volume:
        return dict.fromkeys(volume, 1.0)
    factor = {one: math.exp(splits.spread * splits.secret(one, 0)) for one in volume}
    moved = sum(volume[one] * factor[one] for one in volume)
    return {one: own * sum(volume.values()) / max(moved, 1) for one, own in factor.items()}


def _beside(works: Sequence[RankWork], slack: Sequence[Ints]) -> list[WorkBeside]:
    """Return the least slack of any member for all members of each collective, and its class.

    Slack of one class differs by a factor of two at most, but in the last class.
    """
    size = max((int(work.meeting.max(initial=-1)) for work in works), default=-1) + 1
    least = np.full(size + 1, np.iinfo(np.int64).max)
    for work, own in zip(works, slack, strict=True):
        np.minimum.at(least, work.meeting[work.collective], own[work.collective])
    common = [np.where(work.collective, least[work.meeting], 0) for work in works]
    octaves = [np.log2(np.maximum(own, 1)).astype(np.int64) for own in common]
    top = max(int(own.max(initial=0)) for own in octaves)
    return [
        WorkBeside(
            own, np.where(own > 0, 1 + np.minimum(top - octave, _CLASSES - 1), 0), _CLASSES + 1
        )
        for own, octave in zip(common, octaves, strict=True)
    ]


_SPREAD = MOST_MOVED  # of sides, and of numbers that no simulated answer depends on
_SPREADS_OF_SIZES = (_SPREAD, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002)
_OF_TOTAL = 0.1  # the part of the spread by which the volume of all communication moves
_SHAPE = "gemm_shape"


class Moved(NamedTuple):
    """A job whose sizes have moved."""

    job: Job  # the new job
    fidelity: list[Fidelity]  # how it differs on each system
    before: dict[str, Answer]  # the answers of the original
    # by which share its makespan differs at most on any system of the box; None if not asked
    in_box: float | None


def move_job(
    job: Job, key: SecretKey, systems: Mapping[str, System], *, in_box: bool = False
) -> Moved:
    """Move the sizes of a job as far as its answers stay within the tolerance of shapes.

    Equal sizes stay equal. FLOPs follow shapes, and durations stay.

    - ``job``: Without names.
    - ``key``: With the salt of the job.
    - ``systems``: On which both jobs are simulated.
    - ``in_box``: Whether makespans are also kept on every system of the box, if computations have
      times.
    - Returns Moved
    - Raises InputError if no sizes can be moved within the tolerance.
    """
    tolerance = GUARANTEES["shapes"].tolerance
    before = answers(simulator_job(job), systems)
    yardstick = Yardstick(before, systems, tolerance)
    priced = _is_priced(job)
    plain = simulator_job(job) if in_box and not priced else None
    for spread in _SPREADS_OF_SIZES:
        moved = _moved_job(job, key, spread, spread if priced else _SPREAD)
        changed = simulator_job(moved)
        if (found := yardstick.measure(changed)) is None:
            continue
        bound = None if plain is None else largest_difference(plain, changed, IN_BOX)
        if plain is None or bound is not None:
            return Moved(moved, found, before, bound)
    raise InputError(
        "job", f"its answers differ by more than {tolerance:.0%} even if sizes move by "
        f"{_SPREADS_OF_SIZES[-1]:.1%} only, so that level shapes cannot keep its promise",
        "use level names",
    )  # fmt: skip


def _is_priced(job: Job) -> bool:
    """Whether computations without a time are simulated by what their sides cost."""
    return any(trace.nodes.filter(UNTIMED).height for trace in dict.fromkeys(job.traces))


def _moved_job(job: Job, key: SecretKey, spread: float, of_sides: float) -> Job:
    """Move sizes of communication by one spread, and all that operations state by another."""
    different = list({id(trace): trace for trace in job.traces}.values())
    known, sizes = _communication(different, key, spread)
    done = {}
    for trace in different:
        size = trace.column("comm_bytes")
        place = np.searchsorted(known, size)
        moved = np.where(size > 0, np.maximum(np.rint(sizes[place]), 1), size)
        done[id(trace)] = _moved(trace, moved.astype(np.int64), key, of_sides)
    return replace(job, traces=tuple(done[id(trace)] for trace in job.traces))


def _communication(traces: list[Trace], key: SecretKey, spread: float) -> tuple[Ints, Floats]:
    """Return the different sizes of communication, ascending, and what each becomes."""
    every = np.concatenate([trace.column("comm_bytes") for trace in traces])
    known, count = np.unique(every, return_counts=True)
    moved = _on_grid("communication", known, key, spread)
    weight = np.where(known > 0, count, 0)
    if weight.any():  # the volume of all of it stays nearly what it was
        moved *= (weight * known).sum() / (weight * moved).sum()
        moved *= 1 + _OF_TOTAL * spread * key.unit("volume")
    return known, moved


def _on_grid(what: str, values: Ints, key: SecretKey, spread: float) -> Floats:
    """Round numbers to powers of 1 + spread, up or down so that their logarithms keep the mean.

    What leaves is a point of the grid, and says only between which two points the number lies.
    """
    step = math.log2(1 + spread)
    dither = np.array([(key.unit(what, str(value)) + 1) / 2 for value in values.tolist()])
    place = np.floor(np.log2(np.maximum(values, 1)) / step + dither)
    return np.asarray(np.where(values > 0, np.exp2(place * step), values))


def _moved(trace: Trace, comm_bytes: Ints, key: SecretKey, spread: float) -> Trace:
    given = trace.attributes
    node, number, shapes = distinct_values(given, _SHAPE)
    new = [_shape(shape, key, spread) for shape in shapes]
    columns = {"comm_bytes": pl.Series(comm_bytes, dtype=NODES.dtypes["comm_bytes"])}
    for name, forms in (("flops", flops_forms), ("bytes", bytes_forms)):
        value = trace.column(name)
        known, place = np.unique(value, return_inverse=True)
        moved = np.rint(_on_grid(name, known, key, spread))[place].astype(np.int64)
        pairs = np.stack([number, value[node]], axis=1)
        different, of_pair = np.unique(pairs, axis=0, return_inverse=True)
        computed = np.array(
            [_computed(forms, shapes[k], new[k], true) for k, true in different.tolist()],
            dtype=np.int64,
        )[of_pair.reshape(-1)] if node.size else np.zeros(0, dtype=np.int64)  # fmt: skip
        moved[node] = np.where(computed >= 0, computed, moved[node])
        columns[name] = pl.Series(moved)
    others = given.filtered(np.array(given.names, dtype=object)[given.name] != _SHAPE)
    packed = [pack_list("int64_list", shape) for shape in new]
    return replace(
        trace, nodes=trace.nodes.with_columns(**columns),
        given_attributes=_joined(others, spans(_SHAPE, node, number, packed)),
    )  # fmt: skip


def _computed(forms: Forms, shape: Sequence[int], moved: Sequence[int], value: int) -> int:
    """Return what a number becomes that follows from the sides of a product; -1 if it does not."""
    before, after = forms(shape), forms(moved)
    return next((new for old, new in zip(before, after, strict=True) if old == value > 0), -1)


def _joined(*parts: Attributes) -> Attributes:
    return combined([Part(part) for part in parts])


def _shape(shape: list[int], key: SecretKey, spread: float) -> list[int]:
    """Move the sides of a matrix product: equal sides alike."""
    return [moved_side(side, 1 + spread * key.unit("side", str(side))) for side in shape]


REPORT = "obfuscation.json"
_NAMED, _MERGED = ("names", "shapes"), ("structure", "private")
_Progress = Callable[[str], None]


@checked
def obfuscate(
    job: Job | Sequence[Trace] | Path | str,
    key: Path | str,
    level: str = "names",
    *,
    system: SystemFile | None = None,
    epsilon: float = 1.0,
    progress: _Progress = lambda _: None,
) -> ObfuscatedJob:
    """Make a job that can be shared: only what simulators need.

    What stays is on a list, from which traces are built anew, so that a field that is not known
    cannot leak. Names become pseudonyms that only the key's owner can map back (:func:`reveal`).

    Parameters
    ----------
    job
        A job, or the path of one as :func:`nadi.simulate` takes it: recordings are linked.
    key
        The file of the owner's key: at least 16 random bytes.
    level
        ``names``, ``shapes``, ``structure`` or ``private``; each removes what those before it do.
    system
        Computations without a time take those that its device needs, which ``structure`` and
        ``private`` require of such a job.
    epsilon
        The privacy loss of a release at ``private``.
    progress
        Called with a line of text before each longer stage.

    Returns
    -------
    ObfuscatedJob
        With the report to share. :func:`write_obfuscated` writes both.

    Raises
    ------
    InputError, UsageError
        If the key is missing or none, or the job cannot be read, simulated, or obfuscated at
        this level.
    """
    if level not in LEVELS:
        raise UsageError(
            Parameter("level", level), "unknown level", f"there are {', '.join(LEVELS)}"
        )
    owner = read_secret(key)
    return obfuscate_with(
        _job_of(job, progress), owner, level, system=system, epsilon=epsilon, progress=progress
    )


def obfuscate_with(
    whole: Job,
    owner: SecretKey,
    level: str,
    *,
    system: SystemFile | None = None,
    epsilon: float = 1.0,
    for_owner: bool = True,
    progress: _Progress = lambda _: None,
) -> ObfuscatedJob:
    """Obfuscate a job with a key that was read; else as :func:`obfuscate`.

    - ``for_owner``: Whether to measure what the owner alone gets to know, on which no release
      depends: how far the answers at ``private`` differ.
    """
    salted = owner.for_job(job_digest(whole.traces))
    if level == "private":  # where nothing may follow from the job but by noise
        salted = SecretKey(owner.secret, token_bytes(len(salted.salt)))
    progress("renaming")
    named = rename_job(whole, salted)
    done = ObfuscatedJob(
        named, level, salted.salt.hex(), salted.check, _is_recorded(whole), whole.num_nodes
    )
    if level == "names":
        return done
    if system is not None:
        priced, _ = price_job(named, system.fit(len(named.traces)))
        done = replace(done, job=_as_job(priced))
    check_timed(done.job, level)
    if level in _MERGED:
        check_mergeable(done.job, level)
    systems = _systems_for(len(named.traces))
    recording, done = done.job, replace(done, recorded=done.recorded and level == "shapes")
    if level == "private":
        progress("adding noise")
        plain = simulator_job(recording)
        noisy, loss = noisy_job(plain, epsilon)
        done = replace(done, job=noisy, privacy=loss)
        return replace(done, fidelity=_measured(plain, noisy, systems)) if for_owner else done
    progress("moving sizes")
    moved = move_job(recording, salted, systems, in_box=level == "shapes")
    job, fidelity = moved.job, moved.fidelity
    if level == "structure":
        progress("merging operations")
        job, fidelity = merge_job(simulator_job(job), salted, systems, moved.before)
    return replace(done, job=job, fidelity=tuple(fidelity), in_box=moved.in_box)


def _measured(plain: Job, noisy: Job, systems: Mapping[str, System]) -> tuple[Fidelity, ...]:
    before, after = answers(plain, systems), answers(noisy, systems)
    return tuple(compared(name, before[name], after[name]) for name in systems)


def _systems_for(ranks: int) -> dict[str, System]:
    """Return the systems that ship with Nadi and allow so many ranks."""
    found = {}
    for name in shipped_systems():
        try:
            found[name] = load_system(name, ranks)
        except UsageError:
            continue
    if not found:
        raise UsageError(
            f"{ranks} ranks", "no system that ships with Nadi allows so many, and so nothing could "
            "be promised", "use level names",
        )  # fmt: skip
    return found


@checked
def write_obfuscated(
    done: ObfuscatedJob, folder: Path | str, *, overwrite: bool = False
) -> tuple[Path, ...]:
    """Write an obfuscated job, and its report ``obfuscation.json``.

    A recording becomes ``rank0.nadi`` and so on, which stay a recording; other jobs, and all at
    ``structure`` and ``private``, become ``trace.0.et`` and so on.

    Raises
    ------
    InputError
        If a file exists already, or cannot be written.
    """
    place = locate(folder)
    targets = check_job_output(place, done.job, recorded=done.recorded, overwrite=overwrite)
    beyond = () if done.recorded else check_place(place, "trace", len(targets) - 1, overwrite=True)
    with whole_folder(place, overwrite=overwrite, instead_of=beyond) as inside:
        if done.recorded:
            for trace, target in zip(done.job.traces, targets[:-1], strict=True):
                write(trace, inside / target.name, to="nadi")
        else:
            write_job(done.job, inside)
        content = msgspec.json.format(msgspec.json.encode(done.report), indent=2)
        write_pieces(inside / targets[-1].name, [content])
    return targets


def check_job_output(place: Path, job: Job, *, recorded: bool, overwrite: bool) -> tuple[Path, ...]:
    """Check that a job may be written to a folder, and return its files; writes nothing.

    - Raises InputError if a file exists already and ``overwrite`` is not given, or the folder is a
      file.
    """
    names = [f"rank{rank}.nadi" if recorded else f"trace.{rank}.et" for rank in job.ranks]
    targets = tuple(place / name for name in (*names, REPORT))
    if recorded and place.is_file():
        what = "is a file, but the traces of ranks are written into a folder"
        raise InputError(str(place), what, "name a folder")
    for target in targets:
        check_target(target, (), overwrite=overwrite)
    if not recorded:
        check_place(place, "trace", len(job.traces), overwrite=overwrite)
    return targets


@checked
def reveal(
    job: Job | Sequence[Trace] | Path | str, key: Path | str, folder: Path | str
) -> dict[str, str]:
    """Return the name behind each pseudonym of a written job, by pseudonym.

    Parameters
    ----------
    job, key
        The original, and the key that it was obfuscated with.
    folder
        Where :func:`write_obfuscated` wrote.

    Raises
    ------
    InputError
        If the folder has no report, or the key or the job is another one.
    """
    refuse_partial(locate(folder))
    stated = read_report(locate(folder) / REPORT)
    owner = read_secret(key)
    salted = SecretKey(owner.secret, bytes.fromhex(stated.salt))
    if salted.check != stated.key_check:
        raise InputError(str(key), f"{folder} was obfuscated with another key", "give its own key")
    if stated.level not in _NAMED:
        what = f"level {stated.level} has no pseudonyms: operations are merged"
        raise InputError(str(folder), what, "name an output of level names or shapes")
    whole = _job_of(job, lambda _: None)
    if owner.for_job(job_digest(whole.traces)).salt != salted.salt:
        what = f"{folder} was made of another job"
        raise InputError(str(job) if isinstance(job, (str, Path)) else "job", what,
                         "give the job that was obfuscated")  # fmt: skip
    return names_of_job(whole, salted)


class _Report(msgspec.Struct):
    level: str
    salt: str
    key_check: str


def read_report(path: Path) -> _Report:
    """Read the report beside an obfuscated job: its level, and what its key is recognized by.

    - Raises InputError if the file is no such report.
    """
    content = read_settings(path, "name a folder that nadi obfuscate wrote")
    found = decode_json(content, _Report, str(path), "obfuscate the job again")
    try:
        bytes.fromhex(found.salt)
    except ValueError:
        what = "its salt is no number in base 16"
        raise InputError(str(path), what, "obfuscate the job again") from None
    return found


def _job_of(job: Job | Sequence[Trace] | Path | str, progress: _Progress) -> Job:
    found = given_job(job, progress)
    return unfold_job(found) if isinstance(found, FoldedJob) else _as_job(found)


def _as_job(found: Job | Sequence[Trace]) -> Job:
    if isinstance(found, Job):
        return found
    return Job(tuple(found), MATCHES.empty(), ISSUES.empty())


def _is_recorded(job: Job) -> bool:
    return any(
        not set(trace.deps["kind"].unique().to_list()) <= set(GIVEN_DEPS)
        for trace in dict.fromkeys(job.traces)
    )
