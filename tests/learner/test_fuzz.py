"""Class names and images of all kinds: taught, or refused in one line, and nothing is written outside the folder."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from damage import QUICK, refused
from fscil import Learner, UserError

NAMES = st.one_of(
    st.text(max_size=300),
    st.sampled_from([
        "", " ", ".", "..", "/", "../../etc/passwd", "/tmp/outside", "C:\\windows", "a/b/../../c", "con", "nul.txt",
        "x" * 200, "x" * 201, "a\nb", "a\0b", "\x1b[31mred", "\u202eelcitra", "שלום", "مرحبا", "👩🏽‍🚀", "é", "e\u0301",
        "unknown", "\ud800", "$(touch outside)", "`id`", "%s%n", "<script>", "\u2028", "a\tb", "-rf", "~", "*",
    ]),
)  # fmt: skip


def picture() -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 30, 3), np.uint8)).save(file, "JPEG")
    return file.getvalue()


SOUND = picture()
FILES = st.one_of(
    st.binary(max_size=200),
    st.integers(0, len(SOUND)).map(lambda n: SOUND[:n]),
    st.tuples(st.integers(0, len(SOUND) - 1), st.binary(min_size=1, max_size=20)).map(
        lambda damage: SOUND[: damage[0]] + damage[1] + SOUND[damage[0] :]
    ),
    st.sampled_from([b"\x89PNG\r\n\x1a\n", b"GIF89a", b"RIFF\0\0\0\0WEBP", b"%!PS-Adobe-3.0 EPSF\n", b"II*\0" * 50]),
)


# how many names, and how many files
EXAMPLES = pytest.mark.parametrize("examples", [100, pytest.param(300, marks=pytest.mark.slow)])
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {"os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"}
STARTS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect"}
watched: list[list[str]] = []  # what is written to, while somebody watches


def watch(event: str, arguments: tuple[object, ...]) -> None:
    """Python calls this before it opens, makes, renames or removes anything, and before it starts a program."""
    if not watched or (event == "open" and not (isinstance(arguments[2], int) and arguments[2] & WRITES)):
        return
    if event == "open" or event in CHANGES:
        paths = [each for each in arguments[:2] if isinstance(each, str | bytes | os.PathLike)]
        watched[-1] += [os.path.realpath(os.fsdecode(each)) for each in paths if each not in ("w", "a", "x", "r+")]
    elif event in STARTS:
        watched[-1].append(event)


sys.addaudithook(watch)  # it cannot be taken away again, but does nothing while nobody watches


@contextmanager
def nothing_outside(folder: Path) -> Iterator[None]:
    """Whatever is written meanwhile is in this folder, and no program is started."""
    watched.append([])
    try:
        yield
    finally:
        seen = watched.pop()
    root = os.path.realpath(folder)
    assert [each for each in seen if each != root and not each.startswith(root + os.sep)] == []


def test_the_watch_notices_what_is_written_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with nothing_outside(tmp_path / "model"):
        (tmp_path / "model" / "file").write_text("inside")
        (tmp_path / "model" / "file").read_text()
    for act in (
        lambda: (tmp_path / "file").write_text("outside"),
        lambda: (tmp_path / "model" / "file").rename(tmp_path / "moved"),
        lambda: (tmp_path / "folder").mkdir(),
        lambda: os.system("true"),
    ):
        with pytest.raises(AssertionError), nothing_outside(tmp_path / "model"):
            act()


def everything(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*")}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model folder in it, and an image beside."""
    place = tmp_path_factory.mktemp("fuzz")
    Learner("embedded").save(place / "model")
    return place


@EXAMPLES
def test_any_name_is_taught_or_refused_and_stays_a_name(
    place: Path, monkeypatch: pytest.MonkeyPatch, examples: int
) -> None:
    monkeypatch.chdir(place)
    learner = Learner.load(place / "model")
    before = everything(place)
    learner.teach("first", np.zeros((32, 32, 3), np.uint8))

    @settings(QUICK, max_examples=examples)
    @given(NAMES, st.integers(0, 255))
    def attempt(name: str, grey: int) -> None:
        image = np.full((32, 32, 3), grey, np.uint8)
        with nothing_outside(place / "model"):
            if refused(lambda: learner.teach(name, image)):
                return
            assert 0 < len(name.strip()) <= 300
            assert learner.predict(image, rivals=0)[0].best in learner.classes_
            if not refused(lambda: learner.rename(name, f"{name[:100]}, again")):
                learner.forget(f"{name[:100]}, again")

    attempt()
    again = Learner.load(place / "model")
    assert set(again.classes_) == set(learner.classes_)
    assert everything(place) - before == {Path("model/classes.safetensors")} - before


@pytest.mark.parametrize("name", ["../../outside", "/tmp/x", "..", "a" * 200, "مرحبا", "👩🏽‍🚀", "a/b"])
def test_names_like_paths_are_just_names(name: str, place: Path, tmp_path: Path) -> None:
    learner = Learner.load(place / "model")
    learner.teach(name, np.full((32, 32, 3), 77, np.uint8))
    assert name in Learner.load(place / "model").classes_
    learner.save(tmp_path / "copy")
    assert name in Learner.load(tmp_path / "copy").classes_
    learner.undo()


def test_letters_are_the_same_however_they_are_composed(place: Path) -> None:
    learner = Learner("embedded")
    learner.teach("caf\u00e9", np.zeros((32, 32, 3), np.uint8))
    learner.teach("cafe\u0301", np.ones((32, 32, 3), np.uint8))
    assert list(learner.classes_) == ["caf\u00e9"]


@pytest.mark.parametrize("name", [3, None, b"tulip", ["a"]])
def test_what_is_no_text_is_no_name(name: object) -> None:
    with pytest.raises(UserError, match="a class has a name, not a"):
        Learner("embedded").teach(name, np.zeros((32, 32, 3), np.uint8))  # type: ignore[arg-type]


@EXAMPLES
def test_any_file_is_taught_or_refused(place: Path, examples: int) -> None:
    learner = Learner.load(place / "model")
    before = everything(place)

    @settings(QUICK, max_examples=examples)
    @given(FILES)
    def attempt(data: bytes) -> None:
        path = place / "picture.jpg"
        path.write_bytes(data)
        with nothing_outside(place / "model"):
            count = len(learner.photos("files"))
            if refused(lambda: learner.teach("files", path)):
                assert len(learner.photos("files")) == count
            refused(lambda: learner.predict(path))
        path.unlink()

    attempt()
    assert everything(place) - before <= {Path("model/classes.safetensors")}


def test_odd_file_names_are_kept(tmp_path: Path) -> None:
    learner = Learner("embedded")
    learner.save(tmp_path / "model")
    names = [b"caf\xe9.jpg", "ש.jpg".encode(), b"line\nbreak.jpg", b"a|b.jpg"]
    for name in names:
        path = Path(tmp_path, name.decode("utf-8", "surrogateescape"))
        path.write_bytes(SOUND + name)
        learner.teach("odd", path)
    assert [photo.file for photo in Learner.load(tmp_path / "model").photos()] == [
        name.decode("utf-8", "surrogateescape") for name in names
    ]
