"""Kernel calls that compiled code makes, one after the other.

Calling a compiled function from Python takes about a microsecond, as long as many a
kernel on a small graph. So what a kernel is called with is written into a block of
memory once, and a loop that is compiled itself goes through the blocks.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, final

import numpy as np
import torch
from llvmlite import ir
from numba import njit, types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from gsebo.sparse.numba_compile import Variants, many_threads, pays

_WORD, _STATUS = ir.IntType(64), ir.IntType(32)
_SLOT = 8  # bytes
# What a compiled function may return if all went well, besides 0.
_NONE = -2


class _Entry(NamedTuple):
    """Where a call begins, and its block: the function, then its arguments."""

    begin: int
    block: np.ndarray[Any, Any]


@final
class KernelCall:
    """A kernel with its arguments; these stay where they are between the calls."""

    def __init__(self, kernel: Variants, work: int, arguments: Sequence[Any]) -> None:
        self.work = work
        self._kernel = kernel
        self._arguments = [
            x.numpy() if isinstance(x, torch.Tensor) else x for x in arguments
        ]
        self._entries: dict[bool, _Entry] = {}

    def entry(self, *, parallel: bool) -> _Entry:
        """How compiled code calls one of the variants; compiled when it is needed."""
        if parallel not in self._entries:
            dispatcher = self._kernel.parallel if parallel else self._kernel.serial
            kinds = _kinds(self._arguments)
            begin, function = _native(dispatcher, kinds, self._arguments)
            words = [function]
            _append_words(words, self._arguments)
            block = np.array(words, dtype=np.int64)
            self._entries[parallel] = _Entry(begin, block)
        return self._entries[parallel]

    def instead(self, others: Mapping[int, torch.Tensor]) -> KernelCall:
        """The same call with other tensors for what lies at some addresses."""
        arguments = [
            others.get(_address(each), each) if isinstance(each, np.ndarray) else each
            for each in self._arguments
        ]
        changed = any(
            one is not other
            for one, other in zip(arguments, self._arguments, strict=True)
        )
        return KernelCall(self._kernel, self.work, arguments) if changed else self

    def __call__(self) -> None:
        """Make this call alone."""
        CallList([self])()


def bind_kernel(kernel: Variants, work: int, *arguments: Any) -> KernelCall:
    """Return the call of a kernel on these tensors; its work in multiplications."""
    return KernelCall(kernel, work, arguments)


@final
class CallList:
    """Calls that are made one after the other, without Python in between.

    Each runs on as many threads as its work is worth.
    """

    def __init__(self, calls: Sequence[KernelCall]) -> None:
        self._calls = calls
        self._worth = any(pays(call.work) for call in calls)
        self._tables: dict[bool, np.ndarray[Any, Any]] = {}

    def __call__(self) -> None:
        if not self._worth:
            self._make(parallel=False)
            return
        with many_threads() as granted:
            self._make(parallel=granted)

    def _make(self, *, parallel: bool) -> None:
        if parallel not in self._tables:
            entries = [
                call.entry(parallel=parallel and pays(call.work))
                for call in self._calls
            ]
            rows = [(entry.begin, _address(entry.block)) for entry in entries]
            self._tables[parallel] = np.array(rows, np.int64).reshape(-1, 2)
        failed = _make_calls(self._tables[parallel])
        if failed >= 0:
            raise RuntimeError(f"kernel call {failed} raised an error")


def _append_words(words: list[int], arguments: Any) -> None:
    """Append arguments as numba passes them on, each number in a word of its own."""
    for argument in arguments:
        if isinstance(argument, tuple):
            _append_words(words, argument)
        elif isinstance(argument, np.ndarray) and argument.ndim:
            # Nobody counts the references: the call holds its arguments.
            words += (0, 0, argument.size, argument.itemsize, _address(argument))
            words += argument.shape
            words += argument.strides
        else:
            number = np.asarray(argument).tobytes()
            signed = len(number) == _SLOT
            words.append(int.from_bytes(number, "little", signed=signed))


def _address(array: np.ndarray[Any, Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _kinds(arguments: Any) -> tuple[Any, ...]:
    """What of the arguments decides how numba compiles a function."""
    return tuple(
        (each.dtype.char, each.ndim, each.flags.num)
        if isinstance(each, np.ndarray)
        else _kinds(each)
        if isinstance(each, tuple)
        else type(each)
        for each in arguments
    )


_NATIVES: dict[tuple[Any, tuple[Any, ...]], tuple[int, int]] = {}


def _native(dispatcher: Any, kinds: Any, arguments: Any) -> tuple[int, int]:
    """Where a call of such arguments begins, and where the compiled function is."""
    key = dispatcher, kinds
    if key not in _NATIVES:
        signature = tuple(dispatcher.typeof_pyval(each) for each in arguments)
        dispatcher.compile(signature)
        compiled = dispatcher.overloads[signature]
        name = compiled.fndesc.llvm_func_name
        function = compiled.library.get_pointer_to_function(name)
        kind = cpu_target.target_context.call_conv.get_function_type(
            compiled.fndesc.restype, compiled.fndesc.argtypes
        )
        _NATIVES[key] = _begin(kind), function
    return _NATIVES[key]


def _begin(function: Any) -> int:
    """Where code begins that takes a block and calls a function of such a type."""
    kinds = [
        "i8*" if isinstance(kind, ir.PointerType) else str(kind)
        for kind in function.args
    ]
    with global_compiler_lock:
        return _compiled_begin(tuple(kinds))[0]


@cache
def _compiled_begin(kinds: tuple[str, ...]) -> tuple[int, Any]:
    """The same by the types of its arguments, and what has to stay in memory."""
    library = cpu_target.target_context.codegen().create_library("kernel_call")
    name = f"kernel_call_{'_'.join(kinds).replace('*', '')}"
    module = library.create_ir_module(name)
    pointer = ir.IntType(8).as_pointer()
    numbers = {"float": ir.FloatType(), "double": ir.DoubleType(), "i8*": pointer}
    taken = [numbers.get(kind) or ir.IntType(int(kind[1:])) for kind in kinds]
    outside = ir.FunctionType(_STATUS, [_WORD.as_pointer()])
    builder = ir.IRBuilder(ir.Function(module, outside, name).append_basic_block())
    (block,) = builder.function.args
    inside = ir.FunctionType(_STATUS, taken).as_pointer()
    # Where a result and an error would go: first of the arguments.
    nowhere = [builder.bitcast(builder.alloca(pointer), pointer) for _ in range(2)]

    def word(number: int, kind: Any) -> Any:
        place = builder.gep(block, [_WORD(number)])
        return builder.load(builder.bitcast(place, kind.as_pointer()))

    given = [word(number, kind) for number, kind in enumerate(taken[2:], start=1)]
    builder.ret(builder.call(word(0, inside), [*nowhere, *given]))
    library.add_ir_module(module)
    library.finalize()
    return library.get_pointer_to_function(name), library


@intrinsic
def _make_call(typing_context, begin, block):
    """Call what begins at an address with the address of its block."""

    def generate(context, builder, signature, arguments):
        kind = ir.FunctionType(_STATUS, [_WORD]).as_pointer()
        function = builder.inttoptr(arguments[0], kind)
        return builder.call(function, [arguments[1]])

    return types.int32(types.int64, types.int64), generate


@njit(cache=True, nogil=True)
def _make_calls(table):
    """Make the calls of a table; the number of the one that failed, else -1."""
    for number in range(table.shape[0]):
        status = _make_call(table[number, 0], table[number, 1])
        if status != 0 and status != _NONE:
            return number
    return -1
