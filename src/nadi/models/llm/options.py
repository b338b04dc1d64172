"""Options of commands that take a plan of a language model."""

from typing import Annotated, Any

import typer


def axis(name: str, what: str) -> Any:
    """Declare an option that takes a number."""
    return typer.Option(name, metavar="N", help=what)


Tp = Annotated[int, axis("--tp", "Tensor parallel ranks.")]


Pp = Annotated[int, axis("--pp", "Pipeline stages.")]


Dp = Annotated[int, axis("--dp", "Data parallel ranks.")]


Cp = Annotated[int, axis("--cp", "Context parallel ranks.")]


Ep = Annotated[int, axis("--ep", "Ranks that share the experts of a layer.")]


ExpertTp = Annotated[
    int, typer.Option("--expert-tp", metavar="N", show_default="1 with --ep, else as --tp",
                      help="Ranks that share an expert: 1, or as many as --tp."),
]  # fmt: skip


Zero = Annotated[
    int, typer.Option("--zero", metavar="0..3",
                      help="Sharded by data parallel ranks: 1 optimizer, 2 also gradients, 3 also "
                      "weights."),
]  # fmt: skip


Sp = Annotated[
    bool | None, typer.Option("--sp/--no-sp", show_default="where --tp is over 1",
                              help="Sequence parallel norms and residuals."),
]  # fmt: skip


MicroBatch = Annotated[
    int, typer.Option("--micro-batch", metavar="N", show_default="1, of decode all of a rank",
                      help="Sequences of a micro-batch of a rank."),
]  # fmt: skip


GlobalBatch = Annotated[
    int, typer.Option("--global-batch", metavar="N", show_default="a micro-batch per stage",
                      help="Sequences of a step."),
]  # fmt: skip


Seq = Annotated[
    int, typer.Option("--seq", metavar="TOKENS", show_default="the model's",
                      help="Tokens of a sequence."),
]  # fmt: skip


Schedule = Annotated[
    str, typer.Option("--schedule", metavar="NAME",
                      help="gpipe, 1f1b, interleaved, zero-bubble, zero-bubble-h2 or dualpipe."),
]  # fmt: skip


Chunks = Annotated[int, axis("--chunks", "Chunks of layers per stage, if interleaved.")]


EndsAsLayers = Annotated[
    bool, typer.Option("--ends-as-layers", help="Embedding and head count as a layer each where "
                       "layers are spread over stages."),
]  # fmt: skip


Recompute = Annotated[
    str, typer.Option("--recompute", metavar="WHAT", help="none, selective or full.")
]


Overlap = Annotated[
    str, typer.Option("--overlap", metavar="HOW",
                      help="Communication of tensor parallel ranks beside products, tile by tile: "
                      "none, ring or pipe."),
]  # fmt: skip


Attention = Annotated[str, typer.Option("--attention", metavar="KIND", help="flash, or unfused.")]


Dtype = Annotated[
    str, typer.Option("--dtype", metavar="TYPE", help="Of weights and activations, as in torch.")
]


Lora = Annotated[
    int, typer.Option("--lora", metavar="RANK", show_default="all weights are trained",
                      help="Train adapters of attention's projections alone, of this rank."),
]  # fmt: skip


Inference = Annotated[
    str, typer.Option("--inference", metavar="WHAT", show_default=False,
                      help="prefill or decode, instead of training."),
]  # fmt: skip
