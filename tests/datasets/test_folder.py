from __future__ import annotations

import io
import os
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from fscil.benchmark import Benchmark
from fscil.datasets import folder
from fscil.datasets.folder import FolderOptions, order_classes, protocol
from fscil.errors import UserError


def read(path: Path, **options: object) -> Benchmark:
    return folder.load(FolderOptions(path=str(path), **{"way": 2, "shot": 2, "size": 16, **options}))  # type: ignore[arg-type]


def pixels(benchmark: Benchmark) -> Tensor:
    """Of all images: of the base session, of later classes, for testing."""
    return torch.cat([benchmark.sessions[0].images[:], benchmark.pool.images[:], benchmark.test_images[:]])


def test_a_tree_becomes_a_benchmark(tree: Path) -> None:
    benchmark = read(tree)
    assert benchmark.class_names == tuple(f"class{i}" for i in range(7))
    assert [len(session.classes) for session in benchmark.sessions] == [4, 2, 1]  # the last class is not lost
    assert [len(session.labels) for session in benchmark.sessions] == [20, 4, 2]
    assert benchmark.test_labels.tolist() == list(range(7))
    for session in benchmark.sessions:
        for image, label in zip(session.images, session.labels.tolist(), strict=True):
            assert image.shape == (3, 16, 16)
            first = torch.tensor(Image.open(tree / f"class{label}" / "0.jpg").getpixel((0, 0)))
            colour = image.float().mean((1, 2)) - first
            assert 0 <= colour[0] <= 5
            assert colour[1:].abs().max() == 0
    trained = {image.numpy().tobytes() for session in benchmark.sessions for image in session.images}
    assert not trained & {image.numpy().tobytes() for image in benchmark.test_images}
    assert benchmark.warnings == ()


def test_the_same_tree_elsewhere_is_the_same_benchmark(tree: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    shutil.copytree(tree, copy)
    (copy / ".DS_Store").write_bytes(b"x")
    (copy / "class0" / "Thumbs.db").write_bytes(b"x")
    (copy / "README.txt").write_text("about these images")
    one, two = read(tree), read(copy)
    assert one.split_checksum == two.split_checksum
    assert torch.equal(pixels(one), pixels(two))


def test_the_checksum_follows_shots_and_not_contents(tree: Path) -> None:
    before = read(tree)
    second = read(tree, trial=2)
    assert before.split_checksum != second.split_checksum
    assert torch.equal(pixels(before), pixels(second))
    Image.new("RGB", (20, 16)).save(tree / "class0" / "0.jpg", format="PNG")
    after = read(tree)
    assert after.split_checksum == before.split_checksum
    assert not torch.equal(pixels(after), pixels(before))


def test_way_and_shot_may_differ_between_sessions(tree: Path) -> None:
    benchmark = read(tree, base_classes=2, way="1,2,1", shot="4,2,1")
    assert [len(session.classes) for session in benchmark.sessions] == [2, 1, 2, 1]
    assert [len(session.labels) for session in benchmark.sessions] == [10, 4, 4, 1]
    assert benchmark.warnings == ("folder: classes left out: class6",)
    assert benchmark.test_labels.max() == 5


@given(st.integers(2, 300), st.integers(1, 40), st.integers(1, 10))
def test_every_class_arrives_once_where_one_way_is_given(classes: int, way: int, shot: int) -> None:
    base, ways, shots = protocol(classes, 0, way, shot)
    assert base + sum(ways) == classes
    assert base == max(1, int(classes * 0.6))
    assert len(ways) == len(shots)
    assert all(w == way for w in ways[:-1])
    assert 1 <= ways[-1] <= way
    assert set(shots) == {shot}


def test_order_by_name_by_chance_and_by_file(tree: Path, tmp_path: Path) -> None:
    names = [f"class{i}" for i in range(7)]
    assert order_classes(names[::-1], "name", 1) == names
    shuffled = order_classes(names, "random", 1)
    assert shuffled != names
    assert sorted(shuffled) == names
    assert shuffled != order_classes(names, "random", 2)
    listed = tmp_path / "order.txt"
    listed.write_text("class6\nclass1\n\nclass0\n")
    benchmark = read(tree, order=str(listed))
    assert benchmark.class_names == ("class6", "class1", "class0")
    assert benchmark.warnings == ("folder: classes left out: class2, class3, class4, class5",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("class1\nclas2\n", "'clas2'.*did you mean 'class2'"),
        ("class1\nclass2\nclass1\n", "'class1' twice"),
        (None, "order="),
    ],
)
def test_a_wrong_order_file_is_refused(tree: Path, tmp_path: Path, text: str | None, message: str) -> None:
    listed = tmp_path / "order.txt"
    if text is not None:
        listed.write_text(text)
    with pytest.raises(UserError, match=message):
        read(tree, order=str(listed))


def test_images_are_the_middle_square_the_right_way_up(tree: Path) -> None:
    wide = Image.new("RGB", (60, 20), "red")
    wide.paste((0, 0, 255), (20, 0, 40, 10))  # the middle square: blue above green
    wide.paste((0, 255, 0), (20, 10, 40, 20))
    orientation = Image.Exif()
    orientation[0x0112] = 3  # stored upside down
    for i in range(6):
        wide.rotate(180).save(tree / "class0" / f"{i}.jpg", format="PNG", exif=orientation)
    image = read(tree).sessions[0].images[0]
    assert image[:, 2, 8].tolist() == [0, 0, 255]
    assert image[:, 13, 8].tolist() == [0, 255, 0]
    assert image[:, 2, 1].tolist() == [0, 0, 255]


def test_kinds_of_images_by_content(tree: Path) -> None:
    base = tree / "class0"
    for i in range(6):
        (base / f"{i}.jpg").unlink()
    Image.new("RGBA", (9, 9), (0, 0, 0, 0)).save(base / "transparent.xyz", format="PNG")  # white
    Image.new("I;16", (9, 9), 65535).save(base / "sixteen", format="PNG")
    Image.new("L", (9, 9), 255).save(base / "grey.txt", format="BMP")
    Image.new("CMYK", (9, 9)).save(base / "print.png", format="JPEG")
    Image.new("1", (9, 9), 1).save(base / "fax.jpg", format="TIFF")
    Image.new("P", (9, 9), 0).save(base / "palette.jpg", format="GIF", transparency=0)
    benchmark = read(tree)
    assert benchmark.sessions[0].images[benchmark.sessions[0].labels == 0].min() > 250


def test_a_very_long_picture_is_no_trouble(tree: Path) -> None:
    Image.new("RGB", (60_000, 1), "white").save(tree / "class0" / "0.jpg", format="PNG")
    assert read(tree).test_images.shape[1:] == (3, 16, 16)


def test_new_images_move_few_others_between_train_and_test(tmp_path: Path) -> None:
    names = [folder.Item(Path(f"{i}"), f"a/{i}", "a", "") for i in range(101)]
    before = {item.key for item in folder.divide(names[:100], 0.2, 5)[1]}
    after = {item.key for item in folder.divide(names, 0.2, 5)[1]}
    assert len(before) == len(after) == 20
    assert len(before - after) <= 1


@pytest.mark.parametrize(("n", "test"), [(6, 1), (7, 1), (8, 2), (100, 20)])
def test_shots_are_kept_before_test_images(n: int, test: int) -> None:
    items = [folder.Item(Path(f"{i}"), f"a/{i}", "a", "") for i in range(n)]
    train_items, test_items = folder.divide(items, 0.2, 5)
    assert (len(train_items), len(test_items)) == (n - test, test)
    assert len(folder.divide(items, 0.9, 5)[0]) >= 5


def remove(tree: Path) -> None:
    shutil.rmtree(tree)


def flatten(tree: Path) -> None:
    remove(tree)
    tree.mkdir()
    Image.new("RGB", (20, 16)).save(tree / "a.png")


def nest(tree: Path) -> None:
    shutil.copytree(tree / "class0", tree / "class1" / "more")


def spoil(tree: Path) -> None:
    (tree / "class3" / "2.jpg").write_text("no image")


def truncate(tree: Path) -> None:
    whole = io.BytesIO()
    Image.effect_noise((64, 64), 90).save(whole, format="JPEG")
    (tree / "class3" / "2.jpg").write_bytes(whole.getvalue()[:-900])


def thin_out(tree: Path) -> None:
    for i in range(4):
        (tree / "class5" / f"{i}.jpg").unlink()


def empty(tree: Path) -> None:
    (tree / "class9").mkdir()


def repeat_in_capitals(tree: Path) -> None:
    shutil.copytree(tree / "class0", tree / "Class0 ")


def repeat_decomposed(tree: Path) -> None:
    for form in ("NFC", "NFD"):
        shutil.copytree(tree / "class0", tree / unicodedata.normalize(form, "über"))


def blank(tree: Path) -> None:
    (tree / "class0").rename(tree / " ")


def leave_one(tree: Path) -> None:
    for i in range(1, 7):
        shutil.rmtree(tree / f"class{i}")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (remove, r"there is no .*tree; expected one folder per class"),
        (flatten, r"holds no images; expected one folder per class"),
        (nest, r"more is a folder inside the class 'class1'; expected"),
        (spoil, r"class3.2\.jpg cannot be read as an image"),
        (truncate, r"class3.2\.jpg cannot be read as an image"),
        (thin_out, r"class 'class5' has 2 images, but 2 shots and a test image need 3"),
        (empty, r"class9 is empty"),
        (repeat_in_capitals, r"'Class0 ' and 'class0' have the same name"),
        (repeat_decomposed, r"have the same name"),
        (blank, r"empty name"),
        (leave_one, r"need at least 2 classes, but there are 1"),
    ],
)
def test_a_wrong_tree_is_one_clear_line(tree: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(tree)
    with pytest.raises(UserError, match=message) as caught:
        read(tree)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base_classes": 7}, "7 base classes .* need at least 8 classes, but there are 7"),
        ({"base_classes": 4, "way": "2,2"}, "need 8 classes, but there are 7"),
        ({"base_classes": -1}, "must be positive"),
        ({"way": 0}, "way=0 must be a positive number"),
        ({"way": "2,"}, "way=2, must be"),
        ({"shot": "two"}, "shot=two must be"),
        ({"shot": "2,2,2"}, "is for 3 sessions, but there are 2"),
        ({"shot": 6}, "6 shots"),
        ({"test_share": 1.0}, "between 0 and 1"),
        ({"size": 0}, "size=0"),
        ({"order": "random", "order_seed": -1}, "order_seed=-1 must be a number from 0"),
    ],
)
def test_wrong_options_are_one_clear_line(tree: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(tree, **options)


def test_path_is_required_and_may_be_relative_to_the_root(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"path=\.\.\.; expected"):
        folder.load(FolderOptions())
    assert len(folder.load(FolderOptions(path="tree", shot=2), tmp_path).class_names) == 7


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_the_pixel_limit_is_an_error(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 300)  # pictures are 320: Pillow alone would only warn
    with pytest.raises(UserError, match=r"0\.jpg has 20 x 16 pixels"):
        read(tree)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(UserError, match=r"0\.jpg has too many pixels"):
        read(tree)


@pytest.mark.skipif(os.geteuid() == 0 if hasattr(os, "geteuid") else True, reason="root may read everything")
def test_an_unreadable_file_is_named(tree: Path) -> None:
    (tree / "class0" / "0.jpg").chmod(0)
    with pytest.raises(UserError, match=r"0\.jpg cannot be read"):
        read(tree)


def test_verify_decodes_the_whole_folder(tree: Path) -> None:
    assert folder.verify(tree) == ["ok: all images of 7 classes can be read", "ok: 4 base classes, then sessions of 3"]
    spoil(tree)
    with pytest.raises(UserError, match="class3"):
        folder.verify(tree)
    with pytest.raises(UserError, match="--root"):
        folder.verify(None)
    assert "nothing to prepare" in folder.prepare(None)
