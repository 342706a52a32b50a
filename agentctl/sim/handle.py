"""A tuple of arrays by its address, so that a call of a kernel passes one word instead of some hundred.

numba flattens a tuple of arrays into its parts at every call: data, shape, strides and more of each array.
Kernels are written as if they got the tuple (`s.engines[e]`); compiled code gets a handle of it, made once
where Python enters. A handle is good as long as the call in which it was made; the arrays belong to Python.
"""

from __future__ import annotations

import hashlib
from typing import Any

from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.imputils import impl_ret_borrowed, lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, overload, register_model


class Handle(types.Type):
    """The compiler's type of a handle of a `record`, a NamedTuple of the compiler's types."""

    def __init__(self, record: Any) -> None:
        self.record = record
        digest = hashlib.blake2b(str(record).encode(), digest_size=8).hexdigest()
        super().__init__(f"{record.instance_class.__name__}({digest})")  # short: part of every symbol


@register_model(Handle)
class _HandleModel(models.OpaqueModel):  # type: ignore[misc]
    """A pointer without a type."""


@infer_getattr
class _Fields(AttributeTemplate):  # type: ignore[misc]
    key = Handle

    def generic_resolve(self, handle: Handle, field: str) -> Any:  # type: ignore[override]
        record = handle.record
        return record.types[record.fields.index(field)] if field in record.fields else None


@lower_getattr_generic(Handle)
def _load_field(context: Any, builder: Any, handle: Handle, value: Any, field: str) -> Any:
    record = handle.record
    number = record.fields.index(field)
    tuple_at = builder.bitcast(value, context.get_value_type(record).as_pointer())
    loaded = builder.load(cgutils.gep_inbounds(builder, tuple_at, 0, number))
    return impl_ret_borrowed(context, builder, record.types[number], loaded)


@intrinsic
def _address(typing_context, record):  # type: ignore[no-untyped-def]
    """The place is one of the caller's: an intrinsic is a part of it."""

    def code(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        place = cgutils.alloca_once_value(builder, arguments[0])
        return builder.bitcast(place, ir.IntType(8).as_pointer())

    return Handle(record)(record), code


def _itself(record: Any) -> Any:
    return record


# A tuple's handle in compiled code; where nothing is compiled the tuple itself.
handle_of: Any = _itself if config.DISABLE_JIT else _address  # type: ignore[attr-defined]


def keep(value):  # type: ignore[no-untyped-def]
    """In compiled code: one reference more to what a kernel returned, since kernels count none."""


@overload(keep, inline="always")
def _keep(value):  # type: ignore[no-untyped-def]
    return lambda value: _count_up(value)  # type: ignore[call-arg]


@intrinsic
def _count_up(typing_context, value):  # type: ignore[no-untyped-def]
    def code(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        context.nrt.incref(builder, signature.args[0], arguments[0])
        return context.get_dummy_value()

    return types.void(value), code
