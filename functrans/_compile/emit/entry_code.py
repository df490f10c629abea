"""The function that CPython calls for a compiled program, in LLVM's language.

What a program needs is read from its plan, so the function is compiled once for all of them.
"""

from __future__ import annotations

import re

import numpy as np

from functrans._compile.emit.module import ARRAY_DATA, LIST_ITEMS
from functrans._core.array import Array

# Where CPython and NumPy keep things, in bytes from the start of an object; tried out in entry.py.
OFFSETS = {"type": 8, "value": 16, "tuple": tuple.__basicsize__, "items": LIST_ITEMS,
           "data": ARRAY_DATA, "ndim": 24, "dims": 32, "dtype": 56, "flags": 64}
# Bits of an array's flags: C-contiguous and aligned; writeable.
IN_ORDER, WRITEABLE = 0x0001 | 0x0100, 0x0400
# Most arguments and most results of a program with an entry; most arrays that it works on.
MOST, SLOTS = 64, 256
# What an argument may be: an array; float64[], also as NumPy's scalar; a Python float or int.
ARRAY, SCALAR, FLOAT, INT = range(4)
# The words of a plan, and of what it points to.
PLAN = ("run", "known", "arguments", "argument", "held", "hold", "results", "result",
        "scratch", "scratch.slot", "lets", "class", "flags")
ARGUMENT = ("kind", "dtype", "ndim", "dims")
HOLD = ("slot", "array")
RESULT = ("slot", "dtype", "ndim", "dims", "bytes", "source")
OBJECTS = {"ndarray": np.ndarray, "Array": Array, "float": float, "int": int,
           "float64": np.float64, "NotImplemented": NotImplemented}
FUNCTIONS = ("Py_IncRef", "Py_DecRef", "PyEval_SaveThread", "PyEval_RestoreThread",
             "PyMem_RawMalloc", "PyMem_RawFree", "PyErr_NoMemory", "PyTuple_New",
             "PyLong_AsLongLongAndOverflow")
# Words in the order in which a record holds them: in the text, "<plan.run>" becomes an offset.
RECORDS = {"plan": PLAN, "argument": ARGUMENT, "hold": HOLD, "result": RESULT,
           "known": (*OBJECTS, *FUNCTIONS, "memmove", "PyArray_NewFromDescr")}

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

; Whether an object is an array in order, of the dtype and shape of an argument.
define internal i1 @fits(ptr %known, ptr %argument, ptr %x) alwaysinline {
  %type = call ptr @pointer(ptr %x, i64 <object.type>)
  %ndarray = call ptr @pointer(ptr %known, i64 <known.ndarray>)
  %Array = call ptr @pointer(ptr %known, i64 <known.Array>)
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
  br label %axis
axis:
  %d = phi i64 [ 0, %shape ], [ %d.next, %length ]
  %more = icmp ult i64 %d, %n
  br i1 %more, label %length, label %yes
length:
  %at = shl i64 %d, 3
  %have = call i64 @word(ptr %dims, i64 %at)
  %wanted = call i64 @word(ptr %dims.wanted, i64 %at)
  %equal = icmp eq i64 %have, %wanted
  %d.next = add i64 %d, 1
  br i1 %equal, label %axis, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

define ptr @entry(ptr %self, ptr %args, i64 %nargs) nounwind {
entry:
  %items = alloca [<slots> x ptr]
  %list = alloca [<list> x i8], align 8
  %made = alloca [<most> x ptr]
  %integers = alloca [<most> x i64]
  %overflow = alloca i32
  ; These stand in for arrays: the address of their data is where an array has it.
  %cells = alloca [<cells> x ptr]
  %list.items = getelementptr i8, ptr %list, i64 <object.items>
  store ptr %items, ptr %list.items
  %array = call ptr @pointer(ptr %self, i64 <object.tuple>)
  %plan = call ptr @pointer(ptr %array, i64 <object.data>)
  %known = call ptr @pointer(ptr %plan, i64 <plan.known>)
  %arguments = call i64 @word(ptr %plan, i64 <plan.arguments>)
  %argument0 = call ptr @pointer(ptr %plan, i64 <plan.argument>)
  %results = call i64 @word(ptr %plan, i64 <plan.results>)
  %result0 = call ptr @pointer(ptr %plan, i64 <plan.result>)
  %counted = icmp eq i64 %nargs, %arguments
  br i1 %counted, label %next.argument, label %other

next.argument:
  %i = phi i64 [ 0, %entry ], [ %i.next, %taken ]
  %i.more = icmp ult i64 %i, %arguments
  br i1 %i.more, label %argument, label %next.held
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
  %float64 = call ptr @pointer(ptr %known, i64 <known.float64>)
  %is.float64 = icmp eq ptr %type, %float64
  br i1 %is.float64, label %number, label %array.wanted
float.wanted:
  %float = call ptr @pointer(ptr %known, i64 <known.float>)
  %is.float = icmp eq ptr %type, %float
  br i1 %is.float, label %number, label %other
int.wanted:
  %int = call ptr @pointer(ptr %known, i64 <known.int>)
  %is.int = icmp eq ptr %type, %int
  br i1 %is.int, label %int.found, label %other
int.found:
  %as.int64 = call ptr @pointer(ptr %known, i64 <known.PyLong_AsLongLongAndOverflow>)
  %integer = getelementptr i64, ptr %integers, i64 %i
  %x.int64 = call i64 %as.int64(ptr %x, ptr %overflow)
  store i64 %x.int64, ptr %integer
  %overflown = load i32, ptr %overflow
  %is.small = icmp eq i32 %overflown, 0
  br i1 %is.small, label %number, label %other
number:
  %data = phi ptr [ %value, %scalar.wanted ], [ %value, %float.wanted ], [ %integer, %int.found ]
  store ptr %data, ptr %cell
  %stand.in = getelementptr i8, ptr %cell, i64 -<object.data>
  br label %taken
array.wanted:
  %fits = call i1 @fits(ptr %known, ptr %wanted, ptr %x)
  br i1 %fits, label %taken, label %other
taken:
  %item = phi ptr [ %stand.in, %number ], [ %x, %array.wanted ]
  call void @put(ptr %items, i64 %i, ptr %item)
  %i.next = add i64 %i, 1
  br label %next.argument

next.held:
  %h = phi i64 [ 0, %next.argument ], [ %h.next, %hold ]
  %held = call i64 @word(ptr %plan, i64 <plan.held>)
  %h.more = icmp ult i64 %h, %held
  br i1 %h.more, label %hold, label %next.result
hold:
  %hold0 = call ptr @pointer(ptr %plan, i64 <plan.hold>)
  %hold.offset = mul i64 %h, <size of hold>
  %hold.at = getelementptr i8, ptr %hold0, i64 %hold.offset
  %hold.slot = call i64 @word(ptr %hold.at, i64 <hold.slot>)
  %hold.array = call ptr @pointer(ptr %hold.at, i64 <hold.array>)
  call void @put(ptr %items, i64 %hold.slot, ptr %hold.array)
  %h.next = add i64 %h, 1
  br label %next.held

next.result:
  %j = phi i64 [ 0, %next.held ], [ %j.next, %is.made ]
  %j.more = icmp ult i64 %j, %results
  br i1 %j.more, label %make, label %run
make:
  %result.offset = mul i64 %j, <size of result>
  %result = getelementptr i8, ptr %result0, i64 %result.offset
  %dtype = call ptr @pointer(ptr %result, i64 <result.dtype>)
  %ndim = call i64 @word(ptr %result, i64 <result.ndim>)
  %ndim.int = trunc i64 %ndim to i32
  %dims = call ptr @pointer(ptr %result, i64 <result.dims>)
  %incref = call ptr @pointer(ptr %known, i64 <known.Py_IncRef>)
  call void %incref(ptr %dtype) ; the array takes over this reference
  %new = call ptr @pointer(ptr %known, i64 <known.PyArray_NewFromDescr>)
  %class = call ptr @pointer(ptr %plan, i64 <plan.class>)
  %y = call ptr %new(ptr %class, ptr %dtype, i32 %ndim.int, ptr %dims, ptr null, ptr null, i32 0,
                     ptr null)
  %y.missing = icmp eq ptr %y, null
  br i1 %y.missing, label %drop, label %is.made
is.made:
  call void @put(ptr %made, i64 %j, ptr %y)
  %slot = call i64 @word(ptr %result, i64 <result.slot>)
  call void @put(ptr %items, i64 %slot, ptr %y)
  %j.next = add i64 %j, 1
  br label %next.result

run:
  %scratch = call i64 @word(ptr %plan, i64 <plan.scratch>)
  %scratch.none = icmp eq i64 %scratch, 0
  br i1 %scratch.none, label %start, label %allocate
allocate:
  %malloc = call ptr @pointer(ptr %known, i64 <known.PyMem_RawMalloc>)
  %memory.new = call ptr %malloc(i64 %scratch)
  %full = icmp eq ptr %memory.new, null
  br i1 %full, label %no.memory, label %allocated
no.memory:
  %raise = call ptr @pointer(ptr %known, i64 <known.PyErr_NoMemory>)
  %null = call ptr %raise()
  br label %drop
allocated:
  %scratch.cell = getelementptr ptr, ptr %cells, i64 <most>
  store ptr %memory.new, ptr %scratch.cell
  %scratch.item = getelementptr i8, ptr %scratch.cell, i64 -<object.data>
  %scratch.slot = call i64 @word(ptr %plan, i64 <plan.scratch.slot>)
  call void @put(ptr %items, i64 %scratch.slot, ptr %scratch.item)
  br label %start
start:
  %memory = phi ptr [ null, %run ], [ %memory.new, %allocated ]
  %code = call ptr @pointer(ptr %plan, i64 <plan.run>)
  %lets = call i64 @word(ptr %plan, i64 <plan.lets>)
  %is.short = icmp eq i64 %lets, 0
  br i1 %is.short, label %short, label %long
short:
  %status.short = call i32 %code(ptr %list)
  br label %done
long:
  %save = call ptr @pointer(ptr %known, i64 <known.PyEval_SaveThread>)
  %restore = call ptr @pointer(ptr %known, i64 <known.PyEval_RestoreThread>)
  %state = call ptr %save()
  %status.long = call i32 %code(ptr %list)
  call void %restore(ptr %state)
  br label %done
done:
  %status = phi i32 [ %status.short, %short ], [ %status.long, %long ]
  %free = call ptr @pointer(ptr %known, i64 <known.PyMem_RawFree>)
  call void %free(ptr %memory)
  %right = icmp eq i32 %status, 0
  %is.raised = icmp slt i32 %status, 0
  br i1 %right, label %next.made, label %drop

next.made:
  %k = phi i64 [ 0, %done ], [ %k.next, %finished ]
  %k.more = icmp ult i64 %k, %results
  br i1 %k.more, label %finish, label %leave
finish:
  %k.made.offset = shl i64 %k, 3
  %z = call ptr @pointer(ptr %made, i64 %k.made.offset)
  %flags.at = getelementptr i8, ptr %z, i64 <object.flags>
  %flags = load i32, ptr %flags.at
  %flags.plan = call i64 @word(ptr %plan, i64 <plan.flags>)
  %flags.mask = trunc i64 %flags.plan to i32
  %flags.kept = and i32 %flags, %flags.mask
  store i32 %flags.kept, ptr %flags.at
  %k.offset = mul i64 %k, <size of result>
  %finished.result = getelementptr i8, ptr %result0, i64 %k.offset
  %bytes = call i64 @word(ptr %finished.result, i64 <result.bytes>)
  %is.filled = icmp eq i64 %bytes, 0
  br i1 %is.filled, label %finished, label %copy
copy:
  %source = call i64 @word(ptr %finished.result, i64 <result.source>)
  %source.offset = shl i64 %source, 3
  %source.item = call ptr @pointer(ptr %items, i64 %source.offset)
  %source.data = call ptr @pointer(ptr %source.item, i64 <object.data>)
  %z.data = call ptr @pointer(ptr %z, i64 <object.data>)
  %memmove = call ptr @pointer(ptr %known, i64 <known.memmove>)
  %moved = call ptr %memmove(ptr %z.data, ptr %source.data, i64 %bytes)
  br label %finished
finished:
  %k.next = add i64 %k, 1
  br label %next.made

leave:
  %single = icmp eq i64 %results, 1
  br i1 %single, label %one, label %several
one:
  %only = load ptr, ptr %made
  ret ptr %only
several:
  %new.tuple = call ptr @pointer(ptr %known, i64 <known.PyTuple_New>)
  %tuple = call ptr %new.tuple(i64 %results)
  %tuple.missing = icmp eq ptr %tuple, null
  br i1 %tuple.missing, label %drop, label %next.entry
next.entry:
  %m = phi i64 [ 0, %several ], [ %m.next, %next.entry ]
  %m.offset = shl i64 %m, 3
  %m.made = call ptr @pointer(ptr %made, i64 %m.offset)
  %tuple.items = getelementptr i8, ptr %tuple, i64 <object.tuple>
  call void @put(ptr %tuple.items, i64 %m, ptr %m.made)
  %m.next = add i64 %m, 1
  %m.more = icmp ult i64 %m.next, %results
  br i1 %m.more, label %next.entry, label %filled
filled:
  ret ptr %tuple

drop: ; what was made, since an exception is set or the code says that something is wrong
  %count = phi i64 [ %j, %make ], [ %results, %no.memory ], [ %results, %done ],
                   [ %results, %several ]
  %raised = phi i1 [ true, %make ], [ true, %no.memory ], [ %is.raised, %done ],
                   [ true, %several ]
  br label %next.dropped
next.dropped:
  %n = phi i64 [ 0, %drop ], [ %n.next, %drop.one ]
  %n.more = icmp ult i64 %n, %count
  br i1 %n.more, label %drop.one, label %dropped
drop.one:
  %n.offset = shl i64 %n, 3
  %n.made = call ptr @pointer(ptr %made, i64 %n.offset)
  %decref = call ptr @pointer(ptr %known, i64 <known.Py_DecRef>)
  call void %decref(ptr %n.made)
  %n.next = add i64 %n, 1
  br label %next.dropped
dropped:
  br i1 %raised, label %failed, label %other
failed:
  ret ptr null
other:
  %NotImplemented = call ptr @pointer(ptr %known, i64 <known.NotImplemented>)
  %incref.other = call ptr @pointer(ptr %known, i64 <known.Py_IncRef>)
  call void %incref.other(ptr %NotImplemented)
  ret ptr %NotImplemented
}
"""


def text() -> str:
    """The function, with numbers for the names of places."""
    numbers = {f"object.{name}": n for name, n in OFFSETS.items()}
    for record, words in RECORDS.items():
        numbers |= {f"{record}.{name}": 8 * i for i, name in enumerate(words)}
        numbers[f"size of {record}"] = 8 * len(words)
    numbers |= {"in order": IN_ORDER, "most": MOST, "cells": MOST + 1,
                "slots": SLOTS, "list": LIST_ITEMS + 8,
                "array": ARRAY, "scalar": SCALAR, "float": FLOAT, "int": INT}
    return re.sub("<([a-zA-Z_0-9. ]+)>", lambda name: str(numbers[name[1]]), TEXT)
