"""What kernels call that Python has no word for, and arrays handed over as one pointer.

It is not numba's public interface, as :mod:`nadi.kernels.numba_internals` is not.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, register_model

_cgutils: Any = cgutils
_types: Any = types
_lowering: Any = lower_getattr_generic

_BYTE = ir.IntType(8)
_WORD = ir.IntType(64)
_LANES = 16


@intrinsic
def borrowed(typing_context: Any, given: Any) -> Any:
    """Give an array, or a tuple of them, not counted as in use: kernels count at every call.

    Only for arguments, which the caller holds on to meanwhile.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _uncounted(context, builder, signature.args[0], arguments[0])

    return given(given), generate


def _uncounted(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    if isinstance(kind, _types.BaseTuple):
        parts = [
            _uncounted(context, builder, part, builder.extract_value(value, i))
            for i, part in enumerate(kind.types)
        ]
        return context.make_tuple(builder, kind, parts)
    if not isinstance(kind, _types.Array):
        return value
    found = context.make_array(kind)(context, builder, value)
    for name in ("meminfo", "parent"):
        setattr(found, name, getattr(found, name).type(None))
    return found._getvalue()


@intrinsic
def special_lanes(typing_context: Any, text: Any, at: Any) -> Any:
    """Tell which of 16 bytes end the plain part of a string, as bits.

    They are quotes, backslashes, control characters and all beyond ASCII. The caller
    knows that 16 bytes are there.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        lanes = ir.VectorType(_BYTE, _LANES)
        address = builder.gep(array.data, [arguments[1]])
        loaded = builder.load(builder.bitcast(address, lanes.as_pointer()))
        loaded.align = 1

        def same(byte: int) -> Any:
            return ir.Constant(lanes, [byte] * _LANES)

        found = builder.or_(
            builder.icmp_unsigned("==", loaded, same(ord('"'))),
            builder.icmp_unsigned("==", loaded, same(ord("\\"))),
        )
        # bytes beyond ASCII are negative when signed
        found = builder.or_(found, builder.icmp_signed("<", loaded, same(ord(" "))))
        return builder.zext(builder.bitcast(found, ir.IntType(_LANES)), _WORD)

    return _types.int64(text, _types.int64), generate


@intrinsic
def count_trailing_zeros(typing_context: Any, number: Any) -> Any:
    """Count the zero bits below the lowest one; the number is not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return _types.int64(_types.int64), generate


@intrinsic
def load_eight_bytes(typing_context: Any, text: Any, at: Any) -> Any:
    """Load 8 bytes as one number; the caller knows that they are there."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.gep(array.data, [arguments[1]])
        loaded = builder.load(builder.bitcast(address, _WORD.as_pointer()))
        loaded.align = 1
        return loaded

    return _types.uint64(text, _types.int64), generate


@intrinsic
def prefetch(typing_context: Any, table: Any, row: Any, column: Any) -> Any:
    """Have the processor fetch a place of a table, which will be asked for soon."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        byte = context.get_value_type(_types.voidptr)
        address = builder.bitcast(array.data, byte)
        for axis in range(2):
            stride = builder.extract_value(array.strides, axis)
            address = builder.gep(address, [builder.mul(arguments[1 + axis], stride)])
        word = context.get_value_type(_types.int32)
        taken = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        declared = builder.module.declare_intrinsic("llvm.prefetch", [byte], taken)
        # for reading, to stay in every cache, data
        builder.call(declared, [address, word(0), word(3), word(1)])
        return context.get_dummy_value()

    return _types.none(table, _types.int64, _types.int64), generate


# many arrays as one pointer


class _Lent(types.Type):
    """The type of a pointer to a named tuple of arrays and of other such tuples."""

    def __init__(self, content: Any) -> None:
        self.content = content
        super().__init__(name=f"lent({content})")


@register_model(_Lent)
class _LentModel(models.OpaqueModel):
    """An address, whatever stands there."""


def _type_of_field(template: Any, lent_type: Any, name: str) -> Any:
    content = lent_type.content
    if name not in content.fields:
        return None
    field = content.types[content.fields.index(name)]
    return _Lent(field) if isinstance(field, _types.BaseNamedTuple) else field


@infer_getattr
class _LentAttributes(AttributeTemplate):
    key = _Lent
    generic_resolve: Any = _type_of_field


def _read_field(context: Any, builder: Any, lent_type: Any, value: Any, name: str) -> Any:
    content = lent_type.content
    place = content.fields.index(name)
    field = content.types[place]
    pointer = builder.bitcast(value, context.get_value_type(content).as_pointer())
    pointer = _cgutils.gep_inbounds(builder, pointer, 0, place)
    if isinstance(field, _types.BaseNamedTuple):
        return builder.bitcast(pointer, context.get_value_type(_Lent(field)))
    stored = context.make_array(field)(context, builder, ref=pointer)
    found = context.make_array(field)(context, builder)
    # what counts it as in use stays empty: the kernel holds on to it
    for part in ("nitems", "itemsize", "data", "shape", "strides"):
        load = builder.load(stored._get_ptr_by_name(part))
        # written before the helper was called, and by nobody meanwhile: need not be read again
        load.set_metadata("invariant.load", builder.module.add_metadata([]))
        setattr(found, part, load)
    return found._getvalue()


_lowering(_Lent)(_read_field)


@intrinsic
def lent(typing_context: Any, content: Any) -> Any:
    """Give a kernel's argument, a named tuple, so that handing it over costs nothing.

    The helper that it is given to has to be kept ``apart``: what its caller writes, it takes for
    unchangeable.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        stored = _cgutils.alloca_once_value(builder, arguments[0])
        return builder.bitcast(stored, context.get_value_type(signature.return_type))

    return _Lent(content)(content), generate


@intrinsic
def apart(typing_context: Any) -> Any:
    """Keep the helper in which this is called from becoming part of its caller."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return _types.none(), generate
