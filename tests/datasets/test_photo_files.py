"""fscil data prepare and verify on photos of every kind, readable or not."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torch import Tensor

from cli_call import Fscil, Outcome
from cli_process import assert_one_clear_line
from fscil import datasets
from fscil.datasets import photo_store
from fscil.datasets.cub200 import CUB200
from fscil.datasets.decode import Resize
from fscil.datasets.miniimagenet import MINIIMAGENET
from fscil.photos import Photos
from photo_trees import Tree, picture, write_cub, write_mini


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return write_mini(tmp_path / "data")


def stored(tree: Tree, place: int) -> Tensor:
    """The photo [3, height, width] as training gets it."""
    store = MINIIMAGENET.store(tree.root, MINIIMAGENET.listing(tree.root))
    return Photos(store.open())[place]


def test_prepare_then_verify(fscil: Fscil, tree: Tree) -> None:
    found = fscil("data", "verify", "miniimagenet", "--root", tree.root)
    assert found.code == 0
    assert "ok: 100 classes with 500 training and 100 test images\n" in found.out
    assert "warning: miniimagenet: class n00000000 has 5 training images, not 500" in found.out
    assert "warning: session 8 is not the published one" in found.out
    assert "`fscil data prepare miniimagenet` has not stored them yet" in found.out
    found = fscil("data", "prepare", "miniimagenet", "--root", tree.root)
    assert (found.code, "600 images are now at" in found.out) == (0, True)
    assert "already prepared" in fscil("data", "prepare", "miniimagenet", "--root", tree.root).out
    assert "and their checksums are right" in fscil("data", "verify", "miniimagenet", "--root", tree.root).out


@pytest.mark.parametrize("indexed", [True, False])
def test_cub200_is_prepared_and_verified(
    fscil: Fscil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indexed: bool
) -> None:
    monkeypatch.setitem(datasets.BUILT_IN, "cub200", replace(CUB200, resize=Resize(32)).dataset())  # 256: too slow
    tree = write_cub(tmp_path / "data", indexed=indexed)
    assert fscil("data", "prepare", "cub200", "--root", tree.root).code == 0
    found = fscil("data", "verify", "cub200", "--root", tree.root)
    assert found.code == 0
    assert "ok: 200 classes with 1000 training and 200 test images\n" in found.out
    assert found.out.count("is not the published one") == 11


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=kind, **options)
    return buffer.getvalue()


def turned() -> bytes:
    """Red above blue once it is turned as its EXIF says: stored, red is on the left."""
    pixels = np.zeros((20, 40, 3), np.uint8)
    pixels[:, :20, 0] = pixels[:, 20:, 2] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise
    return saved(Image.fromarray(pixels), "JPEG", exif=exif, quality=95)


READABLE: dict[str, tuple[Callable[[], bytes], tuple[int, int, int]]] = {
    "grey": (lambda: saved(Image.new("L", (20, 10), 90), "JPEG"), (90, 90, 90)),
    "CMYK": (lambda: saved(Image.new("CMYK", (20, 10), (0, 255, 255, 0)), "JPEG", quality=95), (255, 0, 0)),
    "16 bits": (lambda: saved(Image.fromarray(np.full((9, 9), 150 * 257, np.uint16)), "PNG"), (150, 150, 150)),
    "alpha": (lambda: saved(Image.new("RGBA", (9, 9), (255, 0, 0, 0)), "PNG"), (255, 255, 255)),
    "palette": (lambda: saved(Image.new("RGB", (9, 9), (0, 0, 255)).convert("P"), "GIF"), (0, 0, 255)),
    "WebP": (lambda: saved(Image.new("RGB", (9, 9), (0, 200, 0)), "WEBP", lossless=True), (0, 200, 0)),
    "one pixel": (lambda: saved(Image.new("RGB", (1, 1), (10, 20, 30)), "PNG"), (10, 20, 30)),
}


@pytest.mark.parametrize("kind", READABLE)
def test_photos_of_every_kind_are_stored_in_their_colours(fscil: Fscil, tree: Tree, kind: str) -> None:
    make, expected = READABLE[kind]
    (tree.folder / "images" / "n00000000_0001.jpg").write_bytes(make())
    assert fscil("data", "prepare", "miniimagenet", "--root", tree.root).code == 0
    found = stored(tree, 1).flatten(1).float().mean(1).tolist()
    assert found == pytest.approx(expected, abs=3)


def test_photos_are_turned_as_their_exif_says(fscil: Fscil, tree: Tree) -> None:
    (tree.folder / "images" / "n00000000_0001.jpg").write_bytes(turned())
    assert fscil("data", "prepare", "miniimagenet", "--root", tree.root).code == 0
    rows = stored(tree, 1).float().mean(2)
    assert rows[:, 10].tolist() == pytest.approx((255, 0, 0), abs=10)  # red above
    assert rows[:, 80].tolist() == pytest.approx((0, 0, 255), abs=10)  # blue below


def replace_by(make: Callable[[Path], None]) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        path.unlink()
        make(path)

    return spoil


UNREADABLE: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "truncated": lambda path: path.write_bytes(saved(Image.effect_noise((99, 99), 50), "JPEG")[:2000]),
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_bytes(b"not an image"),
    "pipe": replace_by(os.mkfifo),
    "folder": replace_by(Path.mkdir),
}


def refused(found: Outcome) -> str:
    assert found.code == 2
    assert_one_clear_line(found.err)
    return found.err


@pytest.mark.parametrize("kind", UNREADABLE)
def test_an_unreadable_photo_is_named(fscil: Fscil, tree: Tree, kind: str) -> None:
    UNREADABLE[kind](tree.folder / "images" / "n00000007_0001.jpg")
    for verb in ("prepare", "verify"):
        err = refused(fscil("data", verb, "miniimagenet", "--root", tree.root))
        assert "n00000007_0001.jpg cannot be read" in err
        assert "; " in err  # says what to do
    err = refused(fscil("run", "decoupled-cosine", "miniimagenet", "--root", tree.root, "--out", "run"))
    assert "n00000007_0001.jpg cannot be read" in err


def test_verify_names_all_unreadable_photos(fscil: Fscil, tree: Tree) -> None:
    names = [f"n{label:08d}_0002.jpg" for label in range(0, 12)]
    for name, spoil in zip(names, list(UNREADABLE.values()) * 2, strict=True):
        spoil(tree.folder / "images" / name)
    found = fscil("data", "verify", "miniimagenet", "--root", tree.root)
    assert found.code == 2
    *lines, last = found.err.splitlines()
    assert [name for name, line in zip(names, lines, strict=True) if name not in line] == []
    assert last.startswith("error: miniimagenet: the 12 photos above cannot be read; replace them")


def test_a_damaged_store_is_noticed(fscil: Fscil, tree: Tree) -> None:
    fscil("data", "prepare", "miniimagenet", "--root", tree.root)
    shard = next((tree.root / "prepared" / "miniimagenet-92px").iterdir())
    content = bytearray(shard.read_bytes())
    content[-100] ^= 1
    shard.write_bytes(content)
    err = refused(fscil("data", "verify", "miniimagenet", "--root", tree.root))
    assert "damaged" in err
    assert "then run `fscil data prepare" in err
    shard.write_bytes(content[:1000])
    assert f"{shard} is damaged; delete it" in refused(fscil("data", "verify", "miniimagenet", "--root", tree.root))


def test_a_changed_photo_is_stored_again_and_its_old_pixels_removed(
    fscil: Fscil, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(photo_store, "SHARD", 50)
    fscil("data", "prepare", "miniimagenet", "--root", tree.root)
    folder = tree.root / "prepared" / "miniimagenet-92px"
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    (tree.folder / "images" / "n00000000_0001.jpg").write_bytes(picture((9, 200, 9), (30, 20)))
    assert fscil("data", "prepare", "miniimagenet", "--root", tree.root).code == 0
    after = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert (len(before), len(after)) == (12, 12)
    assert len(before.items() & after.items()) == 11  # not even touched
    assert stored(tree, 1).flatten(1).float().mean(1).tolist() == pytest.approx((9, 200, 9), abs=3)
