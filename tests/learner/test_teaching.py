"""Teaching: what a class is does not depend on how it was taught, and every step can be taken back."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fscil import Learner, UserError
from fscil import model as models
from fscil.learner.embedding import embed_alike
from fscil.methods.prototypes import class_means
from learner_helpers import Digits, rows_of


def state(learner: Learner) -> dict[str, list[str]]:
    """Hashes of every class's photos."""
    found: dict[str, list[str]] = {}
    for photo in learner.photos():
        found.setdefault(photo.name, []).append(photo.sha256)
    return {name: sorted(hashes) for name, hashes in found.items()}


def same_rows(one: Learner, other: Learner) -> bool:
    """And the same metric."""
    mine, theirs = rows_of(one), rows_of(other)
    metrics = [learner._knowledge.model.calibrator.metric for learner in (one, other)]
    if not torch.equal(*metrics):
        return False
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_views_of_a_large_photo_are_embedded_together_and_alike() -> None:
    spec = models.ModelSpec("resnet20", 80, 72, (0.5,) * 3, (0.25,) * 3, power=0.5, mirror=True)
    model = models.build(spec, 0).eval()
    photos = torch.randint(0, 256, (3, 3, 80, 80), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    passes = []
    with model.encoder.register_forward_hook(lambda module, given, found: passes.append(len(given[0]))):
        found = embed_alike(model, photos)
    assert passes == [2, 2, 2]  # a photo and its mirror image
    assert found == pytest.approx(model.embed_here(photos).numpy(), rel=1e-4, abs=1e-6)
    assert np.array_equal(embed_alike(model, photos[1:2])[0], found[1])


def test_rows_do_not_depend_on_order_batches_or_the_way_there(digits: Digits) -> None:
    names = list(digits)[:4]
    whole = Learner("embedded")
    for name in names:
        whole.teach(name, digits[name][:7])
    pairs = [(name, path) for name in names for path in digits[name][:7]]
    random.Random(3).shuffle(pairs)
    singly = Learner("embedded")
    for name, path in pairs:
        singly.teach(name, path)
    fitted = Learner("embedded").fit([path for _, path in pairs], [name for name, _ in pairs])
    odd = Learner("embedded")
    odd.teach("something else", digits[names[0]][:3])
    for name in reversed(names):
        odd.teach(name, digits[name][2:7])
        odd.teach(name, [*digits[name][:7], digits["digit 9"][0]])
        odd.forget(name, photo=digits["digit 9"][0])
    odd.forget("something else")
    assert same_rows(whole, singly)
    assert same_rows(whole, fitted)
    assert same_rows(whole, odd)
    queries = [path for name in names for path in digits[name][7:]]
    assert [each.best for each in whole.predict(queries)] == [each.best for each in odd.predict(queries)]
    assert list(whole.classes_) == list(odd.classes_) == sorted(names)


def test_a_row_is_the_mean_of_its_embeddings(learner: Learner, digits: Digits) -> None:
    learner.teach("seven", digits["digit 7"])
    model = learner._knowledge.model
    pixels = torch.stack([torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1) for path in digits["digit 7"]])
    expected = class_means(model.embed(pixels), torch.zeros(12), (0,))
    assert torch.allclose(rows_of(learner)["seven"], expected[0], rtol=1e-3)


def test_a_photo_counts_once(learner: Learner, digits: Digits, tmp_path: Path) -> None:
    first = learner.teach("one", digits["digit 1"][:3])
    row = rows_of(learner)["one"].clone()
    copied = tmp_path / "copy.png"
    copied.write_bytes(digits["digit 1"][0].read_bytes())
    again = learner.teach("one", [copied, digits["digit 1"][1]])
    assert (first.new, again.new, again.photos) == (3, 0, 3)
    assert again.repeated == ("copy.png", digits["digit 1"][1].name)
    assert torch.equal(rows_of(learner)["one"], row)
    assert learner.teach("one", [digits["digit 1"][5]] * 2).new == 1
    assert len(learner.history()) == 2  # what changed nothing is no step


def test_every_kind_of_picture_can_be_taught(learner: Learner, digits: Digits) -> None:
    path = digits["digit 4"][0]
    array = np.array(Image.open(path))
    for i, form in enumerate([path, str(path), Image.open(path), array, torch.from_numpy(array)]):
        learner.teach(f"form {i}", form)
    learner.teach("batch", torch.from_numpy(array).permute(2, 0, 1)[None])
    rows = list(rows_of(learner).values())
    assert all(torch.equal(row, rows[0]) for row in rows)


def steps(learner: Learner, digits: Digits) -> list[tuple[str, dict[str, list[str]]]]:
    """Every verb once; what it is called, and the state before it."""
    before = []
    verbs = [
        ("teach", lambda: learner.teach("a", digits["digit 1"][:4])),
        ("teach", lambda: learner.teach("b", digits["digit 2"][:4])),
        ("teach", lambda: learner.partial_fit(digits["digit 3"][:4], ["c", "c", "d", "d"])),
        ("teach_unknown", lambda: learner.teach_unknown(digits["digit 9"][:2])),
        ("move", lambda: learner.move(digits["digit 1"][0], "b")),
        ("move", lambda: learner.move(digits["digit 1"][1], "new")),
        ("forget", lambda: learner.forget(photo=digits["digit 2"][2].name)),
        ("rename", lambda: learner.rename("d", "e")),
        ("rename", lambda: learner.rename("c", "e")),
        ("forget", lambda: learner.forget("b")),
        ("move", lambda: learner.move(digits["digit 9"][0], "e")),
        ("hide_base", lambda: learner.hide_base()),
        ("forget", lambda: learner.forget(photo=digits["digit 9"][1])),
    ]
    for verb, act in verbs:
        before.append((verb, state(learner)))
        act()
    return before


@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "in a folder"])
def test_everything_can_be_undone(kept: bool, learner: Learner, digits: Digits, tmp_path: Path) -> None:
    if kept:
        learner.save(tmp_path / "model")
    before = steps(learner, digits)
    assert [step.verb for step in learner.history()] == [verb for verb, _ in before]
    assert all(step.undoable for step in learner.history())
    assert state(learner).keys() == {"a", "e", "new"}
    assert len(state(learner)["e"]) == 5
    for verb, earlier in reversed(before):
        if kept:
            learner = Learner.load(tmp_path / "model")
        assert learner.undo().verb == verb
        assert state(learner) == earlier
    with pytest.raises(UserError, match="nothing to undo"):
        learner.undo()
    learner.teach("a", digits["digit 1"])
    assert same_rows(learner, Learner("embedded").fit(digits["digit 1"], ["a"] * 12))


def test_only_the_last_steps_can_be_undone_and_forgotten_photos_do_not_pile_up(
    learner: Learner, digits: Digits
) -> None:
    for i in range(25):
        learner.teach(f"class {i}", digits["digit 0"][0])
        learner.forget(f"class {i}")
    assert len(learner._knowledge.store) <= 20
    for _ in range(20):
        learner.undo()
    with pytest.raises(UserError, match="too long ago"):
        learner.undo()
    assert len(learner.history()) == 30


def test_a_photo_is_named_by_path_name_hash_or_image(learner: Learner, digits: Digits) -> None:
    path = digits["digit 6"][0]
    digest = learner.teach("six", path) and learner.photos("six")[0].sha256
    for photo in (path, path.name, digest, digest[:8]):
        learner.forget(photo=photo)
        assert learner.photos() == []
        learner.undo()
    image = np.array(Image.open(path))
    learner.teach("six", image)
    learner.forget(photo=image)
    assert [photo.file for photo in learner.photos("six")] == [path.name]
    with pytest.raises(UserError, match="no photo is nowhere"):
        learner.forget(photo="nowhere.png")
    learner.teach("seven", path)
    with pytest.raises(UserError, match="2 photos could be meant"):
        learner.move(path, "eight")
    learner.move(path, "eight", name="seven")
    assert set(state(learner)) == {"six", "eight"}


def test_unreadable_images_are_named_or_left_out(learner: Learner, digits: Digits, tmp_path: Path) -> None:
    (tmp_path / "bad.jpg").write_bytes(b"\xff\xd8\xff\xe0 no picture")
    images = [digits["digit 0"][0], tmp_path / "bad.jpg"]
    with pytest.raises(UserError, match=r"bad\.jpg cannot be read as an image"):
        learner.teach("zero", images)
    assert len(learner.classes_) == 0
    lesson = learner.teach("zero", images, skip_unreadable=True)
    assert (lesson.photos, len(lesson.unreadable)) == (1, 1)
    with pytest.raises(UserError, match=r"bad\.jpg"):
        learner.teach("zero", images[1:], skip_unreadable=True)
    with pytest.raises(UserError, match="no images were given"):
        learner.teach("zero", [])
    with pytest.raises(UserError, match="no class was taught yet"):
        Learner("embedded").predict(images[:1])
