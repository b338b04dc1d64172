"""Compiled kernels as objects: loaded and called without numba."""

import contextlib
import ctypes
import pickle
from array import array
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm

_CALL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
_engine: Any = None


def host_cpu() -> str:
    """Give what LLVM calls this machine's processor."""
    name: str = llvm.get_host_cpu_name()
    return f"{llvm.get_default_triple()} {name}"


def host_features() -> frozenset[str]:
    """Give what this machine's processor has, by LLVM's names."""
    return frozenset(name for name, is_there in llvm.get_host_cpu_features().items() if is_there)


def load(code: bytes, entry: str, letters: str) -> Callable[[list[int]], Any]:
    """Give a function that calls the code of an object.

    - ``code``: The object. Its code is trusted: nothing checks what it does.
    - ``entry``: The name of its function, which no other object has.
    - ``letters``: What comes back, as :func:`nadi.kernels.numba_internals.compile_kernel` says it.
    - Returns: Takes the 64-bit numbers of :func:`nadi.kernels.signatures.pack`; gives what the
      kernel returns, or raises what it raises. Other threads of Python go on meanwhile.
    """
    engine = _engine_of_this_process()
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    function = _CALL(engine.get_function_address(entry))
    is_tuple = letters.startswith("(")
    kinds = [bool if letter == "b" else int for letter in letters.strip("()")]
    room = bytes(8 * (1 + len(kinds)))
    has_bools = bool in kinds

    def call(words: list[int]) -> Any:
        given, results = array("q", words), array("q", room)
        if function(given.buffer_info()[0], results.buffer_info()[0]):
            raise _exception_at(results[0])
        if has_bools:
            found = [kind(number) for kind, number in zip(kinds, results[1:], strict=True)]
            return tuple(found) if is_tuple else found[0]
        if is_tuple:
            return tuple(results[1:])
        return results[1] if kinds else None

    return call


def _engine_of_this_process() -> Any:
    global _engine
    if _engine is None:
        with contextlib.suppress(RuntimeError):  # newer versions have no need of it, and say so
            llvm.initialize()
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine()
        _engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    return _engine


class _Raised(ctypes.Structure):
    """How numba describes an exception: its class, arguments and place, pickled in the object."""

    _fields_ = (("content", ctypes.c_void_p), ("size", ctypes.c_int32))


def _exception_at(address: int) -> BaseException:
    if address == 0:
        return SystemError("a kernel failed, and did not say why")
    raised = _Raised.from_address(address)
    content = ctypes.string_at(raised.content, raised.size)
    kind, arguments, _ = pickle.loads(content)  # noqa: S301  part of the code that just ran
    exception: BaseException = kind(*arguments)
    return exception
