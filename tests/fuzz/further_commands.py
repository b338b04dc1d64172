"""Commands with damaged files, as in :mod:`tests.fuzz.commands`: the options that take a file."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path

import nadi
from nadi.systems.library import shipped_text
from tests.fuzz.commands import COMMANDS, Command, run_line
from tests.fuzz.corpus import samples
from tests.serving.drawn import recording_of_steps

__all__ = ["FURTHER_COMMANDS"]

_NETWORK = b"topology: [ Ring ]\nnpus_count: [ 2 ]\nbandwidth: [ 50.0 ]\nlatency: [ 500.0 ]\n"
_SYSTEM = {
    "scheduling-policy": "LIFO", "endpoint-delay": 10, "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 4, "all-reduce-implementation": ["ring"], "local-mem-bw": 50,
    "all-gather-implementation": ["ring"], "reduce-scatter-implementation": ["ring"],
    "all-to-all-implementation": ["direct"], "collective-optimization": "localBWAware",
}  # fmt: skip


_DENSE = "layer,tokens,time_us\n" + "".join(f"mlp,{n},{n / 8 + 3}\n" for n in (1, 64, 2048))
_HEADS = "layer,sequences,time_us\n" + "".join(f"head,{n},{n / 9 + 2}\n" for n in (1, 64, 256))
_CELLS = "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n" + "".join(
    f"{a},{b},{c},{d},{3 + a + b / 9 + c + d / 7}\n"
    for a in (0, 16, 2048) for b in (0, 1024) for c in (0, 1, 64) for d in (0, 16, 4096)
)  # fmt: skip
_LINE = {"input_toks": 40, "output_toks": 5, "input_tok_ids": list(range(40))}


@cache
def _served() -> dict[str, bytes]:
    """Give requests, a profile of layers, a model and systems."""
    lines = (json.dumps({**_LINE, "arrival_time_ns": 1e7 * k}) for k in range(12))
    return {
        **{name: _machines()[name] for name in ("model.json", "system.toml", "large.toml")},
        "requests.jsonl": "\n".join(lines).encode(), "profile/dense.csv": _DENSE.encode(),
        "profile/per_sequence.csv": _HEADS.encode(), "profile/attention.csv": _CELLS.encode(),
        "steps.json": recording_of_steps([
            ("step[DECODE bs=3]", [(0, 900)]), ("step[EXTEND bs=1 toks=20]", [(0, 900)]),
        ]),
    }  # fmt: skip


@cache
def _machines() -> dict[str, bytes]:
    """Give a job, and each file that a system can be described by."""
    files = {
        **COMMANDS["job"].files(), **COMMANDS["recording"].files(), **COMMANDS["switches"].files(),
    }  # fmt: skip
    return {
        **{name.replace("job/device", "recording/device"): one for name, one in files.items()},
        "system.toml": shipped_text("pcie-workstation").encode(),
        "large.toml": shipped_text("dgx-h100").encode(),
        "net.yml": _NETWORK, "sys.json": json.dumps(_SYSTEM).encode(),
        "memory.json": b'{"memory-type": "NO_MEMORY_EXPANSION"}',
        "all_reduce.txt": COMMANDS["measured"].files()["all_reduce.txt"],
        "model.json": COMMANDS["estimate"].files()["model.json"],
    }  # fmt: skip


@cache
def _private() -> dict[str, bytes]:
    """Give a job, a key, and what the two give."""
    files = {**COMMANDS["job"].files(), "key": bytes(range(64))}
    with tempfile.TemporaryDirectory() as own:
        for name, content in files.items():
            place = Path(own) / name
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(content)
        line = f"obfuscate {own}/job --key {own}/key --level names -o {own}/hidden"
        assert run_line(line.split()) == 0
        hidden = {f"hidden/{one.name}": one.read_bytes() for one in Path(own, "hidden").iterdir()}
    return {**files, **hidden, "system.toml": shipped_text("pcie-workstation").encode()}


_KEPT = Path(__file__).parents[1] / "kept_outputs"
_RESULTS = ("estimate", "memory-place", "memory-plan", "search", "waits", "what-if")
_SEARCH = "search gpt3-125m dgx-h100 --ranks 4 --global-batch 4 --top 1 -o"


_NOTE = {"nadi": "0", "sources": [["a.json", 1, 2]], "settings": "nadi", "nodes": 5, "deps": 4}


@cache
def _resumed() -> dict[str, bytes]:
    """Give what a search and a conversion of before left, with which others go on."""
    with tempfile.TemporaryDirectory() as own:
        assert run_line([*_SEARCH.split(), f"{own}/found"]) == 0
        found = {f"found/{one.name}": one.read_bytes() for one in Path(own, "found").iterdir()}
    recording = COMMANDS["recording"].files()
    return {
        **found, "job/device_0.json": recording["job/device_0.json"],
        "job/device_1.json": recording["job/device_1.json"],
        "linked/.nadi-kept/rank0.nadi.kept.json": json.dumps(_NOTE).encode(),
    }  # fmt: skip


@cache
def _devices() -> dict[str, bytes]:
    """Give a system with a device of its own, a model, and a generator of jobs."""
    device = Path(nadi.__file__).parent / "data" / "devices" / "h100.toml"
    return {
        "own.toml": device.read_bytes(),
        "system.toml": shipped_text("dgx-h100").replace('"h100"', '"own.toml"').encode(),
        **{name: COMMANDS["own-models"].files()[name] for name in ("generator.nadi",)},
        "model.json": COMMANDS["estimate"].files()["model.json"],
    }


@cache
def _of_other_tools() -> dict[str, bytes]:
    """Give a file of each tool whose recordings are read."""
    tools = ("nsight", "rocprof", "xplane", "snapshot", "pftrace")
    return {f"{name}{samples()[name].suffix}": samples()[name].content for name in tools}


@cache
def _kept_results() -> dict[str, bytes]:
    """Give results of each kind that is no recording's."""
    return {f"{name}.json": (_KEPT / f"{name}.json").read_bytes() for name in _RESULTS}


_ON = "--comm-group @groups.json"
_ASTRA = "--network @net.yml --system-config @sys.json --remote-memory @memory.json"
FURTHER_COMMANDS: dict[str, Command] = {
    "machines": Command(
        _machines,
        (f"simulate @job {_ASTRA} {_ON}", f"simulate @job --system @system.toml {_ON}",
         f"simulate @job --system @system.toml {_ON} --measured @all_reduce.txt",
         f"simulate @job --system @system.toml {_ON} --prices @recording",
         "loggp @job --comm-group @groups.json --system @system.toml",
         "fold @job -o @out.nadi --system @system.toml",
         "scale @job --dp 2 -o @out.nadi --system @system.toml",
         "run @recording --system @system.toml", "report @recording --system @system.toml -o @p.html",
         "similarity @job @job --system @system.toml",
         "search @model.json @large.toml --ranks 4 --global-batch 4",
         "generate llm --model @model.json --tp 2 --system @large.toml --stats",
         "generate network --model dlrm-kaggle --ranks 2 --system @large.toml",
         "memory offload @model.json t4 --gpu-batch-size 8 --num-gpu-batches 2"),
        ("system.toml", "large.toml", "net.yml", "sys.json", "memory.json", "all_reduce.txt",
         "model.json", "groups.json"),
    ),
    "serving": Command(
        _served,
        ("serve @model.json @system.toml --requests @requests.jsonl --blocks 400",
         "serve @model.json @large.toml --rate 5 --number 20 --input 20 --output 4 --tp 2",
         "serve @model.json @large.toml --rate 5 --prefill-replicas 1 --prefill-tp 2",
         "serve @model.json @large.toml --rate 5 --wait-steps 3 --wait-share 0.5 --launch-time 1ms",
         "serve @model.json @large.toml --rate 5 --replicas 2 --tier a=1GB@1GB/s --sweep sharing=1",
         "serve gpt3-125m dgx-h100 --concurrency 3 --number 9 --input 20 --measured @profile",
         "serve gpt3-125m dgx-h100 --concurrency 3 --measured @steps.json --weight-bits 4"),
        ("requests.jsonl", "profile/dense.csv", "profile/per_sequence.csv",
         "profile/attention.csv", "steps.json", "model.json", "system.toml"),
    ),
    "jobs": Command(
        _machines,
        ("similarity @job @recording --same @job", "record --check @recording",
         "what-if --reorder @recording", "waits @recording --switches @s.txt",
         f"simulate @job --system pcie-workstation {_ON} --prices @recording"),
        ("job/w.0.et", "recording/device_0.json", "s.txt"),
    ),
    "other-tools": Command(
        _of_other_tools,
        tuple(f"{line} @{file}" for file in _of_other_tools()
              for line in ("run", "waits", "info --check", "analyze all")),
        tuple(_of_other_tools()),
    ),
    "resumed": Command(
        _resumed,
        (f"{_SEARCH} @found", f"{_SEARCH} @found", "link @job -o @linked --resume --to nadi"),
        ("found/search.json", "found/part-000000.parquet", "found/part-000000.parquet",
         "linked/.nadi-kept/rank0.nadi.kept.json"),
    ),
    "devices": Command(
        _devices,
        ("estimate gpt3-125m @system.toml --dp 8", "systems @system.toml --json",
         "synthesize @generator.nadi -o @made --device @own.toml",
         "collective all_reduce 1MB --system @system.toml --ranks 16",
         "memory plan --model @model.json --system @system.toml --ranks 4 --global-batch 4",
         "generate llm --model @model.json --tp 2 --system @system.toml -o @made"),
        ("own.toml", "own.toml", "system.toml", "model.json"),
    ),
    "saved-results": Command(
        _kept_results, tuple(f"report @{name} -o @page.html" for name in _kept_results()),
        tuple(_kept_results()),
    ),
    "private": Command(
        _private,
        ("obfuscate @job --key @key -o @new --level names",
         "obfuscate @job --key @key -o @new --level shapes --system @system.toml",
         "obfuscate @job --key @key --reveal @hidden"),
        ("job/w.0.et", "hidden/trace.0.et", "hidden/obfuscation.json", "hidden/.nadi-files.json",
         "key", "system.toml"),
    ),
}  # fmt: skip
"""By name; each is a target of its own."""
