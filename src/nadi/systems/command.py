"""``nadi systems``: the systems that ship with Nadi."""

import sys
from typing import Annotated

import typer

from nadi.results.terminal.options import output_console

HELP = """List the systems that ship with Nadi, or print one's file.

--system takes one of these names, or a file. To describe another system, print the
file of the most similar one and edit it; each figure states its source.

[bold]Examples[/]

  nadi systems
  nadi systems dgx-h100
  nadi systems dgx-h100 > mine.toml
"""


def command(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="Print the file of this system.",
                            show_default=False),
    ] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the list, or the system, as JSON.")
    ] = False,
) -> None:  # fmt: skip
    """List systems, or print one."""
    from nadi.results.text import to_json
    from nadi.systems.library import read_system_file, shipped_systems, shipped_text

    if name and not as_json:
        sys.stdout.write(shipped_text(name))
        return
    from nadi.systems.result import SYSTEM

    names = [name] if name else shipped_systems()
    described = [SYSTEM.data(read_system_file(one)) for one in names]
    if as_json:
        sys.stdout.write(to_json(described[0] if name else described).decode())
        return
    console = output_console()
    for one in described:
        SYSTEM.print(one, console)
