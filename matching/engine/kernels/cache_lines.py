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

import inspect
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
# need neither the interpreter nor numba's runtime, and their code can be stored (`compiler`).
OPTIONS: Mapping[str, Any] = {"error_model": "numpy", "_nrt": False}


def kernel(function: F) -> F:
    """Declare a kernel: an entry (`code_cache.ENTRIES`) or a function that some entry calls."""
    return cast(F, numba.njit(**OPTIONS)(function))


def _instruction(result: Any, *arguments: Any) -> Callable[[Callable[..., Any]], Any]:
    """Declare an operation for compiled code by its types and a function that emits LLVM
    instructions: called with the builder and the arguments' values, it returns the result's."""

    def declare(emit: Callable[..., Any]) -> Any:
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            value = emit(builder, *values)
            return context.get_dummy_value() if value is None else value

        def typed(typing: Any, *kinds: Any) -> Any:
            return result(*arguments), code

        vars(typed)["__signature__"] = inspect.signature(emit)  # which numba reads
        return intrinsic(typed)

    return declare


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


@_instruction(LINE_TYPE, ADDRESS)
def line_load(builder: Any, address: Any) -> Any:
    """The line at an address that is a multiple of 64."""
    place = builder.inttoptr(address, VECTOR.as_pointer())
    return builder.load(place, align=BYTES)


@_instruction(types.int64, ADDRESS, types.int64)
def line_reached(builder: Any, address: Any, code: Any) -> Any:
    """The number of the eight integers at an address (a multiple of 64) that are at most `code`."""
    place = builder.inttoptr(address, VECTOR.as_pointer())
    alike = ir.Constant(VECTOR, ir.Undefined)
    for lane in range(8):
        alike = builder.insert_element(alike, code, ir.Constant(ir.IntType(32), lane))
    reached = builder.icmp_signed("<=", builder.load(place, align=BYTES), alike)
    count = _llvm(builder, "llvm.ctpop.i8", ir.IntType(8), ir.IntType(8))
    some = builder.call(count, [builder.bitcast(reached, ir.IntType(8))])
    return builder.zext(some, WORD_TYPE)


@_instruction(types.void, ADDRESS, LINE_TYPE)
def line_store(builder: Any, address: Any, line: Any) -> None:
    """Write a line to an address that is a multiple of 64."""
    place = builder.inttoptr(address, VECTOR.as_pointer())
    builder.store(line, place, align=BYTES)


@_instruction(LINE_TYPE, LINE_TYPE, LINE_TYPE)
def line_or(builder: Any, left: Any, right: Any) -> Any:
    """Bitwise OR of two cache lines."""
    return builder.or_(left, right)


@_instruction(LINE_TYPE, LINE_TYPE, LINE_TYPE)
def line_and(builder: Any, left: Any, right: Any) -> Any:
    """Bitwise AND of two cache lines."""
    return builder.and_(left, right)


@_instruction(LINE_TYPE, LINE_TYPE)
def line_not(builder: Any, line: Any) -> Any:
    """Bitwise NOT of a cache line."""
    return builder.not_(line)


@_instruction(LINE_TYPE)
def line_none(builder: Any) -> Any:
    """A cache line (eight 64-bit words) of zeros."""
    return ir.Constant(VECTOR, [0] * 8)


@_instruction(types.boolean, LINE_TYPE)
def line_any(builder: Any, line: Any) -> Any:
    """Whether any of the line's 512 bits is set."""
    whole = ir.IntType(512)
    return builder.icmp_unsigned("!=", builder.bitcast(line, whole), ir.Constant(whole, 0))


@_instruction(types.int64, LINE_TYPE)
def line_words(builder: Any, line: Any) -> Any:
    """A bit for each of the line's eight words that is not zero."""
    some = builder.icmp_unsigned("!=", line, ir.Constant(VECTOR, [0] * 8))
    return builder.zext(builder.bitcast(some, ir.IntType(8)), WORD_TYPE)


@_instruction(types.int64, LINE_TYPE)
def line_count(builder: Any, line: Any) -> Any:
    """The number of bits that are set in the line, 0 to 512."""
    count = _llvm(builder, "llvm.ctpop.v8i64", VECTOR, VECTOR)
    total = _llvm(builder, "llvm.vector.reduce.add.v8i64", WORD_TYPE, VECTOR)
    return builder.call(total, [builder.call(count, [line])])


@_instruction(types.int64, LINE_TYPE, ADDRESS, ADDRESS)
def line_emit(builder: Any, line: Any, labels: Any, out: Any) -> Any:
    """Write the labels (uint32[512] at `labels`) of the bits set, in order; returns their number.

    Sixteen labels at a time are compressed and written as a whole, so `out` needs 64 bytes more
    than the labels take.
    """
    half = ir.IntType(16)
    pack = ir.VectorType(ir.IntType(32), LANES)
    mask = ir.VectorType(ir.IntType(1), LANES)
    name = "llvm.experimental.vector.compress.v16i32"
    compress = _llvm(builder, name, pack, pack, mask, pack)
    count = _llvm(builder, "llvm.ctpop.i16", half, half)
    halves = builder.bitcast(line, ir.VectorType(half, 512 // LANES))
    start = out
    for step in range(512 // LANES):
        bits = builder.extract_element(halves, ir.Constant(ir.IntType(32), step))
        source = builder.add(labels, ir.Constant(WORD_TYPE, step * LANES * 4))
        some = builder.load(builder.inttoptr(source, pack.as_pointer()), align=BYTES)
        rest = ir.Constant(pack, ir.Undefined)
        kept = builder.call(compress, [some, builder.bitcast(bits, mask), rest])
        builder.store(kept, builder.inttoptr(out, pack.as_pointer()), align=4)
        more = builder.zext(builder.call(count, [bits]), WORD_TYPE)
        out = builder.add(out, builder.shl(more, ir.Constant(WORD_TYPE, 2)))
    return builder.lshr(builder.sub(out, start), ir.Constant(WORD_TYPE, 2))


@_instruction(types.int64, types.int64)
def lowest_bit(builder: Any, word: Any) -> Any:
    """The position of the lowest bit set in a word, which must not be zero."""
    return builder.cttz(word, ir.Constant(ir.IntType(1), 1))


@_instruction(types.void, ADDRESS)
def prefetch(builder: Any, address: Any) -> None:
    """Start to fetch the cache line at an address, without waiting for it."""
    flag = ir.IntType(32)
    pointer = ir.IntType(8).as_pointer()
    function = _llvm(builder, "llvm.prefetch.p0", ir.VoidType(), pointer, flag, flag, flag)
    hints = [ir.Constant(flag, hint) for hint in (0, 3, 1)]  # to read, keep, data
    builder.call(function, [builder.inttoptr(address, pointer), *hints])


@_instruction(types.int64, ADDRESS, ADDRESS, ADDRESS, ADDRESS)
def inside(builder: Any, columns: Any, lows: Any, highs: Any, codes: Any) -> Any:
    """Compare eight parts of a record with an event's fine codes.

    Returns a bit for each part with low <= code <= high, and 8 bits above it one for low < code <
    high. `columns`: a word with the parts' columns, a byte each; `lows`, `highs`: addresses of
    eight 16-bit fine codes; `codes`: address of the event's fine codes, int32 by column.
    """
    number, narrow = ir.IntType(32), ir.IntType(16)
    lanes, mask = ir.VectorType(number, 8), ir.IntType(8)
    values = ir.Constant(lanes, ir.Undefined)
    for lane in range(8):
        column = builder.and_(
            builder.lshr(columns, ir.Constant(WORD_TYPE, 8 * lane)), ir.Constant(WORD_TYPE, 255)
        )
        place = builder.add(codes, builder.shl(column, ir.Constant(WORD_TYPE, 2)))
        value = builder.load(builder.inttoptr(place, number.as_pointer()), align=4)
        values = builder.insert_element(values, value, ir.Constant(number, lane))

    def ends(address: Any) -> Any:
        place = builder.inttoptr(address, ir.VectorType(narrow, 8).as_pointer())
        return builder.zext(builder.load(place, align=2), lanes)

    def bits(order: str) -> Any:
        both = builder.and_(
            builder.icmp_signed(order, ends(lows), values),
            builder.icmp_signed(order, values, ends(highs)),
        )
        return builder.zext(builder.bitcast(both, mask), WORD_TYPE)

    return builder.or_(bits("<="), builder.shl(bits("<"), ir.Constant(WORD_TYPE, 8)))


def _access(integer: Any) -> tuple[Callable[[int], int], Callable[[int, int], None]]:
    @_instruction(types.int64, ADDRESS)
    def read(builder: Any, address: Any) -> Any:
        """The integer at an address, widened to 64 bits."""
        place = builder.inttoptr(address, integer.as_pointer())
        value = builder.load(place, align=integer.width // 8)
        return value if integer.width == 64 else builder.zext(value, WORD_TYPE)

    @_instruction(types.void, ADDRESS, types.int64)
    def write(builder: Any, address: Any, value: Any) -> None:
        """Write the low bits of an integer to an address."""
        place = builder.inttoptr(address, integer.as_pointer())
        low = value if integer.width == 64 else builder.trunc(value, integer)
        builder.store(low, place, align=integer.width // 8)

    return read, write


read64, write64 = _access(ir.IntType(64))
read32, write32 = _access(ir.IntType(32))
_, write16 = _access(ir.IntType(16))
read8, write8 = _access(ir.IntType(8))
