"""What types a kernel's arguments have, as values that can be written down.

A signature is a tuple with an item for each argument: ``"int"``, ``"bool"``, ``"float"``;
``("array", dtype, axes, order, flags)``, where the order is ``C``, ``F`` or ``A`` and the flags
are ``r`` for read-only and ``u`` for unaligned arrays; ``("tuple", ...)``; and for a named tuple
``("module:class", ...)``.
"""

import struct
from ctypes import addressof, c_char
from typing import Any

import numpy as np

Signature = tuple[Any, ...]
_first_byte = c_char.from_buffer


def signature_of(arguments: tuple[Any, ...]) -> Signature:
    """Give the types of a kernel's arguments.

    - Raises TypeError: One is nothing that kernels take.
    """
    return tuple(_type_of(one) for one in arguments)


def _type_of(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        flags = value.flags
        order = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
        marks = ("" if flags.writeable else "r") + ("" if flags.aligned else "u")
        return "array", value.dtype.str, value.ndim, order, marks
    if isinstance(value, (bool, np.bool_)):
        return "bool"
    if isinstance(value, (int, np.integer)):
        return "int"
    if isinstance(value, (float, np.floating)):
        return "float"
    if isinstance(value, tuple):
        kind = type(value)
        name = "tuple" if kind is tuple else f"{kind.__module__}:{kind.__qualname__}"
        return name, *(_type_of(one) for one in value)
    raise TypeError(f"kernels take numbers, arrays and tuples of them, not {type(value).__name__}")


def as_lists(signature: Any) -> Any:
    """Give a signature as JSON has it."""
    return [as_lists(one) for one in signature] if isinstance(signature, tuple) else signature


def as_tuples(signature: Any) -> Any:
    """Give a signature that was read from JSON."""
    return tuple(as_tuples(one) for one in signature) if isinstance(signature, list) else signature


def pack(arguments: tuple[Any, ...], key: list[Any], words: list[int]) -> None:
    """Tell arguments of different types apart, and give their values as 64-bit numbers.

    This is what every call of a kernel waits for.

    - ``arguments``: Those of a kernel, or the items of a tuple among them.
    - ``key``: To it is added what differs between signatures.
    - ``words``: To it are added: of an array its address, lengths, and strides where it has gaps.
    """
    for value in arguments:
        kind = type(value)
        if kind is np.ndarray:
            try:  # as most are: in order, and writable; five times as fast as to ask the array
                address = addressof(_first_byte(value))
            except (TypeError, ValueError):
                _pack_array(value, key, words)
                continue
            if address & 7 and not value.flags.aligned:
                _pack_array(value, key, words)
                continue
            words.append(address)
            words += value.shape
            key.append(value.dtype)
            key.append(value.ndim)
        elif kind is int:
            key.append(int)
            words.append(value)
        elif isinstance(value, tuple):
            key.append(kind)
            pack(value, key, words)
            key.append(None)  # where a tuple ends
        elif isinstance(value, (bool, np.bool_)):
            key.append(bool)
            words.append(int(value))
        elif isinstance(value, np.integer):
            key.append(int)
            words.append(int(value))
        elif isinstance(value, (float, np.floating)):
            key.append(float)
            words.append(struct.unpack("q", struct.pack("d", value))[0])
        elif isinstance(value, np.ndarray):
            pack((value.view(np.ndarray),), key, words)
        else:
            _type_of(value)


def _pack_array(value: np.ndarray, key: list[Any], words: list[int]) -> None:
    """Pack an array that is read-only, has gaps or is unaligned; or one that is empty."""
    flags = value.flags
    words.append(value.__array_interface__["data"][0])
    words += value.shape
    if flags.carray:
        key.append(value.dtype)
        key.append(value.ndim)
        return
    key.append(_type_of(value))
    if not flags.forc:
        words += value.strides
