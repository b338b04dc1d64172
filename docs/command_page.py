"""The page ``docs/cli.md``, written from the commands themselves."""

from __future__ import annotations

import re
from inspect import cleandoc
from typing import Any

import typer.main

from nadi.cli.app import make_app

_EXIT_CODES = """\
| exit code | meaning |
|---|---|
| 0 | there is an answer |
| 1 | the answer is no: what is asked about is not possible, does not fit, or breaks a rule |
| 2 | there is no answer: a file or an option cannot be used; a line says what to do |
| other | `nadi record` ends as the recorded program does |
"""


def command_reference() -> str:
    """Write the reference of every command: its text, examples, arguments and options."""
    group: Any = typer.main.get_command(make_app())
    lines = ["# Commands", "", "Generated from the commands by `make docs`.", "", _EXIT_CODES]
    lines += [*_overview(group), ""]
    lines += _sections("nadi", group)
    return "\n".join(lines).rstrip() + "\n"


def _overview(group: Any) -> list[str]:
    """List the commands under the titles that ``nadi --help`` has."""
    titled: dict[str, list[str]] = {}
    for name, command in group.commands.items():
        summary = cleandoc(command.help).partition("\n")[0]
        titled.setdefault(command.rich_help_panel, []).append(
            f"| [{name}](#nadi-{name}) | {summary} |"
        )
    return [
        line
        for title, rows in titled.items()
        for line in ("", f"**{title}**", "", "| command | what it does |", "|---|---|", *rows)
    ][1:]


def _sections(title: str, command: Any) -> list[str]:
    """Write a command, and the commands in it."""
    lines = _section(title, command)
    for name, inner in getattr(command, "commands", {}).items():
        lines += _sections(f"{title} {name}", inner)
    return lines


def _section(title: str, command: Any) -> list[str]:
    lines = [f"## {title}", ""]
    for paragraph in cleandoc(command.help or "").split("\n\n"):
        text = re.sub(r"\[/?bold\]|\[/\]", "", paragraph).replace("\\[", "[")
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
    spelled = [*parameter.opts, *parameter.secondary_opts]
    names = f"`{parameter.metavar}`" if is_argument else ", ".join(f"`{n}`" for n in spelled)
    if not is_argument and not getattr(parameter, "is_flag", False) and parameter.metavar:
        names += f" {parameter.metavar}"
    return f"| {names.replace('|', chr(92) + '|')} | {parameter.help}{_default(parameter)} |"


def _default(parameter: Any) -> str:
    """Write the default as the help does: what it stands for in words, or its value."""
    told, value = parameter.show_default, parameter.default
    if parameter.required and parameter.param_type_name == "option":
        return " Required."
    if isinstance(told, str):
        return f" Default: {told}."
    if isinstance(value, bool):
        both = [*parameter.opts[:1], *parameter.secondary_opts]
        return f" Default: `{both[not value]}`." if len(both) == 2 else ""
    return f" Default: `{value}`." if told and value not in (None, "") else ""
