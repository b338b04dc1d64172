"""How kernels are compiled and loaded in half the time: by inner parts of numba.

Numba optimises every helper as a library of its own, and makes machine code of it, before
it becomes part of a kernel and is optimised again. Here helpers are left as they are, and
a kernel with all of its helpers is optimised once. And before it loads what it has kept, it
prepares for compiling, which takes longer than to load: here only what is loaded runs. Only
:mod:`nadi.kernels.jit` uses this, and only with versions of numba that it was tried with.
"""

from __future__ import annotations

from typing import Any

from llvmlite.binding import Linkage, parse_assembly
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.runtime.nrt import rtsys

__all__ = ["HELPER_OPTIONS", "KERNEL_OPTIONS", "keep"]


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

    def serialize_using_object_code(self) -> Any:
        """Give what is kept: machine code, and instead of all code to link to, its names."""
        own: Any = self
        own._ensure_finalized()
        names = [
            function.name for function in own._final_module.functions
            if not function.is_declaration and function.linkage == Linkage.external
        ]  # fmt: skip
        parse: Any = parse_assembly
        stubs = parse("\n".join(f'define void @"{name}"() {{ ret void }}' for name in names))
        return own.name, "object", (own._get_compiled_object(), stubs.as_bitcode())


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


class _Lean(CompileResultCacheImpl):
    """What is kept of a kernel."""

    def reduce(self, cres: Any) -> Any:
        """Leave out what types were found, and the surroundings of all but the kernel itself.

        Those of helpers are for handing on objects of Python, which helpers do not have.
        """
        *kept, _, init, surroundings = cres._reduce()
        own = tuple(s for s in surroundings if s.env_name == cres.fndesc.env_name)
        return (*kept, "", init, own)


class _Kept(FunctionCache):
    """Kernels that are kept on disk."""

    _impl_class = _Lean

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        runtime: Any = rtsys
        runtime.initialize(target_context)  # which counts how often arrays are in use
        own: Any = self
        with own._guard_against_spurious_io_errors():
            return own._load_overload(sig, target_context)


def keep(dispatcher: Any) -> None:
    """Keep what is compiled of a kernel in the folder that is now numba's."""
    kept: Any = _Kept
    dispatcher._cache = kept(dispatcher.py_func)
