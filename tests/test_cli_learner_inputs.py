"""What cannot be, on the command line of the learner: one line, exit code 2, and nothing has changed."""

from __future__ import annotations

import hashlib
import json
import os
import random
import unicodedata
from pathlib import Path

import pytest

from cli_call import Fscil
from cli_process import assert_one_clear_line
from fscil.learner import Taught

LONG = "x" * 300


def everything(folder: Path) -> dict[str, str]:
    """Every file's hash."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("teach", "missing argument"),
        ("teach flowers", "missing argument 'PHOTO'"),
        ("teach flowers nothing.jpg", "there is no image nothing.jpg"),
        ("teach flowers tulip photos/class0/0-1.png", "give it as --name tulip"),
        ("teach flowers photos/class0/0-1.png nothing.jpg", "there is no image nothing.jpg"),
        ("teach flowers alone.png", "--name tulip"),
        ("teach flowers ./alone.png", "--name tulip"),
        ("teach flowers empty", "holds no photos"),
        ("teach flowers mixed", "holds photos and folders of photos"),
        ("teach flowers unknown", "--unknown"),
        ("teach flowers photos/class0 --name unknown", "--unknown"),
        ("teach flowers photos/class0 --unknown --name tulip", "leave out --name"),
        ("teach flowers photos/class0 --encoder auto", "has its encoder already"),
        ("teach new photos/class0 --encoder nowhere", "there is no such file or folder"),
        ("teach new photos/class0 --encoder timm:nowhere", "timm:nowhere"),
        ("teach new broken --encoder embedded", "cannot be read as an image"),
        ("teach new broken --encoder embedded --skip-unreadable", "cannot be read as an image"),
        ("teach photos photos/class0", "cannot read photos/config.json"),
        ("teach alone.png photos/class0", "name a model folder"),
        (f"teach {LONG} photos/class0", "too long"),
        ("teach ~nosuchuser/x photos/class0", "there is no user nosuchuser"),
        ("teach flowers photos/class0 --device tpu", "cpu or cuda"),
        ("teach flowers photos/class0 --name " + LONG, "more than 200 characters"),
        ("forget flowers", "name what to forget"),
        ("forget flowers clas0", "did you mean 'class0'"),
        ("forget flowers --photo nothing.png", "no photo is nothing.png"),
        ("forget flowers class1 --photo 0-1.png", "no photo of class1"),
        ("forget nowhere class0", "cannot read nowhere/config.json"),
        ("rename flowers class0", "missing argument 'NAME'"),
        ("rename flowers nothing rose", "unknown class 'nothing'"),
        ("rename flowers class0 unknown", "'unknown' is the answer"),
        ("move flowers nothing.png class0", "no photo is nothing.png"),
        ("move flowers 0-1.png unknown", "'unknown' is the answer"),
        ("move flowers 0-1.png class1 --from class2", "no photo of class2"),
        ("classes flowers nothing", "unknown class 'nothing'"),
        ("classes photos", "cannot read photos/config.json"),
        ("history nowhere", "cannot read nowhere/config.json"),
        ("undo nowhere", "cannot read nowhere/config.json"),
        ("hide-base nowhere", "cannot read nowhere/config.json"),
        ("predict flowers -x", "no such option"),
        ("predict photos photos/class0", "cannot read photos/config.json"),
        ("evaluate flowers nowhere", "there is no folder nowhere"),
        ("evaluate flowers empty", "holds no folders of photos"),
        ("evaluate flowers others", "no class of the model is among others1; it has class0"),
        ("sort flowers photos/class0", "name a model, photos and --to"),
        ("sort --undo alone.png", "is no list of photos"),
        ("sort --undo nowhere.json", "cannot be read"),
        ("sort --undo list.json flowers", "leave out the rest"),
        ("sort flowers photos/class0 --to out --yes --dry-run", "not both"),
        ("sort flowers photos/class0 --to alone.png --yes", "alone.png"),
        ("sort flowers empty --to out --yes", "holds no image files"),
        ("sort flowers broken --to out --yes", "cannot be read as an image"),
    ],
)
def test_mistakes_are_one_line_and_change_nothing(
    fscil: Fscil, model: Path, photos: Path, tmp_path: Path, arguments: str, message: str
) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("mixed/inner", "unknown", "others/others1", "broken"):
        (tmp_path / name).mkdir(parents=True)
    one = (photos / "class5" / "5-0.png").read_bytes()
    for name in ("alone.png", "mixed/a.png", "mixed/inner/b.png", "unknown/a.png", "others/others1/a.png"):
        (tmp_path / name).write_bytes(one)
    (tmp_path / "broken" / "a.png").write_text("no image")
    before = everything(tmp_path)
    found = fscil(*arguments.split(" "))
    assert found.code == 2, found.out
    assert_one_clear_line(found.err)
    assert message in found.err
    assert found.out == ""
    assert everything(tmp_path) == before


def test_a_model_without_a_class_says_so(fscil: Fscil, model: Path, photos: Path) -> None:
    for label in range(4):
        assert fscil("forget", model, f"class{label}").code == 0
    assert fscil("classes", model).out == "no class was taught yet\n"
    refused = fscil("predict", model, photos / "class0")
    assert refused.code == 2
    assert "no class was taught yet" in refused.err


def strange_names(count: int) -> list[str]:
    """Long, empty, dots, slashes, control characters, right to left, options, markup; seeded."""
    draw = random.Random(5)
    parts = [
        "", ".", "..", "/", "\\", "a", "Z", "é", "e\u0301", "名", "\u202e", "ע", "🌷", "\n", "\x00", "\x1b[31m", "%s",
        "{0}", "[red]", "~", "$HOME", "`x`", "--name", "-", "'", '"', "<b>", "|", "\ud800", "\udcff", " ", "\t",
        "x" * 120,
    ]  # fmt: skip
    return ["".join(draw.choice(parts) for _ in range(draw.randint(0, 6))) for _ in range(count)]


@pytest.mark.slow
def test_strange_class_names_do_no_harm(fscil: Fscil, model: Path, photos: Path, tmp_path: Path) -> None:
    """Taught and renamed by the command line: as the learner takes them, or one line and nothing has changed."""
    outside = everything(photos)
    photo, own, taken, refused = photos / "class5" / "5-0.png", "class0", 0, 0
    known = {each.name for each in Taught(model).classes()}
    for number, name in enumerate(strange_names(300)):
        is_new = number % 10 == 0
        found = fscil("teach", model, photo, f"--name={name}") if is_new else fscil("rename", model, "--", own, name)
        composed, before = unicodedata.normalize("NFC", name), known
        known = {each.name for each in Taught(model).classes()}
        if found.code:
            assert (found.code, known) == (2, before)
            assert_one_clear_line(found.err)
            refused += 1
        else:
            assert known == (before | {composed} if is_new else before - {own} | {composed})
            own, taken = composed if not is_new else own, taken + 1
    assert min(taken, refused) > 50
    assert {path.name for path in tmp_path.iterdir()} == {"flowers", "photos"}
    assert everything(photos) == outside


def test_strange_bytes_are_no_photos(fscil: Fscil, model: Path, photos: Path, tmp_path: Path) -> None:
    """Cut and changed images: an answer, or one line."""
    draw, good = random.Random(8), (photos / "class0" / "0-0.png").read_bytes()
    (tmp_path / "strange").mkdir()
    for number in range(300):
        data = bytearray(good)
        for _ in range(draw.randint(1, 8)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        (tmp_path / "strange" / f"{number}.png").write_bytes(
            bytes(data[: draw.choice([len(data), draw.randrange(9999)])])
        )
    found = fscil("predict", model, "strange", "--skip-unreadable", "--json")
    assert found.code == 0, found.err
    skipped = [line for line in found.err.splitlines() if line.startswith("skipped: strange/")]
    assert len(json.loads(found.out)) + len(skipped) == 300
    assert len(skipped) > 100
    assert len(found.err.splitlines()) == len(skipped)


def test_names_of_files_may_be_any_bytes(fscil: Fscil, photos: Path) -> None:
    folder = Path(os.fsdecode(b"not-utf8-\xff"))
    folder.mkdir()
    (folder / os.fsdecode(b"\xfe.png")).write_bytes((photos / "class0" / "0-0.png").read_bytes())
    refused = fscil("teach", "new", folder, "--encoder", "embedded")
    assert refused.code == 2
    assert_one_clear_line(refused.err)
    assert fscil("teach", "new", folder, "--name", "tulip", "--encoder", "embedded").code == 0
    assert fscil("forget", "new", "--photo", os.fsdecode(b"\xfe.png")).code == 0
