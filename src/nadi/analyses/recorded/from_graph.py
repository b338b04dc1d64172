"""Tables of a job that need all its ranks, linked: stragglers, steps, modules, contention."""

import polars as pl

from nadi.errors import InputError, checked
from nadi.files.remedies import OF_PYTORCH, remedies_of
from nadi.graph.contention import learn_contention
from nadi.graph.edges.job_graph import build_graph
from nadi.graph.module_times import time_by_module
from nadi.graph.replay import replay_graph
from nadi.graph.stragglers import Stragglers, find_stragglers
from nadi.graph.windows import choose_window, find_steps, step_times
from nadi.trace.trace import Job


def _stragglers(job: Job) -> Stragglers:
    if len(job.traces) < 2:
        raise InputError(
            "", "one rank has nobody to wait for", "pass the device traces of several ranks"
        )
    graph = build_graph(job)
    window = choose_window(graph, find_steps(graph))
    found = find_stragglers(replay_graph(graph), window)
    if not found.ranks.height:
        raise InputError(
            "",
            "could not be tested: no collective or transfer is matched across these "
            f"{len(job.traces)} ranks",
            "pass the device traces of ranks of one group, from the same steps",
        )
    return found


@checked
def straggler_ranks(job: Job) -> pl.DataFrame:
    """Return how much wait time each rank causes, and how much it waits.

    Returns
    -------
    polars.DataFrame
        ``rank``, ``times_last``, ``wait_time_caused_ns``, ``own_wait_time_ns``; the most caused
        first.

    Raises
    ------
    InputError
        If the job has one rank only, or no collective or transfer has several of its ranks.
    """
    return _stragglers(job).ranks.rename(
        {"caused": "wait_time_caused_ns", "waited": "own_wait_time_ns"}
    )


@checked
def late_collectives(job: Job) -> pl.DataFrame:
    """List collectives with the rank that entered last, and why.

    Returns
    -------
    polars.DataFrame
        In order of time: ``name``, ``rank``, ``last_entry_ns``, ``wait_time_caused_ns`` (by all
        others), ``longest_wait_ns`` (by one), ``cause`` and ``operation`` (the largest part of
        what delayed it).

    Raises
    ------
    InputError
        If the job has one rank only, or no collective or transfer has several of its ranks.
    """
    return _stragglers(job).collectives.select(
        "name", "rank", last_entry_ns="time", wait_time_caused_ns="waited",
        longest_wait_ns="longest", cause="cause", operation="operation",
    )  # fmt: skip


@checked
def step_table(job: Job) -> pl.DataFrame:
    """List the steps of a job: marked by the profiler, or found by what repeats.

    Returns
    -------
    polars.DataFrame
        ``step``, ``mark`` (what repeats), ``start_ns`` and ``duration_ns``: to the next mark, or
        until its work ends.

    Raises
    ------
    InputError
        If no steps are found.
    """
    graph = build_graph(job)
    steps = find_steps(graph)
    found = [
        (step.number, step.mark, step.start(graph.time), length)
        for step, length in zip(steps, step_times(graph, steps, graph.time).tolist(), strict=True)
    ]
    if not found:
        raise InputError("", "nothing repeats", remedies_of(job.traces[0]).steps)
    names = {"step": pl.Int64, "mark": pl.String, "start_ns": pl.Int64, "duration_ns": pl.Int64}
    return pl.DataFrame(found, schema=names, orient="row")


@checked
def module_table(job: Job) -> pl.DataFrame:
    """Sum time by module, forward, backward and optimizer, over all ranks.

    Returns
    -------
    polars.DataFrame
        The columns of :class:`~nadi.graph.ModuleTimes`'s table, those of times with ``_ns``;
        without the critical path.

    Raises
    ------
    InputError
        If no modules and no annotations are recorded.
    """
    graph = build_graph(job)
    table = time_by_module(graph, choose_window(graph, find_steps(graph))).table
    if table.height == 1:
        tool = remedies_of(job.traces[0])
        remedy = "record with with_stack=True and with_modules=True"
        if tool is not OF_PYTORCH:  # ranges of the program count as modules
            remedy = tool.marks or tool.names
        raise InputError("", "no modules are recorded", remedy)
    times = [name for name in table.columns if name.endswith(("_host", "_device"))]
    return table.drop("critical").rename({name: f"{name}_ns" for name in times})


@checked
def kernel_contention(job: Job) -> pl.DataFrame:
    """Compare kernels beside communication with the same kernels alone.

    Returns
    -------
    polars.DataFrame
        The columns of :attr:`nadi.graph.Contention.kernels`, the most time beside communication
        first.

    Raises
    ------
    InputError
        If no kernel runs beside communication.
    """
    table = learn_contention(job).kernels
    if not table.height:
        raise InputError(
            "", "no kernel runs beside communication on its device",
            "record steps in which they overlap, with record_shapes=True",
        )  # fmt: skip
    return table.select(
        "class", "name", "operator", "ratio", "low", "high", "basis", "alone", "beside",
        "alone_ns", "beside_ns", "slowed_ns", "unknown", "shapes", "grid", "block", "place",
    )  # fmt: skip
