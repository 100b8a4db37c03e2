from __future__ import annotations

import ast
import json
import os
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from filelock import FileLock
from rich.console import Console

import fscil
from fscil import code_version
from fscil.benchmark import Benchmark, Session
from fscil.datasets import folder as folders
from fscil.datasets.folder import FolderOptions
from fscil.engine import Engine
from fscil.errors import UserError
from fscil.methods import Method, encoder_cache
from fscil.methods.method import Context

MakeMethod = Callable[..., Method]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FSCIL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "encoders"


class Learner:
    """Learns base sessions and records what was printed meanwhile."""

    def __init__(self, make_method: MakeMethod, benchmark: Benchmark) -> None:
        self.make_method, self.benchmark = make_method, benchmark
        self.said = StringIO()

    def __call__(self, name: str = "decoupled-cosine", seed: int = 1, **settings: Any) -> Method:
        self.said = StringIO()
        engine = Engine(seed=seed, console=Console(file=self.said, width=300))
        method = self.make_method(name, self.benchmark, engine=engine, **settings)
        method.learn_base(self.benchmark.sessions[0])
        return method


@pytest.fixture
def learn(make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark]) -> Learner:
    return Learner(make_method, tiny_benchmark())


def encoder_of(method: Method) -> list[torch.Tensor]:
    return [tensor for name, tensor in method.state().items() if name.startswith("encoder.")]


def equal(a: Method, b: Method) -> bool:
    return all(torch.equal(x, y) for x, y in zip(encoder_of(a), encoder_of(b), strict=True))


def was_cached(method: Method) -> bool:
    return method.engine.seconds["pretrain"]["cached"]


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def test_the_second_run_loads_what_the_first_trained(learn: Learner, folder: Path) -> None:
    first, second = learn(), learn()
    assert not was_cached(first)
    assert was_cached(second)
    assert second.engine.seconds["pretrain"]["seconds"] == first.engine.seconds["pretrain"]["seconds"] > 0
    assert equal(first, second)
    assert len(entries(folder)) == 1


def test_methods_share_encoders(learn: Learner, folder: Path) -> None:
    learn("decoupled-cosine")
    assert was_cached(learn("finetune"))
    assert was_cached(learn("limit", meta_steps=2))
    assert len(entries(folder)) == 1


def test_a_cached_encoder_is_the_one_that_would_be_trained(
    learn: Learner, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn()
    cached = learn("limit")
    monkeypatch.setenv("FSCIL_CACHE", "off")
    trained = learn("limit")
    assert (was_cached(cached), was_cached(trained)) == (True, False)
    assert all(torch.equal(a, b) for a, b in zip(cached.state().values(), trained.state().values(), strict=True))


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 2},
        {"epochs": 2},
        {"augmentation": "none"},
        {"lr": 0.03},
        {"head_lr": 0.03},
        {"label_smoothing": 0.1},
        {"turned": 0.5},
        {"scale": 8.0},
    ],
)
def test_other_seeds_and_settings_are_other_encoders(learn: Learner, folder: Path, change: dict[str, Any]) -> None:
    first, other = learn(), learn(**change)
    assert not was_cached(other)
    assert not equal(first, other)
    assert len(entries(folder)) == 2


def test_data_name_precision_and_code_are_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context(Engine(), (0.5, 0.5, 0.5), (0.2, 0.2, 0.2))
    keys = [
        encoder_cache.key({"epochs": 1}, "data", context, "pretrain"),
        encoder_cache.key({"epochs": 2}, "data", context, "pretrain"),
        encoder_cache.key({"epochs": 1}, "other", context, "pretrain"),
        encoder_cache.key({"epochs": 1}, "data", context, "another stage"),
        encoder_cache.key({"epochs": 1}, "data", replace(context, mean=(0.4, 0.5, 0.5)), "pretrain"),
        encoder_cache.key({"epochs": 1}, "data", replace(context, std=(0.2, 0.2, 0.3)), "pretrain"),
        encoder_cache.key({"epochs": 1}, "data", replace(context, engine=Engine(seed=2)), "pretrain"),
        encoder_cache.key({"epochs": 1}, "data", replace(context, engine=Engine(bfloat16=True)), "pretrain"),
    ]
    monkeypatch.setattr(encoder_cache, "digest_of_parts", lambda _: "another version")
    keys.append(encoder_cache.key({"epochs": 1}, "data", context, "pretrain"))
    assert len(set(keys)) == 9


def path_of(session: Session) -> Path:
    """Path of the session's entry in the cache."""
    context = Context(Engine(console=Console(quiet=True)), (0.5, 0.5, 0.5), (0.2, 0.2, 0.2))
    with encoder_cache.entry({}, session, context, "pretrain") as entry:
        return entry.path


def test_a_session_is_known_to_the_pixel(tiny_benchmark: Callable[..., Benchmark], folder: Path) -> None:
    first, changed, relabelled = (tiny_benchmark().sessions[0] for _ in range(3))
    assert path_of(first) == path_of(changed)
    changed.images[0, 0, 0, 0] ^= 1
    relabelled.labels[0] = 1
    assert len({path_of(first), path_of(changed), path_of(relabelled)}) == 3


def test_streamed_images_are_known_by_name_length_and_time(photo_folder: Callable[..., Path], folder: Path) -> None:
    photos = photo_folder(classes=7, images=8)

    def path(size: int = 16) -> Path:
        options = FolderOptions(path=str(photos), shot=2, size=size, stream="always")
        return path_of(folders.load(options).sessions[0])

    before = path()
    assert path() == before
    assert path(size=24) != before
    for file in (photos / "class0").iterdir():
        status = file.stat()
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert path() != before


PACKAGE = Path(fscil.__file__).parent

# imported by pre-training, but only to describe or store, never to compute
DESCRIBE = {
    "arrays.py", "benchmark.py", "code_version.py", "environment.py", "errors.py", "files.py", "naming.py",
    "settings.py", "progress.py", "methods/encoder_cache.py", "methods/memory.py", "methods/method.py",
}  # fmt: skip


def file_of(module: str) -> Path | None:
    """The file of a module or package of ours, by its dotted name; fscil itself only lists its contents."""
    top, *parts = module.split(".")
    if top != "fscil" or not parts:
        return None
    at = PACKAGE.joinpath(*parts)
    return next((file for file in (at / "__init__.py", at.with_suffix(".py")) if file.is_file()), None)


def imported(file: Path) -> set[Path]:
    """Our files that a file imports, anywhere in it: modules, and a package's __init__ if a name is imported from it.

    Importing a module of a package does not count as importing the package, since nothing else of it is used.
    """
    here = ["fscil", *file.relative_to(PACKAGE).parent.parts]
    modules: list[str] = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = ".".join(here[: len(here) + 1 - node.level]) if node.level else ""
            at = ".".join(part for part in (above, node.module) if part)
            modules += [inner if file_of(inner := f"{at}.{alias.name}") else at for alias in node.names]
    return {found for module in modules if (found := file_of(module))}


def test_all_files_that_decide_about_weights_are_part_of_the_code() -> None:
    """Whatever pre-training imports, directly or not."""
    assert all((PACKAGE / part).exists() for part in code_version.PRETRAINING)
    known: set[Path] = set()
    waiting = {PACKAGE / "methods" / "pretrain.py"}
    while waiting:
        known |= waiting
        waiting = {file for each in waiting for file in imported(each)} - known
    names = {file.relative_to(PACKAGE).as_posix() for file in known} - DESCRIBE
    of_part = {
        part: {name for name in names if name == part or name.startswith(f"{part}/")}
        for part in code_version.PRETRAINING
    }
    assert names - set.union(*of_part.values()) == set()
    # and imports are really followed; only decoding is not reached by imports, since it comes with the images
    assert [part for part, found in of_part.items() if not found] == ["datasets/decode.py"]
    assert {"engine/stepper.py", "augment/crop.py", "encoders/resnet20.py", "kernels/norm.py"} <= names


def test_off_means_off(learn: Learner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for off in ("off", "OFF"):
        monkeypatch.setenv("FSCIL_CACHE", off)
        assert not was_cached(learn())
        assert not was_cached(learn())
    assert not list(tmp_path.iterdir())


def test_default_folder_is_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FSCIL_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert encoder_cache.cache_folder() == tmp_path / "fscil"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert encoder_cache.cache_folder() == tmp_path / "home" / ".cache" / "fscil"


def test_a_folder_that_cannot_be_made_costs_the_cache_and_not_the_run(
    learn: Learner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FSCIL_CACHE", str(tmp_path / "file" / "cache"))
    assert not was_cached(learn())
    assert "no cache" in learn.said.getvalue()


def test_a_lock_that_cannot_be_taken_costs_the_cache_and_not_the_run(learn: Learner, folder: Path) -> None:
    first = learn()
    (lock,) = folder.glob("*.lock")
    lock.unlink()
    lock.mkdir()  # as in a read-only folder
    second = learn()
    assert not was_cached(second)
    assert equal(first, second)
    assert "no cache" in learn.said.getvalue()


def test_a_home_that_nobody_has(learn: Learner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FSCIL_CACHE", "~nosuchuser/cache")
    with pytest.raises(UserError, match="FSCIL_CACHE=~nosuchuser/cache names nobody's home"):
        learn()
    monkeypatch.delenv("FSCIL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "~nosuchuser")
    assert not was_cached(learn())
    assert not list(tmp_path.iterdir())


def damaged(path: Path, damage: str) -> None:
    """Give the entry another content, as a disk, a user or a bug might."""
    whole = path.read_bytes()
    tensors, about = encoder_cache.load_tensors(path)
    path.unlink()
    if damage == "a folder":
        path.mkdir()
    elif damage == "a fifo":
        os.mkfifo(path)
    elif damage == "another network":
        encoder_cache.save_tensors(path, {"rows": torch.zeros(4, 64)}, {"seconds": 1.0, "captured": False})
    elif damage == "int8":
        encoder_cache.save_tensors(path, {name: tensor.to(torch.int8) for name, tensor in tensors.items()}, about)
    elif damage in ("nan", "unsigned"):
        changed = {**tensors, "rows": tensors["rows"] * (float("nan") if damage == "nan" else 1)}
        safetensors.torch.save_file(changed, path, {"about": json.dumps(about)})
    elif damage == "header types":
        encoder_cache.save_tensors(path, tensors, {"seconds": [], "captured": "yes"})
    else:
        bit = bytearray(whole)
        bit[-1] ^= 1
        path.write_bytes({"cut": whole[:1000], "empty": b"", "a flipped bit": bytes(bit)}[damage])


@pytest.mark.parametrize(
    "damage",
    [
        "cut", "empty", "another network", "a folder", "a fifo", "a flipped bit", "nan", "int8", "unsigned",
        "header types",
    ],
)  # fmt: skip
def test_a_broken_entry_is_named_set_aside_and_trained_again(learn: Learner, folder: Path, damage: str) -> None:
    first = learn()
    (path,) = entries(folder)
    damaged(path, damage)
    second = learn()
    assert not was_cached(second)
    assert equal(first, second)
    said = learn.said.getvalue()
    assert "cannot be used" in said
    assert str(path.with_suffix(".damaged")) in said
    assert os.path.lexists(path.with_suffix(".damaged"))
    assert was_cached(learn())


def test_half_written_entries_are_swept_unless_someone_is_writing_them(learn: Learner, folder: Path) -> None:
    learn()
    (path,) = entries(folder)
    mine, dead, live = (folder / f".{name}.safetensors.0123abcd.part" for name in (path.stem, "dead", "live"))
    for part in (mine, dead, live):
        part.write_bytes(b"half")
    with FileLock(folder / "live.lock"):
        assert was_cached(learn())
        assert [part.exists() for part in (mine, dead, live)] == [False, False, True]
    assert was_cached(learn())
    assert not live.exists()


def test_whoever_waits_is_told_so(learn: Learner, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learn()
    (path,) = folder.glob("*.lock")
    lock = FileLock(path)
    told: list[str] = []

    def hear(console: Console, text: str) -> None:
        told.append(text)
        lock.release()  # the other run finishes as soon as someone waits for it

    monkeypatch.setattr(Console, "print", hear)
    lock.acquire()
    assert was_cached(learn())
    assert told == ["waiting for another run that is training the same encoder"]


def test_an_interrupted_training_leaves_neither_entry_nor_lock(
    learn: Learner, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "train", stop)
        with pytest.raises(KeyboardInterrupt):
            learn()
    assert not entries(folder)
    assert not was_cached(learn())
