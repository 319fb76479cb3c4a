# pyright: basic
"""What numba has no words for, in those of LLVM: vectors as long as a row, memory that is read soon."""

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

_FREELY = ("contract", "reassoc", "nsz")


@intrinsic(prefer_literal=True)
def _add_rows(context, out, table, places, factors, first, last, stride, like, lanes):  # noqa: ARG001
    """Add ``factors[k] * table[places[k]]`` to ``out``, for k from ``first`` to ``last``.

    The four are addresses: of ``lanes`` numbers like those of the array ``like``, of rows that are ``stride``
    numbers apart, of 32-bit integers, and of numbers.
    """
    number = ir.FloatType() if like.dtype == types.float32 else ir.DoubleType()
    row, index = ir.VectorType(number, lanes.literal_value), ir.IntType(64)

    def spread(builder, x):
        blank, places = ir.Constant(row, ir.Undefined), ir.VectorType(ir.IntType(32), row.count)
        single = builder.insert_element(blank, x, ir.Constant(ir.IntType(32), 0))
        return builder.shuffle_vector(single, blank, ir.Constant(places, None))

    def generate(backend, builder, _, arguments):
        out, table, places, factors, first, last, stride = arguments[:7]
        align = number.get_abi_size(backend.target_data)
        out = builder.inttoptr(out, row.as_pointer())
        table, factors = (builder.inttoptr(x, number.as_pointer()) for x in (table, factors))
        places = builder.inttoptr(places, ir.IntType(32).as_pointer())
        before = builder.load(out, align=align)
        entry, loop, end = (
            builder.basic_block,
            builder.append_basic_block("row"),
            builder.append_basic_block("end"),
        )
        builder.cbranch(builder.icmp_signed("<", first, last), loop, end)
        builder.position_at_end(loop)
        k, total = builder.phi(index), builder.phi(row)
        place = builder.mul(builder.zext(builder.load(builder.gep(places, [k])), index), stride)
        added = builder.load(builder.bitcast(builder.gep(table, [place]), row.as_pointer()), align=align)
        factor = spread(builder, builder.load(builder.gep(factors, [k])))
        after = builder.fadd(builder.fmul(added, factor, flags=_FREELY), total, flags=_FREELY)
        following = builder.add(k, ir.Constant(index, 1))
        for phi, start, continued in ((k, first, following), (total, before, after)):
            phi.add_incoming(start, entry)
            phi.add_incoming(continued, loop)
        builder.cbranch(builder.icmp_signed("<", following, last), loop, end)
        builder.position_at_end(end)
        result = builder.phi(row)
        result.add_incoming(before, entry)
        result.add_incoming(after, loop)
        builder.store(result, out, align=align)
        return backend.get_dummy_value()

    address = types.int64
    return types.void(*[address] * 7, like, lanes), generate


@intrinsic
def _fetch(context, address):  # noqa: ARG001 - numba's protocol
    """Have a line of memory brought near."""

    def generate(backend, builder, _, arguments):
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        call = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        )
        # To be read, often, as data.
        builder.call(
            call, [builder.inttoptr(arguments[0], byte), *(ir.Constant(number, k) for k in (0, 3, 1))]
        )
        return backend.get_dummy_value()

    return types.void(types.int64), generate


# Who calls them leaves out the context, which type checkers do not know.
add_rows: Any = _add_rows
fetch: Any = _fetch
