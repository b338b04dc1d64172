"""The page of a simulated job."""

from __future__ import annotations

from pathlib import Path

import msgspec

from nadi.errors import checked
from nadi.graph.timeline.timeline_section import page_timeline
from nadi.results.page.html_page import write_page
from nadi.simulation.accounts.simulation_results import results_of
from nadi.simulation.runs.simulation_report import describe_simulation, simulation_json
from nadi.simulation.runs.timeline import simulated_part
from nadi.simulation.simulation import Simulation

__all__ = ["write_simulation_page"]


@checked
def write_simulation_page(simulation: Simulation, path: Path, title: str) -> None:
    """Write the page of a simulated job.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    data = msgspec.json.decode(simulation_json(describe_simulation(results_of(simulation))))
    write_page(path, data, page_timeline([simulated_part(simulation)]), title=title)
