"""``nadi synthesize``: a job from a learned model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from nadi.errors import Parameter, UsageError
from nadi.results.terminal.options import Overwrite, output_console

if TYPE_CHECKING:
    from nadi.trace.trace import Job

HELP = """Make a job from a model or a generator that nadi learn wrote.

The job has the ranks, layers and steps of one of the learned jobs, or those that you state.
Communication has all of its members and no deadlock, so that nadi simulate runs it. Equal
seeds give equal files. A width (--hidden) that was not learned needs a model of jobs of
two widths or more.

A generator (nadi learn --generated) takes conditions: --family, --hidden, --layers, --tp,
--pp, --ranks, and any other by its name with --set. Conditions that are not stated are those
of a learned job of the family, which --seed draws. The output names values beyond the learned
jobs. A condition that never varied in them is refused. Operations have no durations, and nadi
simulate prices them, except with --device, and for a private model that has times.

[bold]Examples[/]

  nadi synthesize model.nadimodel -o JOB
  nadi synthesize model.nadimodel -o JOB --ranks 64 --layers 48 --steps 10 --seed 7
  nadi synthesize model.nadimodel -o JOB --times other_machine.nadimodel
  nadi synthesize generator.nadimodel -o JOB --family llama --hidden 6144 --layers 48 --ranks 64
  nadi synthesize generator.nadimodel -o JOB --set zero=3 --set recompute=full --seed 7
  nadi simulate JOB --system dgx-h100
"""


_Family = Annotated[
    str, typer.Option("--family", metavar="NAME", show_default=False,
                      help="Of a generator: the family of models, such as llama."),
]  # fmt: skip
_Tp = Annotated[
    int, typer.Option("--tp", metavar="N", min=0, show_default=False,
                      help="Of a generator: tensor parallel ranks."),
]  # fmt: skip
_Pp = Annotated[
    int, typer.Option("--pp", metavar="N", min=0, show_default=False,
                      help="Of a generator: pipeline stages."),
]  # fmt: skip
_Device = Annotated[
    str, typer.Option("--device", metavar="NAME", show_default=False,
                      help="Of a generator: operations take as long as this device's prices say, "
                      "changed as learned times differ from these."),
]  # fmt: skip
_Times = Annotated[
    str, typer.Option("--times", metavar="MODEL", show_default=False,
                      help="Of a model: operations take as long as those of the same name in this "
                      "model, such as of jobs on another machine."),
]  # fmt: skip
_Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", show_default=False,
                                   help="Of a generator: any condition by its name."),
]  # fmt: skip
_Steps = Annotated[
    int, typer.Option("--steps", metavar="N", min=0, help="Steps; 0 for as many as learned."),
]  # fmt: skip
_Hidden = Annotated[
    int, typer.Option("--hidden", metavar="N", min=0,
                      help="Width of the model, its hidden size; 0 for as learned."),
]  # fmt: skip


def command(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model.", show_default=False),
    ],
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FOLDER", show_default=False,
                          help="Write a Chakra trace per rank and comm_group.json here."),
    ],
    ranks: Annotated[
        int, typer.Option("--ranks", metavar="N", min=0, help="Ranks; 0 for as many as learned."),
    ] = 0,
    layers: Annotated[
        int, typer.Option("--layers", metavar="N", min=0,
                          help="Layers of the whole model; 0 for as many as learned."),
    ] = 0,
    steps: _Steps = 0,
    hidden: _Hidden = 0,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="Another seed, another job."),
    ] = 0,
    family: _Family = "",
    tp: _Tp = 0,
    pp: _Pp = 0,
    settings: _Settings = None,
    device: _Device = "",
    times: _Times = "",
    overwrite: Overwrite = False,
) -> None:  # fmt: skip
    """Make a job, write it, and print its size."""
    from pathlib import Path

    from nadi.results.terminal.progress import show_progress

    with show_progress(announce=False, use="synthesize") as progress:
        from nadi.models.job_files import check_place, write_job
        from nadi.sharing.conditional.generators import is_generator
        from nadi.sharing.synthesis.learned_jobs import synthesize
        from nadi.units import format_counted

        progress(f"reading {model}")
        named = {"family": family, "hidden": hidden, "layers": layers, "tp": tp, "pp": pp}
        lines: list[str] = []
        if is_generator(model):
            _refuse(steps=steps, times=times)
            job, lines = _of_conditions(model, named, settings or [], ranks, seed, device)
        else:
            _refuse(family=family, tp=tp, pp=pp, set=settings, device=device)
            job = synthesize(
                model, ranks=ranks, layers=layers, steps=steps, hidden=hidden, seed=seed,
                times=times or None,
            )  # fmt: skip
        check_place(Path(output), "trace", len(job.traces), overwrite=overwrite)
        progress(f"writing {output}")
        files = write_job(job, output, overwrite=overwrite)
    made = format_counted(len(files.traces), "rank")
    nodes = format_counted(files.nodes, "operation")
    for line in (*lines, f"{made}, {nodes} -> {output}"):
        output_console().print(line, markup=False, highlight=False)


def _refuse(**given: object) -> None:
    """Refuse options that the model does not know."""
    for name, value in given.items():
        if value:
            which = "a generator" if name in ("steps", "times") else "a model of given jobs"
            remedy = "leave it out, or use a file of the other kind that nadi learn writes"
            raise UsageError([Parameter(name)], f"{which} does not take it", remedy)


def _of_conditions(
    model: str, named: dict[str, Any], settings: list[str], ranks: int, seed: int, device: str
) -> tuple[Job, list[str]]:
    """Make a job of a generator; returns lines that say of which conditions."""
    from nadi.sharing.conditional.corpora import condition_of
    from nadi.sharing.conditional.generators import read_generator, wished_job
    from nadi.sharing.conditional.wished_conditions import wished_conditions

    wishes = {name: value for name, value in named.items() if value}
    for one in settings:
        name, sign, value = one.partition("=")
        if not (name and sign and value):
            raise UsageError(one, "it is no NAME=VALUE", "write --set zero=3")
        stated_value = condition_of(value)
        if wishes.setdefault(name, stated_value) != stated_value:
            raise UsageError(one, f"{name} is stated as {wishes[name]}, too", "state it once")
    generator = read_generator(model)
    wished = wished_conditions(generator, wishes, ranks=ranks, seed=seed)
    stated = [name for name in wished.conditions if name in wishes]
    other = [name for name in wished.conditions if name not in wishes]
    lines = []
    for about, names in (("stated", stated), ("not stated", other)):
        values = [f"{name} {str(wished.conditions[name]).lower()}" for name in names]
        lines += [f"{about}: {', '.join(values)}"] if values else []
    lines += [f"beyond what was learned: {one}" for one in wished.beyond]
    job = wished_job(generator, wished, seed=seed, device=device)
    if private := generator.private:
        lines.append(f"private: epsilon {private.epsilon:.3g}, delta {private.delta:g}")
    return job, lines
