"""docs/learner.md works as it is written, with photos that fit it."""

from __future__ import annotations

import glob
import json
import shlex
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from cli_call import Fscil
from fscil.learner import Taught
from test_docs import ROOT, blocks

TUTORIAL = ROOT / "docs" / "learner.md"
NAMES = ("rose", "daisy", "tulip", "meadow")


@pytest.fixture
def prepared(photos: Path, fscil: Fscil) -> None:
    """Four classes of photos where the tutorial has them."""
    for place in ("photos", "test"):
        for label, name in enumerate(NAMES[:2]):
            shutil.copytree(photos / f"class{label}", Path("all", place, name))
    Path("all/photos/rose/0-0.png").rename("all/photos/rose/IMG_0042.jpg")
    shutil.copytree(photos / "class2", "all/tulip")
    shutil.copytree(photos / "class3", "all/meadow")
    shutil.copytree(photos / "class4", "all/inbox")
    for name in ("new", "a", "b", "c"):
        shutil.copy(photos / "class5" / f"5-{ord(name[0]) % 9}.png", f"all/{name}.jpg")
    for path in Path("all/tulip").iterdir():
        path.rename(path.with_suffix(".jpg"))
    shutil.rmtree(photos)
    for path in Path("all").iterdir():
        path.rename(path.name)


def test_commands_do_what_they_say(fscil: Fscil, prepared: None) -> None:
    for line in "".join(blocks(TUTORIAL, "sh")).splitlines():
        verb, *words = shlex.split(line.partition(" #")[0])[1:]
        if verb in ("check", "fit"):  # from nothing, which is quicker
            continue
        words = [found for word in words for found in (sorted(glob.glob(word)) or [word])]
        if not Path("flowers").exists():
            words += ["--encoder", "embedded"]
        if "IMG_0042.jpg" in words and verb == "move":  # it was forgotten in the line before
            assert fscil("undo", "flowers").code == 0
        found = fscil(verb, *words)
        assert found.code == 0, f"{line}: {found.err}"
    assert "red rose" in {each.name for each in Taught("flowers").classes()}
    listed = next(Path("sorted").glob("sorted-*.json"))
    assert len(json.loads(listed.read_text())["photos"]) == 9
    assert fscil("sort", "--undo", listed).code == 0


def test_python_does_what_it_says(prepared: None, capsys: pytest.CaptureFixture[str]) -> None:
    for name, label in {"tulip": "tulip", "rose": "photos/rose", "daisy": "photos/daisy"}.items():
        Path(name).mkdir(exist_ok=True)
        for i, path in enumerate(sorted(Path(label).iterdir())[:2], start=1):
            shutil.copy(path, f"{name}/{i}.png")
    shutil.copy("new.jpg", "new.png")
    (code,) = blocks(TUTORIAL, "python")
    exec(code, {})
    assert capsys.readouterr().out.startswith("tulip has 2 photos now")
    assert {each.name for each in Taught("flowers").classes()} == {"tulip", "red rose", "daisy"}


@pytest.mark.skipif(find_spec("fscil.learner.fitting") is None, reason="fit is not there yet")
def test_the_first_three_commands_do_what_they_say(fscil: Fscil, prepared: None) -> None:
    first, *rest = blocks(TUTORIAL, "sh")[0].splitlines()
    assert fscil(*shlex.split(first, comments=True)[1:], "--encoder", "embedded").code == 0
    for line in rest:
        words = shlex.split(line, comments=True)[1:]
        assert fscil(*(found for word in words for found in (sorted(glob.glob(word)) or [word]))).code == 0
