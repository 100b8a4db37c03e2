"""folder: your own images as a benchmark, from a `class/image` tree or a CSV manifest."""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from fscil.benchmark import Benchmark, split
from fscil.datasets.decode import STREAM, read_files
from fscil.datasets.folder_index import LAYOUT, MOST_BYTES, Item, read_items
from fscil.datasets.registry import LAST_TRIAL, TRIAL, Dataset
from fscil.errors import UserError
from fscil.files import expand_user, file_name_bytes, is_unicode, read_regular
from fscil.images import subset
from fscil.naming import quotable
from fscil.settings import setting

BASE_SHARE = 0.6


@dataclass(frozen=True)
class FolderOptions:
    path: str = setting("", "a tree of class/image, or a CSV manifest; required")
    base_classes: int = setting(
        0, "the first classes, with all their images; 0: 60 % of the classes", least=0, most=1_000_000
    )
    way: int | str = setting(5, "classes per session; 5,3,2 for sessions that differ")
    shot: int | str = setting(5, "images per class; 5,3,2 likewise")
    order: str = setting("name", "of the classes: name, random, or a text file with one class per line")
    order_seed: int = setting(1, "of order=random", least=0, most=LAST_TRIAL)
    test_share: float = setting(
        0.2, "share of every class's images held out for testing, unless a manifest says which", least=0, most=1
    )
    size: int = setting(
        84,
        "pixels per side of the stored images (see input_size); below 64 the encoder is resnet20",
        least=8,
        most=1024,
    )
    stream: str = setting("auto", STREAM, choices=("auto", "always", "never"))
    trial: int = setting(1, TRIAL, least=0, most=LAST_TRIAL)


def load(options: FolderOptions, root: Path | None = None) -> Benchmark:
    path = _locate(options.path, root)
    _check_options(options)
    items = read_items(path)
    names = order_classes(sorted({item.class_name for item in items}), options.order, options.order_seed)
    base_classes, ways, shots = protocol(len(names), options.base_classes, options.way, options.shot)
    used = names[: base_classes + sum(ways)]
    shot_of_class = [max(shots)] * base_classes + [s for way, s in zip(ways, shots, strict=True) for _ in range(way)]
    train: list[tuple[Item, int]] = []
    test: list[tuple[Item, int]] = []
    for label, (name, shot) in enumerate(zip(used, shot_of_class, strict=True)):
        of_class = [item for item in items if item.class_name == name]
        for_training, for_test = divide(of_class, options.test_share, shot)
        train += [(item, label) for item in for_training]
        test += [(item, label) for item in for_test]
    files = [item for item, _ in train + test]
    images = read_files([i.path for i in files], [i.key for i in files], options.size, options.stream)
    benchmark = split(
        "folder",
        used,
        subset(images, slice(len(train))),
        torch.tensor([label for _, label in train]),
        [item.key for item, _ in train],
        subset(images, slice(len(train), None)),
        torch.tensor([label for _, label in test]),
        base_classes=base_classes,
        ways=ways,
        shots=shots,
        trial=options.trial,
        warnings=_left_out(sorted({item.class_name for item in items} - set(used))),
    )
    title = path.absolute().name.encode("utf-8", "backslashreplace").decode()  # a folder above may not be UTF-8
    return replace(benchmark, title=title)


def order_classes(names: Sequence[str], order: str, seed: int) -> list[str]:
    """Class names in order of arrival. A file may leave classes out."""
    if order == "name":
        return sorted(names)
    if order == "random":
        return [names[i] for i in np.random.RandomState(seed).permutation(len(names))]
    try:
        lines = read_regular(expand_user(order), MOST_BYTES).decode("utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise UserError(f"order={order} is neither name, random nor a readable text file of classes") from error
    listed = [line.strip() for line in lines if line.strip()]
    known = {name.strip(): name for name in names}
    for i, line in enumerate(listed):
        if line not in known:
            near = difflib.get_close_matches(line, list(known), n=1)
            hint = f"did you mean {near[0]!r}?" if near else "correct or remove it"
            raise UserError(f"{order} names a class {line!r} that has no images; {hint}")
        if line in listed[:i]:
            raise UserError(f"{order} names the class {line!r} twice; remove one")
    return [known[line] for line in listed]


def protocol(classes: int, base_classes: int, way: int | str, shot: int | str) -> tuple[int, list[int], list[int]]:
    """Base classes, then way and shot of every session. A single way repeats; the last session takes what is left."""
    base = base_classes or max(1, int(classes * BASE_SHARE))
    rest = classes - base
    if rest < 1:
        raise UserError(
            f"folder: {base} base classes and a session of new ones need at least {base + 1} classes, but there are "
            f"{classes}; add classes or lower base_classes"
        )
    ways = _numbers("way", way)
    if len(ways) == 1:
        ways = [min(ways[0], rest - first) for first in range(0, rest, ways[0])]
    if sum(ways) > rest:
        raise UserError(
            f"folder: {base} base classes and way={quotable(way)} need {base + sum(ways)} classes, but there are "
            f"{classes}; lower base_classes or way"
        )
    shots = _numbers("shot", shot)
    shots = shots * len(ways) if len(shots) == 1 else shots
    if len(shots) != len(ways):
        raise UserError(
            f"folder: shot={quotable(shot)} is for {len(shots)} sessions, but there are {len(ways)}; give one for all"
        )
    return base, ways, shots


def divide(items: Sequence[Item], test_share: float, shot: int) -> tuple[list[Item], list[Item]]:
    """A class's items for training and for testing, each in their order.

    Without a manifest, a digest of the name decides, so that adding images moves few others to the other part.
    """
    name = items[0].class_name
    if items[0].part:
        train = [item for item in items if item.part == "train"]
        test = [item for item in items if item.part == "test"]
        if not test:
            raise UserError(f"folder: class {name!r} has no row with split test; add one or leave the class out")
        if len(train) < shot:
            raise UserError(
                f"folder: class {name!r} has {len(train)} training images, fewer than its {shot} shots; "
                "add images, lower shot, or leave the class out"
            )
        return train, test
    if len(items) < shot + 1:
        raise UserError(
            f"folder: class {name!r} has {len(items)} images, but {shot} shots and a test image need {shot + 1}; "
            "add images, lower shot, or leave the class out"
        )
    count = max(1, min(round(len(items) * test_share), len(items) - shot))
    by_digest = sorted(items, key=lambda item: hashlib.sha256(file_name_bytes(item.key)).digest())
    chosen = {item.key for item in by_digest[:count]}
    return [item for item in items if item.key not in chosen], [item for item in items if item.key in chosen]


def prepare(root: Path | None) -> str:
    return f"folder reads your own images, nothing to prepare: {LAYOUT}"


def verify(root: Path | None) -> list[str]:
    """Here the root is the tree or manifest itself; every image is decoded and the default protocol is tried."""
    if root is None:
        raise UserError(f"folder: say with --root which folder or manifest to check; {LAYOUT}")
    benchmark = load(FolderOptions(path=str(root.absolute()), stream="always"))
    for images in (benchmark.sessions[0].images, benchmark.pool.images, benchmark.test_images):
        for _ in images.split(256):  # decodes them, a few at a time
            pass
    sessions = [len(session.classes) for session in benchmark.sessions]
    lines = [f"ok: all images of {len(benchmark.class_names)} classes can be read"]
    lines += [f"ok: {sessions[0]} base classes, then sessions of {', '.join(map(str, sessions[1:]))}"]
    return lines + [f"warning: {line}" for line in benchmark.warnings]


def _locate(named: str, root: Path | None) -> Path:
    if not named:
        raise UserError(f"folder: say where the images are with path=...; {LAYOUT}")
    if not is_unicode(named):
        raise UserError(f"folder: path={named!r} is not UTF-8; rename that file or folder")
    path = expand_user(named)
    if root is not None and not os.path.exists(path) and os.path.exists(root / path):
        return root / path
    return path


def _check_options(options: FolderOptions) -> None:
    if not 0 < options.test_share < 1:
        raise UserError(f"folder: test_share={options.test_share} must lie between 0 and 1")
    if not 8 <= options.size <= 1024:
        raise UserError(f"folder: size={options.size} must be 8 to 1024 pixels")
    if not 0 <= options.order_seed < 2**32:
        raise UserError(f"folder: order_seed={options.order_seed} must be a number from 0 to {2**32 - 1}")
    if options.base_classes < 0:
        raise UserError(f"folder: base_classes={options.base_classes} must be positive, or 0 for 60 % of the classes")


def _numbers(option: str, value: int | str) -> list[int]:
    parts = str(value).split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise UserError(f"folder: {option}={quotable(value)} must be a positive number, or several such as 5,3,2")
    return [int(part) for part in parts]


def _left_out(names: Sequence[str]) -> list[str]:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return [f"folder: classes left out: {', '.join(names[:5])}{more}"] if names else []


def _encoder_for(options: FolderOptions) -> Mapping[str, object]:
    return {"encoder": "resnet18" if options.size >= 64 else "resnet20"}


DATASET = Dataset(
    name="folder",
    description="your own images, a folder per class or a CSV file: path=...",
    options=FolderOptions,
    load=load,
    defaults={
        "encoder": "resnet18",
        "augmentation": "basic",
        "crop": "resized",
        "flip": True,
        "policy": "imagenet",
        "cutout": 0,
        "recipe": "small",
    },
    prepare=prepare,
    verify=verify,
    option_defaults=_encoder_for,
)
