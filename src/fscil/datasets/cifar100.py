"""cifar100: 60 base classes, then 8 sessions of 5-way 5-shot, from `<root>/cifar-100-python`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fscil.benchmark import Benchmark, checksum, draw_shots, split
from fscil.datasets import safe_pickle
from fscil.datasets.registry import LAST_TRIAL, TRIAL, Dataset
from fscil.errors import UserError
from fscil.settings import setting

FOLDER = "cifar-100-python"
ARCHIVE = "cifar-100-python.tar.gz"
OFFICIAL_MD5 = {
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    "meta": "7973b15100ade9c7d40fb424638fde48",
}
CLASSES, BASE_CLASSES, WAY, SHOT, SESSIONS = 100, 60, 5, 5, 8
PER_CLASS = {"train": 500, "test": 100}
# Checksums of the session lists that the field has published; see benchmark.checksum for their canonical form.
SESSION_CHECKSUMS = (
    "ed0bf0e825c3e040",
    "6a9ae3967e98cd9f",
    "a0aed582b12c1d16",
    "793554767d50e64d",
    "f18ce8b1490eaad1",
    "61e0e2e3193aca5d",
    "4622646717d94b20",
    "ea574a7500b3654a",
    "fd3dd67f50830a69",
)
HOW_TO_GET = (
    f"run `fscil data prepare cifar100`, or torchvision.datasets.CIFAR100(root, download=True) on a machine with "
    f"network access, and put its folder {FOLDER} (train, test, meta) under --root or FSCIL_DATA"
)


@dataclass(frozen=True)
class Cifar100Options:
    trial: int = setting(1, TRIAL, least=0, most=LAST_TRIAL)


def load(options: Cifar100Options, root: Path | None) -> Benchmark:
    folder = dataset_folder(root)
    names = read_names(folder / "meta")
    train_pixels, train_labels = read_part(folder / "train", PER_CLASS["train"])
    test_pixels, test_labels = read_part(folder / "test", PER_CLASS["test"])
    warnings = unofficial_files(folder)
    if session_checksums(train_labels) != list(SESSION_CHECKSUMS):
        warnings.append("cifar100: the rows are in a different order from the official ones, so the sessions differ")
    return split(
        "cifar100",
        names,
        as_images(train_pixels),
        torch.from_numpy(train_labels),
        range(len(train_labels)),
        as_images(test_pixels),
        torch.from_numpy(test_labels),
        base_classes=BASE_CLASSES,
        ways=[WAY] * SESSIONS,
        shots=[SHOT] * SESSIONS,
        trial=options.trial,
        warnings=warnings,
    )


def dataset_folder(root: Path | None) -> Path:
    if root is None:
        raise UserError(f"cifar100: no data folder is given; {HOW_TO_GET}")
    folder = root / FOLDER
    missing = [name for name in OFFICIAL_MD5 if not os.path.isfile(folder / name)]
    if missing:
        raise UserError(f"cifar100: {folder} lacks {', '.join(missing)}; {HOW_TO_GET}")
    return folder


def read_names(path: Path) -> list[str]:
    names = [_text(path, name) for name in _field(path, _unpickle(path), "fine_label_names")]
    if len(names) != CLASSES or len(set(names)) != CLASSES:
        raise UserError(f"cifar100: {path} names {len(set(names))} classes, not {CLASSES}; {HOW_TO_GET}")
    return names


def read_part(path: Path, per_class: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pixels [n, 3072] and labels [n] of train or test, checked to be what the protocol is defined on."""
    content = _unpickle(path)
    pixels = _field(path, content, "data")
    rows = CLASSES * per_class
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape != (rows, 3072):
        shape = getattr(pixels, "shape", type(pixels).__name__)
        raise UserError(f"cifar100: pixels of {path} are {shape}, not {rows} x 3072 bytes; {HOW_TO_GET}")
    labels = _field(path, content, "fine_labels")
    if not all(isinstance(label, int) and 0 <= label < CLASSES for label in labels):
        raise UserError(f"cifar100: {path} has labels other than 0 to {CLASSES - 1}; {HOW_TO_GET}")
    counts = np.bincount(np.array(labels, dtype=np.int64), minlength=CLASSES)
    if len(labels) != rows or (counts != per_class).any():
        raise UserError(f"cifar100: {path} does not have {per_class} images of every class; {HOW_TO_GET}")
    return pixels, np.array(labels, dtype=np.int64)


def as_images(pixels: NDArray[np.uint8]) -> Tensor:
    """Rows of 3072 bytes to [n, 3, 32, 32], as a copy: the array is a view of a read-only buffer."""
    return torch.from_numpy(pixels.reshape(-1, 3, 32, 32).copy())


def session_checksums(labels: NDArray[np.int64], trial: int = 1) -> list[str]:
    """Checksums of every session's row numbers, in the published lists' form."""
    rows = [np.flatnonzero(labels == label) for label in range(CLASSES)]
    sessions = [np.concatenate(rows[:BASE_CLASSES])]
    for first in range(BASE_CLASSES, CLASSES, WAY):
        sessions.append(np.concatenate([r[draw_shots(len(r), SHOT, trial)] for r in rows[first : first + WAY]]))
    return [checksum(sorted(session.tolist())) for session in sessions]


def unofficial_files(folder: Path) -> list[str]:
    """A warning for every file that is not the official one, byte for byte."""
    return [
        f"cifar100: {FOLDER}/{name} is not byte-identical to the official file; numbers may not be comparable"
        for name, md5 in OFFICIAL_MD5.items()
        if _md5(folder / name) != md5
    ]


def prepare(root: Path | None) -> str:
    if root is None:
        raise UserError("cifar100: say where to put it with --root or FSCIL_DATA")
    if str(root).startswith("~"):  # what data_root leaves of ~user
        raise UserError(f"cifar100: {root} is nobody's home; say where to put it with --root or FSCIL_DATA")
    folder = root / FOLDER
    if all(os.path.isfile(folder / name) for name in OFFICIAL_MD5):
        return f"cifar100 is already at {folder}; nothing to do"
    from torchvision.datasets import CIFAR100

    archive = root / ARCHIVE
    try:
        if os.path.isfile(archive) and _md5(archive) != CIFAR100.tgz_md5:
            raise UserError(f"cifar100: {archive} is damaged or incomplete; delete it, then prepare again")
        root.mkdir(parents=True, exist_ok=True)
        CIFAR100(str(root), download=True)
    except (OSError, RuntimeError) as error:  # URLError is an OSError; a wrong digest is a RuntimeError
        raise UserError(f"cifar100: the download failed ({' '.join(str(error).split())}); {HOW_TO_GET}") from error
    return f"cifar100 is now at {folder}"


def verify(root: Path | None) -> list[str]:
    folder = dataset_folder(root)
    read_names(folder / "meta")
    _, labels = read_part(folder / "train", PER_CLASS["train"])
    read_part(folder / "test", PER_CLASS["test"])
    lines = ["ok: 100 classes with 500 training and 100 test images each"]
    found = session_checksums(labels)
    for i, (mine, published) in enumerate(zip(found, SESSION_CHECKSUMS, strict=True)):
        same = f"ok: session {i} is the published one ({published})"
        lines.append(same if mine == published else f"warning: session {i} is not the published one ({mine})")
    unofficial = unofficial_files(folder)
    return lines + ([f"warning: {line}" for line in unofficial] or ["ok: all files are the official ones"])


def _unpickle(path: Path) -> Mapping[object, Any]:
    try:
        content = safe_pickle.load(path)
    except Exception as error:  # a broken pickle can raise nearly anything
        why = " ".join(str(error).split())[:100] or type(error).__name__
        raise UserError(f"cifar100: {path} is damaged or not a CIFAR-100 file ({why}); {HOW_TO_GET}") from error
    if not isinstance(content, dict):
        raise UserError(f"cifar100: {path} is not a CIFAR-100 file; {HOW_TO_GET}")
    return content


def _field(path: Path, content: Mapping[object, Any], name: str) -> Any:
    """A field of a dictionary whose keys are bytes if Python 2 wrote it, text if Python 3 did."""
    value = content.get(name, content.get(name.encode()))
    if not isinstance(value, list | np.ndarray):
        raise UserError(f"cifar100: {path} has no {name!r}; {HOW_TO_GET}")
    return value


def _text(path: Path, value: object) -> str:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    raise UserError(f"cifar100: {path} names a class by a {type(value).__name__}; {HOW_TO_GET}")


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


DATASET = Dataset(
    name="cifar100",
    description="CIFAR-100, standard split: 60 base + 8 x 5-way 5-shot, 32 px",
    options=Cifar100Options,
    load=load,
    defaults={
        "encoder": "resnet20",
        "augmentation": "autoaug",
        "crop": "pad",
        "flip": True,
        "policy": "cifar10",
        "cutout": 16,
        "recipe": "large-batch",
    },
    prepare=prepare,
    verify=verify,
)
