"""``nadi hang``: which rank makes a job hang."""

from typing import Annotated

import typer

from nadi.results.terminal.options import AsJson

HELP = """Find which rank makes a job hang, by its flight recorders.

PyTorch's flight recorder keeps the latest collectives of each rank, and dumps them.

Collectives of a group are matched by their number. For each group, the command shows the
first collective that not all members have completed, with the ranks that are absent, in
another operation, or late, and those that wait. A rank that waits in another group is not
the cause, so waits are followed to the ranks that do not wait.

Dumps are pickles or JSON, one for each rank, with the rank in their names. Only plain values
of a pickle are read: no objects are created, and no code in it runs.

[bold]Examples[/]

  nadi hang DUMPS
  nadi hang nccl_trace_rank_0 nccl_trace_rank_1 --json
"""

_Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="DUMPS", show_default=False,
        help="A folder with a dump of each rank, or the dumps themselves.",
    ),
]  # fmt: skip


def command(paths: _Paths, as_json: AsJson = False) -> None:
    """Print which rank makes a job hang."""
    from nadi.bottlenecks.hangs.hangs import find_hang
    from nadi.bottlenecks.hangs.result import HANG

    HANG.tell(HANG.data(find_hang(*paths)), as_json=as_json)
