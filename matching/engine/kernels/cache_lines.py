"""A line of 512 bits as one value in compiled code: load, store, AND, OR, NOT, count, emit.

A line is 64 bytes: one cache line, and one vector register where there are registers of that size
(LLVM splits it into smaller ones elsewhere). numba knows no such type and its loop vectoriser does
not find it in eight words by itself (measured: two times slower), so it is declared here with the
few instructions that the kernels need. They are LLVM's portable ones: nothing here names a CPU.

Memory is reached by its address, an integer: passing one block of addresses costs a fifth of a
microsecond per call of a kernel, passing a dozen arrays costs more than a match of few predicates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model

F = TypeVar("F", bound=Callable[..., Any])

WORD = ir.IntType(64)
VECTOR = ir.VectorType(WORD, 8)
BYTES = 64  # of a line
LANES = 16  # 32-bit labels that are compressed at once: half a kilobit of them
ADDRESS = types.int64
# Divisions do not look for zero, and nothing is counted by references: so kernels raise nothing and
# ask nothing of the interpreter or of numba, and can be kept without them (`compiling`).
OPTIONS: Mapping[str, Any] = {"error_model": "numpy", "_nrt": False}


def kernel(function: F) -> F:
    """A function of compiled code: an entry (`kernels`) or part of one."""
    return cast(F, numba.njit(**OPTIONS)(function))


def _instruction(function: Callable[..., Any]) -> Callable[..., Any]:
    """An instruction: called with its arguments but the first, in compiled code only."""
    return cast(Callable[..., Any], intrinsic(function))


def _llvm(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    """One of LLVM's own functions."""
    kind = ir.FunctionType(result, arguments)
    find: Any = cgutils.get_or_insert_function
    return find(builder.module, kind, name)


class LineType(types.Type):
    """The type of a line, for numba."""

    def __init__(self) -> None:
        super().__init__(name="Line")


LINE = LineType()


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

    return LINE(ADDRESS), code


@_instruction
def line_reached(typing: Any, address: Any, code: Any) -> Any:
    """How many of the eight integers at an address (a multiple of 64) are not above a number."""

    def code_(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.inttoptr(args[0], VECTOR.as_pointer())
        alike = ir.Constant(VECTOR, ir.Undefined)
        for lane in range(8):
            alike = builder.insert_element(alike, args[1], ir.Constant(ir.IntType(32), lane))
        reached = builder.icmp_signed("<=", builder.load(place, align=BYTES), alike)
        count = _llvm(builder, "llvm.ctpop.i8", ir.IntType(8), ir.IntType(8))
        some = builder.call(count, [builder.bitcast(reached, ir.IntType(8))])
        return builder.zext(some, WORD)

    return types.int64(ADDRESS, types.int64), code_


@_instruction
def line_store(typing: Any, address: Any, line: Any) -> Any:
    """Write a line to an address that is a multiple of 64."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.inttoptr(args[0], VECTOR.as_pointer())
        builder.store(args[1], place, align=BYTES)
        return context.get_dummy_value()

    return types.void(ADDRESS, LINE), code


@_instruction
def line_or(typing: Any, left: Any, right: Any) -> Any:
    """The bits that are in either."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.or_(args[0], args[1])

    return LINE(LINE, LINE), code


@_instruction
def line_and(typing: Any, left: Any, right: Any) -> Any:
    """The bits that are in both."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.and_(args[0], args[1])

    return LINE(LINE, LINE), code


@_instruction
def line_not(typing: Any, line: Any) -> Any:
    """The bits that are not in it."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.not_(args[0])

    return LINE(LINE), code


@_instruction
def line_none(typing: Any) -> Any:
    """The line without bits."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(VECTOR, [0] * 8)

    return LINE(), code


@_instruction
def line_any(typing: Any, line: Any) -> Any:
    """Whether there is a bit at all."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        whole = ir.IntType(512)
        return builder.icmp_unsigned("!=", builder.bitcast(args[0], whole), ir.Constant(whole, 0))

    return types.boolean(LINE), code


@_instruction
def line_words(typing: Any, line: Any) -> Any:
    """Which of the line's eight words have a bit: a bit for each."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        some = builder.icmp_unsigned("!=", args[0], ir.Constant(VECTOR, [0] * 8))
        return builder.zext(builder.bitcast(some, ir.IntType(8)), WORD)

    return types.int64(LINE), code


@_instruction
def line_count(typing: Any, line: Any) -> Any:
    """How many bits there are."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        count = _llvm(builder, "llvm.ctpop.v8i64", VECTOR, VECTOR)
        total = _llvm(builder, "llvm.vector.reduce.add.v8i64", WORD, VECTOR)
        return builder.call(total, [builder.call(count, [args[0]])])

    return types.int64(LINE), code


@_instruction
def line_emit(typing: Any, line: Any, labels: Any, out: Any) -> Any:
    """Write the 32-bit labels of the line's bits, in order, and say how many these are.

    Sixteen labels at a time are compressed and written whole: what is behind the last one is
    scratch, so 64 bytes more than fit have to be there.
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
            source = builder.add(args[1], ir.Constant(WORD, step * LANES * 4))
            labels = builder.load(builder.inttoptr(source, pack.as_pointer()), align=BYTES)
            kept = builder.call(
                compress, [labels, builder.bitcast(bits, mask), ir.Constant(pack, ir.Undefined)]
            )
            builder.store(kept, builder.inttoptr(out, pack.as_pointer()), align=4)
            more = builder.zext(builder.call(count, [bits]), WORD)
            out = builder.add(out, builder.shl(more, ir.Constant(WORD, 2)))
        return builder.lshr(builder.sub(out, start), ir.Constant(WORD, 2))

    return types.int64(LINE, ADDRESS, ADDRESS), code


@_instruction
def lowest_bit(typing: Any, word: Any) -> Any:
    """The position of the lowest bit of a word that is not zero."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), code


@_instruction
def prefetch(typing: Any, address: Any) -> Any:
    """Ask for the cache line at an address without waiting for it."""

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
    """Which of eight parts hold: a bit for each that does, and 8 bits higher if not at an end.

    `columns`: eight bytes in a word, which number 32-bit codes; `lows`, `highs`: addresses of eight
    16-bit numbers each, of the same order.
    """

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number, narrow = ir.IntType(32), ir.IntType(16)
        lanes, mask = ir.VectorType(number, 8), ir.IntType(8)
        values = ir.Constant(lanes, ir.Undefined)
        for lane in range(8):
            column = builder.and_(
                builder.lshr(args[0], ir.Constant(WORD, 8 * lane)), ir.Constant(WORD, 255)
            )
            place = builder.add(args[3], builder.shl(column, ir.Constant(WORD, 2)))
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
            return builder.zext(builder.bitcast(both, mask), WORD)

        return builder.or_(bits("<="), builder.shl(bits("<"), ir.Constant(WORD, 8)))

    return types.int64(ADDRESS, ADDRESS, ADDRESS, ADDRESS), code


def _access(integer: Any) -> tuple[Callable[[int], int], Callable[[int, int], None]]:
    @_instruction
    def read(typing: Any, address: Any) -> Any:
        """The integer at an address, widened to 64 bits."""

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            place = builder.inttoptr(args[0], integer.as_pointer())
            value = builder.load(place, align=integer.width // 8)
            return value if integer.width == 64 else builder.zext(value, WORD)

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
