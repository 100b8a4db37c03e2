"""Signed safetensors files: tensors and a few facts, with a checksum over both. NumPy's arrays need no torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from fscil.errors import UserError
from fscil.files import read_regular, write_atomically

LARGEST_FILE = 2**36  # bytes
MOST_HEADER = 2**27  # bytes that are read of a file for its header
T = TypeVar("T")
Arrays = Mapping[str, NDArray[Any]]
Described = tuple[str, str, list[int], Any]  # a tensor's name, its type as torch calls it, its shape and its bytes


def save_arrays(path: Path, arrays: Arrays, about: Mapping[str, Any]) -> None:
    """Arrays and a few facts about them, in one file that is written atomically."""
    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    write_atomically(path, safetensors.numpy.save(plain, metadata=signature(described(plain), about)))


def load_arrays(path: Path, remedy: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """What save_arrays wrote; a file that has changed since is refused."""
    return load_signed(path, safetensors.numpy.load, described, remedy)


def described(arrays: Arrays) -> Iterable[Described]:
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        yield name, f"torch.{array.dtype}", list(array.shape), array.reshape(-1).view(np.uint8).data


def signature(tensors: Iterable[Described], about: Mapping[str, Any]) -> dict[str, str]:
    """A file's metadata: one entry, since safetensors writes several in any order, and equal runs write equal files."""
    return {"about": json.dumps({**about, "checksum": checksum(tensors, about)})}


def load_signed(
    path: Path, load: Callable[[bytes], dict[str, T]], describe: Callable[[dict[str, T]], Iterable[Described]],
    remedy: str,
) -> tuple[dict[str, T], dict[str, Any]]:  # fmt: skip
    """Tensors and facts of a signed file, read by safetensors' `load`."""
    try:
        data = read_regular(path, LARGEST_FILE)  # by name safetensors reads only what is UTF-8
        tensors = load(data)
        about = about_of(header_of(data))
        if about.pop("checksum", "") != checksum(describe(tensors), about):
            raise ValueError("its checksum is wrong")
        return tensors, about
    # safetensors raises nearly anything on types that a library does not have
    except (
        OSError,
        safetensors.SafetensorError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RuntimeError,
    ) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else " ".join(str(error).split())
        raise UserError(f"{path} cannot be read ({reason[:200]}); {remedy}") from error


def read_header(path: Path) -> dict[str, Any]:
    """The header of a safetensors file alone: types and shapes of its tensors, and its metadata."""
    with open(path, "rb") as file:
        size = file.read(8)
        return header_of(size + file.read(min(MOST_HEADER, int.from_bytes(size, "little"))))


def header_of(data: bytes) -> dict[str, Any]:
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    if not isinstance(header, dict):
        raise ValueError("it has no header")
    return header


def about_of(header: Mapping[str, Any]) -> dict[str, Any]:
    about = json.loads(header.get("__metadata__", {}).get("about", "{}"))
    if not isinstance(about, dict):
        raise ValueError("its checksum is wrong")
    return about


def checksum(tensors: Iterable[Described], about: Mapping[str, Any]) -> str:
    """Of all facts, names, types, shapes and bytes."""
    found = hashlib.sha256(json.dumps(dict(about)).encode())
    for *facts, data in tensors:
        found.update(json.dumps(facts).encode())
        found.update(data)
    return found.hexdigest()
