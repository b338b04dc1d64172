"""Learn a generator, read it, and make jobs of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from nadi.errors import FormatError, UsageError, checked
from nadi.files.files import locate, read_file
from nadi.sharing.conditional.conditional_jobs import conditional_job
from nadi.sharing.conditional.conditional_model import HEAD, ConditionalModel, decode_generator
from nadi.sharing.conditional.corpora import generated_jobs, listed_jobs
from nadi.sharing.conditional.program_learning import generator_of_jobs
from nadi.sharing.conditional.stage_values import Conditions
from nadi.sharing.conditional.wished_conditions import wished_conditions
from nadi.trace.trace import Job, Trace


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
    model: ConditionalModel | Path | str, *, ranks: int = 0, seed: int = 0,
    **conditions: int | str | bool,
) -> Job:  # fmt: skip
    """Make a job of conditions by name, such as ``family="llama", hidden=6144, tp=8``.

    Parameters
    ----------
    ranks
        Of the job; what the other axes leave is data parallel.
    seed
        Draws the learned job that gives what is not stated.

    Raises
    ------
    UsageError
        If a condition is unknown, its effect was not learned, or it does not fit others.
    """
    found = read_generator(model) if isinstance(model, (str, Path)) else model
    wished = wished_conditions(found, conditions, ranks=ranks, seed=seed)
    return conditional_job(found, wished.conditions)
