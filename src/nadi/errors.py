"""The exceptions of Nadi.

    NadiError
    ├── UsageError          an invalid request (unknown step, bad expression)
    └── InputError          a file or folder that cannot be used
        ├── FormatError     a file whose content breaks the rules of its format
        └── PairError       files that do not belong together, or a missing partner

Each message states, on one line and in this order, where the problem is, what was found, the
rule that it breaks, and the remedy. The command line prints the message and exits with code 2.

If a message names a parameter, it holds a :class:`Parameter` instead of its spelling: the
message is ``step='9'`` in Python, and the command line prints ``--step 9``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from numbers import Real
from types import UnionType
from typing import Any, NamedTuple, ParamSpec, TypeAlias, TypeVar, Union, get_args, get_origin

from nadi.units import printable

__all__ = [
    "FormatError", "InputError", "NadiError", "PairError", "Parameter", "UsageError", "check_kind",
    "checked", "parameters_of_file",
]  # fmt: skip


class Parameter(NamedTuple):
    """A parameter in a message, optionally with the value that was passed or is needed."""

    name: str
    value: object = None

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name}={self.value!r}"


Wording: TypeAlias = "str | Parameter | list[str | Parameter]"


class NadiError(Exception):
    """Base class of all errors of Nadi.

    Parameters
    ----------
    where
        The file, row, JSON path or parameter at fault. This and the other parameters are a string,
        a Parameter, or a list of both, which is concatenated.
    what
        What was found there, and the rule that it breaks.
    remedy
        What the user can do about it; may be empty.

    Attributes
    ----------
    where, what, remedy
        The same as strings, with parameters spelled as in Python.
    """

    def __init__(self, where: Wording, what: Wording, remedy: Wording = "") -> None:
        self._parts = (where, what, remedy)
        self.where, self.what, self.remedy = (_spelled(part, str) for part in self._parts)
        super().__init__(self.message(str))

    def message(self, spell: Callable[[Parameter], str]) -> str:
        """Return the whole message, with each parameter spelled by ``spell``."""
        where, what, remedy = (_spelled(part, spell) for part in self._parts)
        text = f"{where}: {what}" if where else what
        # names in the message may contain line breaks, or control sequences of terminals
        return printable(f"{text}; {remedy}" if remedy else text)

    def __reduce__(self) -> tuple[type[NadiError], tuple[object, ...]]:
        """Pickle the parts, so that the error arrives unchanged from another process."""
        return type(self), self._parts


def _spelled(wording: Wording, spell: Callable[[Parameter], str]) -> str:
    if isinstance(wording, str):
        return wording
    if isinstance(wording, Parameter):
        return spell(wording)
    return "".join(_spelled(part, spell) for part in wording)


class UsageError(NadiError):
    """An invalid request: an unknown step, an expression that does not parse."""


@contextmanager
def parameters_of_file(path: str) -> Iterator[None]:
    """Name parameters in errors as the keys of a file, in which they are stated.

    Raises
    ------
    UsageError
        As inside, with the file and the JSON path.
    """
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{path}: $.{error.where}", error.what, error.remedy) from None


def check_kind(name: str, value: object, kind: type, remedy: str) -> None:
    """Refuse a value of another kind, where one is easily taken for another.

    - Raises UsageError if the value of the parameter is not of this kind.
    """
    if not isinstance(value, kind):
        given, wanted = type(value).__name__, kind.__name__
        raise UsageError(Parameter(name), f"it is of type {given}, not {wanted}", remedy)


_MADE_BY = {
    "EventGraph": "make one with nadi.build_graph(nadi.load_job(...))",
    "Simulation": "make one with nadi.simulate",
    "Replay": "make one with nadi.graph.replay_graph(graph)",
    "Run": "make one with nadi.run",
    "TraceModel": "make one with nadi.sharing.learn",
    "Job": "read one with nadi.load_job",
    "Trace": "read one with nadi.read",
}
_WORD = re.compile(r"\w+")
_MODULES = re.compile(r"\b(?:\w+\.)+")  # before a name
_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def checked(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Let a function name an argument of another kind than its signature says.

    Arguments are looked at when a call failed, so calls that succeed take no longer. What cannot be
    told apart (callables, kinds that only type checkers know) counts as right. Examples in the
    docstring of such a function are not run by doctest.
    """

    @wraps(function)
    def call(*args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        try:
            return function(*args, **kwargs)
        except (AttributeError, TypeError):
            for wrong in _wrong_kinds(function, args, kwargs):
                raise wrong from None
            raise

    return call


def _wrong_kinds(
    function: Callable[..., object], args: Sequence[object], kwargs: dict[str, object]
) -> Iterator[UsageError]:
    """Give an error for each argument of a kind that the signature does not allow."""
    names: dict[str, object] = getattr(function, "__globals__", {})
    try:
        given = signature(function).bind_partial(*args, **kwargs)
    except TypeError:  # there are too many
        return
    for name, value in given.arguments.items():
        parameter = given.signature.parameters[name]
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        kind = parameter.annotation
        try:
            if isinstance(kind, str):  # written in the function's own module
                kind = eval(kind, dict(names))  # noqa: S307
        except (NameError, AttributeError, TypeError):
            continue
        if not _is_of(value, kind):
            text = _MODULES.sub("", kind.__name__ if isinstance(kind, type) else str(kind))
            words = _WORD.findall(text)
            remedy = next((made for word, made in _MADE_BY.items() if word in words), "")
            what = f"it is of type {type(value).__name__}, not {text.replace(' | ', ' or ')}"
            yield UsageError(Parameter(name), what, remedy)


def _is_of(value: Any, kind: Any) -> bool:
    """Return whether a value is of a kind; of what nobody can say, True."""
    origin, inside = get_origin(kind), get_args(kind)
    if kind is None:
        return value is None
    if origin in (Union, UnionType):
        return any(_is_of(value, one) for one in inside)
    if isinstance(kind, type) and origin is None:
        return isinstance(value, Real if kind in (int, float) else kind)
    if not isinstance(origin, type):
        return True
    if not isinstance(value, origin):
        return False
    if origin not in (list, Sequence) or not isinstance(value, Sequence):
        return True
    return all(_is_of(one, inside[0]) for one in value)


class InputError(NadiError):
    """A file or folder that cannot be used."""


class FormatError(InputError):
    """A file whose content breaks the rules of its format."""


class PairError(InputError):
    """Traces that do not belong together, or one without its partner."""
