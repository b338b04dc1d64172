"""The page ``docs/cli.md``, written from the commands themselves."""

from __future__ import annotations

import re
from inspect import cleandoc
from typing import Any

import typer.main

from nadi.cli.app import app

__all__ = ["command_reference"]


def command_reference() -> str:
    """Write the reference of every command: its text, examples, arguments and options."""
    group: Any = typer.main.get_command(app)
    lines = ["# Commands", "", "Generated from the commands by `make docs`.", ""]
    lines += _sections("nadi", group)
    return "\n".join(lines).rstrip() + "\n"


def _sections(title: str, command: Any) -> list[str]:
    """Write a command, and the commands in it."""
    lines = _section(title, command)
    for name, inner in getattr(command, "commands", {}).items():
        lines += _sections(f"{title} {name}", inner)
    return lines


def _section(title: str, command: Any) -> list[str]:
    lines = [f"## {title}", ""]
    for paragraph in cleandoc(command.help or "").split("\n\n"):
        text = re.sub(r"\[/?bold\]|\[/\]", "", paragraph)
        is_example = all(line.startswith("  ") for line in paragraph.splitlines())
        if is_example:
            text = "\n".join(["```sh", *(line[2:] for line in text.splitlines()), "```"])
        lines += [text, ""]
    rows = [_row(parameter) for parameter in command.params if parameter.name != "help"]
    if rows:
        lines += ["| argument or option | meaning |", "|---|---|", *rows, ""]
    return lines


def _row(parameter: Any) -> str:
    is_argument = parameter.param_type_name == "argument"
    names = f"`{parameter.metavar}`" if is_argument else ", ".join(f"`{n}`" for n in parameter.opts)
    if not is_argument and not getattr(parameter, "is_flag", False) and parameter.metavar:
        names += f" {parameter.metavar}"
    default = ""
    if isinstance(parameter.default, str) and parameter.default:
        default = f" Default: `{parameter.default}`."
    return f"| {names.replace('|', chr(92) + '|')} | {parameter.help}{default} |"
