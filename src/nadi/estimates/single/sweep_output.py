"""What commands do with the points of a sweep: print them, and write a table or a chart."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nadi.errors import Parameter, UsageError
from nadi.results.terminal.options import output_console

if TYPE_CHECKING:
    import polars as pl

    from nadi.estimates.sweep_axes import SweepAxis


def check_output(output: Path | None, has_sweep: bool, *, overwrite: bool) -> None:
    """Check the file of a sweep before the sweep begins; without one there is none."""
    if output is None:
        return
    if not has_sweep:
        raise UsageError(
            Parameter("output", str(output)), "is the file of a sweep",
            ["name an axis with ", Parameter("sweep"), ", or leave it out"],
        )  # fmt: skip
    from nadi.estimates.single.result import SWEEP_FILES
    from nadi.files.files import check_new_file

    check_new_file(output, SWEEP_FILES, overwrite=overwrite)


def show_sweep(
    frame: pl.DataFrame, axes: Sequence[SweepAxis], title: str, output: Path | None, *,
    as_json: bool,
) -> None:  # fmt: skip
    """Write the points if there is a file for them, and print them."""
    from nadi.estimates.single.result import print_sweep, sweep_rows, write_sweep

    if output is not None:
        write_sweep(output, frame, axes, title)
    if as_json:
        sys.stdout.write(sweep_rows(frame).decode())
        return
    console = output_console()
    print_sweep(frame, axes, console)
    if output is not None:
        console.print(f"wrote {output}", markup=False)
