"""All of numba that is not its public interface: kernels become objects that need no numba.

Numba optimizes every helper as a library of its own, with all that it calls, and makes machine
code of it, before it becomes part of a kernel and is optimized again. Here helpers are left as
they are, and a kernel with all of its helpers is linked and optimized once. What comes of it is an
object that is called with the addresses of two arrays of 64-bit numbers, and calls nothing but the
C library: so who loads it needs neither numba nor its runtime (:mod:`nadi.kernels.object_code`).

Most of the time goes to numba's own passes in Python. Those that kernels have no use for are left
out, and what an operator gives for two numbers is looked up once.

With a version of numba that this was not tried with, :mod:`nadi.kernels.jit` takes
:mod:`nadi.kernels.numba_public` instead, which does all of this by public means.
"""

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from llvmlite.binding import Linkage, parse_assembly
from numba import types
from numba.core import cgutils, typed_passes, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager
from numba.core.registry import cpu_target

import nadi.kernels.numba_columns
import nadi.kernels.numba_intrinsics  # noqa: F401  numba hears of both before it compiles
from nadi.kernels.signatures import Signature

_cgutils: Any = cgutils
_numba: Any = numba
_types: Any = types
_PassManager: Any = PassManager

# what the C library has, and nothing else: an unknown name would end the process when it is loaded
_C_LIBRARY = frozenset({"free", "malloc", "memchr", "memcmp", "memcpy", "memmove", "memset"})
_BYTE = ir.IntType(8)
_WORD = ir.IntType(64)
# in this order; the default has others: for closures, array expressions, unrolled loops
_PASSES: list[Any] = [
    untyped_passes.TranslateByteCode,
    untyped_passes.FixupArgs,
    untyped_passes.IRProcessing,
    untyped_passes.RewriteSemanticConstants,
    untyped_passes.DeadBranchPrune,
    untyped_passes.GenericRewrites,
    untyped_passes.RewriteDynamicRaises,
    untyped_passes.ReconstructSSA,
    typed_passes.NopythonTypeInference,
    typed_passes.PreLowerStripPhis,
    typed_passes.NoPythonSupportedFeatureValidation,
    typed_passes.IRLegalization,
    typed_passes.AnnotateTypes,
    typed_passes.NativeLowering,
    typed_passes.NoPythonBackend,
]


class NotSelfContainedError(Exception):
    """A kernel that calls what only numba's runtime has."""


# compiling


class _Part(JITCodeLibrary):
    """Code of a helper, left as it is: each kernel it becomes part of is optimized as a whole."""

    def finalize(self) -> None:
        self._finalized = True

    def _get_module_for_linking(self) -> Any:
        return self._final_module  # a kernel takes it once, so that its names need not be weak

    def add_linking_library(self, library: Any) -> None:
        _add_once(self._linking_libraries, library)

    def get_pointer_to_function(self, name: str) -> int:
        return 0  # there is no machine code

    @property
    def codegen(self) -> Any:
        return self

    def set_env(self, name: str, environment: Any) -> None:
        pass


def _add_once(libraries: list[Any], library: Any) -> None:
    """Add a library, and those that it calls."""
    if library not in libraries:
        libraries.append(library)
        for called in library._linking_libraries if isinstance(library, _Part) else ():
            _add_once(libraries, called)


class _Whole(JITCodeLibrary):
    """Code of a kernel with all of its helpers, which nobody else will call."""

    entry = ""

    def add_linking_library(self, library: Any) -> None:
        _add_once(self._linking_libraries, library)

    def _optimize_final_module(self) -> None:
        module: Any = self._final_module
        module.link_in(parse_assembly(str(_memory_module(module.triple, module.data_layout))))
        for function in module.functions:
            if not function.is_declaration and function.name != self.entry:
                # what a helper does not use of its arguments need not be handed to it
                function.linkage = Linkage.internal
        for variable in module.global_variables:
            if variable.linkage in (Linkage.common, Linkage.linkonce_odr, Linkage.weak_any):
                variable.linkage = Linkage.internal
        default: Any = super()
        default._optimize_final_module()

    def _finalize_final_module(self) -> None:
        self._finalized = True

    def emit(self) -> bytes:
        """Give the object; raises NotSelfContainedError if it needs more than the C library."""
        module: Any = self._final_module
        missing = {f.name for f in module.functions if f.is_declaration}
        missing = {name for name in missing if not name.startswith("llvm.")} - _C_LIBRARY
        missing |= {v.name for v in module.global_variables if v.is_declaration}
        missing |= {
            v.name for v in module.global_variables if v.name.startswith("numba.dynamic.globals")
        }
        if missing:
            raise NotSelfContainedError(f"{self.entry} needs {', '.join(sorted(missing))}")
        codegen: Any = self._codegen
        emitted: bytes = codegen._tm.emit_object(module)
        return emitted


class _PartCompiler(CompilerBase):
    _library: Any = _Part

    def define_pipelines(self) -> list[Any]:
        state: Any = self.state
        state.library = self._library(state.targetctx.codegen(), state.func_id.func_qualname)
        passes = _PassManager("kernel")
        for one in _PASSES:
            passes.add_pass(one, one.__name__)
        passes.finalize()
        return [passes]


class _WholeCompiler(_PartCompiler):
    _library = _Whole

    def define_pipelines(self) -> list[Any]:
        self.state.flags.no_compile = True  # an entry of our own has yet to be added
        return super().define_pipelines()


@contextlib.contextmanager
def _looking_up_once() -> Iterator[None]:
    """Remember what functions and operators give for numbers: each place asks numba for it."""
    context = cpu_target.typing_context
    look_up = context.resolve_function_type

    def look_up_once(function: Any, arguments: Any, named: Any) -> Any:
        if named or type(function) is not _types.Function:
            return look_up(function, arguments, named)
        if not all(isinstance(one, (_types.Number, _types.Boolean)) for one in arguments):
            return look_up(function, arguments, named)
        found = _looked_up.get((function, arguments))
        if found is None:
            found = look_up(function, arguments, named)
            if found is not None:
                _looked_up[function, arguments] = found
        return found

    context.resolve_function_type = look_up_once
    try:
        yield
    finally:
        del context.resolve_function_type


_looked_up: dict[tuple[Any, Any], Any] = {}
_stand_ins: dict[Callable[..., Any], Any] = {}


# what Python and C would call it through takes as long to compile as it does itself
_NO_WRAPPERS: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_HELPER_OPTIONS: dict[str, Any] = {
    **_NO_WRAPPERS,
    "_nrt": False,  # arrays are only looked at, and counted by the kernel
    "pipeline_class": _PartCompiler,
}


def compile_helper(
    function: Callable[..., Any],
    stand_in: tuple[str, Callable[..., Any]] | None = None,
    *,
    is_small: bool,
) -> Any:
    """Give a dispatcher for what only kernels call; if it is small, as part of each caller.

    The stand-in is for first arguments of a class that leaves the part out that is named.
    """
    compiled = _numba.njit(function, forceinline=is_small, **_HELPER_OPTIONS)
    template_of = compiled.get_call_template
    unliteral = _types.unliteral

    def template_for_types(arguments: Any, named: Any) -> Any:
        # a number written out is a type of its own to numba: do not compile for each anew
        return template_of([unliteral(a) for a in arguments], named)

    compiled.get_call_template = template_for_types
    if stand_in is not None:
        _let_stand_in(compiled._compiler, *stand_in)
    return compiled


def _let_stand_in(compiler: Any, part: str, instead: Callable[..., Any]) -> None:
    """Have a helper's compiler give its stand-in, which others share, where a part is left out."""
    compile_own = compiler.compile

    def compile_one(arguments: Any, result: Any) -> Any:
        first = getattr(arguments[0], "content", arguments[0])
        if part not in getattr(first.instance_class, "leaves_out", ()):
            return compile_own(arguments, result)
        shared = _stand_ins.get(instead)
        if shared is None:
            shared = _stand_ins[instead] = compile_helper(instead, is_small=True)
        found = shared.overloads.get(arguments)
        if found is None:
            shared.compile(arguments)
            found = shared.overloads[arguments]
        return found._replace(metadata={})  # numba notes there how long each took, once

    compiler.compile = compile_one


def compile_kernel(
    function: Callable[..., Any], signature: Signature, entry: str
) -> tuple[bytes, str]:
    """Compile a kernel for arguments of some types.

    - ``function``: The kernel's Python function.
    - ``signature``: The types, as :func:`nadi.kernels.signatures.signature_of` gives them.
    - ``entry``: The name by which the object's one function will be called.
    - Returns: The object, and a letter for each number that comes back: ``i``, or ``b`` for a bool;
      in parentheses if they are a tuple.
    - Raises numba.core.errors.NumbaError: The kernel cannot be compiled for these types.
    - Raises NotSelfContainedError: It needs numba's runtime.
    """
    arguments = tuple(_type_of(one) for one in signature)
    dispatcher = _numba.njit(function, pipeline_class=_WholeCompiler, **_NO_WRAPPERS)
    with global_compiler_lock, _looking_up_once():
        result = dispatcher._compiler.compile(arguments, None)
        library = result.library
        context = cpu_target.target_context
        library.entry = entry
        module = context.create_module(entry)
        _add_entry(context, module, result.fndesc, entry)
        library.add_ir_module(module)
        library.finalize()
        return library.emit(), _letters(result.fndesc.restype)


def _letters(result: Any) -> str:
    if isinstance(result, _types.NoneType):
        return ""
    if isinstance(result, _types.BaseTuple):
        return f"({''.join(_letters(one) for one in result.types)})"
    if isinstance(result, _types.Boolean):
        return "b"
    if isinstance(result, _types.Integer) and (result.signed or result.bitwidth < 64):
        return "i"
    raise TypeError(f"kernels return integers, not {result}")


def _type_of(stated: Any) -> Any:
    """Give numba's type for one of a signature."""
    if isinstance(stated, str):
        return {"int": _types.int64, "bool": _types.boolean, "float": _types.float64}[stated]
    kind, *rest = stated
    if kind == "array":
        dtype, num_axes, order, flags = rest
        element = _numba.from_dtype(np.dtype(dtype))
        return _types.Array(
            element, num_axes, order, readonly="r" in flags, aligned="u" not in flags
        )
    parts = [_type_of(one) for one in rest]
    if kind == "tuple":
        return _types.BaseTuple.from_types(parts)
    module, _, name = kind.partition(":")
    return _types.BaseTuple.from_types(parts, getattr(importlib.import_module(module), name))


def _add_entry(context: Any, module: Any, described: Any, name: str) -> None:
    """Write a function that takes the kernel's arguments from an array of 64-bit numbers.

    Its other argument is an array for what is returned, the first of it the address of what
    describes an exception. It returns 0, or that there was one.
    """
    kernel_type = context.call_conv.get_function_type(described.restype, described.argtypes)
    kernel = ir.Function(module, kernel_type, described.llvm_func_name)
    pointer = _WORD.as_pointer()
    function = ir.Function(module, ir.FunctionType(ir.IntType(32), [pointer, pointer]), name)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    slots = _Slots(context, builder, function.args[0])
    arguments = [slots.read(one) for one in described.argtypes]
    status, result = context.call_conv.call_function(
        builder, kernel, described.restype, described.argtypes, arguments
    )
    raised = builder.ptrtoint(status.excinfoptr, _WORD)
    builder.store(builder.select(status.is_error, raised, _WORD(0)), function.args[1])
    returned = described.restype
    if isinstance(returned, _types.BaseTuple):
        parts = [builder.extract_value(result, i) for i in range(len(returned.types))]
        kinds = list(returned.types)
    elif isinstance(returned, _types.NoneType):
        parts, kinds = [], []
    else:
        parts, kinds = [result], [returned]
    for i, (part, kind) in enumerate(zip(parts, kinds, strict=True)):
        if part.type.width < 64:
            is_signed = isinstance(kind, _types.Integer) and kind.signed
            part = (builder.sext if is_signed else builder.zext)(part, _WORD)
        place = builder.gep(function.args[1], [ir.IntType(32)(1 + i)])
        builder.store(part, place)
    builder.ret(status.code)


class _Slots:
    """An array of 64-bit numbers from which arguments are read one after the other."""

    def __init__(self, context: Any, builder: Any, address: Any) -> None:
        self._context, self._builder, self._address = context, builder, address
        self._next = 0

    def _word(self) -> Any:
        place = self._builder.gep(self._address, [ir.IntType(32)(self._next)])
        self._next += 1
        return self._builder.load(place)

    def read(self, wanted: Any) -> Any:
        """Give the value of an argument, for as many numbers as it takes."""
        context, builder = self._context, self._builder
        if isinstance(wanted, _types.BaseTuple):
            parts = [self.read(one) for one in wanted.types]
            return context.make_tuple(builder, wanted, parts)
        if isinstance(wanted, _types.Boolean):
            return builder.icmp_unsigned("!=", self._word(), _WORD(0))
        if isinstance(wanted, _types.Float):
            return builder.bitcast(self._word(), ir.DoubleType())
        if isinstance(wanted, _types.Array):
            return self._read_array(wanted)
        return self._word()

    def _read_array(self, wanted: Any) -> Any:
        """Make numba's array of an address, lengths, and strides unless they follow from these.

        What counts it as in use stays empty: who calls the kernel holds on to it.
        """
        context, builder = self._context, self._builder
        array = context.make_array(wanted)(context, builder)
        array.data = builder.inttoptr(self._word(), array.data.type)
        shape = [self._word() for _ in range(wanted.ndim)]
        itemsize = _WORD(context.get_abi_sizeof(context.get_data_type(wanted.dtype)))
        strides, step = [], itemsize
        if wanted.layout == "A":
            strides = [self._word() for _ in range(wanted.ndim)]
        else:
            for length in shape if wanted.layout == "F" else reversed(shape):
                strides.append(step)
                step = builder.mul(step, length)
            strides = strides if wanted.layout == "F" else strides[::-1]
        count = _WORD(1)
        for length in shape:
            count = builder.mul(count, length)
        array.nitems, array.itemsize = count, itemsize
        array.shape = _cgutils.pack_array(builder, shape, ty=_WORD)
        array.strides = _cgutils.pack_array(builder, strides, ty=_WORD)
        for part in ("meminfo", "parent"):
            setattr(array, part, getattr(array, part).type(None))
        return array._getvalue()


def _memory_module(triple: str, data_layout: str) -> ir.Module:
    """Write what numba's runtime does for arrays made within a kernel: take memory, and give back.

    Numba's code counts how often they are in use, in the first of six words that stand before
    them, and finds the array through the fourth.
    """
    module = ir.Module("memory")
    module.triple, module.data_layout = triple, data_layout
    pointer, words = _BYTE.as_pointer(), 6
    malloc = ir.Function(module, ir.FunctionType(pointer, [_WORD]), "malloc")
    free = ir.Function(module, ir.FunctionType(ir.VoidType(), [pointer]), "free")
    taking = ir.FunctionType(pointer, [_WORD, ir.IntType(32)])
    for name in ("NRT_MemInfo_alloc_aligned", "NRT_MemInfo_alloc_safe_aligned"):
        take = ir.Function(module, taking, name)
        builder = ir.IRBuilder(take.append_basic_block())
        align = builder.zext(take.args[1], _WORD)
        before = builder.add(align, _WORD(8 * words))
        found = builder.call(malloc, [builder.add(take.args[0], before)])
        with builder.if_then(builder.icmp_unsigned("!=", found, pointer(None)), likely=True):
            first = builder.add(builder.ptrtoint(found, _WORD), builder.sub(before, _WORD(1)))
            first = builder.sub(first, builder.urem(first, align))
            row = builder.bitcast(found, _WORD.as_pointer())
            for i, word in enumerate((_WORD(1), _WORD(0), _WORD(0), first, take.args[0], _WORD(0))):
                builder.store(word, builder.gep(row, [ir.IntType(32)(i)]))
        builder.ret(found)
    leave = ir.Function(module, ir.FunctionType(ir.VoidType(), [pointer]), "NRT_MemInfo_call_dtor")
    builder = ir.IRBuilder(leave.append_basic_block())
    builder.call(free, [leave.args[0]])
    builder.ret_void()
    return module


def type_of(helper: Any) -> Any:
    """Give what numba is to take a helper's dispatcher, or one of the following, for."""
    return cpu_target.typing_context.resolve_value_type(helper)
