from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from fscil.benchmark import Benchmark
from fscil.datasets import folder
from fscil.datasets.folder import FolderOptions
from fscil.datasets.folder_index import read_items
from fscil.errors import UserError


def read(path: Path, **options: object) -> Benchmark:
    return folder.load(FolderOptions(path=str(path), **{"way": 2, "shot": 2, "size": 16, **options}))  # type: ignore[arg-type]


def write_manifest(tree: Path, rows: list[str], header: str = "path,class", encoding: str = "utf-8") -> Path:
    path = tree / "list.csv"
    path.write_text("\n".join([header, *rows]) + "\n", encoding=encoding)
    return path


def rows_of(tree: Path) -> list[str]:
    return [f"class{label}/{i}.jpg,name{label}" for label in range(7) for i in range(6)]


def test_a_manifest_names_paths_and_classes(tree: Path) -> None:
    manifest = write_manifest(tree, rows_of(tree), encoding="utf-8-sig")
    benchmark = read(manifest)
    assert benchmark.class_names == tuple(f"name{i}" for i in range(7))
    by_tree = read(tree)
    shuffled = read(write_manifest(tree, rows_of(tree)[::-1]))
    for found in (benchmark, shuffled):
        assert found.split_checksum == by_tree.split_checksum
        for session, expected in zip(found.sessions, by_tree.sessions, strict=True):
            assert torch.equal(session.images, expected.images)
            assert torch.equal(session.labels, expected.labels)
        assert torch.equal(found.test_images, by_tree.test_images)


def test_a_manifest_may_say_what_is_for_testing(tree: Path) -> None:
    rows = [f"{row},{'test' if i % 6 in (0, 5) else ' Train'}" for i, row in enumerate(rows_of(tree))]
    benchmark = read(write_manifest(tree, rows, "Path, class, split"))
    assert benchmark.test_labels.bincount().tolist() == [2] * 7
    reds = benchmark.test_images[benchmark.test_labels == 1][:, 0, 0, 0]
    assert reds.tolist() == [30, 35]
    assert len(benchmark.sessions[0].labels) == 4 * 4
    with pytest.raises(UserError, match="'name0' has 4 training images, fewer than its 5 shots"):
        read(tree / "list.csv", shot=5)


@pytest.mark.parametrize(
    ("row", "header", "message"),
    [
        ("../secret.png,a", "path,class", r"row 44: '\.\./secret\.png' lies outside"),
        ("class0/../../secret.png,a", "path,class", "lies outside"),
        ("/etc/passwd,a", "path,class", "lies outside"),
        ("class0/99.jpg,a", "path,class", r"row 44: there is no file .*99\.jpg"),
        ("class0,a", "path,class", "there is no file"),
        ("class0/0.jpg,name0", "path,class", r"row 44: class0/0\.jpg is listed twice"),
        ("class0/./0.jpg,name0", "path,class", "listed twice"),
        ("class0/0.jpg,", "path,class", "row 44 has no class"),
        (",name0", "path,class", "row 44 has no path"),
        ("class0/0.jpg,a, b", "path,class", "3 cells for 2 columns"),
        ("", "file,class", "no column path"),
        ("", "path,label", "no column class"),
        ("", "a,b", "no column path and class"),
        ("", "path,class,split", "row 2: split is ''"),
    ],
)
def test_a_wrong_manifest_is_one_clear_line(tree: Path, row: str, header: str, message: str) -> None:
    Image.new("RGB", (20, 16)).save(tree.parent / "secret.png")
    with pytest.raises(UserError, match=message) as caught:
        read(write_manifest(tree, [*rows_of(tree), row], header))
    assert "\n" not in str(caught.value)


def test_manifest_classes_are_checked_like_folders(tree: Path) -> None:
    rows = rows_of(tree)
    with pytest.raises(UserError, match="'NAME0' and 'name0' have the same name"):
        read(write_manifest(tree, [rows[0].replace("name", "NAME"), *rows[1:]]))


def test_a_class_without_test_rows_is_named(tree: Path) -> None:
    rows = [f"{row},{'test' if i % 6 == 0 and i else 'train'}" for i, row in enumerate(rows_of(tree))]
    with pytest.raises(UserError, match="'name0' has no row with split test"):
        read(write_manifest(tree, rows, "path,class,split"))


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00p", b"path,class\n"])
def test_a_file_that_is_no_manifest(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "list.csv").write_bytes(content)
    with pytest.raises(UserError, match=r"list\.csv"):
        read(tmp_path / "list.csv")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with some files and folders that a manifest may name; only their names matter here."""
    root = tmp_path_factory.mktemp("pictures")
    for name in ("a.png", "b.png", "c,d.png", "folder/a.png"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).touch()
    (root / "loop.png").symlink_to("loop.png")
    return root


CELLS = st.one_of(
    st.sampled_from([
        "a.png", "b.png", "folder/a.png", "folder//./a.png", "folder", "loop.png", "a.png/x", "c,d.png", "../x",
        "/etc", "a\0.png", "~nosuchuser/a.png", "x" * 300, "x/" * 3000, "", ".", "train", "Test ", "rose", "ROSE",
    ]),
    st.text(max_size=8),
)  # fmt: skip
HEADERS = st.sampled_from(["path,class", "path,class,split", "Class, Path", "path,path,class", "path;class", "", '"'])


@st.composite
def manifests(draw: st.DrawFn) -> bytes:
    """Mostly rows of cells, some quoted as CSV asks for, some not; now and then any bytes."""
    quote = draw(st.booleans())
    rows = draw(st.lists(st.lists(CELLS, min_size=1, max_size=4), max_size=6))
    cells = [['"' + cell.replace('"', '""') + '"' if quote else cell for cell in row] for row in rows]
    text = "\n".join([draw(HEADERS), *(",".join(row) for row in cells)])
    return text.encode("utf-8", "surrogatepass") + draw(st.one_of(st.just(b""), st.binary(max_size=6)))


@given(content=st.one_of(manifests(), st.binary(max_size=60)))
@example(content=b"path,class\n" + b"x" * 200_000 + b",a")
@example(content=b"path,class\na.png," + b'"rose\nor tulip"')
def test_any_manifest_is_refused_or_gives_sound_items(pictures: Path, content: bytes) -> None:
    manifest = pictures / "list.csv"
    manifest.write_bytes(content)
    try:
        items = read_items(manifest)
    except UserError:
        return
    assert items
    assert len({item.key for item in items}) == len(items)
    for item in items:
        assert item.path.resolve().is_relative_to(pictures.resolve())
        assert item.path.is_file()
        assert item.key == item.path.relative_to(pictures).as_posix()
        assert item.class_name.strip()
        item.class_name.encode()
        assert item.part in ("", "train", "test")
    assert len({bool(item.part) for item in items}) == 1
