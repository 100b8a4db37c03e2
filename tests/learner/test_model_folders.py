"""A learner's folder: another process finds what was taught, a run's folder can be taught, damage is told in a line."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fscil
from damage import QUICK, refused
from fscil import Learner, UserError
from fscil.engine.checkpoint import load_tensors, save_tensors
from fscil.learner.changes import Sample
from learner_helpers import Digits, rows_of

PREDICT = """
import json, sys
from fscil import Learner
learner = Learner.load(sys.argv[1])
print(json.dumps([learner.predict_proba(sys.argv[2:]).tolist(), [step.what for step in learner.history()]]))
"""


def test_a_new_process_answers_the_same(folder: Path, digits: Digits) -> None:
    learner = Learner.load(folder)
    paths = [str(path) for paths in digits.values() for path in paths[4:6]]
    done = subprocess.run(
        [sys.executable, "-c", PREDICT, str(folder), *paths], capture_output=True, text=True, check=True
    )
    probabilities, history = json.loads(done.stdout)
    assert np.array_equal(np.array(probabilities), learner.predict_proba(paths))
    assert history == ["digit 0: 4 photos", "digit 1: 4 photos", "digit 2: 4 photos"]


def test_teaching_changes_neither_model_nor_configuration(folder: Path, digits: Digits) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    learner = Learner.load(folder)
    learner.teach("new", digits["digit 5"])
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert after.keys() == before.keys() == {"README.md", "classes.safetensors", "config.json", "model.safetensors"}
    assert {name for name in after if after[name] != before[name]} == {"README.md", "classes.safetensors"}
    assert all(torch.equal(row, rows_of(learner)[name]) for name, row in rows_of(Learner.load(folder)).items())


def test_a_saved_learner_stays_with_its_folder(folder: Path, learner: Learner, digits: Digits, tmp_path: Path) -> None:
    """`learner` was saved to `folder`."""
    learner.teach("later", digits["digit 7"])
    assert "later" in Learner.load(folder).classes_
    learner.save(tmp_path / "copy")
    learner.teach("even later", digits["digit 8"])
    assert "even later" in Learner.load(folder).classes_
    assert "even later" not in Learner.load(tmp_path / "copy").classes_
    (tmp_path / "copy" / "config.json").unlink()  # as if it had been killed
    learner.save(tmp_path / "copy")
    assert "even later" in Learner.load(tmp_path / "copy").classes_
    for path in (folder, tmp_path, folder / "config.json"):
        with pytest.raises(UserError, match="exists already"):
            learner.save(path)


@pytest.mark.slow
@pytest.mark.parametrize("calibrator", ["transformer", "paired"])
def test_a_runs_model_can_be_taught(
    calibrator: str, runs: dict[str, Path], digit_images: tuple[torch.Tensor, torch.Tensor], tmp_path: Path
) -> None:
    images, labels = digit_images[0][::6], digit_images[1][::6]
    run = shutil.copytree(runs[calibrator], tmp_path / "run")
    classifier, learner = fscil.load(run), Learner.load(run)
    assert list(learner.classes_) == classifier.class_names
    assert np.allclose(learner.predict_proba(images), classifier.predict_proba(images), atol=1e-5)
    assert [each.name for each in learner.predict(images)] == classifier.predict(images)
    digest = (run / "model" / "model.safetensors").read_bytes()
    inverted = 255 - images
    learner.teach("inverted 1", inverted[labels == 1][:5])
    learner.teach("inverted 2", inverted[labels == 2][:5])
    found = [each.best for each in learner.predict(inverted[(labels == 1) | (labels == 2)])]
    assert np.mean([name.startswith("inverted") for name in found]) > 0.9
    assert (run / "model" / "model.safetensors").read_bytes() == digest
    learner.rename("0", "nought")
    learner.forget("9")
    again = Learner.load(run)
    assert list(again.classes_) == [*(str(digit) for digit in range(1, 9)), "inverted 1", "inverted 2", "nought"]
    assert "9" not in {each.best for each in again.predict(images)}
    with pytest.raises(UserError, match="open it with fscil"):
        fscil.load(run)
    for _ in range(4):
        again.undo()
    assert np.allclose(Learner.load(run).predict_proba(images), classifier.predict_proba(images), atol=1e-5)


def test_an_encoder_may_come_from_a_model_folder_or_a_file(folder: Path, digits: Digits) -> None:
    names, paths = list(digits), [path for paths in digits.values() for path in paths[:6]]
    y = [name for name in names for _ in range(6)]
    expected = rows_of(Learner("embedded").fit(paths, y))
    for encoder in (folder, folder / "model.safetensors"):
        found = rows_of(Learner(encoder).fit(paths, y))
        assert all(torch.equal(found[name], expected[name]) for name in names)
    for encoder in ("nowhere", 3):
        with pytest.raises(UserError, match="give auto, embedded, timm:NAME, or the path"):
            Learner(encoder).teach("a", paths[0])  # type: ignore[arg-type]


def test_a_runs_whitening_comes_with_its_encoder(runs: dict[str, Path]) -> None:
    base, mine = fscil.load(runs["transformer"]).model, Learner(runs["transformer"] / "model")._knowledge.model
    assert torch.equal(mine.whitening, base.whitening)
    assert (mine.power, mine.mirror, len(mine.rows)) == (base.power, base.mirror, 0)


def test_auto_without_a_network_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # it may have been imported before
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))

    def unreachable(url: str, *args: object, **options: object) -> None:
        raise URLError("no route to host")

    monkeypatch.setattr(torch.hub, "download_url_to_file", unreachable)
    with pytest.raises(UserError, match=r"\(--encoder PATH, in Python encoder=PATH\), or take") as caught:
        Learner().teach("a", np.zeros((9, 9, 3), np.uint8))
    assert "\n" not in str(caught.value)


def edit(change: Callable[[dict[str, torch.Tensor], dict[str, Any]], object]) -> Callable[[Path], None]:
    """Damage that comes with a sound checksum."""

    def damage(path: Path) -> None:
        tensors, about = load_tensors(path)
        change(tensors, about)
        save_tensors(path, tensors, about)

    return damage


def text(old: bytes, new: bytes) -> Callable[[Path], None]:
    def change(tensors: dict[str, torch.Tensor], about: dict[str, Any]) -> None:
        changed = tensors["text"].numpy().tobytes().replace(old, new)
        tensors["text"] = torch.frombuffer(bytearray(changed), dtype=torch.uint8)

    return edit(change)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(b""), "cannot be read"),
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), "cannot be read"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\x07"), "checksum"),
        (lambda path: (path.unlink(), path.mkdir()), "Is a directory"),
        (edit(lambda tensors, about: about.update(format=2)), r"written by a newer fscil \(format 2\); update"),
        (edit(lambda tensors, about: about.update(format="1")), "does not hold what a learner was taught"),
        (edit(lambda tensors, about: about.pop("kind")), "does not hold what a learner was taught"),
        (edit(lambda tensors, about: about.update(model="0" * 64)), "taught to another model"),
        (edit(lambda tensors, about: tensors.pop("scales")), "is damaged"),
        (edit(lambda tensors, about: tensors.update(embeddings=torch.zeros(12, 3).half())), "is damaged"),
        (edit(lambda tensors, about: tensors["embeddings"].fill_(torch.inf)), "not finite"),
        (edit(lambda tensors, about: tensors["labels"].fill_(7)), "labels without a class"),
        (edit(lambda tensors, about: tensors["ids"].fill_(7)), "not numbered"),
        (edit(lambda tensors, about: tensors["roles"].fill_(9)), "is damaged"),
        (text(b'"digit 1"', b'"digit 0"'), "two classes of one name"),
        (text(b'"files"', b'"f"'), "is damaged"),
        (text(b'"hide_base"', b'"hide"'), "is damaged"),
    ],
)
def test_damage_is_told_in_one_line(folder: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(folder / "classes.safetensors")
    with pytest.raises(UserError, match=message) as caught:
        Learner.load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@QUICK
@given(st.data())
def test_any_flipped_byte_is_noticed(folder: Path, data: st.DataObject) -> None:
    path = folder / "classes.safetensors"
    whole = path.read_bytes()
    at, value = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 255))
    path.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
    try:
        assert refused(lambda: Learner.load(folder)) or value == whole[at] or whole[at : at + 1].isspace()
    finally:
        path.write_bytes(whole)


def test_embeddings_of_any_size_are_kept(learner: Learner, digits: Digits, folder: Path) -> None:
    """Half precision alone would lose what is beyond 6e-5 .. 65504."""
    vectors = np.linspace(0.1, 1, 64, dtype=np.float32)
    samples = [Sample(vectors * np.float32(scale), bytes(31) + bytes([i]), "") for i, scale in enumerate((1e-20, 1e20))]
    learner._add("teach", ["tiny", "huge"], samples, 0)
    rows = rows_of(Learner.load(folder))
    assert torch.allclose(rows["tiny"], torch.from_numpy(samples[0].embedding), rtol=1e-3, atol=0)
    assert torch.allclose(rows["huge"], torch.from_numpy(samples[1].embedding), rtol=1e-3)


def test_importing_the_package_loads_neither_torch_nor_the_learner() -> None:
    code = "import sys, fscil; print('torch' in sys.modules, 'fscil.learner' in sys.modules); fscil.Learner"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == (
        "False False\n"
    )
