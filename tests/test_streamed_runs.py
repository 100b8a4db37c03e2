"""Whole runs on a folder whose images are read during training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rich.console import Console

from cli_process import assert_one_clear_line, fscil_process
from fscil import runs
from fscil.config import resolve
from fscil.datasets import decode, folder
from fscil.engine import Engine
from fscil.errors import UserError
from fscil.images import StreamedImages
from fscil.results import Result

SETTINGS = (
    "way=2", "shot=2", "size=16", "epochs=2", "batch=8", "lr=0.02", "fake_way=1", "fake_shot=2", "fake_queries=1",
    "meta_steps=4", "meta_batch_steps=2", "trials=2",
)  # fmt: skip
PhotoFolder = Callable[..., Path]


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSCIL_CACHE", "off")


def settings_of(method: str) -> list[str]:
    return [each for each in SETTINGS if method in ("limit", "cec") or not each.startswith(("fake", "meta"))]


def where(path: Path) -> runs.RunEnvironment:
    return runs.RunEnvironment(torch.device("cpu"), path)


def start(method: str, photos: Path, out: Path, *more: str) -> Result:
    config = resolve(method, "folder", [f"path={photos}", *settings_of(method), *more])
    return runs.start(config, where(out), Console(quiet=True))


MORE = [
    ("limit", ["check=false", "encoder_lr=0", "fake_classes=mixed", "whiten=1"]),
    ("limit", ["check=true", "calibrator=paired,transformer"]),
    ("limit", ["check=false", "tasks=replaced", "augmented_steps=1", "refresh_every=1", "calibrator=bi-lstm"]),
    ("cec", []),
    ("cec", ["encoder_lr=0"]),
]


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("limit", ["check=false"]),
        ("decoupled-cosine", []),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE),
    ],
)
def test_a_streamed_run_has_the_numbers_of_a_resident_one(
    photo_folder: PhotoFolder, tmp_path: Path, method: str, more: list[str]
) -> None:
    photos = photo_folder(classes=7, images=8)
    resident = vars(start(method, photos, tmp_path / "resident", "stream=never", *more))
    streamed = vars(start(method, photos, tmp_path / "streamed", "stream=always", *more))
    of_the_run = {"folder", "seconds", "config_hash", "changed", "command"}
    assert {key for key in resident if resident[key] != streamed[key]} <= of_the_run
    for file in ("predictions.safetensors", "model/model.safetensors"):
        assert (tmp_path / "resident" / file).read_bytes() == (tmp_path / "streamed" / file).read_bytes()


@pytest.mark.parametrize(
    ("stream", "limit", "expected"),
    [("auto", 56 * 768, False), ("auto", 56 * 768 - 1, True), ("always", 2**40, True), ("never", 0, False)],
)
def test_what_is_too_large_is_streamed(
    photo_folder: PhotoFolder, monkeypatch: pytest.MonkeyPatch, stream: str, limit: int, expected: bool
) -> None:
    monkeypatch.setattr(decode, "RESIDENT_BYTES", limit)
    options = folder.FolderOptions(path=str(photo_folder(classes=7, images=8)), shot=2, size=16, stream=stream)
    benchmark = folder.load(options)
    held = [benchmark.test_images, benchmark.pool.images, *(session.images for session in benchmark.sessions)]
    assert {isinstance(images, StreamedImages) for images in held} == {expected}


def test_an_image_that_breaks_a_run_is_named(photo_folder: PhotoFolder, tmp_path: Path) -> None:
    photos = photo_folder(classes=7, images=8)
    for broken in (photos / "class0").iterdir():
        broken.write_bytes(broken.read_bytes()[:100])
    arguments = ("run", "decoupled-cosine", "folder", f"path={photos}", *settings_of("decoupled-cosine"))
    code, out, err = fscil_process(*arguments, "stream=always", "--out", "run", cwd=tmp_path)
    assert (code, out) == (2, "")
    assert_one_clear_line(err)
    assert str(photos / "class0") in err
    assert "cannot be read as an image; replace or remove it" in err


def test_a_repaired_image_lets_the_run_go_on(
    photo_folder: PhotoFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image that is first read after training: no training is lost."""
    photos = photo_folder(classes=7, images=8)
    expected = start("decoupled-cosine", photos, tmp_path / "whole", "stream=always")
    tested = sorted((photos / "class6").iterdir())
    kept = {path: path.read_bytes() for path in tested}
    for path in tested:
        path.write_bytes(b"no image")
    with pytest.raises(UserError, match=r"class6.*cannot be read as an image"):
        start("decoupled-cosine", photos, tmp_path / "run", "stream=always")
    for path, content in kept.items():
        path.write_bytes(content)
    monkeypatch.setattr(Engine, "train", lambda *_: pytest.fail("it was trained again"))
    result = runs.resume(where(tmp_path / "run"), Console(quiet=True))
    assert result.accuracy == expected.accuracy
