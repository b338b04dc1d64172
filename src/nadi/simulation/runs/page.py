"""The page of a simulated job."""

from __future__ import annotations

from pathlib import Path

import msgspec

from nadi.errors import checked
from nadi.graph.timeline.timeline_section import page_timeline
from nadi.results.page.html_page import write_page
from nadi.results.text import to_json
from nadi.simulation.accounts.simulation_results import results_of
from nadi.simulation.runs.result import SIMULATION
from nadi.simulation.runs.timeline import simulated_part
from nadi.simulation.simulation import Simulation


@checked
def write_simulation_page(simulation: Simulation, path: Path, title: str) -> None:
    """Write the page of a simulated job.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    data = msgspec.json.decode(to_json(SIMULATION.data(results_of(simulation))))
    write_page(path, {"simulation": data}, page_timeline([simulated_part(simulation)]), title=title)
