"""What ``nadi.report`` gives; each name is loaded when it is first used."""

from .page.result_pages import (
    write_answers_page as write_answers_page,
    write_run_page as write_run_page,
    write_simulation_page as write_simulation_page,
)
from .run_report import summarize as summarize, write_results as write_results
from .schedule_timeline import (
    TimelinePart as TimelinePart,
    redraw as redraw,
    write_timeline as write_timeline,
    write_timelines as write_timelines,
)
from .simulation_report import write_simulation as write_simulation
from .simulation_timeline import (
    write_issue_lines as write_issue_lines,
    write_simulated_timeline as write_simulated_timeline,
)
