"""Help: every command under a title, in one line; the reference says what each option does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from nadi.cli import main
from nadi.cli.app import make_app
from nadi.cli.command_page import command_reference


def test_commands_have_titles_and_fit_a_terminal(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--help"]) == 0
    out = capfd.readouterr().out
    assert "─ Commands ─" not in out
    titles = [line for line in out.splitlines() if line.startswith("╭─")]
    assert len(titles) == 8  # options, and seven kinds of questions
    commands = out[out.index(titles[1]) :].splitlines()
    continued = [line for line in commands if line.startswith("│  ")]
    assert continued == []


def test_the_reference_lists_commands_and_defaults() -> None:
    page = command_reference()
    assert "| [run](#nadi-run) | Find what bounds a step" in page
    assert "| `--steps` N | How many steps are recorded. Default: `3`. |" in page
    assert "Default: `--sync`. |" in page
    assert "| `--key` FILE | The owner's key: at least 16 random bytes. Required. |" in page
    assert "'nadi[solver]'" in page  # without the escapes of markup


@pytest.mark.parametrize("command", ["run", "info", "validate", "waits", "simulate", "fold"])
def test_an_empty_path_is_refused(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    system = ["--system", "dgx-h100"] if command == "simulate" else []
    assert main([command, "", *system]) == 2
    assert capsys.readouterr().err == "nadi: '': is no path; name a file or a folder\n"


def test_a_command_alone_is_described_as_among_all() -> None:
    whole: Any = get_command(make_app())
    for name, command in whole.commands.items():
        alone: Any = get_command(make_app(name))
        assert list(alone.commands) == list(whole.commands)
        found = alone.commands[name]
        assert [one.opts for one in found.params] == [one.opts for one in command.params]
        assert list(getattr(found, "commands", ())) == list(getattr(command, "commands", ()))
    listed: Any = get_command(make_app(""))
    assert not any(command.params for command in listed.commands.values())
    for attribute in ("help", "rich_help_panel"):
        assert [getattr(one, attribute) for one in listed.commands.values()] == [
            getattr(one, attribute) for one in whole.commands.values()
        ]
