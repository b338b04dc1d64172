"""What changes would do to a simulated job: of its operations, or of the system's memory."""

from collections.abc import Callable, Sequence

import polars as pl

from nadi.errors import UsageError
from nadi.graph.windows import choose_window
from nadi.simulation.accounts.simulation_as_recording import simulated_graph
from nadi.simulation.simulation import Simulation
from nadi.systems.memory_changes import FORM as MEMORY_FORM, MemoryChange, parse_memory_change
from nadi.systems.system import System
from nadi.whatif.change_syntax import FORMS, parse_change
from nadi.whatif.changes import Change, ScaleWait
from nadi.whatif.what_if_results import what_if


def parse_simulated_change(text: str) -> Change | MemoryChange:
    """Parse a change of operations, or of the memory of a system (``memory NAME.KEY VALUE``).

    Raises
    ------
    UsageError
        If the text is neither, or changes waits of threads, which a simulation does not have.
    """
    verb = text.split(maxsplit=1)[0] if text.split() else ""
    if verb == MEMORY_FORM.split()[0]:
        return parse_memory_change(text)
    if verb not in FORMS:
        known = "; ".join([*(form for form, _ in FORMS.values()), MEMORY_FORM])
        raise UsageError(f"change {text!r}", "is not a known change", f"one of: {known}")
    change = parse_change(text)
    if isinstance(change, ScaleWait):
        raise UsageError(
            f"change {text!r}", "a simulated job has no waits of threads: its hosts are busy then",
            "change them in the recording, with nadi what-if",
        )  # fmt: skip
    return change


def with_changes(
    simulated: Callable[[Callable[[int], System]], Simulation],
    machine_for: Callable[[int], System],
    changes: Sequence[Change | MemoryChange],
) -> tuple[Simulation, pl.DataFrame]:
    """Simulate jobs, and say what each of some changes would do, each alone.

    With other memory jobs are simulated again. Other changes are those of the event graph of the
    simulation (:func:`nadi.what_if`).

    Parameters
    ----------
    simulated
        Simulates the jobs on the systems that a function gives for numbers of ranks.
    machine_for
        Such a function, of the system without changes.
    changes
        Of the system's memory, or of operations.

    Returns
    -------
    Simulation
        Without changes.
    polars.DataFrame
        ``change`` (text), ``makespan`` and ``gain`` (ns), a row per change.

    Raises
    ------
    UsageError
        If the system or the job does not have what a change names.
    """

    def checked(num_ranks: int) -> System:
        system = machine_for(num_ranks)
        for change in changes:  # what is not there is told at once
            if isinstance(change, MemoryChange):
                change.apply(system)
        return system

    def other(change: MemoryChange) -> Callable[[int], System]:
        return lambda num_ranks: change.apply(machine_for(num_ranks))

    done = simulated(checked)
    graph = None
    times = []
    for change in changes:
        if isinstance(change, MemoryChange):
            times.append(simulated(other(change)).makespan)
            continue
        graph = graph or simulated_graph(done)
        times.append(
            done.makespan - what_if(graph, change, window=choose_window(graph, [])).gain_ns
        )
    gains = [done.makespan - time for time in times]
    columns = {"change": list(map(str, changes)), "makespan": times, "gain": gains}
    table = pl.DataFrame(columns, {"change": pl.String, "makespan": pl.Int64, "gain": pl.Int64})
    return done, table
