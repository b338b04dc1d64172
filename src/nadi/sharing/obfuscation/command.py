"""``nadi obfuscate``: a job that can be shared."""

from typing import Annotated

import typer

from nadi.errors import Parameter, UsageError
from nadi.results.terminal.options import AsJson, Overwrite, SystemName

HELP = """Make a job that can be shared: only what simulators need.

The traces are built anew from a list of what may stay; everything else is left out.
Names become pseudonyms, which only the owner of the key can map back. Each level also
removes what the levels above it remove:

  names      names, modules, paths, hosts, processes, operands, free text
  shapes     exact sizes and shapes
  structure  single operations, layers and micro-batches: computation between
             communications is one block, and communications are merged
  private    exact times, by differential privacy, and what is communicated

FOLDER gets a trace per rank and obfuscation.json, which states what is preserved, what is
not, and against whom that helps. docs/obfuscate.md has the limits of the guarantee.

[bold]Examples[/]

  openssl rand -hex 32 > my.key
  nadi obfuscate TRACES -o SHARED --key my.key
  nadi obfuscate TRACES -o SHARED --key my.key --level structure
  nadi obfuscate TRACES --key my.key --reveal SHARED
"""


def command(
    job: Annotated[
        str, typer.Argument(metavar="JOB", help="A folder of recordings, of .et or .nadi files, "
                            "the prefix of their names, or a folded job.", show_default=False),
    ],
    key: Annotated[
        str, typer.Option("--key", metavar="FILE", show_default=False,
                          help="The owner's key: at least 16 random bytes."),
    ],
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FOLDER", show_default=False,
                          help="Write the job and its report to this folder."),
    ] = "",
    level: Annotated[
        str, typer.Option("--level", metavar="LEVEL",
                          help="names, shapes, structure or private."),
    ] = "names",
    system: SystemName = "",
    epsilon: Annotated[
        float, typer.Option("--epsilon", metavar="E", help="Privacy loss at level private."),
    ] = 1.0,
    reveal: Annotated[
        str, typer.Option("--reveal", metavar="FOLDER", show_default=False,
                          help="Print the name behind each pseudonym in this folder, instead."),
    ] = "",
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Obfuscate a job and print what is preserved, or map pseudonyms back."""
    from nadi.results.terminal.progress import show_progress
    from nadi.sharing.obfuscation.result import NAMES, OBFUSCATION

    if bool(output) == bool(reveal):
        raise UsageError(
            [Parameter("output"), " and ", Parameter("reveal")], "exactly one of them is needed",
            "name the folder to write, or one that was written",
        )  # fmt: skip
    if reveal:
        from nadi.sharing.obfuscation.obfuscate import reveal as names_behind

        NAMES.tell(names_behind(job, key, reveal), as_json=as_json)
        return
    with show_progress(announce=False, use="obfuscate") as progress:
        progress("starting")
        from nadi.sharing.obfuscation.obfuscate import obfuscate, write_obfuscated
        from nadi.systems.library import read_system_file

        described = read_system_file(system) if system else None
        done = obfuscate(job, key, level, system=described, epsilon=epsilon, progress=progress)
        progress(f"writing {output}")
        files = write_obfuscated(done, output, overwrite=overwrite)
    data = OBFUSCATION.data(done)
    data["folder"] = str(files[0].parent)
    OBFUSCATION.tell(data, as_json=as_json)
