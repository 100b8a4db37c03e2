"""Tables of bad inputs: what is put into a folder, and the command line that meets it there."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from fscil.config_layers import known_settings

Prepare = Callable[[Path], object]


@dataclass(frozen=True)
class Case:
    """Refused in one line with exit code 2, whatever it is."""

    name: str
    arguments: Sequence[str]
    prepare: Prepare = lambda folder: None
    environment: Mapping[str, str] = field(default_factory=dict)


DIGITS = ("run", "decoupled-cosine", "digits", "epochs=1")
LONG = "n" * 300
NOT_UTF8 = os.fsdecode(b"caf\xe9")


# -- what lies in a folder -------------------------------------------------------------------------------------------
def fifo(name: str) -> Prepare:
    return lambda folder: os.mkfifo(folder / name)


def endless(name: str) -> Prepare:
    return lambda folder: os.symlink("/dev/zero", folder / name)


def loop(name: str) -> Prepare:
    return lambda folder: os.symlink(name, folder / name)


def content(name: str, data: bytes) -> Prepare:
    def write(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.rmtree(path)
        path.write_bytes(data)

    return write


def subfolder(name: str) -> Prepare:
    def make(folder: Path) -> None:
        path = folder / name
        path.unlink(missing_ok=True)
        path.mkdir(parents=True)

    return make


def instead(name: str, prepare: Callable[[str], Prepare]) -> Prepare:
    """The same in place of a file that is there."""

    def swap(folder: Path) -> None:
        (folder / name).unlink()
        prepare(name)(folder)

    return swap


def both(*steps: Prepare) -> Prepare:
    def do(folder: Path) -> None:
        for step in steps:
            step(folder)

    return do


# -- settings --------------------------------------------------------------------------------------------------------
NUMBERS = ("nan", "1e999", "-1e308", "9" * 5000, "")


def settings() -> Iterator[Case]:
    """Every numeric setting of every method, with numbers that are none, or are too large."""
    seen: set[str] = set()
    for method in ("limit", "finetune", "decoupled-cosine"):
        for key, (_, kind) in known_settings(method, "digits").items():
            if key in seen or kind not in (int, float):
                continue
            seen.add(key)
            for value in NUMBERS:
                yield Case(f"{key}={value[:8]}", ("run", method, "digits", f"{key}={value}", "--out", "o"))
    for word in ("epochs", "=1", "no_such_setting=1", "epochs=1=2", f"encoder={LONG}", "calibrator=,", "memory=x"):
        yield Case(f"setting {word[:20]}", ("run", "limit", "digits", word, "--out", "o"))
    yield Case("a setting that is not UTF-8", ("run", "limit", "digits", f"encoder={NOT_UTF8}", "--out", "o"))


# -- usage -----------------------------------------------------------------------------------------------------------
USAGE = (
    "frobnicate", "run --no-such-option", "run limit", "run nosuch digits", "run limit nosuch",
    "run limit digits --seed x", "run limit digits --seed -1", "run limit digits --seed 1e3",
    f"run limit digits --seed {'9' * 5000}", "run limit digits --device tpu", "run limit digits --checkpoint-every nan",
    "run limit digits --checkpoint-every -1", "run limit digits --checkpoint-every x", "run --resume",
    "run --resume nowhere", "run --resume nowhere limit", "run limit digits --out", "compare", "compare nosuch",
    "compare digits --seeds 0", "compare digits --seeds x", "compare digits --seeds 10000000",
    "compare digits --methods nosuch", "compare digits --methods ,", "compare digits --first-seed -1",
    "compare digits no_such=1", "reproduce nosuch", "reproduce ablation --seeds 10000000", "report", "report nowhere",
    "predict", "predict nowhere", "predict nowhere photo.jpg", "predict model photos --top 0", "data nosuch",
    "data prepare", "data prepare nosuch", "data verify nosuch", "methods --no-such", "encoders extra",
)  # fmt: skip


def usage() -> Iterator[Case]:
    for line in USAGE:
        yield Case(f"fscil {line[:50]}", line.split())


# -- paths -----------------------------------------------------------------------------------------------------------
PATHS: dict[str, tuple[str, Prepare]] = {
    "missing": ("nowhere", lambda folder: None),
    "too long a name": (LONG, lambda folder: None),
    "too long a path": ("/".join(["n" * 200] * 30), lambda folder: None),
    "below a file": ("file/x", content("file", b"")),
    "a loop of links": ("loop", loop("loop")),
    "a FIFO": ("fifo", fifo("fifo")),
    "an endless device": ("endless", endless("endless")),
    "nobody's home": ("~nosuchuser/x", lambda folder: None),
    "not UTF-8": (NOT_UTF8, lambda folder: None),
    "a file": ("file", content("file", b"something")),
    "an empty folder": ("empty", subfolder("empty")),
}
VERBS: dict[str, tuple[str, ...]] = {  # X is the path
    "resume": ("run", "--resume", "X"),
    "report": ("report", "X"),
    "root": ("run", "decoupled-cosine", "cifar100", "--root", "X", "--out", "o"),
    "verify": ("data", "verify", "cifar100", "--root", "X"),
    "path=": ("run", "decoupled-cosine", "folder", "path=X", "--out", "o"),
    "weights": (*DIGITS, "weights=X", "--out", "o"),
    "model": ("predict", "X", "photo.png"),
    "image": ("predict", "model", "X"),
}
OUTS = (
    "too long a name",
    "too long a path",
    "below a file",
    "a loop of links",
    "a FIFO",
    "an endless device",
    "a file",
)


def paths() -> Iterator[Case]:
    photo = content("photo.png", b"")
    for verb, arguments in VERBS.items():
        for what, (path, prepare) in PATHS.items():
            given = tuple(
                word.replace("X", path) if word in ("X", "path=X", "weights=X") else word for word in arguments
            )
            yield Case(f"{verb}: {what}", given, both(prepare, photo))
    for what in OUTS:
        path, prepare = PATHS[what]
        yield Case(f"out: {what}", (*DIGITS, "--out", path), prepare)
        yield Case(f"compare's out: {what}", ("compare", "digits", "epochs=1", "--seeds", "1", "--out", path), prepare)


# -- run folders -----------------------------------------------------------------------------------------------------
DEEP = b"[" * 100_000
DAMAGES: dict[str, Callable[[str], Prepare]] = {
    "empty": lambda name: content(name, b""),
    "zeros": lambda name: content(name, b"\0" * 1000),
    "not UTF-8": lambda name: content(name, b"\xff\xfe" * 100),
    "deeply nested": lambda name: content(name, DEEP),
    "a list": lambda name: content(name, b"[]"),
    "a number": lambda name: content(name, b"1e999"),
    "a folder": subfolder,
    "a FIFO": lambda name: instead(name, fifo),
    "an endless device": lambda name: instead(name, endless),
}


def value(name: str, key: str, text: str) -> Prepare:
    """Another value for a key of a JSON or TOML file; the text is written as it is."""

    def change(folder: Path) -> None:
        path = folder / name
        if name.endswith(".json"):
            held = {**json.loads(path.read_text()), key: "@@"}
            path.write_text(json.dumps(held).replace('"@@"', text))
        else:
            lines = path.read_text().splitlines()
            path.write_text("\n".join(f"{key} = {text}" if line.startswith(f"{key} = ") else line for line in lines))

    return change


CHECKPOINT = "interrupted/checkpoint/base.safetensors"
JSON_VALUES = ('"x"', "[]", "{}", "null", "1e999", "-1", '"\\ud800"', "9" * 5000, "NaN")
TOML_VALUES = ('"x"', "[]", "{}", "1979-05-27", "nan", "9" * 5000, "-1")


def run_folders() -> Iterator[Case]:
    for damage, damaged in DAMAGES.items():
        yield Case(f"result.json: {damage}", ("report", "finished"), damaged("finished/result.json"))
        yield Case(f"config.toml: {damage}", ("run", "--resume", "interrupted"), damaged("interrupted/config.toml"))
        yield Case(
            f"checkpoint: {damage}",
            ("run", "--resume", "interrupted"),
            damaged("interrupted/checkpoint/base.safetensors"),
        )
    for key in ("accuracy", "seed", "captured", "class_names", "per_class", "version"):
        for text in JSON_VALUES:
            if (key, text) not in {("seed", "-1")}:
                yield Case(
                    f"result.json: {key} = {text[:8]}", ("report", "finished"), value("finished/result.json", key, text)
                )
    for key in ("seed", "method", "benchmark", "epochs", "encoder", "lr"):
        for text in TOML_VALUES:
            change = value("interrupted/config.toml", key, text)
            yield Case(f"config.toml: {key} = {text[:8]}", ("run", "--resume", "interrupted"), change)


# -- photos ----------------------------------------------------------------------------------------------------------
PHOTOS = ("run", "decoupled-cosine", "folder", "path=photos", "epochs=1", "size=16", "way=1", "shot=1", "--out", "o")
TABLE = (*(word.replace("path=photos", "path=photos.csv") for word in PHOTOS),)


def eps() -> bytes:
    return b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n(/tmp/x) (w) file\nshowpage\n%%EOF\n"


def photos() -> Iterator[Case]:
    image = "photos/class1/odd.png"
    odd: dict[str, Prepare] = {
        "a FIFO": fifo(image),
        "an endless device": endless(image),
        "a loop of links": loop("photos/class1/odd.png"),
        "a dead link": lambda folder: os.symlink("nowhere", folder / image),
        "an empty file": content(image, b""),
        "half a file": lambda folder: (folder / image).write_bytes((folder / "photos/class1/0.png").read_bytes()[:60]),
        "text": content(image, b"no image"),
        "EPS": content("photos/class1/odd.jpg", eps()),
        "a bomb": lambda folder: Image.new("1", (30_000, 30_000)).save(folder / image),
        "a class that is not UTF-8": lambda folder: os.rename(folder / "photos/class1", folder / "photos" / NOT_UTF8),
        "an empty class": subfolder("photos/class9"),
        "a folder in a class": subfolder("photos/class1/more"),
        "classes alike": lambda folder: os.rename(folder / "photos/class1", folder / "photos/CLASS2"),
    }
    for what, prepare in odd.items():
        yield Case(f"photos: {what}", PHOTOS, prepare)
        if what not in ("a class that is not UTF-8", "an empty class", "a folder in a class", "classes alike"):
            yield Case(f"streamed photos: {what}", (*PHOTOS, "stream=always"), prepare)
    yield Case(
        "photos: one class", PHOTOS, lambda folder: [shutil.rmtree(folder / f"photos/class{i}") for i in range(1, 4)]
    )


MANIFESTS = {
    "empty": b"", "a header": b"path,class\n", "no class": b"path\nphotos/class0/0.png\n", "zeros": b"\0" * 100,
    "not UTF-8": b"path,class\n\xff,x\n", "outside": b"path,class\n../../etc/passwd,x\n",
    "absolute": b"path,class\n/etc/passwd,x\n",
    "missing": b"path,class\nnowhere.png,x\n", "twice": b"path,class\nphotos/class0/0.png,a\nphotos/class0/0.png,b\n",
    "an empty class": b"path,class\nphotos/class0/0.png,\n", "too many cells": b"path,class\na,b,c\n",
    "split": b"path,class,split\nphotos/class0/0.png,a,dev\n", "a folder": b"path,class\nphotos,a\n",
    "an open quote": b'path,class\n"photos', "a null character": b"path,class\na\0b,c\n",
    "binary": bytes(range(256)) * 10, "long": b"path,class\n" + b"n" * 200_000 + b",x\n",
}  # fmt: skip


def manifests() -> Iterator[Case]:
    for what, data in MANIFESTS.items():
        yield Case(f"manifest: {what}", TABLE, content("photos.csv", data))
    yield Case("manifest: a FIFO", TABLE, fifo("photos.csv"))
    yield Case("manifest: an endless device", TABLE, endless("photos.csv"))


# -- pickles ---------------------------------------------------------------------------------------------------------
class Call:
    """Calls a function when it is unpickled, if the reader lets it."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.called = function, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.called


def doubling(depth: int) -> object:
    held: object = [b"x" * 100]
    for _ in range(depth):
        held = [held, held]
    return held


def nested(depth: int) -> bytes:
    return b"\x80\x02" + b"(" * depth + b"l" * depth + b"."


PICKLES: dict[str, bytes] = {
    "a command": pickle.dumps(Call(os.system, "touch executed")),
    "a file": pickle.dumps(Call(open, "executed", "w")),
    "eval": pickle.dumps(Call(eval, "open('executed', 'w')")),
    "exec in a dict": pickle.dumps({b"data": Call(exec, "open('executed', 'w')")}),
    "growing without end": pickle.dumps(doubling(60), 2),
    "growing, keys": pickle.dumps({"data": doubling(40), "fine_labels": doubling(40)}, 4),
    "deep": nested(100_000),
    "a list": pickle.dumps([1, 2, 3]),
    "text": b"hello",
    "empty": b"",
    "cut": pickle.dumps({"data": b"x" * 10_000})[:500],
    "types": pickle.dumps({b"data": 1, b"fine_labels": "x"}),
    "labels": pickle.dumps({b"data": b"", b"fine_labels": [-1, 1000], b"filenames": [None]}),
    "a long number": b"\x80\x02\x8a\xff" + b"\x7f" * 255 + b".",
}
CIFAR100 = ("run", "decoupled-cosine", "cifar100", "--root", ".", "--out", "o")


def pickles() -> Iterator[Case]:
    for what, data in PICKLES.items():
        files = both(*(content(f"cifar-100-python/{name}", data) for name in ("train", "test", "meta")))
        yield Case(f"pickle: {what}", CIFAR100, files)
    for what, prepare in {"a FIFO": fifo, "an endless device": endless}.items():
        fill = both(
            subfolder("cifar-100-python"), *(prepare(f"cifar-100-python/{n}") for n in ("train", "test", "meta"))
        )
        yield Case(f"pickle: {what}", CIFAR100, fill)
    for what in ("a command", "growing without end"):
        yield Case(f"weights: {what}", (*DIGITS, "weights=w.pth", "--out", "o"), content("w.pth", PICKLES[what]))


# -- surroundings ----------------------------------------------------------------------------------------------------
def surroundings() -> Iterator[Case]:
    for name, wrong in {
        "RANK": "x", "WORLD_SIZE": "-1", "FSCIL_TIMEOUT": "soon", "FSCIL_DATA": LONG, "LOCAL_RANK": "x",
    }.items():  # fmt: skip
        environment = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "29555", name: wrong}
        arguments = (*CIFAR100[:3], "--out", "o") if name == "FSCIL_DATA" else (*DIGITS, "--out", "o")
        yield Case(f"{name}={wrong[:8]}", arguments, environment=environment)
    yield Case("RANK alone", (*DIGITS, "--out", "o"), environment={"RANK": "0"})


def all_cases() -> list[Case]:
    tables = (settings, usage, paths, run_folders, photos, manifests, pickles, surroundings)
    return [case for table in tables for case in table()]
