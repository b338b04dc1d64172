"""``nadi serve``: how many tokens a second a server gives, how late, and from which memory."""

from pathlib import Path
from typing import Annotated, Any

import typer

from nadi.models.llm.options import Dtype, Ep, Pp, Tp, axis
from nadi.results.terminal.options import AsJson, Overwrite

HELP = """Serve requests of a language model, as vLLM does.

Continuous batching with chunked prefill, preemption and prefix caching, step by step; steps
are priced as nadi estimate prices them, agree with a recording, or are looked up in measured
times of layers. Keys and values can lie in tiers behind the devices' memory. MODEL and SYSTEM
are names (nadi generate llm --model list, nadi systems) or files.

[bold]Examples[/]

  nadi serve llama3-8b hgx-h200 --rate 8 --input 2048 --output 256
  nadi serve llama3-70b hgx-h200 --tp 4 --concurrency 64 --tpot 40ms --ttft 2s
  nadi serve llama3-8b hgx-h200 --requests requests.jsonl --measured recording.json.gz
  nadi serve llama3-8b hgx-h200 --rate 40 --ttft 500ms --tpot 20ms --search 8
  nadi serve llama3-8b dgx-h100-cxl --rate 2 --turns 8 --tier dram --tier cxl --replicas 4
  nadi serve llama3-70b hgx-h200 --rate 2 --tp 4 --prefill-replicas 2 --prefill-tp 2
"""

_Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="The model: a name, or a file.", show_default=False)
]
_System = Annotated[
    str, typer.Argument(metavar="SYSTEM", help="The system: a name, or a file.",
                        show_default=False),
]  # fmt: skip


def _numbers(name: str, what: str, metavar: str = "N") -> Any:
    return typer.Option(name, metavar=metavar, help=what, show_default=False)


_Requests = Annotated[
    Path | None, typer.Option(
        "--requests", metavar="FILE", show_default=False,
        help="Requests, a line of JSON each: input_toks, output_toks, arrival_time_ns, and "
        "input_tok_ids for common beginnings.",
    ),
]  # fmt: skip
_Rate = Annotated[float, _numbers("--rate", "Requests a second.", "X")]
_Concurrency = Annotated[
    int, _numbers("--concurrency", "Requests that are always under way, instead of a rate.")
]
_Input = Annotated[int, axis("--input", "Tokens of a prompt, in the mean.")]
_Output = Annotated[int, axis("--output", "Tokens of an answer, in the mean.")]
_Spread = Annotated[
    float, typer.Option("--spread", metavar="X",
                        help="Standard deviation of these lengths, as a share of the mean."),
]  # fmt: skip
_Number = Annotated[int, axis("--number", "Requests that are drawn.")]
_Burst = Annotated[
    float, typer.Option("--burst", metavar="X", help="Standard deviation of the time between "
                        "arrivals, as a share of its mean: 1 Poisson, 0 steady."),
]  # fmt: skip
_Prefix = Annotated[int, axis("--prefix", "Tokens with which all prompts of a group begin.")]
_Groups = Annotated[int, axis("--groups", "Groups of prompts.")]
_Turns = Annotated[int, axis("--turns", "Requests of a session, each with all before it.")]
_Think = Annotated[str, typer.Option("--think", metavar="TIME", help="Between two turns.")]
_Replicas = Annotated[int, axis("--replicas", "Instances.")]
_Prefills = Annotated[int, axis("--prefill-replicas", "Further instances that only read prompts.")]


def _of_prefill(name: str, what: str) -> Any:
    return typer.Option(
        f"--prefill-{name}", metavar="N", show_default="as of the others",
        help=f"{what} of each instance that only reads prompts.",
    )  # fmt: skip


_PrefillTp = Annotated[int, _of_prefill("tp", "Tensor parallel ranks")]
_PrefillPp = Annotated[int, _of_prefill("pp", "Pipeline stages")]
_PrefillEp = Annotated[int, _of_prefill("ep", "Expert parallel ranks")]
_PrefillAttention = Annotated[
    int, _of_prefill("attention-dp", "Groups of ranks with requests of their own")
]
_Attention = Annotated[
    int, axis("--attention-dp", "Groups of an instance's ranks with requests of their own.")
]
_KvDtype = Annotated[
    str, typer.Option("--kv-dtype", metavar="TYPE", show_default="as activations",
                      help="Of keys and values."),
]  # fmt: skip
_WeightBits = Annotated[
    int, typer.Option("--weight-bits", metavar="N", show_default="as activations",
                      help="Of a weight of the layers: 4 or 8."),
]  # fmt: skip
_Budget = Annotated[int, axis("--budget", "Tokens of a step at most, of each group.")]
_Sequences = Annotated[int, axis("--sequences", "Requests of a step at most, of each group.")]
_Block = Annotated[int, axis("--block", "Tokens of a block of keys and values.")]
_Blocks = Annotated[
    int, typer.Option("--blocks", metavar="N", show_default="what has room",
                      help="Blocks of an instance, or of each group."),
]  # fmt: skip
_Share = Annotated[
    float, typer.Option("--memory-share", metavar="X", help="Of a device's memory that is used.")
]
_Reserved = Annotated[
    str, typer.Option("--reserved", metavar="SIZE",
                      help="Of it for other than weights, keys and values."),
]  # fmt: skip
_Caching = Annotated[
    bool, typer.Option("--prefix-caching/--no-prefix-caching",
                       help="Prompts that begin alike share blocks."),
]  # fmt: skip
_Overlap = Annotated[
    bool, typer.Option("--overlap/--no-overlap",
                       help="Prepare the next step while one runs (async scheduling)."),
]  # fmt: skip
_Routing = Annotated[
    str, typer.Option("--routing", metavar="HOW",
                      help="Who takes a request: turns, least (requests) or session."),
]  # fmt: skip
_Host = Annotated[str, typer.Option("--host-time", metavar="TIME", help="Of the host, a step.")]
_Launch = Annotated[
    str, typer.Option("--launch-time", metavar="TIME",
                      help="Of the host, to launch an operation of a step that reads prompts."),
]  # fmt: skip
_WaitSteps = Annotated[
    int, typer.Option("--wait-steps", metavar="N", show_default=False,
                      help="Steps for which prompts wait for more of them at most."),
]  # fmt: skip
_WaitShare = Annotated[
    float, typer.Option("--wait-share", metavar="X", show_default=False,
                        help="Share of the budget, of each group, from which they do not wait."),
]  # fmt: skip
_Drafts = Annotated[int, axis("--drafts", "Tokens that a step guesses for each request.")]
_Acceptance = Annotated[
    float, typer.Option("--acceptance", metavar="X", help="Chance that a guess is right.")
]
_Measured = Annotated[
    Path | None, typer.Option(
        "--measured", metavar="PATH", show_default=False,
        help="A recording of vLLM, SGLang, ATOM or TensorRT-LLM with the times of steps, or a "
        "folder with those of layers: dense.csv, per_sequence.csv and attention.csv.",
    ),
]  # fmt: skip
_Tier = Annotated[
    list[str] | None, typer.Option(
        "--tier", metavar="NAME", show_default=False,
        help="A memory behind the devices': one of the system's, or such as pool=1TB@64GB/s, or "
        "pool=1TB@64GB/s:2 for each two instances; repeatable, the nearest first.",
    ),
]  # fmt: skip
_Link = Annotated[
    str, typer.Option("--link", metavar="RATE", show_default="over the network",
                      help="Of a rank, between instances that read prompts and those that "
                      "generate, on a link that nothing else uses: 50GB/s."),
]  # fmt: skip
_Seeds = Annotated[int, axis("--seeds", "How often requests are drawn, for intervals.")]


_Sweep = Annotated[
    list[str] | None, typer.Option(
        "--sweep", metavar="FIELD=VALUES", show_default=False,
        help="Serve with each value of a field of nadi.serve, or capacity, bandwidth or sharing "
        "(instances for each) of the last tier, such as rate=1,2,4 or replicas=1:8:x2; repeatable "
        "once.",
    ),
]  # fmt: skip
_Search = Annotated[
    int, typer.Option("--search", metavar="N", show_default=False,
                      help="Find the cheapest server of at most N devices that keeps the limits "
                      "for 99 % of the requests."),
]  # fmt: skip
_File = Annotated[
    Path | None, typer.Option("-o", "--chart", metavar="FILE", show_default=False,
                              help="Write curves of a sweep: .html, .svg or .png."),
]  # fmt: skip


def _limit(name: str, what: str) -> Any:
    return typer.Option(name, metavar="TIME", help=f"Limit of the time {what}.",
                        show_default=False)  # fmt: skip


_Ttft = Annotated[str, _limit("--ttft", "to the first token")]
_Tpot = Annotated[str, _limit("--tpot", "per further token")]
_E2e = Annotated[str, _limit("--e2e", "to the last token")]


def command(
    model: _Model, system: _System, requests: _Requests = None, rate: _Rate = 0.0,
    concurrency: _Concurrency = 0, input: _Input = 1024,  # noqa: A002
    output: _Output = 256, spread: _Spread = 0.0, number: _Number = 1000, burst: _Burst = 1.0,
    prefix: _Prefix = 0, groups: _Groups = 1, turns: _Turns = 1, think: _Think = "0s",
    tp: Tp = 1, pp: Pp = 1, ep: Ep = 1, attention_dp: _Attention = 1, replicas: _Replicas = 1,
    prefill_replicas: _Prefills = 0, prefill_tp: _PrefillTp = 0, prefill_pp: _PrefillPp = 0,
    prefill_ep: _PrefillEp = 0, prefill_attention_dp: _PrefillAttention = 0,
    dtype: Dtype = "bfloat16", kv_dtype: _KvDtype = "",
    weight_bits: _WeightBits = 0, budget: _Budget = 2048, sequences: _Sequences = 256,
    block: _Block = 16, blocks: _Blocks = 0, memory_share: _Share = 0.9,
    reserved: _Reserved = "1.25GB", prefix_caching: _Caching = True,
    overlap: _Overlap = True, routing: _Routing = "turns",
    host_time: _Host = "0us", launch_time: _Launch = "0us",
    wait_steps: _WaitSteps = 0, wait_share: _WaitShare = 0.0, drafts: _Drafts = 0,
    acceptance: _Acceptance = 0.0,
    measured: _Measured = None, tier: _Tier = None, link: _Link = "",
    ttft: _Ttft = "", tpot: _Tpot = "", e2e: _E2e = "", seeds: _Seeds = 1,
    sweep: _Sweep = None, search: _Search = 0, chart: _File = None, overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Serve, and print what came of it."""
    from nadi.results.terminal.progress import show_progress

    values: dict[str, Any] = {
        "requests": str(requests or ""), "rate": rate, "concurrency": concurrency,
        "input": input, "output": output, "spread": spread, "number": number, "burst": burst,
        "prefix": prefix, "groups": groups, "turns": turns,
        "think": _ns("think", think) / 1e9, "tp": tp, "pp": pp, "ep": ep,
        "attention_dp": attention_dp, "replicas": replicas,
        "prefill_replicas": prefill_replicas, "prefill_tp": prefill_tp, "prefill_pp": prefill_pp,
        "prefill_ep": prefill_ep, "prefill_attention_dp": prefill_attention_dp,
        "dtype": dtype, "kv_dtype": kv_dtype,
        "weight_bits": weight_bits, "budget": budget,
        "sequences": sequences, "block": block, "blocks": blocks, "memory_share": memory_share,
        "reserved": _bytes("reserved", reserved), "prefix_caching": prefix_caching,
        "overlap": overlap, "routing": routing, "host_us": _ns("host_time", host_time) / 1e3,
        "launch_us": _ns("launch_time", launch_time) / 1e3, "wait_steps": wait_steps,
        "wait_share": wait_share,
        "drafts": drafts, "acceptance": acceptance, "measured": str(measured or ""),
        "tiers": tuple(tier or ()), "link": _rate(link), "ttft_ms": _ns("ttft", ttft) / 1e6,
        "tpot_ms": _ns("tpot", tpot) / 1e6, "e2e_ms": _ns("e2e", e2e) / 1e6, "seeds": seeds,
    }  # fmt: skip
    with show_progress(announce=False) as progress:
        progress("starting")
        if sweep or search:
            _compare(model, system, values, sweep or [], search, chart, overwrite=overwrite,
                     as_json=as_json)  # fmt: skip
            return
        from nadi.serving.result import SERVING
        from nadi.serving.served import serve

        progress("serving")
        data = SERVING.data(serve(model, system, **values))
    SERVING.tell(data, as_json=as_json)


def _compare(
    model: str, system: str, values: dict[str, Any], sweep: list[str], search: int,
    output: Path | None, *, overwrite: bool, as_json: bool,
) -> None:  # fmt: skip
    """Print servers beside each other."""
    from nadi.errors import Parameter, UsageError
    from nadi.serving.sweep_results import SERVER_SEARCH, SERVER_SWEEP, sweep_charts
    from nadi.serving.sweeps import search_servers, sweep_servers

    if sweep and search:
        raise UsageError(Parameter("search"), "a sweep has its own servers", "give one of both")
    if search:
        found = search_servers(model, system, search, **values)
        SERVER_SEARCH.tell(SERVER_SEARCH.data(found), as_json=as_json)
        return
    from nadi.files.files import check_new_file
    from nadi.results.charts.chart_files import CHART_FILES, write_charts

    if output is not None:
        check_new_file(output, CHART_FILES, overwrite=overwrite)
    data = SERVER_SWEEP.data(sweep_servers(model, system, sweep, **values))
    if output is not None:
        write_charts(output, sweep_charts(data), "Servers beside each other")
    SERVER_SWEEP.tell(data, output, as_json=as_json)


def _ns(name: str, text: str) -> float:
    """Read a time; empty is 0."""
    from nadi.errors import Parameter, UsageError
    from nadi.units import parse_ns

    try:
        return float(parse_ns(text)) if text else 0.0
    except ValueError as error:
        raise UsageError(Parameter(name, text), str(error), "such as 50ms") from None


def _bytes(name: str, text: str) -> float:
    from nadi.errors import Parameter, UsageError
    from nadi.units import parse_bytes

    try:
        return float(parse_bytes(text))
    except ValueError as error:
        raise UsageError(Parameter(name, text), str(error), "such as 2GB") from None


def _rate(text: str) -> float:
    """Read bytes a second; empty is 0."""
    from nadi.errors import Parameter, UsageError
    from nadi.units import parse_rate

    try:
        return float(parse_rate(text)) if text else 0.0
    except ValueError as error:
        raise UsageError(Parameter("link", text), str(error), "such as 50GB/s") from None
