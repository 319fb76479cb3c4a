# pyright: basic
"""Products of images that are mostly blank, compiled by numba: only pixels that are not zero are looked at.

Images come as lists (:class:`.ink.Ink`), filters with their inputs first, ``(r, i, o)``, so that what a pixel
is multiplied by lies side by side. A row of up to 64 entries stays in registers while others are added to it.
numba has no types. Axis letters: r run, s source of images, o filter, i input, b example.
"""

import math

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from symoptim.kernels.cpu.compiled import kernel, narrow, njit

TOGETHER = 128  # examples whose responses wait in the cache, to be written feature by feature
_FREELY = ("contract", "reassoc", "nsz")


@intrinsic(prefer_literal=True)
def _add_rows(context, out, table, places, factors, first, last, stride, like, lanes):  # noqa: ARG001
    """Add ``factors[k] * table[places[k]]`` to ``out``, for k from ``first`` to ``last``.

    The four are addresses: of ``lanes`` numbers like those of the array ``like``, of rows that are ``stride``
    numbers apart, of 32-bit integers, and of numbers. LLVM has vectors of any length; numba has no name for them.
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


@njit
def _add_all(out, table, places, factors, first, last):
    """Add rows of a table ``(n, o)`` to a row ``(o,)``; o is a multiple of 8."""
    narrow()
    size = out.itemsize
    here, there = out.ctypes.data, table.ctypes.data
    p, f = places.ctypes.data, factors.ctypes.data
    first, last, stride = np.int64(first), np.int64(last), np.int64(out.size)
    done = 0
    while done + 64 <= out.size:
        _add_rows(here + done * size, there + done * size, p, f, first, last, stride, out, 64)
        done += 64
    while done < out.size:
        _add_rows(here + done * size, there + done * size, p, f, first, last, stride, out, 8)
        done += 8


@kernel
def respond(stretches, filters, starts, places, values, index, alike, responses):
    """Responses ``(r, o, b)`` of filters ``(r, i, o)`` to the images at ``index`` ``(s, b)``.

    ``alike`` neighboring runs have the same images; after the last image it begins again with the first.
    """
    count, width = index.shape[1], filters.shape[2]
    rows = np.empty((min(count, TOGETHER), width), filters.dtype)
    for k in range(stretches.shape[0]):
        for r in range(stretches[k, 1], stretches[k, 2]):
            images, found = index[r // alike % index.shape[0]], responses[r]
            for begin in range(0, count, TOGETHER):
                here = min(TOGETHER, count - begin)
                rows[:here] = 0
                for b in range(here):
                    n = images[begin + b]
                    _add_all(rows[b], filters[r], places, values, starts[n], starts[n + 1])
                for o in range(width):
                    for b in range(here):
                        found[o, begin + b] = rows[b, o]


@kernel
def turn(starts, places, values, index, ends, examples, amounts):
    """By pixel: which examples have ink there, and how much; those of pixel i of a source end at ``ends[s, i]``.

    A source's begin where those of the one before end.
    """
    total = 0
    for s in range(index.shape[0]):
        end = ends[s]
        end[:] = 0
        for b in range(index.shape[1]):
            for k in range(starts[index[s, b]], starts[index[s, b] + 1]):
                end[np.uint32(places[k])] += 1
        for i in range(end.size):  # for now, where they begin
            end[i], total = total, total + end[i]
        for b in range(index.shape[1]):
            for k in range(starts[index[s, b]], starts[index[s, b] + 1]):
                pixel = np.uint32(places[k])
                place = np.uint64(end[pixel])
                examples[place], amounts[place] = b, values[k]
                end[pixel] += 1


@kernel
def add(stretches, changes, ends, examples, amounts, alike, sign, filters):
    """Add ``sign`` times the product of changes ``(r, o, b)`` and images to filters ``(r, i, o)``."""
    rows = np.empty((changes.shape[2], changes.shape[1]), changes.dtype)
    for k in range(stretches.shape[0]):
        for r in range(stretches[k, 1], stretches[k, 2]):
            s = r // alike
            for b in range(rows.shape[0]):
                for o in range(rows.shape[1]):
                    rows[b, o] = sign * changes[r, o, b]
            first = ends[s - 1, ends.shape[1] - 1] if s else 0
            for i in range(ends.shape[1]):
                _add_all(filters[r, i], rows, examples, amounts, first, ends[s, i])
                first = ends[s, i]


@njit
def _add_squares(row, squares):
    for o in range(row.size):
        squares[o] += row[o] * row[o]


@kernel
def square(filters, squares):
    """Squared lengths ``(r, o)`` of filters ``(r, i, o)``."""
    squares[:] = 0
    for r in range(filters.shape[0]):
        for i in range(filters.shape[1]):
            _add_squares(filters[r, i], squares[r])


@njit
def _multiply(row, factors):
    for o in range(row.size):
        row[o] *= factors[o]


@kernel
def make_unit(filters, signs):
    """Bring filters ``(r, i, o)`` to length one, and turn those whose sign ``(r, o)`` is negative."""
    factors = np.empty(filters.shape[2], filters.dtype)
    for r in range(filters.shape[0]):
        factors[:] = 0
        for i in range(filters.shape[1]):
            _add_squares(filters[r, i], factors)
        for o in range(factors.size):
            factors[o] = math.copysign(1.0 / math.sqrt(factors[o]), signs[r, o])
        for i in range(filters.shape[1]):
            _multiply(filters[r, i], factors)


@kernel
def count_ink(pixels, starts):
    """Where the list of every image ``(n, i)`` begins, and the last one ends: ``(n + 1,)``."""
    starts[0] = 0
    for n in range(pixels.shape[0]):
        row, total = pixels[n], 0
        for i in range(row.size):
            total += row[i] != 0
        starts[n + 1] = starts[n] + total


@kernel
def list_ink(pixels, starts, places, values):
    """Pixels that are not zero, image by image: which, and how dark."""
    for n in range(pixels.shape[0]):
        row, k = pixels[n], starts[n]
        for i in range(row.size):
            if row[i] != 0:
                places[k], values[k] = i, row[i]
                k += 1
