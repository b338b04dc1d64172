"""Learn a generator, read it, and make jobs of it."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from nadi.errors import FormatError, UsageError, checked
from nadi.files.files import locate, read_file
from nadi.sharing.conditional.conditional_jobs import conditional_job
from nadi.sharing.conditional.conditional_model import HEAD, ConditionalModel, decode_generator
from nadi.sharing.conditional.corpora import generated_jobs, listed_jobs
from nadi.sharing.conditional.learned_times import timed_job
from nadi.sharing.conditional.privacy_ledger import (
    BUDGET,
    check_budget,
    check_epsilon,
    rho_of,
    spend,
)
from nadi.sharing.conditional.private_learning import contribution, release
from nadi.sharing.conditional.program_learning import generator_of_jobs
from nadi.sharing.conditional.released_corpus import times_of
from nadi.sharing.conditional.stage_values import Conditions
from nadi.sharing.conditional.wished_conditions import Wished, wished_conditions
from nadi.systems.library import load_device, shipped_devices
from nadi.trace.trace import Job, Trace

PUBLIC = 120
"""Generated jobs that a private model has its operations of, if nothing else is stated."""


@checked
def learn_generator(
    table: Path | str = "",
    *,
    generated: int = 0,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> ConditionalModel:
    """Learn a generator of jobs: what they do, given conditions.

    Parameters
    ----------
    table
        A CSV file that lists jobs and their conditions, as
        :func:`nadi.sharing.conditional.corpora.listed_jobs` reads it; none by default.
    generated
        How many training steps of drawn decoders and plans to make and to learn.
    seed
        Of what is drawn.
    progress
        Called with a line of text now and then.

    Raises
    ------
    UsageError
        If there is nothing to learn from.
    InputError
        If the table or a job cannot be read, conditions are missing or wrong, or operations state
        no phase and layer.
    """
    if not table and generated < 1:
        what = "there is nothing to learn from"
        raise UsageError("generator", what, "give a table of jobs, or how many to generate")

    def every() -> Iterator[tuple[Job | Sequence[Trace], Conditions, str]]:
        if table:
            yield from listed_jobs(table)
        yield from generated_jobs(generated, seed)
        progress("learning what operations follow from")

    progress("reading jobs" if table else f"generating {generated} jobs")
    return generator_of_jobs(every())


class PrivateLearning(NamedTuple):
    """What was learned privately.

    Attributes
    ----------
    model
        May be shared.
    jobs
        How many jobs there are. This is for their owner alone; the model has a noisy number.
    spent
        Epsilon of all models of the table, with this one.
    """

    model: ConditionalModel
    jobs: int
    spent: float


@checked
def learn_privately(
    table: Path | str, epsilon: float, *, device: str = "", budget: float = BUDGET,
    generated: int = PUBLIC, seed: int = 0, progress: Callable[[str], None] = lambda _: None,
) -> PrivateLearning:  # fmt: skip
    """Learn a generator of which nobody can say whether any one job of a table was learned.

    Operations, their order and laws of sizes are learned of generated jobs, which are public. Of
    the table the model has noisy sums alone: how often conditions are in which bin, and with a
    device how times differ from its prices.

    Parameters
    ----------
    table
        As of :func:`learn_generator`. Each row is one job, with all of its recordings; operations
        need to state no phase.
    epsilon
        What the model may spend.
    device
        A device that ships with Nadi, on which the jobs ran; by default no times are learned.
    budget
        Epsilon of all models of the table. What was spent is kept beside it, in
        ``TABLE.privacy.json``.
    generated, seed
        Of the public jobs.

    Raises
    ------
    UsageError
        If epsilon is out of range, the budget is exceeded or the device unknown.
    InputError
        If the table, a job or what was spent cannot be read, or conditions are missing or wrong.
    """
    check_epsilon(epsilon)
    if device and device not in shipped_devices():
        what = "its name and prices would reveal something; only devices that ship with Nadi do not"
        raise UsageError(f"device {device!r}", what, f"name one of {', '.join(shipped_devices())}")
    own = load_device(device) if device else None
    rho = rho_of(epsilon)
    check_budget(table, rho, budget)
    progress("reading jobs")
    sums = [contribution(job, known, where, own) for job, known, where in listed_jobs(table)]
    model = learn_generator(generated=generated, seed=seed, progress=progress)
    spent = spend(table, rho, budget)
    private = release(sums, rho, device)
    return PrivateLearning(msgspec.structs.replace(model, private=private), len(sums), spent)


def is_generator(path: Path | str) -> bool:
    """Return whether a file holds a generator."""
    return bool(read_file(locate(path)).content.tobytes().startswith(HEAD))


def read_generator(path: Path | str) -> ConditionalModel:
    """Read a generator that ``nadi learn`` wrote.

    Raises
    ------
    InputError
        If the file cannot be read.
    FormatError
        If it is none, or damaged.
    """
    content = read_file(locate(path)).content.tobytes()
    if not content.startswith(HEAD):
        raise FormatError(str(path), "it is no generator", "make one with nadi learn")
    return decode_generator(content, str(path))


@checked
def generator_job(
    model: ConditionalModel | Path | str, *, ranks: int = 0, seed: int = 0, device: str = "",
    **conditions: int | str | bool,
) -> Job:  # fmt: skip
    """Make a job of conditions by name, such as ``family="llama", hidden=6144, tp=8``.

    Parameters
    ----------
    ranks
        Of the job; what the other axes leave is data parallel.
    seed
        Draws the learned job that gives what is not stated.
    device
        A device, or its file, whose prices operations take, changed as learned times differ from
        these; by default that of a private model, and without one operations have no times.

    Raises
    ------
    UsageError
        If a condition is unknown, its effect was not learned, or it does not fit others.
    """
    found = read_generator(model) if isinstance(model, (str, Path)) else model
    wished = wished_conditions(found, conditions, ranks=ranks, seed=seed)
    return wished_job(found, wished, seed=seed, device=device)


def wished_job(
    model: ConditionalModel, wished: Wished, *, seed: int = 0, device: str = ""
) -> Job:  # fmt: skip
    """Make a job of conditions that :func:`wished_conditions` completed."""
    job = conditional_job(model, wished.conditions)
    device = device or (model.private.device if model.private else "")
    if not device:
        return job
    times = times_of(model.private) if model.private else None
    return timed_job(job, load_device(device), times, seed)
