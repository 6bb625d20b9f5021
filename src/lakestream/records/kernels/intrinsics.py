# mypy: ignore-errors
"""Single machine operations that numba has no spelling for: memory at an address, byte order, CRC steps.

Memory is an address and an index, both plain numbers: nothing is counted, copied or boxed. No bound is checked here:
the callers do that.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _pointer(builder, address, index, kind):
    pointer = builder.inttoptr(address, kind.as_pointer())
    return builder.gep(pointer, [index])


def _byte_pointer(builder, address, index, kind):
    return builder.bitcast(_pointer(builder, address, index, ir.IntType(8)), kind.as_pointer())


def _load(width, result, *, wire):
    """`wire`: the index counts bytes, the number is big-endian and anywhere. Otherwise an array of such numbers."""
    kind = ir.IntType(width)

    def declare(typingctx, address, index):
        def generate(context, builder, signature, args):
            if not wire:
                return builder.load(_pointer(builder, *args, kind))
            word = builder.load(_byte_pointer(builder, *args, kind))
            word.align = 1
            return builder.bswap(word)

        return result(types.int64, types.int64), generate

    return intrinsic(declare)


def _store(width, number, *, wire):
    kind = ir.IntType(width)

    def declare(typingctx, address, index, value):
        def generate(context, builder, signature, args):
            address, index, value = args
            if wire:
                store = builder.store(builder.bswap(value), _byte_pointer(builder, address, index, kind))
                store.align = 1
            else:
                builder.store(value, _pointer(builder, address, index, kind))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, number), generate

    return intrinsic(declare)


get_u8 = _load(8, types.uint8, wire=False)
get_i32 = _load(32, types.int32, wire=False)
get_i64 = _load(64, types.int64, wire=False)
set_u8 = _store(8, types.uint8, wire=False)
set_i32 = _store(32, types.int32, wire=False)
set_i64 = _store(64, types.int64, wire=False)
read_i16 = _load(16, types.int16, wire=True)
read_i32 = _load(32, types.int32, wire=True)
read_i64 = _load(64, types.int64, wire=True)
write_i16 = _store(16, types.int16, wire=True)
write_i32 = _store(32, types.int32, wire=True)
write_i64 = _store(64, types.int64, wire=True)


@intrinsic
def load_word(typingctx, address, index):
    """Eight bytes from anywhere, in the machine's own order."""

    def generate(context, builder, signature, args):
        word = builder.load(_byte_pointer(builder, *args, ir.IntType(64)))
        word.align = 1
        return word

    return types.uint64(types.int64, types.int64), generate


@intrinsic
def copy_bytes(typingctx, target, target_index, source, source_index, length):
    def generate(context, builder, signature, args):
        byte = ir.IntType(8)
        to = _pointer(builder, args[0], args[1], byte)
        cgutils.raw_memcpy(builder, to, _pointer(builder, args[2], args[3], byte), args[4], 1)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), generate


@intrinsic
def crc_word(typingctx, state, word):
    """One CRC32C step over eight bytes, SSE4.2."""

    def generate(context, builder, signature, args):
        long = ir.IntType(64)
        step = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(long, [long, long]), "llvm.x86.sse42.crc32.64.64"
        )
        return builder.call(step, args)

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def crc_byte(typingctx, state, byte):
    """One CRC32C step over one byte, SSE4.2."""

    def generate(context, builder, signature, args):
        word = ir.IntType(32)
        step = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(word, [word, ir.IntType(8)]), "llvm.x86.sse42.crc32.32.8"
        )
        return builder.call(step, args)

    return types.uint32(types.uint32, types.uint8), generate


@intrinsic
def trailing_zeros(typingctx, word):
    """Of a number that is not zero."""

    def generate(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


@intrinsic
def leading_zeros(typingctx, word):
    """Of a number that is not zero."""

    def generate(context, builder, signature, args):
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


@intrinsic
def multiply_high(typingctx, left, right):
    """The upper half of a product."""

    def generate(context, builder, signature, args):
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(each, wide) for each in args))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate
