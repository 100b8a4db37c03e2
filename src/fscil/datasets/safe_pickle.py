"""Reads pickles of plain data: arrays of numbers, lists, dicts, numbers, text. A pickle is a program; it is not run.

Every name that a pickle asks for is looked up in a short table of our own stand-ins. Not even NumPy's own functions
are called with values from the file: a forged dtype can make them read memory as objects. Nor can a small file grow:
what it may refer to twice is not copied, keys are plain, and what comes out is counted.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fscil.files import read_regular

NUMBER_KINDS = "biuf"  # booleans, signed and unsigned integers, floats
MOST_BYTES = 2**30  # of a file; the largest of CIFAR100 has 150 MiB
MOST_OBJECTS = 1_000_000  # that come out of a file, those inside arrays not counted; CIFAR100 has 150,000
MOST_DEPTH = 20  # of lists in lists
PLAIN = frozenset({type(None), bool, int, float, str, bytes})

# What plain data and arrays are written with, in any protocol. Python's own names for the operations.
OPERATIONS = (
    "PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GET",
    "BINGET", "LONG_BINGET", "NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1",
    "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE",
    "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8", "EMPTY_TUPLE",
    "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST", "LIST", "APPEND", "APPENDS", "EMPTY_DICT", "DICT",
    "SETITEM", "SETITEMS", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD",
)  # fmt: skip


class Refused(pickle.UnpicklingError):
    """The file asks for something that is not plain data."""


class _Dtype:
    """Stands in for numpy.dtype(code, align, copy) followed by its state (version, byte order, ...)."""

    def __init__(self, code: str | bytes, *_: object) -> None:
        self.dtype = np.dtype(_text(code))
        if self.dtype.kind not in NUMBER_KINDS:
            raise Refused(f"arrays of {self.dtype} are not read")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = _text(state[1])
        if order in ("<", ">"):
            self.dtype = self.dtype.newbyteorder("<" if order == "<" else ">")


class _Array:
    """Stands in for the empty array that a pickle makes first and fills with its state afterwards."""

    latin1: Callable[[str], bytes]
    value: np.ndarray[Any, Any] | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, shape, dtype, fortran, raw = state
        self.fill(raw, dtype, shape, "F" if fortran else "C")

    def fill(self, raw: str | bytes | bytearray, dtype: _Dtype, shape: tuple[int, ...], order: str) -> None:
        if isinstance(raw, str):  # what encoding="latin1" makes of Python 2's bytes
            raw = self.latin1(raw)
        self.value = np.frombuffer(raw, dtype.dtype).reshape(shape, order="F" if order == "F" else "C")


class _Unpickler(pickle._Unpickler):
    """Python's own in Python: the one in C hashes keys of any size, and Ctrl-C has to wait for it."""

    # set by the base class
    stack: list[Any]
    append: Callable[[Any], None]
    pop_mark: Callable[[], list[Any]]
    read: Callable[[int], bytes]

    def __init__(self, data: bytes, encoding: str) -> None:
        super().__init__(io.BytesIO(data), encoding=encoding, fix_imports=False)
        self.bytes_left = len(data)  # to be copied from text; every text is in the file once
        self.table = self._stand_ins()

    def _stand_ins(self) -> dict[tuple[str, str], Callable[..., object]]:
        """Created for each file, since a pickle may set attributes on whatever it is given."""

        def from_buffer(raw: bytes, dtype: _Dtype, shape: tuple[int, ...], order: str, *_: object) -> _Array:
            """How protocol 5 builds an array."""
            made = array()
            made.fill(raw, dtype, shape, order)
            return made

        array = type("Array", (_Array,), {"latin1": staticmethod(self.latin1)})
        dtype = type("Dtype", (_Dtype,), {})
        table: dict[tuple[str, str], Callable[..., object]] = {
            ("numpy", "ndarray"): array,
            ("numpy", "dtype"): dtype,
            ("_codecs", "encode"): lambda text, encoding: self.encode(text, encoding),
        }
        for core in ("numpy.core", "numpy._core"):  # NumPy 1 and 2
            table[f"{core}.multiarray", "_reconstruct"] = lambda *_: array()
            table[f"{core}.numeric", "_frombuffer"] = from_buffer
        return table

    def encode(self, text: str, encoding: str) -> bytes:
        """Python 3 writes bytes into protocol 2 as latin1 text."""
        if not isinstance(text, str) or not isinstance(encoding, str) or encoding not in ("latin1", "latin-1"):
            raise Refused("it asks for an encoding other than latin1")
        return self.latin1(text)

    def latin1(self, text: str) -> bytes:
        self.bytes_left -= len(text)
        if self.bytes_left < 0:
            raise Refused("it holds far more than its size")
        return text.encode("latin1")

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self.table[module, name]
        except KeyError:
            raise Refused(f"it asks for {module}.{name}"[:100]) from None

    def set_items(self, target: object, items: list[Any]) -> None:
        """Keys are hashed, which takes for ever if they are tuples of tuples of tuples ..."""
        if not isinstance(target, dict) or not all(isinstance(key, str | bytes | int) for key in items[::2]):
            raise Refused("it holds a dictionary whose keys are neither text nor numbers")
        target.update(zip(items[::2], items[1::2], strict=True))

    def load_setitem(self) -> None:
        value = self.stack.pop()
        key = self.stack.pop()
        self.set_items(self.stack[-1], [key, value])

    def load_setitems(self) -> None:
        items = self.pop_mark()
        self.set_items(self.stack[-1], items)

    def load_dict(self) -> None:
        items, made = self.pop_mark(), dict[Any, Any]()
        self.set_items(made, items)
        self.append(made)

    def load_bytearray8(self) -> None:
        """Python's own makes room for as many bytes as the file claims to have."""
        (size,) = struct.unpack("<Q", self.read(8))
        self.append(bytearray(self.read(size)))

    dispatch: ClassVar[dict[int, Any]] = {
        **{getattr(pickle, name)[0]: pickle._Unpickler.dispatch[getattr(pickle, name)[0]] for name in OPERATIONS},
        pickle.SETITEM[0]: load_setitem,
        pickle.SETITEMS[0]: load_setitems,
        pickle.DICT[0]: load_dict,
        pickle.BYTEARRAY8[0]: load_bytearray8,
    }


def load(path: Path, encoding: str = "bytes") -> Any:
    """The data of a pickle. Python 2's strings come as bytes or, with encoding="latin1", as text.

    Raises Refused for anything but plain data, and other exceptions, as pickle does, for files that are not pickles.
    """
    return loads(read_regular(path, MOST_BYTES), encoding)


def loads(data: bytes, encoding: str = "bytes") -> Any:
    try:
        found = _Unpickler(data, encoding).load()
    except KeyError as error:
        raise Refused("it uses an operation that plain data are not written with") from error
    return _Plain().copy(found)


class _Plain:
    """Copies values with arrays in place of their stand-ins; anything else that is not data is refused."""

    def __init__(self) -> None:
        self.objects = 0

    def count(self, more: int) -> None:
        self.objects += more
        if self.objects > MOST_OBJECTS:
            raise Refused(f"it holds more than {MOST_OBJECTS} objects")

    def copy(self, value: Any, depth: int = 0) -> Any:
        self.count(1)
        if depth > MOST_DEPTH:
            raise Refused(f"it is nested more than {MOST_DEPTH} deep")
        if isinstance(value, _Array) and value.value is not None:
            return value.value
        if isinstance(value, dict):
            return {key: self.copy(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list):
            if PLAIN.issuperset(map(type, value)):  # the usual list, at once
                self.count(len(value))
                return list(value)
            return [self.copy(item, depth + 1) for item in value]
        if isinstance(value, tuple):
            return tuple(self.copy(item, depth + 1) for item in value)
        if value is None or isinstance(value, bool | int | float | str | bytes | bytearray):
            return value
        raise Refused(f"it holds a {type(value).__name__}")


def _text(value: str | bytes) -> str:
    """Of a dtype. NumPy would also take lists in lists."""
    if not isinstance(value, str | bytes):
        raise Refused(f"it describes numbers by a {type(value).__name__}")
    return value.decode("ascii") if isinstance(value, bytes) else value
