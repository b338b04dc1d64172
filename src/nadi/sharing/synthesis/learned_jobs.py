"""Learn a model from jobs, and make jobs from it."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nadi.errors import checked
from nadi.recordings.jobs import given_job
from nadi.sharing.synthesis.learned_model import TraceModel
from nadi.sharing.synthesis.learning import learn_model as learned
from nadi.sharing.synthesis.model_bytes import read_trace_model
from nadi.sharing.synthesis.synthetic_jobs import JobWishes, synthetic_job
from nadi.trace.trace import Job, Trace


@checked
def learn(
    jobs: Sequence[Job | Path | str] | Job | Path | str,
    *,
    progress: Callable[[str], None] = lambda _: None,
) -> TraceModel:
    """Learn a model of jobs: what their operations are, how they follow, what they take.

    Parameters
    ----------
    jobs
        Jobs, or their paths, as :func:`nadi.simulate` takes them: one, or several.
    progress
        Called with a line of text before each job.

    Raises
    ------
    InputError
        If a job cannot be read, or has no operations.
    NadiError
        If a recording cannot be converted to what simulators take.
    """
    several: Sequence[Job | Path | str] = [jobs] if isinstance(jobs, (str, Path, Job)) else jobs

    def read() -> Iterator[Job | Sequence[Trace]]:
        for one in several:
            named = isinstance(one, (str, Path))
            progress(f"learning from {one}" if named else "learning")
            yield given_job(one)

    return learned(read())


@checked
def synthesize(
    model: TraceModel | Path | str, *, times: TraceModel | Path | str | None = None, **wishes: Any
) -> Job:
    """Make a job from a learned model.

    Parameters
    ----------
    model
        As :func:`nadi.sharing.learn` returns it, or its file.
    times
        Another such model, such as of jobs on another machine: operations take as long as those of
        the same name in it.
    wishes
        ``ranks``, ``layers``, ``steps``, ``hidden`` and ``seed``, as of
        :class:`nadi.sharing.JobWishes`.

    Raises
    ------
    InputError
        If the file cannot be read, or is no model.
    UsageError
        If ranks, layers or width cannot be as wished.
    """
    found = read_trace_model(model) if isinstance(model, (str, Path)) else model
    like = read_trace_model(times) if isinstance(times, (str, Path)) else times
    return synthetic_job(found, JobWishes(times=like, **wishes))
