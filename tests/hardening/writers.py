"""Lines that write files: one or more of each option of each command that names an output."""

from __future__ import annotations

import shlex
from pathlib import Path

from nadi.cli import main
from nadi.errors import NadiError
from nadi.files.whole_folders import refuse_partial
from tests.conftest import DEMO
from tests.fuzz.commands import COMMANDS

__all__ = ["BY_OTHERS", "NOTHING", "WHOLE", "WRITERS", "left", "prepare", "sizes_of", "words_of"]

NOTHING, WHOLE = "nothing", "whole"
# by the name of what is written: @ is its place, # a file that prepare() makes, % a recording
WRITERS = {
    "out.nadi": "convert #recording/device_0.json @",
    "out.json": "convert #recording/device_1.json @ --to kineto",
    "tables.nodes.csv": "convert #recording/device_0.json @.. --to csv",
    "converted": "convert % @ --to nadi",
    "linked": "link #pair --force -o @",
    "resumed": "link #recording --resume -o @",
    "part": "extract % --step 1 -o @",
    "job": "generate llm --model gpt3-125m --tp 2 --dp 2 --seq 256 -o @",
    "folded.nadi": "generate llm --model gpt3-125m --tp 2 --dp 2 --seq 256 -o @",
    "network": "generate network --model dlrm-kaggle --ranks 2 --system dgx-h100 -o @",
    "cases": "generate cases --ranks 2 -o @",
    "simulated.nadi": "simulate #folded.nadi --system dgx-h100 -o @",
    "simulated.csv": "simulate #folded.nadi --system dgx-h100 -o @",
    "simulated.html": "simulate #folded.nadi --system dgx-h100 --report @",
    "model.nadi": "learn #job -o @",
    "made": "synthesize #model.nadi -o @",
    "generator.nadi": "learn --generated 3 -o @",
    "private.nadi": "learn --conditions #jobs.csv --epsilon 0.1 --budget 99 --generated 3 -o @",
    "generated": "synthesize #generator.nadi -o @ --ranks 2 --tp 1",
    "refolded.nadi": "fold #job -o @",
    "unfolded": "fold --undo #folded.nadi -o @",
    "scaled.nadi": "scale #job --dp 4 -o @",
    "hidden": "obfuscate #job --key #key -o @",
    "results": "run % -o @",
    "run.html": "run % --report @",
    "shown": "demo -o @",
    "shown.html": "demo --report @",
    "page.html": "report % -o @",
    "overlay.json": "critical-path #recording --rules hta --rank 0 --overlay @",
    "waits.html": "waits % -o @",
    "analyses": "analyze all % -o @",
    "kernels.parquet": "analyze kernels #recording -o @",
    "graph.dot": "draw graph % -o @ --operation aten --hops 1",
    "redrawn.json": "what-if % no-gaps --redraw @",
    "changed.html": "what-if % no-gaps --report @",
    "reordered.json": f"what-if --reorder {DEMO} --redraw @ --apply all",
    "collectives.csv": "collective all_reduce 1KiB,1MiB --system dgx-h100 --ranks 8 -o @",
    "sweep.csv": "estimate gpt3-125m dgx-h100 --sweep dp=1,2 -o @",
    "search": "search gpt3-125m dgx-h100 --ranks 4 --global-batch 4 -o @",
    "tiers": "memory plan --model gpt3-125m --system dgx-h100 --ranks 8 --global-batch 8 -o @",
    "placed": "memory place #plan.toml --system dgx-h100-cxl -o @",
    "budgets.md": "check % % --budget 'step 3ms' --markdown @",
    "budgets.xml": "check % % --budget 'step 3ms' --junit @",
    "served.svg": "serve gpt3-125m dgx-h100 --number 9 --rate 1 --sweep rate=1,2 -o @",
    "timeline.json": "draw timeline #schedule.csv @",
    "timeline.pftrace": "draw timeline #schedule.csv @",
    "fake": "record --fake --world 2 -o @ -- #train.py",
    # the same options in other forms
    "trace.et.gz": "convert #recording/device_0.json @",
    "graph.graphml": "draw graph % -o @ --operation aten --hops 1",
    "simulated.json": "simulate #folded.nadi --system dgx-h100 -o @",
    "simulated.trace.json": "simulate #folded.nadi --system dgx-h100 -o @",
    "scaled": "scale #job --dp 4 -o @",
    "fewer": "fold #wide --system dgx-h100 --to-ranks 4 -o @",
    "program.goal": "convert #job @ --to goal",
    "for-astra": "link #recording --for astra-sim -o @",
    "shapes": "obfuscate #job --key #key --level shapes --system dgx-h100 -o @",
    "compared.html": "report % % -o @",
    "kernels.csv": "analyze kernels #recording -o @",
    "sweep.parquet": "estimate gpt3-125m dgx-h100 --sweep dp=1,2 -o @",
}
# whose files other processes write, with PyTorch
BY_OTHERS = {
    "collected": "record -o @ -- #train.py",
    "replayed": "rerun #replayable --repeats 1 -o @",
    "script.py": "rerun #replayable --repeats 1 --script @",
}
# which file of a folder says that all are there; else a list does, or they are read one by one
_FIRST = {"results": "summary.json", "shown": "summary.json", "placed": "summary.json",
          "tiers": "points.csv", "analyses": "charts.html"}  # fmt: skip
_SEVERAL = {"cases"}  # jobs that have nothing to do with each other, each of them whole
_TRAIN = """import torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(9):
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
"""
_PLAN = 'model = "gpt3-125m"\ntp = 2\ndp = 2\nglobal_batch = 2\nmicro_batch = 1\nsequence = 64\n'
_MADE = {
    "folded.nadi": "generate llm --model gpt3-125m --tp 2 --seq 64 -o @",
    "job": "generate llm --model gpt3-125m --tp 2 --dp 2 --seq 64 -o @",
    "wide": "generate llm --model gpt3-125m --dp 8 --seq 64 -o @",
    "model.nadi": "learn #job -o @",
    "generator.nadi": "learn --generated 3 -o @",
    "schedule.csv": "simulate #folded.nadi --system dgx-h100 -o @",
}


def prepare(folder: Path) -> None:
    """Make the files that some of the lines read."""
    (folder / "key").write_bytes(bytes(range(64)))
    (folder / "plan.toml").write_text(_PLAN)
    (folder / "jobs.csv").write_text("job,layers,hidden,sequence,tp,dp\njob,12,768,64,2,2\n")
    (folder / "train.py").write_text(_TRAIN)
    for name, content in COMMANDS["recording"].files().items():
        place = folder / name.replace("job/", "recording/")
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(content)
    for name, line in _MADE.items():
        assert main(words_of(line, folder / name, folder)) == 0, line


def words_of(line: str, place: Path, given: Path, recording: str = "#recording") -> list[str]:
    """Give the words of a line that writes to a place, with files that were prepared."""
    tables = place.with_name(f"{place.name.partition('.')[0]}.csv")
    named = line.replace("@..", str(tables)).replace("@", str(place))
    return shlex.split(named.replace("%", recording).replace("#", f"{given}/"))


def left(place: Path, whole: dict[str, int]) -> str:
    """Say what is at a place: nothing, all of it, or what else.

    Parameters
    ----------
    whole
        Sizes of the files of a folder that is whole, by name; or of the file, by an empty name.
    """
    if not (place / _FIRST.get(place.name, "")).exists():
        return NOTHING
    if place.is_file():
        is_whole = place.stat().st_size > 0.5 * whole[""]
        lacks = [name for name in whole if not place.with_name(name or place.name).exists()]
        return WHOLE if is_whole and not lacks else f"{place.name} is short, or lacks {lacks}"
    if place.name in _SEVERAL:
        states = {left(one, _inside(whole, one.name)) for one in place.iterdir() if one.is_dir()}
        return next(iter(states - {NOTHING, WHOLE}), WHOLE)
    found = {str(path.relative_to(place)) for path in _files_of(place)}
    if not found:
        return NOTHING
    if found == whole.keys():
        return WHOLE
    try:
        for folder in {path.parent for path in _files_of(place)}:
            refuse_partial(folder)
    except NadiError:
        return NOTHING  # which says what is missing
    return f"{len(found)} of {len(whole)} files"


def _inside(whole: dict[str, int], name: str) -> dict[str, int]:
    begin = f"{name}/"
    return {
        path.removeprefix(begin): size for path, size in whole.items() if path.startswith(begin)
    }


def sizes_of(place: Path) -> dict[str, int]:
    """Give the sizes of what was written, as :func:`left` takes them."""
    if place.is_dir():
        return {str(path.relative_to(place)): path.stat().st_size for path in _files_of(place)}
    beside = place.parent.glob(f"{place.name.partition('.')[0]}.*")
    return {path.name if path != place else "": path.stat().st_size for path in beside}


def _files_of(place: Path) -> list[Path]:
    """Give the files below a folder that are not hidden, and in none that is."""
    found = (path for path in place.rglob("*") if path.is_file())
    return [
        path for path in found
        if not any(part.startswith(".") for part in path.relative_to(place).parts)
    ]  # fmt: skip
