"""``nadi learn``: a model of jobs, or a generator of jobs from conditions."""

from typing import Annotated

import typer

from nadi.errors import Parameter, UsageError
from nadi.results.terminal.options import AsJson, Overwrite

HELP = """Learn a model or a generator of jobs, for nadi synthesize.

A job is a Chakra .et file per rank, a recording, or a folded job, as for nadi simulate.
The model has the order of operations in steps and layers, their threads, streams and
process groups, and their sizes and durations. From several jobs it learns what they have
in common, and from jobs of two widths the widths between. It makes jobs like these.

With --generated or --conditions a generator is learned instead, which makes jobs of
conditions that were not learned: family, width, depth, parallel axes and others by name.
It learns from jobs whose conditions are known, and whose operations state phase, layer
and micro-batch, as those of nadi generate llm do.

With --epsilon the generator may be shared: nobody can tell whether any one job of the table
was learned. Its operations are those of generated jobs. From the table it has only sums with
noise: how often conditions occur, and with --device how times differ from a device's prices.

[bold]Examples[/]

  nadi learn TRACES -o model.nadimodel
  nadi learn JOB_A JOB_B JOB_C -o model.nadimodel
  nadi synthesize model.nadimodel -o JOB --steps 10
  nadi learn --generated 120 -o generator.nadimodel
  nadi learn --conditions jobs.csv -o generator.nadimodel
  nadi learn --conditions jobs.csv --epsilon 1 --device h100 -o shared.nadimodel
"""

_Jobs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[JOB...]", help="Jobs to learn a model from.", show_default=False),
]
_Generated = Annotated[
    int, typer.Option("--generated", metavar="N", min=0, show_default=False,
                      help="Learn a generator from so many training steps of language models, "
                      "whose models and plans are drawn."),
]  # fmt: skip
_Conditions = Annotated[
    str, typer.Option("--conditions", metavar="CSV", show_default=False,
                      help="Learn a generator from the jobs of this table: their paths in the "
                      "column job, and a column for each condition."),
]  # fmt: skip
_PRIVATE = "Learning privately"
_Epsilon = Annotated[
    float, typer.Option("--epsilon", metavar="E", min=0, show_default=False,
                        rich_help_panel=_PRIVATE,
                        help="Learn of the table so that any one job, with all of its recordings, "
                        "changes the probability of a model by a factor of exp(E) at most."),
]  # fmt: skip
_Budget = Annotated[
    float, typer.Option("--budget", metavar="E", min=0, rich_help_panel=_PRIVATE,
                        help="Epsilon of all models of the table, which is kept beside it."),
]  # fmt: skip
_Device = Annotated[
    str, typer.Option("--device", metavar="NAME", show_default=False, rich_help_panel=_PRIVATE,
                      help="A device that ships with Nadi, on which the jobs ran: learn their "
                      "times, too."),
]  # fmt: skip


def command(
    jobs: _Jobs = None,
    *,
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="MODEL", show_default=False,
                          help="Write the model to this file."),
    ],
    generated: _Generated = 0,
    conditions: _Conditions = "",
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="Of what --generated draws."),
    ] = 0,
    epsilon: _Epsilon = 0.0,
    budget: _Budget = 8.0,
    device: _Device = "",
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Learn, write the model, and print what it knows."""
    from nadi.results.terminal.progress import show_progress

    with show_progress(announce=False, use="learn") as progress:
        from pathlib import Path

        from nadi.files.files import check_target, locate
        from nadi.sharing.conditional.conditional_model import write_generator
        from nadi.sharing.conditional.generators import PUBLIC, learn_generator, learn_privately
        from nadi.sharing.conditional.result import LEARNED_GENERATOR, LEARNED_PRIVATELY
        from nadi.sharing.synthesis.learned_jobs import learn
        from nadi.sharing.synthesis.model_bytes import write_trace_model
        from nadi.sharing.synthesis.result import LEARNED

        sources = [Path(one) for one in (*(jobs or ()), conditions) if one]
        check_target(locate(output), sources, overwrite=overwrite)
        _check_private(conditions, epsilon=epsilon, device=device)
        if generated or conditions:
            _refuse_jobs(jobs)
        if epsilon:
            private = learn_privately(
                conditions, epsilon, device=device, budget=budget, generated=generated or PUBLIC,
                seed=seed, progress=progress,
            )  # fmt: skip
            size = write_generator(private.model, output, overwrite=overwrite)
            result, data = LEARNED_PRIVATELY, LEARNED_PRIVATELY.data((private, size))
        elif generated or conditions:
            generator = learn_generator(
                conditions, generated=generated, seed=seed, progress=progress
            )
            size = write_generator(generator, output, overwrite=overwrite)
            result, data = LEARNED_GENERATOR, LEARNED_GENERATOR.data((generator, size))
        else:
            model = learn(_given(jobs), progress=progress)
            progress(f"writing {output}")
            size = write_trace_model(model, output, overwrite=overwrite)
            result, data = LEARNED, LEARNED.data((model, size))
    result.tell(data, output, as_json=as_json)


def _check_private(conditions: str, *, epsilon: float, device: str) -> None:
    if epsilon and not conditions:
        what = "there are no jobs to protect"
        raise UsageError([Parameter("epsilon")], what, "list them in a table for --conditions")
    if device and not epsilon:
        what = "only models that are learned privately have times of a device"
        raise UsageError([Parameter("device")], what, "state an epsilon, or leave it out")


def _refuse_jobs(jobs: list[str] | None) -> None:
    if jobs:
        what = "a generator learns from jobs with conditions"
        raise UsageError(jobs[0], what, "list the job in a table for --conditions")


def _given(jobs: list[str] | None) -> list[str]:
    if not jobs:
        remedy = "name jobs, or use --generated N or --conditions CSV"
        raise UsageError("JOB", "there is nothing to learn from", remedy)
    return jobs
