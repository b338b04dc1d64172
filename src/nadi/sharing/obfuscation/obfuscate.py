"""Obfuscate a job, write it, and map pseudonyms back for the owner of the key."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from secrets import token_bytes

import msgspec

from nadi.errors import InputError, Parameter, UsageError, checked
from nadi.files.files import check_target, locate, read_settings, write_pieces
from nadi.files.settings_text import decode_json
from nadi.files.trace_files import write
from nadi.files.whole_folders import refuse_partial, whole_folder
from nadi.models.job_files import check_place, write_job
from nadi.recordings.folded.folded_job import FoldedJob, unfold_job
from nadi.recordings.jobs import given_job
from nadi.sharing.obfuscation.fidelity import LEVELS, ObfuscatedJob, answers, compared
from nadi.sharing.obfuscation.private_job import noisy_job, read_secret
from nadi.sharing.obfuscation.renamed_traces import names_of_job, rename_job
from nadi.sharing.obfuscation.secret_key import SecretKey, job_digest
from nadi.sharing.obfuscation.structure import (
    check_mergeable,
    check_timed,
    merge_job,
    move_job,
    simulator_job,
)
from nadi.systems.library import load_system, shipped_systems
from nadi.systems.prices.priced_traces import price_job
from nadi.systems.system import System
from nadi.systems.system_file import SystemFile
from nadi.trace.schema import GIVEN_DEPS, ISSUES, MATCHES
from nadi.trace.trace import Job, Trace

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
    progress: _Progress = lambda _: None,
) -> ObfuscatedJob:
    """Obfuscate a job with a key that was read; else as :func:`obfuscate`."""
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
        return _private(done, simulator_job(recording), systems, epsilon)
    progress("moving sizes")
    moved = move_job(recording, salted, systems, in_box=level == "shapes")
    job, fidelity = moved.job, moved.fidelity
    if level == "structure":
        progress("merging operations")
        job, fidelity = merge_job(simulator_job(job), salted, systems, moved.before)
    return replace(done, job=job, fidelity=tuple(fidelity), in_box=moved.in_box)


def _private(
    done: ObfuscatedJob, plain: Job, systems: Mapping[str, System], epsilon: float
) -> ObfuscatedJob:
    noisy, loss = noisy_job(plain, epsilon)
    before, after = answers(plain, systems), answers(noisy, systems)
    fidelity = tuple(compared(name, before[name], after[name]) for name in systems)
    return replace(done, job=noisy, fidelity=fidelity, privacy=loss)


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
    targets = check_output(place, done.job, recorded=done.recorded, overwrite=overwrite)
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


def check_output(place: Path, job: Job, *, recorded: bool, overwrite: bool) -> tuple[Path, ...]:
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
