"""A tuple of arrays by its address, so that a call of a kernel passes one word instead of some hundred.

numba flattens a tuple of arrays into its parts at every call: data, shape, strides and more of each array.
Kernels are written as if they got the tuple (`s.engines[e]`); compiled code gets a handle of it, made once
where Python enters. A handle is good as long as the call in which it was made; the arrays belong to Python.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, njit, types
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


@intrinsic
def _store(typing_context, record, address):  # type: ignore[no-untyped-def]
    """Write the tuple itself to memory; returns how many bytes it takes there."""

    def code(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        kind = context.get_value_type(record)
        builder.store(arguments[0], builder.inttoptr(arguments[1], kind.as_pointer()), align=8)
        return context.get_constant(types.int64, context.get_abi_sizeof(kind))

    return types.int64(record, address), code


@intrinsic
def _at_address(typing_context, like, address):  # type: ignore[no-untyped-def]
    def code(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.inttoptr(arguments[1], ir.IntType(8).as_pointer())

    return like(like, address), code


@njit(cache=True)
def _lodge(record, address):  # type: ignore[no-untyped-def]
    return _store(record, address)  # type: ignore[call-arg]


LODGED: dict[int, Any] = {}  # where nothing is compiled


def lodge(record: Any) -> tuple[int, Any]:
    """(address, owner): where compiled code finds this tuple of arrays (`lodged`) as long as its owner and
    the arrays live."""
    memory = np.empty(128 * len(record), np.uint8)  # an array of three dimensions takes 88
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        LODGED[memory.ctypes.data] = record
    else:
        assert _lodge(record, memory.ctypes.data) <= memory.size
    return memory.ctypes.data, memory


def _lodged(like: Any, address: int) -> Any:
    return LODGED[address]


# The tuple at an address of `lodge`, whose type is that of `like`: a handle in compiled code.
lodged: Any = _lodged if config.DISABLE_JIT else _at_address  # type: ignore[attr-defined]


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
