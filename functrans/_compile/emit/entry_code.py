"""The function that CPython calls for a compiled program, in LLVM's language.

What a program needs is read from its plan, so the function is compiled once for all of them.
"""

from __future__ import annotations

import re

import numpy as np

from functrans._compile.emit.module import ARRAY_DATA, LIST_ITEMS
from functrans._core.array import Array

# Where CPython and NumPy keep things, in bytes from the start of an object; tried out in entry.py.
OFFSETS = {"type": 8, "value": 16, "tuple": 24, "items": LIST_ITEMS,
           "data": ARRAY_DATA, "ndim": 24, "dims": 32, "dtype": 56, "flags": 64}
# Bits of an array's flags: C-contiguous and aligned; writeable.
IN_ORDER, WRITEABLE = 0x0001 | 0x0100, 0x0400
# Most arguments and most results of a program with an entry; most arrays that it works on.
MOST, SLOTS = 64, 256
# What an argument may be: an array; float64[], also as NumPy's scalar; a Python float or int.
ARRAY, SCALAR, FLOAT, INT = range(4)
OBJECTS = {"ndarray": np.ndarray, "Array": Array, "float": float, "int": int,
           "float64": np.float64, "NotImplemented": NotImplemented}
# The words of a plan, and of what it points to. The last of the arrays that are made may be
# scratch, which is no result.
PLAN = (*OBJECTS, "PyArray_NewFromDescr", "run", "arguments", "argument", "slots", "slot",
        "results", "arrays", "made", "lets", "class", "flags")
ARGUMENT = ("kind", "dtype", "ndim", "dims")
MADE = ("slot", "dtype", "ndim", "dims", "bytes", "source")
# Words in the order in which a record holds them: in the text, "<plan.run>" becomes an offset.
RECORDS = {"plan": PLAN, "argument": ARGUMENT, "made": MADE}

TEXT = """\
define internal ptr @pointer(ptr %x, i64 %offset) alwaysinline {
  %at = getelementptr i8, ptr %x, i64 %offset
  %y = load ptr, ptr %at
  ret ptr %y
}
define internal i64 @word(ptr %x, i64 %offset) alwaysinline {
  %at = getelementptr i8, ptr %x, i64 %offset
  %y = load i64, ptr %at
  ret i64 %y
}
define internal i32 @half(ptr %x, i64 %offset) alwaysinline {
  %at = getelementptr i8, ptr %x, i64 %offset
  %y = load i32, ptr %at
  ret i32 %y
}
define internal void @put(ptr %pointers, i64 %i, ptr %x) alwaysinline {
  %at = getelementptr ptr, ptr %pointers, i64 %i
  store ptr %x, ptr %at
  ret void
}
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyTuple_New(i64)
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)
declare i32 @memcmp(ptr, ptr, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; Whether an object is an array in order, of the dtype and shape of an argument.
define internal i1 @fits(ptr %plan, ptr %argument, ptr %x) alwaysinline {
  %type = call ptr @pointer(ptr %x, i64 <object.type>)
  %ndarray = call ptr @pointer(ptr %plan, i64 <plan.ndarray>)
  %Array = call ptr @pointer(ptr %plan, i64 <plan.Array>)
  %is.ndarray = icmp eq ptr %type, %ndarray
  %is.Array = icmp eq ptr %type, %Array
  %is.array = or i1 %is.ndarray, %is.Array
  br i1 %is.array, label %array, label %no
array:
  %dtype = call ptr @pointer(ptr %x, i64 <object.dtype>)
  %dtype.wanted = call ptr @pointer(ptr %argument, i64 <argument.dtype>)
  %same = icmp eq ptr %dtype, %dtype.wanted
  %flags = call i32 @half(ptr %x, i64 <object.flags>)
  %set = and i32 %flags, <in order>
  %ordered = icmp eq i32 %set, <in order>
  %ndim = call i32 @half(ptr %x, i64 <object.ndim>)
  %ndim.wanted = call i64 @word(ptr %argument, i64 <argument.ndim>)
  %n = zext i32 %ndim to i64
  %deep = icmp eq i64 %n, %ndim.wanted
  %both = and i1 %same, %ordered
  %all = and i1 %both, %deep
  br i1 %all, label %shape, label %no
shape:
  %dims = call ptr @pointer(ptr %x, i64 <object.dims>)
  %dims.wanted = call ptr @pointer(ptr %argument, i64 <argument.dims>)
  %size = shl i64 %n, 3
  %differ = call i32 @memcmp(ptr %dims, ptr %dims.wanted, i64 %size)
  %equal = icmp eq i32 %differ, 0
  ret i1 %equal
no:
  ret i1 false
}

define ptr @entry(ptr %self, ptr %args, i64 %nargs) nounwind {
entry:
  %items = alloca [<slots> x ptr]
  %list = alloca [<list> x i8], align 8
  %made = alloca [<made> x ptr]
  %integers = alloca [<most> x i64]
  %overflow = alloca i32
  ; These stand in for arrays: the address of their data is where an array has it.
  %cells = alloca [<most> x ptr]
  ; Which of the arrays that were made are dropped at the end: all, until the call has succeeded.
  %first = alloca i64
  %last = alloca i64
  store i64 0, ptr %first
  store i64 0, ptr %last
  %list.items = getelementptr i8, ptr %list, i64 <object.items>
  store ptr %items, ptr %list.items
  %array = call ptr @pointer(ptr %self, i64 <object.tuple>)
  %plan = call ptr @pointer(ptr %array, i64 <object.data>)
  %slots = call i64 @word(ptr %plan, i64 <plan.slots>)
  %slot0 = call ptr @pointer(ptr %plan, i64 <plan.slot>)
  %slot.bytes = shl i64 %slots, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %items, ptr %slot0, i64 %slot.bytes, i1 false)
  %arguments = call i64 @word(ptr %plan, i64 <plan.arguments>)
  %argument0 = call ptr @pointer(ptr %plan, i64 <plan.argument>)
  %results = call i64 @word(ptr %plan, i64 <plan.results>)
  %arrays = call i64 @word(ptr %plan, i64 <plan.arrays>)
  %made0 = call ptr @pointer(ptr %plan, i64 <plan.made>)
  %class = call ptr @pointer(ptr %plan, i64 <plan.class>)
  %counted = icmp eq i64 %nargs, %arguments
  br i1 %counted, label %next.argument, label %other

next.argument:
  %i = phi i64 [ 0, %entry ], [ %i.next, %taken ]
  %i.more = icmp ult i64 %i, %arguments
  br i1 %i.more, label %argument, label %next.array
argument:
  %argument.offset = mul i64 %i, <size of argument>
  %wanted = getelementptr i8, ptr %argument0, i64 %argument.offset
  %kind = call i64 @word(ptr %wanted, i64 <argument.kind>)
  %x.offset = shl i64 %i, 3
  %x = call ptr @pointer(ptr %args, i64 %x.offset)
  %type = call ptr @pointer(ptr %x, i64 <object.type>)
  %value = getelementptr i8, ptr %x, i64 <object.value>
  %cell = getelementptr ptr, ptr %cells, i64 %i
  switch i64 %kind, label %other [
    i64 <array>, label %array.wanted
    i64 <scalar>, label %scalar.wanted
    i64 <float>, label %float.wanted
    i64 <int>, label %int.wanted
  ]
scalar.wanted:
  %float64 = call ptr @pointer(ptr %plan, i64 <plan.float64>)
  %is.float64 = icmp eq ptr %type, %float64
  br i1 %is.float64, label %number, label %array.wanted
float.wanted:
  %float = call ptr @pointer(ptr %plan, i64 <plan.float>)
  %is.float = icmp eq ptr %type, %float
  br i1 %is.float, label %number, label %other
int.wanted:
  %int = call ptr @pointer(ptr %plan, i64 <plan.int>)
  %is.int = icmp eq ptr %type, %int
  br i1 %is.int, label %integer, label %other
integer:
  %integer.at = getelementptr i64, ptr %integers, i64 %i
  %x.int64 = call i64 @PyLong_AsLongLongAndOverflow(ptr %x, ptr %overflow)
  store i64 %x.int64, ptr %integer.at
  %overflown = load i32, ptr %overflow
  %is.small = icmp eq i32 %overflown, 0
  br i1 %is.small, label %number, label %other
number:
  %data = phi ptr [ %value, %scalar.wanted ], [ %value, %float.wanted ], [ %integer.at, %integer ]
  store ptr %data, ptr %cell
  %stand.in = getelementptr i8, ptr %cell, i64 -<object.data>
  br label %taken
array.wanted:
  %fits = call i1 @fits(ptr %plan, ptr %wanted, ptr %x)
  br i1 %fits, label %taken, label %other
taken:
  %item = phi ptr [ %stand.in, %number ], [ %x, %array.wanted ]
  call void @put(ptr %items, i64 %i, ptr %item)
  %i.next = add i64 %i, 1
  br label %next.argument

next.array:
  %j = phi i64 [ 0, %next.argument ], [ %j.next, %is.made ]
  %j.more = icmp ult i64 %j, %arrays
  br i1 %j.more, label %make, label %run
make:
  %j.offset = mul i64 %j, <size of made>
  %new = getelementptr i8, ptr %made0, i64 %j.offset
  %dtype = call ptr @pointer(ptr %new, i64 <made.dtype>)
  %ndim = call i64 @word(ptr %new, i64 <made.ndim>)
  %ndim.int = trunc i64 %ndim to i32
  %dims = call ptr @pointer(ptr %new, i64 <made.dims>)
  call void @Py_IncRef(ptr %dtype) ; the array takes over this reference
  %create = call ptr @pointer(ptr %plan, i64 <plan.PyArray_NewFromDescr>)
  %y = call ptr %create(ptr %class, ptr %dtype, i32 %ndim.int, ptr %dims, ptr null, ptr null,
                        i32 0, ptr null)
  %y.missing = icmp eq ptr %y, null
  br i1 %y.missing, label %leave, label %is.made
is.made:
  call void @put(ptr %made, i64 %j, ptr %y)
  %slot = call i64 @word(ptr %new, i64 <made.slot>)
  call void @put(ptr %items, i64 %slot, ptr %y)
  %j.next = add i64 %j, 1
  store i64 %j.next, ptr %last
  br label %next.array

run:
  %code = call ptr @pointer(ptr %plan, i64 <plan.run>)
  %lets = call i64 @word(ptr %plan, i64 <plan.lets>)
  %is.short = icmp eq i64 %lets, 0
  br i1 %is.short, label %short, label %long
short:
  %status.short = call i32 %code(ptr %list)
  br label %done
long:
  %state = call ptr @PyEval_SaveThread()
  %status.long = call i32 %code(ptr %list)
  call void @PyEval_RestoreThread(ptr %state)
  br label %done
done:
  %status = phi i32 [ %status.short, %short ], [ %status.long, %long ]
  %right = icmp eq i32 %status, 0
  br i1 %right, label %next.result, label %wrong
wrong:
  %is.raised = icmp slt i32 %status, 0
  br i1 %is.raised, label %leave, label %other

next.result:
  %k = phi i64 [ 0, %done ], [ %k.next, %finished ]
  %k.more = icmp ult i64 %k, %results
  br i1 %k.more, label %finish, label %return
finish:
  %k.made.offset = shl i64 %k, 3
  %z = call ptr @pointer(ptr %made, i64 %k.made.offset)
  %flags.at = getelementptr i8, ptr %z, i64 <object.flags>
  %flags = load i32, ptr %flags.at
  %flags.plan = call i64 @word(ptr %plan, i64 <plan.flags>)
  %flags.mask = trunc i64 %flags.plan to i32
  %flags.kept = and i32 %flags, %flags.mask
  store i32 %flags.kept, ptr %flags.at
  %k.offset = mul i64 %k, <size of made>
  %result = getelementptr i8, ptr %made0, i64 %k.offset
  %bytes = call i64 @word(ptr %result, i64 <made.bytes>)
  %is.filled = icmp eq i64 %bytes, 0
  br i1 %is.filled, label %finished, label %copy
copy:
  %source = call i64 @word(ptr %result, i64 <made.source>)
  %source.offset = shl i64 %source, 3
  %source.item = call ptr @pointer(ptr %items, i64 %source.offset)
  %source.data = call ptr @pointer(ptr %source.item, i64 <object.data>)
  %z.data = call ptr @pointer(ptr %z, i64 <object.data>)
  call void @llvm.memcpy.p0.p0.i64(ptr %z.data, ptr %source.data, i64 %bytes, i1 false)
  br label %finished
finished:
  %k.next = add i64 %k, 1
  br label %next.result

return:
  %single = icmp eq i64 %results, 1
  br i1 %single, label %one, label %several
one:
  %only = load ptr, ptr %made
  store i64 1, ptr %first
  br label %leave
several:
  %tuple = call ptr @PyTuple_New(i64 %results)
  %tuple.missing = icmp eq ptr %tuple, null
  br i1 %tuple.missing, label %leave, label %filled
filled:
  %tuple.items = getelementptr i8, ptr %tuple, i64 <object.tuple>
  %tuple.bytes = shl i64 %results, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %tuple.items, ptr %made, i64 %tuple.bytes, i1 false)
  store i64 %results, ptr %first
  br label %leave

other: ; the call is left to the caller
  %NotImplemented = call ptr @pointer(ptr %plan, i64 <plan.NotImplemented>)
  call void @Py_IncRef(ptr %NotImplemented)
  br label %leave
leave: ; without an answer an exception is set
  %answer = phi ptr [ %only, %one ], [ %tuple, %filled ], [ %NotImplemented, %other ],
                    [ null, %make ], [ null, %wrong ], [ null, %several ]
  %from = load i64, ptr %first
  %to = load i64, ptr %last
  br label %next.dropped
next.dropped:
  %n = phi i64 [ %from, %leave ], [ %n.next, %drop ]
  %n.more = icmp ult i64 %n, %to
  br i1 %n.more, label %drop, label %dropped
drop:
  %n.offset = shl i64 %n, 3
  %n.made = call ptr @pointer(ptr %made, i64 %n.offset)
  call void @Py_DecRef(ptr %n.made)
  %n.next = add i64 %n, 1
  br label %next.dropped
dropped:
  ret ptr %answer
}
"""


def text() -> str:
    """The function, with numbers for the names of places."""
    numbers = {f"object.{name}": n for name, n in OFFSETS.items()}
    for record, words in RECORDS.items():
        numbers |= {f"{record}.{name}": 8 * i for i, name in enumerate(words)}
        numbers[f"size of {record}"] = 8 * len(words)
    numbers |= {"in order": IN_ORDER, "most": MOST, "made": MOST + 1, "slots": SLOTS,
                "list": LIST_ITEMS + 8, "array": ARRAY, "scalar": SCALAR, "float": FLOAT,
                "int": INT}
    return re.sub("<([a-zA-Z_0-9. ]+)>", lambda name: str(numbers[name[1]]), TEXT)
