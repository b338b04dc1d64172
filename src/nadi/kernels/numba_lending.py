"""Many arrays handed to the helpers of a kernel as one pointer.

Numba hands a named tuple over array by array, and each array as its parts: two hundred values
for thirty arrays, copied at every call. A kernel that lends its tuple puts it into memory once;
helpers get the address, and read from there what they use.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, register_model

__all__ = ["apart", "lent"]

_cgutils: Any = cgutils
_lowering: Any = lower_getattr_generic


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
    return _Lent(field) if isinstance(field, types.BaseNamedTuple) else field


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
    if isinstance(field, types.BaseNamedTuple):
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

    return types.none(), generate
