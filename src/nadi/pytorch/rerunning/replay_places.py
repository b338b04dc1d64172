"""Tensors of a replay as arguments of its calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from nadi.pytorch.rerunning.recorded_calls import TensorArgument


class ReplayPlace(NamedTuple):
    """A tensor of the replay as an argument: its number, and what was recorded of it."""

    number: int
    recorded: TensorArgument


def places_in(arguments: Any) -> Iterable[ReplayPlace]:
    """Yield the places of arguments, also those in lists."""
    if isinstance(arguments, ReplayPlace):
        yield arguments
    elif isinstance(arguments, list) or type(arguments) is tuple:
        for one in arguments:
            yield from places_in(one)
