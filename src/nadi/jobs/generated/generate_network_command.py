"""``nadi generate network``: the job of a network of layers on data parallel ranks."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from nadi.models.llm.options import Dtype
from nadi.results.terminal.options import AsJson, JobOutput, Overwrite, SimulatedOn, output_console

HELP = """Generate a training or inference step of a network on many ranks.

The network is one that ships with Nadi (--model list prints their names): for images,
recommendations or diffusion; or a file of layers in TOML, YAML or JSON. Each rank has its
own samples; tables of recommendation models are shared by all ranks. Prints parameters,
FLOPs, memory and communication of the job, with --system also what a simulation of it
says, and with -o writes a Chakra trace per rank. docs/generate-networks.md says
what each layer is and how to describe a network.

[bold]Examples[/]

  nadi generate network --model resnet50 --ranks 8 --batch 256 --system dgx-h100
  nadi generate network --model dlrm-dcnv2 --ranks 16 --batch 4096 -o JOB
  nadi generate network --model stable-diffusion-unet --ranks 8 --batch 32 --zero 1
"""

_Model = Annotated[
    str, typer.Option("--model", metavar="NAME|FILE", show_default=False,
                      help="A network that ships with Nadi, or a file; list prints the names."),
]  # fmt: skip
_Ranks = Annotated[int, typer.Option("--ranks", metavar="N", help="Data parallel ranks.")]
_Batch = Annotated[
    int, typer.Option("--batch", metavar="SAMPLES", help="Samples of a step of one rank.")
]
_Zero = Annotated[
    int, typer.Option("--zero", metavar="0..3",
                      help="Sharded by ranks: 1 optimizer, 2 also gradients, 3 also weights."),
]  # fmt: skip
_Bucket = Annotated[
    int, typer.Option("--bucket", metavar="MIB",
                      help="Gradients that are reduced together, as bucket_cap_mb of DDP."),
]  # fmt: skip
_Inference = Annotated[
    bool, typer.Option("--inference", show_default=False, help="The forward alone.")
]


def network(
    model: _Model,
    ranks: _Ranks = 1, batch: _Batch = 1, zero: _Zero = 0, bucket: _Bucket = 25,
    dtype: Dtype = "bfloat16", inference: _Inference = False, system: SimulatedOn = "",
    output: JobOutput = "", overwrite: Overwrite = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Generate the job, print what it amounts to, and simulate or write it if asked."""
    if model == "list":
        from nadi.models.networks.network_plan import shipped_networks

        sys.stdout.write("\n".join(shipped_networks()) + "\n")
        return
    from nadi.jobs.generated.result import GENERATED_NETWORK
    from nadi.jobs.job_output import Wishes, make_job
    from nadi.models.networks.network_jobs import (
        job_of_network,
        planned_network,
        statistics_of_network,
    )
    from nadi.simulation.accounts.simulation_results import results_of

    found, plan = planned_network(
        model,
        {"ranks": ranks, "batch": batch, "zero": zero, "bucket": bucket, "dtype": dtype,
         "inference": inference},
    )  # fmt: skip
    wishes = Wishes(system, output, overwrite)
    job, done = make_job(lambda: job_of_network(found, plan), plan.ranks, wishes)
    results = None if done is None else results_of(done)
    data = GENERATED_NETWORK.data((statistics_of_network(found, plan, job), results))
    GENERATED_NETWORK.tell(data, as_json=as_json)
    if output and not as_json:
        output_console().print(wishes.told(ranks), markup=False)
