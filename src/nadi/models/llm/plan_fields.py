"""Plans of generated jobs from fields that users state by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from nadi.errors import Parameter, UsageError
from nadi.units import lowered

__all__ = ["plan_from"]

_Plan = TypeVar("_Plan", bound=msgspec.Struct)


def plan_from(kind: type[_Plan], fields: Mapping[str, Any]) -> _Plan:
    """Make a plan from its fields.

    Raises
    ------
    UsageError
        If there is no such field, or its value is of another type or range.
    """
    known = kind.__struct_fields__
    for name, value in fields.items():
        if name not in known:
            remedy = f"known are {', '.join(known)}"
            raise UsageError([Parameter(name)], "a plan has no such field", remedy)
        try:
            msgspec.convert({name: value}, kind)
        except msgspec.ValidationError as error:
            what = str(error).partition(" - at ")[0]
            of_field = get_type_hints(kind)[name]
            values = (
                [one for one in get_args(of_field) if one != ""]
                if get_origin(of_field) is Literal
                else []
            )
            if values:
                what = "there is no such value"
            remedy = f"use one of {', '.join(map(str, values))}" if values else "give another value"
            raise UsageError([Parameter(name, value)], lowered(what), remedy) from None
    return kind(**fields)
