"""A line of 512 bits as one value in compiled code, and access to memory by address.

A line is 64 bytes: one cache line, and one vector register of AVX-512 (LLVM splits it where
registers are smaller). numba has no such type, and its vectoriser does not derive it from loops
over eight words (measured: two times slower), so the type is defined here, with the few operations
that the kernels need. They are portable instructions of LLVM: nothing here depends on a kind of
CPU.

Memory is accessed by integer addresses: passing one address costs a fifth of a microsecond per call
of a kernel, passing a dozen arrays costs more than a match of few predicates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model

F = TypeVar("F", bound=Callable[..., Any])

WORD_TYPE = ir.IntType(64)
VECTOR = ir.VectorType(WORD_TYPE, 8)
BYTES = 64  # of a line
LANES = 16  # 32-bit labels that are compressed at once: a line of them
ADDRESS = types.int64
# Division does not check for zero, and there is no reference counting: so kernels raise nothing and
# need neither the interpreter nor numba's runtime, and their code can be stored (`compiling`).
OPTIONS: Mapping[str, Any] = {"error_model": "numpy", "_nrt": False}


def kernel(function: F) -> F:
    """Declare a kernel: an entry (`entries.ENTRIES`) or a function that some entry calls."""
    return cast(F, numba.njit(**OPTIONS)(function))


def _instruction(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declare an operation for compiled code, called without the first argument (`typing`)."""
    return cast(Callable[..., Any], intrinsic(function))


def _llvm(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    """Declare one of LLVM's intrinsic functions in the current module."""
    kind = ir.FunctionType(result, arguments)
    find: Any = cgutils.get_or_insert_function
    return find(builder.module, kind, name)


class LineType(types.Type):
    """The type of a line, for numba."""

    def __init__(self) -> None:
        super().__init__(name="Line")


LINE_TYPE = LineType()


@register_model(LineType)
class _LineModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, VECTOR)  # type: ignore[no-untyped-call]


@_instruction
def line_load(typing: Any, address: Any) -> Any:
    """The line at an address that is a multiple of 64."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.inttoptr(args[0], VECTOR.as_pointer())
        return builder.load(place, align=BYTES)

    return LINE_TYPE(ADDRESS), code


@_instruction
def line_reached(typing: Any, address: Any, code: Any) -> Any:
    """How many of the eight integers at an address (a multiple of 64) are at most `code`."""

    def code_(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.inttoptr(args[0], VECTOR.as_pointer())
        alike = ir.Constant(VECTOR, ir.Undefined)
        for lane in range(8):
            alike = builder.insert_element(alike, args[1], ir.Constant(ir.IntType(32), lane))
        reached = builder.icmp_signed("<=", builder.load(place, align=BYTES), alike)
        count = _llvm(builder, "llvm.ctpop.i8", ir.IntType(8), ir.IntType(8))
        some = builder.call(count, [builder.bitcast(reached, ir.IntType(8))])
        return builder.zext(some, WORD_TYPE)

    return types.int64(ADDRESS, types.int64), code_


@_instruction
def line_store(typing: Any, address: Any, line: Any) -> Any:
    """Write a line to an address that is a multiple of 64."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.inttoptr(args[0], VECTOR.as_pointer())
        builder.store(args[1], place, align=BYTES)
        return context.get_dummy_value()

    return types.void(ADDRESS, LINE_TYPE), code


@_instruction
def line_or(typing: Any, left: Any, right: Any) -> Any:
    """Bitwise OR of two cache lines."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.or_(args[0], args[1])

    return LINE_TYPE(LINE_TYPE, LINE_TYPE), code


@_instruction
def line_and(typing: Any, left: Any, right: Any) -> Any:
    """Bitwise AND of two cache lines."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.and_(args[0], args[1])

    return LINE_TYPE(LINE_TYPE, LINE_TYPE), code


@_instruction
def line_not(typing: Any, line: Any) -> Any:
    """Bitwise NOT of a cache line."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.not_(args[0])

    return LINE_TYPE(LINE_TYPE), code


@_instruction
def line_none(typing: Any) -> Any:
    """A line of zeros."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(VECTOR, [0] * 8)

    return LINE_TYPE(), code


@_instruction
def line_any(typing: Any, line: Any) -> Any:
    """Whether any bit is set."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        whole = ir.IntType(512)
        return builder.icmp_unsigned("!=", builder.bitcast(args[0], whole), ir.Constant(whole, 0))

    return types.boolean(LINE_TYPE), code


@_instruction
def line_words(typing: Any, line: Any) -> Any:
    """A bit for each of the line's eight words that is not zero."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        some = builder.icmp_unsigned("!=", args[0], ir.Constant(VECTOR, [0] * 8))
        return builder.zext(builder.bitcast(some, ir.IntType(8)), WORD_TYPE)

    return types.int64(LINE_TYPE), code


@_instruction
def line_count(typing: Any, line: Any) -> Any:
    """The number of bits set."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        count = _llvm(builder, "llvm.ctpop.v8i64", VECTOR, VECTOR)
        total = _llvm(builder, "llvm.vector.reduce.add.v8i64", WORD_TYPE, VECTOR)
        return builder.call(total, [builder.call(count, [args[0]])])

    return types.int64(LINE_TYPE), code


@_instruction
def line_emit(typing: Any, line: Any, labels: Any, out: Any) -> Any:
    """Write the labels (uint32[512] at `labels`) of the bits set, in order; returns their number.

    Sixteen labels at a time are compressed and written as a whole, so `out` needs 64 bytes more
    than the labels take.
    """

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        half = ir.IntType(16)
        pack = ir.VectorType(ir.IntType(32), LANES)
        mask = ir.VectorType(ir.IntType(1), LANES)
        name = "llvm.experimental.vector.compress.v16i32"
        compress = _llvm(builder, name, pack, pack, mask, pack)
        count = _llvm(builder, "llvm.ctpop.i16", half, half)
        halves = builder.bitcast(args[0], ir.VectorType(half, 512 // LANES))
        out, start = args[2], args[2]
        for step in range(512 // LANES):
            bits = builder.extract_element(halves, ir.Constant(ir.IntType(32), step))
            source = builder.add(args[1], ir.Constant(WORD_TYPE, step * LANES * 4))
            labels = builder.load(builder.inttoptr(source, pack.as_pointer()), align=BYTES)
            kept = builder.call(
                compress, [labels, builder.bitcast(bits, mask), ir.Constant(pack, ir.Undefined)]
            )
            builder.store(kept, builder.inttoptr(out, pack.as_pointer()), align=4)
            more = builder.zext(builder.call(count, [bits]), WORD_TYPE)
            out = builder.add(out, builder.shl(more, ir.Constant(WORD_TYPE, 2)))
        return builder.lshr(builder.sub(out, start), ir.Constant(WORD_TYPE, 2))

    return types.int64(LINE_TYPE, ADDRESS, ADDRESS), code


@_instruction
def lowest_bit(typing: Any, word: Any) -> Any:
    """The position of the lowest bit set in a word, which must not be zero."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), code


@_instruction
def prefetch(typing: Any, address: Any) -> Any:
    """Start to fetch the cache line at an address, without waiting for it."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        flag = ir.IntType(32)
        pointer = ir.IntType(8).as_pointer()
        function = _llvm(builder, "llvm.prefetch.p0", ir.VoidType(), pointer, flag, flag, flag)
        hints = [ir.Constant(flag, hint) for hint in (0, 3, 1)]  # to read, keep, data
        builder.call(function, [builder.inttoptr(args[0], pointer), *hints])
        return context.get_dummy_value()

    return types.void(ADDRESS), code


@_instruction
def inside(typing: Any, columns: Any, lows: Any, highs: Any, codes: Any) -> Any:
    """Compare eight parts of a record with an event's fine codes.

    Returns a bit for each part with low <= code <= high, and 8 bits above it one for low < code <
    high. `columns`: a word with the parts' columns, a byte each; `lows`, `highs`: addresses of
    eight 16-bit fine codes; `codes`: address of the event's fine codes, int32 by column.
    """

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number, narrow = ir.IntType(32), ir.IntType(16)
        lanes, mask = ir.VectorType(number, 8), ir.IntType(8)
        values = ir.Constant(lanes, ir.Undefined)
        for lane in range(8):
            column = builder.and_(
                builder.lshr(args[0], ir.Constant(WORD_TYPE, 8 * lane)), ir.Constant(WORD_TYPE, 255)
            )
            place = builder.add(args[3], builder.shl(column, ir.Constant(WORD_TYPE, 2)))
            value = builder.load(builder.inttoptr(place, number.as_pointer()), align=4)
            values = builder.insert_element(values, value, ir.Constant(number, lane))

        def ends(address: Any) -> Any:
            place = builder.inttoptr(address, ir.VectorType(narrow, 8).as_pointer())
            return builder.zext(builder.load(place, align=2), lanes)

        def bits(order: str) -> Any:
            both = builder.and_(
                builder.icmp_signed(order, ends(args[1]), values),
                builder.icmp_signed(order, values, ends(args[2])),
            )
            return builder.zext(builder.bitcast(both, mask), WORD_TYPE)

        return builder.or_(bits("<="), builder.shl(bits("<"), ir.Constant(WORD_TYPE, 8)))

    return types.int64(ADDRESS, ADDRESS, ADDRESS, ADDRESS), code


def _access(integer: Any) -> tuple[Callable[[int], int], Callable[[int, int], None]]:
    @_instruction
    def read(typing: Any, address: Any) -> Any:
        """The integer at an address, widened to 64 bits."""

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            place = builder.inttoptr(args[0], integer.as_pointer())
            value = builder.load(place, align=integer.width // 8)
            return value if integer.width == 64 else builder.zext(value, WORD_TYPE)

        return types.int64(ADDRESS), code

    @_instruction
    def write(typing: Any, address: Any, value: Any) -> Any:
        """Write the low bits of an integer to an address."""

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            place = builder.inttoptr(args[0], integer.as_pointer())
            value = args[1] if integer.width == 64 else builder.trunc(args[1], integer)
            builder.store(value, place, align=integer.width // 8)
            return context.get_dummy_value()

        return types.void(ADDRESS, types.int64), code

    return read, write


read64, write64 = _access(ir.IntType(64))
read32, write32 = _access(ir.IntType(32))
_, write16 = _access(ir.IntType(16))
read8, write8 = _access(ir.IntType(8))
