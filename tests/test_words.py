"""Docs, help and output use the terms of the glossary, and odd phrases do not come back."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
from pathlib import Path

import pytest

from docs import notebooks
from nadi.cli import main
from tests.amounts import some

ROOT = Path(__file__).resolve().parents[1]
# written from docstrings and declarations, and not by hand
GENERATED = {"api.md", "data-model.md"}
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name not in GENERATED),
]
# each with the term that replaced it
BANNED = {
    "was waited for": "straggler",
    "waited for it": "wait time caused",
    "leaves room for": "clock skew: at most",
    "ranks did together": "clock skew between ranks",
    "to it belongs": "contains",
    "is told": "is reported, is printed",
    "are told": "are reported, are printed",
    "told apart": "distinguished, recognized",
    "told by": "recognized by",
    "weigh most": "top operations",
    "weighs nothing": "has weight 0",
    "there is to gain": "upper bounds",
    "cause were gone": "upper bounds",
    "will do.": "are enough",
    "passed over": "skipped",
    "is there already": "exists already",
    "that are there": "existing",
    "machine that is not there": "another machine, a described system",
    "hardly correspond": "few of their operations match",
    "may be given again": "repeatable",
    "for ever": "forever",
    "then bound by": "new bottleneck",
    "settings without effect": "ignored settings",
    "no known reason": "later than dependencies explain",
    "what holds": "blocked by",
    "held by": "blocked by",
    "is looked at": "is analysed",
    "stands for all": "represents all",
}
ALLOWED = {"stands for all": {"simulate.md"}}  # the name of a way through the engine
SHOWN = {page: re.findall(r"```console\n\$ (nadi [^\n]*)", page.read_text()) for page in PAGES}
# those of tutorials are run by tests/test_tutorials.py
COMMANDS = [
    command
    for page, commands in SHOWN.items()
    for command in commands
    if page.parent.name != "tutorials"
]


WRITERS = {(found[1], one) for one in COMMANDS if (found := re.search(r" -o (\S+)", one))}
# of files and folders that other commands read: those that one command writes
MAKERS = {file: one for file, one in WRITERS if [name for name, _ in WRITERS].count(file) == 1}


def removed(path: Path) -> None:
    """Remove what an earlier try of a command wrote."""
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def found_in(text: str) -> list[str]:
    flat = " ".join(text.lower().split())
    return [phrase for phrase in BANNED if re.search(rf"\b{re.escape(phrase)}(?!\w)", flat)]


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_a_page_has_no_banned_phrase(page: Path) -> None:
    found = [one for one in found_in(page.read_text()) if page.name not in ALLOWED.get(one, ())]
    assert found == []


# phrases that messages of these packages once had
ODD = r"nobody says|says of no|says nothing of|that holds it|\bmend\b|see that every"
SPEAKING = (
    "analyses",
    "bottlenecks",
    "cli",
    "estimates",
    "graph",
    "jobs",
    "memory",
    "pytorch",
    "recordings",
    "results",
    "sharing",
    "simulation",
    "whatif",
)


@pytest.mark.parametrize("package", SPEAKING)
def test_messages_use_standard_words(package: str) -> None:
    texts = [
        f"{file.name}: {node.value}"
        for file in sorted((ROOT / "src" / "nadi" / package).rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert texts
    assert [one for one in texts if re.search(ODD, one)] == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place: Path = tmp_path_factory.mktemp("shown")
    notebooks.prepare(place)
    return place


@pytest.mark.usefixtures("demo_read_once")
@pytest.mark.parametrize("command", some(dict.fromkeys(COMMANDS)))
def test_what_a_page_shows_is_what_a_command_prints(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    words = {part for word in command.split() for part in (word, word.partition("/")[0])}
    for file, maker in MAKERS.items():
        if command == maker:
            removed(Path(file))
        elif file in words and not Path(file).exists():  # another process made it
            assert main(shlex.split(maker)[1:]) == 0
            capsys.readouterr()
    assert main(shlex.split(command)[1:]) == 0
    printed = "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines()) + "\n"
    own = [one for one in printed.splitlines() if not one.startswith(("info: ", "warning: "))]
    assert found_in("\n".join(own)) == []  # issues have the words of the package that met them
    for page in PAGES:
        for shown in re.findall(
            rf"```console\n\$ {re.escape(command)}\n(.*?)```", page.read_text(), re.DOTALL
        ):
            parts = [re.escape(part) for part in shown.split("...\n")]
            assert re.fullmatch(r"(?:.*\n)*?".join(parts), printed), (
                f"{page.name}: {command}\n{printed}"
            )


def test_every_command_that_prints_a_report_is_shown() -> None:
    shown = {command.split()[1] for commands in SHOWN.values() for command in commands}
    assert shown == {"run", "demo", "collective", "what-if", "critical-path",
                     "simulate", "info", "link", "convert", "systems", "generate",
                     "estimate", "search", "memory", "loggp", "extract", "fold",
                     "report", "diff", "analyze", "scale", "waits", "similarity",
                     "learn", "synthesize", "record", "draw", "serve", "check",
                     "obfuscate"}  # fmt: skip


def test_force_means_one_thing() -> None:
    """It links files of which few operations match; files are replaced by --overwrite."""
    sections = re.split(r"^## nadi ?", (ROOT / "docs" / "cli.md").read_text(), flags=re.MULTILINE)
    with_force = {one.split("\n")[0] for one in sections if "| `--force`" in one}
    assert with_force == {"run", "report", "link", "extract", "diff", "check"}
    with_overwrite = {one.split("\n")[0] for one in sections if "| `--overwrite`" in one}
    assert with_overwrite == {
        "run",
        "demo",
        "report",
        "analyze",
        "check",
        "collective",
        "simulate",
        "what-if",
        "extract",
        "draw graph",
        "link",
        "convert",
        "estimate",
        "search",
        "serve",
        "memory place",
        "memory plan",
        "generate cases",
        "generate llm",
        "generate network",
        "fold",
        "obfuscate",
        "scale",
        "rerun",
        "record",
        "draw timeline",
        "learn",
        "synthesize",
        "waits",
    }


def test_the_changelog_has_the_version() -> None:
    from nadi.version import __version__

    text = (ROOT / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d{2}-\d{2}$", text, re.MULTILINE)
    assert versions[0] == __version__
    assert not re.findall(r"^### (?!Added|Changed|Deprecated|Removed|Fixed|Security)", text,
                          re.MULTILINE)  # fmt: skip
