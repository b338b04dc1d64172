"""How kernels are compiled in half the time: by ways into numba that are not its public ones.

Numba optimises every helper as a library of its own, and makes machine code of it, before
it becomes part of a kernel and is optimised again. Here helpers are left as they are, and
a kernel with all of its helpers is optimised once. Only :mod:`nadi.kernels._jit` uses
this, and only with versions of numba that it was tried with.
"""

from __future__ import annotations

from typing import Any

from llvmlite.binding import Linkage
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

__all__ = ["HELPER_OPTIONS", "KERNEL_OPTIONS"]


class _Part(JITCodeLibrary):
    """Code of a helper, left as it is: each kernel it becomes part of is optimised as a whole."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        default: Any = super()
        default._ensure_finalized()
        return 0  # there is no machine code

    @property
    def codegen(self) -> Any:
        return self

    def set_env(self, name: str, environment: Any) -> None:
        pass


class _Whole(JITCodeLibrary):
    """Code of a kernel with all of its helpers, which nobody else will call."""

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == Linkage.linkonce_odr:
                # what a helper does not use of its arguments need not be handed to it
                function.linkage = Linkage.internal
        default: Any = super()
        default._optimize_final_module()


class _PartCompiler(Compiler):
    _library: Any = _Part

    def define_pipelines(self) -> Any:
        state: Any = self.state
        state.library = self._library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        default: Any = super()
        return default.define_pipelines()


class _WholeCompiler(_PartCompiler):
    _library = _Whole


HELPER_OPTIONS: dict[str, Any] = {
    # what Python and C would call it through takes as long to compile as it does itself
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "_nrt": False,  # arrays are only looked at, and counted by the kernel
    "pipeline_class": _PartCompiler,
}
KERNEL_OPTIONS: dict[str, Any] = {"pipeline_class": _WholeCompiler}
