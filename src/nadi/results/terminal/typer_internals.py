"""All of typer that is not its public interface: plain values without pydantic.

Typer hands every text, number and path to pydantic, and to import that and make its adapters
takes longer than to read a job. Here a value that is plainly right becomes what it stands for;
any other, and any parameter that is not of a plain type, goes typer's whole way, which is where
messages come from. With a version of typer that this was not tried with, all do.

What prints help imports a reader of Markdown and a printer of tracebacks, which Nadi's help has no
use for, and which take a third of the time of ``nadi --help``. It is imported without them.
"""

import importlib
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

_TRIED = ("0.29",)  # versions of typer whose inner parts are as they are wanted here
_IS_KNOWN = ".".join(typer.__version__.split(".")[:2]) in _TRIED
_NOT_FOR_HELP = {"rich.markdown": "Markdown", "rich.traceback": "Traceback"}  # modules, classes
_FOLD = re.compile(r"(?<!\n)\n(?=\S)")  # within a paragraph that is no list
_WHOLE = re.compile(r"\d{1,15}", re.ASCII)
_DECIMAL = re.compile(r"\d{1,15}(\.\d{1,15})?", re.ASCII)


class _NotPlainError(Exception):
    """A value that is not plainly right."""


class _Plain:
    """Takes the place of what typer makes of a parameter's type when it needs it first."""

    def __init__(self, parameter: Any) -> None:
        self._of = parameter.type_descriptor
        self._is_list = get_origin(self._of.annotation) is list
        self._type = get_args(self._of.annotation)[0] if self._is_list else self._of.annotation

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Give the value that a text stands for."""
        try:
            if value is None:
                return () if self._is_list else None
            return [self._plainly(one) for one in value] if self._is_list else self._plainly(value)
        except _NotPlainError:
            param._runtime_param = None
            return param.get_runtime_param().coerce(value, param=param, ctx=ctx)

    def _plainly(self, value: Any) -> Any:
        stated = self._of.parameter_info
        if self._type is str and isinstance(value, str):
            return value
        if self._type is Path and isinstance(value, str):
            if not os.path.lexists(value) or os.access(value, os.R_OK):
                return Path(value)
        elif self._type is int:
            if isinstance(value, str) and _WHOLE.fullmatch(value):
                value = int(value)
            if type(value) is int and _within(value, stated.min, stated.max):
                return value
        elif self._type is float:
            if isinstance(value, str) and _DECIMAL.fullmatch(value):
                value = float(value)
            if type(value) in (int, float) and _within(value, stated.min, stated.max):
                return float(value)
        raise _NotPlainError


def _within(value: float, least: float | None, most: float | None) -> bool:
    return (least is None or value >= least) and (most is None or value <= most)


def _is_plain(parameter: Any) -> bool:
    """Tell whether a parameter is one of typer's own, as known here, and asks for nothing more."""
    stated = getattr(getattr(parameter, "type_descriptor", None), "parameter_info", None)
    if stated is None or getattr(parameter, "_runtime_param", stated) is not None:
        return False
    named = ("parser", "exists", "resolve_path", "allow_dash", "path_type", "writable", "clamp")
    asked = [getattr(stated, name, None) for name in named]
    return not any(asked) and stated.file_okay and stated.dir_okay


def _take_plainly(parameter: Any) -> None:
    if _IS_KNOWN and _is_plain(parameter):
        parameter._runtime_param = _Plain(parameter)


def _import_help_printer() -> None:
    """Import ``typer.rich_utils`` without what only help in Markdown and tracebacks need."""
    if not _IS_KNOWN or "typer.rich_utils" in sys.modules:
        return
    absent = {name: kind for name, kind in _NOT_FOR_HELP.items() if name not in sys.modules}
    for name, kind in absent.items():
        sys.modules[name] = ModuleType(name)
        setattr(sys.modules[name], kind, type(kind, (), {}))
    try:
        importlib.import_module("typer.rich_utils")
    finally:
        for name in absent:  # whoever wants them later gets the real ones
            del sys.modules[name]


class _Quick:
    """What commands and their list have in common."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        own: Any = self
        for parameter in own.params:
            _take_plainly(parameter)

    def get_help_option(self, ctx: Any) -> Any:
        """Give the option that typer adds to each."""
        default: Any = super()
        found = default.get_help_option(ctx)
        _take_plainly(found)
        return found

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help; each paragraph as wide as the terminal, which typer leaves as written."""
        _import_help_printer()
        own: Any = self
        default: Any = super()
        written = own.help
        own.help = _FOLD.sub(" ", written or "")
        default.format_help(ctx, formatter)
        own.help = written


class QuickCommand(_Quick, TyperCommand):
    """A command of which no parameter takes pydantic to be understood, but to be refused."""


class QuickGroup(_Quick, TyperGroup):
    """A list of commands, as above."""
