"""Whether the arguments of a recorded call are such as this PyTorch's operator may be given.

The schema in a trace is what its author wrote. Which operator is called, and what each of its
arguments is, is asked of this PyTorch.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection
from typing import Any

from nadi.pytorch.rerunning.recorded_calls import (
    RecordedCall,
    Signature,
    TensorArgument,
    Unrecorded,
)
from nadi.pytorch.rerunning.safe_operators import CODES, SAFE_OPERATORS, STRINGS

_DEVICES = ("cpu", "cuda", "meta")
_LARGEST = 2**63
_NUMBERS = {
    "IntType": (int,), "SymIntType": (int,), "BoolType": (bool, int), "FloatType": (float, int),
    "SymBoolType": (bool, int), "NumberType": (float, int),
}  # fmt: skip


def find_operator(signature: Signature) -> Any:
    """Return the operator of this PyTorch that a schema names; None if there is none."""
    torch: Any = importlib.import_module("torch")
    try:
        packet = getattr(getattr(torch.ops, signature.space), signature.name)
        return getattr(packet, signature.overload)
    except (AttributeError, RuntimeError):
        return None


def refused_arguments(call: RecordedCall, allowed: Collection[str]) -> str:
    """Return why a call must not be made; nothing if it may be, as far as its arguments say.

    Parameters
    ----------
    allowed
        Names of further operators, which the user trusts; these get any arguments.
    """
    signature = call.signature
    if signature is None:
        return "its schema cannot be read"
    name = f"{signature.space}::{signature.name}"
    if len(call.inputs) > len(signature.parameters):
        return "it has more arguments than its schema"
    for parameter, value in zip(signature.parameters, call.inputs, strict=False):
        kind = _unrecorded(value)
        if kind:
            return f"the trace does not hold its argument {parameter} ({kind})"
    if name not in allowed and name not in SAFE_OPERATORS:
        return "it is not among the operators that are known to be safe (--allow)"
    operator = find_operator(signature)
    if operator is None:
        return "this PyTorch has no such operator"
    known = operator._schema.arguments
    for place, (parameter, value) in enumerate(
        zip(signature.parameters, call.inputs, strict=False)
    ):
        by_place = place < signature.by_position
        same = place < len(known) and known[place].name == parameter
        argument = next((one for one in known if one.name == parameter), None)
        if argument is None or (by_place and (not same or argument.kwarg_only)):
            return f"this PyTorch's operator has another argument than {parameter}"
        if not _fits(argument.type, parameter, value) and name not in allowed:
            return f"its argument {parameter} is not what the operator takes"
    return ""


def _unrecorded(value: Any) -> str:
    if isinstance(value, Unrecorded):
        return value.kind
    if isinstance(value, list):
        return next((kind for one in value if (kind := _unrecorded(one))), "")
    return ""


def _fits(kind: Any, parameter: str, value: Any) -> bool:
    """Return whether a value is of the type of an argument."""
    name = kind.kind()
    if name == "OptionalType":
        return value is None or _fits(kind.getElementType(), parameter, value)
    if name == "ListType":
        inner = kind.getElementType()
        if isinstance(value, list):
            return all(_fits(inner, parameter, one) for one in value)
        return inner.kind() in _NUMBERS and _fits(inner, parameter, value)  # one for all dimensions
    if parameter in CODES:
        return value is None or value in CODES[parameter]
    if name == "TensorType":
        return value is None or isinstance(value, TensorArgument)
    if name in _NUMBERS:
        return isinstance(value, _NUMBERS[name]) and (value != value or abs(value) < _LARGEST
                                                      or isinstance(value, float))  # fmt: skip
    if name == "StringType":
        return value in STRINGS.get(parameter, ())
    if name == "DeviceObjType":  # the chosen one is given instead
        return (
            parameter == "device" and isinstance(value, str) and value.partition(":")[0] in _DEVICES
        )
    return name == "GeneratorType" and value is None
