"""Is it enough? What a lesson says about photos that are few, alike, unlike or under two names."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from fscil import Learner
from learner_helpers import Digits


def test_a_class_grows_into_enough(learner: Learner, digits: Digits) -> None:
    first = learner.teach("zero", digits["digit 0"][0])
    assert (first.accuracy, first.rival, first.classes) == (None, None, 1)
    assert "One photo cannot be checked" in str(first)
    assert "no other class yet" in str(learner.teach("zero", digits["digit 0"][1]))
    learner.teach("one", digits["digit 1"][:6])
    lesson = learner.teach("zero", digits["digit 0"][2:7])
    assert (lesson.new, lesson.photos, lesson.classes, lesson.rival) == (5, 7, 2, "one")
    assert lesson.accuracy == 1
    assert "7 of 7 are recognised: that is enough." in str(lesson)
    assert lesson.closest is not None
    assert lesson.closest.other_class == "one"
    assert {lesson.closest.photo, lesson.closest.other} <= {path.name for paths in digits.values() for path in paths}
    assert json.loads(json.dumps(lesson.as_dict()))["closest"]["other"] == lesson.closest.other


def test_photos_that_are_mistaken_ask_for_more(learner: Learner, digits: Digits) -> None:
    learner.teach("mixed", [digits[f"digit {i}"][0] for i in range(4)])
    for i in range(4):
        learner.teach(f"digit {i}", digits[f"digit {i}"][1:6])
    lesson = learner.teach("mixed", digits["digit 4"][0])
    assert lesson.accuracy is not None
    assert lesson.accuracy < 0.8
    assert dict(lesson.mistaken)[digits["digit 0"][0].name] == "digit 0"
    assert "teach more photos" in str(lesson)


def test_copies_are_noticed(learner: Learner, digits: Digits, tmp_path: Path) -> None:
    photo = Image.open(digits["digit 5"][0])
    photo.resize((64, 64), Image.Resampling.NEAREST).save(tmp_path / "larger.png")
    photo.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(tmp_path / "mirrored.png")
    names = ["larger.png", "mirrored.png"]
    lesson = learner.teach("five", [digits["digit 5"][0], digits["digit 5"][1], *(tmp_path / name for name in names)])
    found = {frozenset((pair.photo, pair.other)) for pair in lesson.near_duplicates}
    assert frozenset((digits["digit 5"][0].name, "mirrored.png")) in found
    assert frozenset((digits["digit 5"][0].name, "larger.png")) in found
    assert not any(digits["digit 5"][1].name in pair for pair in found)
    assert "look the same" in str(lesson)
    other = learner.teach("V", [digits["digit 5"][0], digits["digit 6"][0]])
    assert {(pair.photo, pair.other_class) for pair in other.two_names} == {(digits["digit 5"][0].name, "five")}
    assert "The same photo under two names" in str(other)
    learner.teach_unknown(digits["digit 8"][0])
    assert learner.teach("eight", digits["digit 8"][:2]).two_names[0].other_class == "unknown"


def test_a_photo_unlike_its_fellows_is_named(learner: Learner, digits: Digits) -> None:
    assert learner.teach("zero", digits["digit 0"][:6]).unlike == ()
    bright = np.full((32, 32, 3), (30, 120, 220), np.uint8)
    Image.fromarray(bright).save(digits["digit 0"][0].parent / "sky.png")
    lesson = learner.teach("zero", digits["digit 0"][0].parent / "sky.png")
    assert lesson.unlike == ("sky.png",)
    assert "sky.png is unlike the other photos: is it zero?" in str(lesson)


def test_imbalance_is_told(learner: Learner, digits: Digits) -> None:
    learner.teach("few", digits["digit 0"][:2])
    many = learner.teach("many", digits["digit 1"])
    assert many.median_photos == 2
    assert "Other classes have about 2: they would gain more" in str(many)
    assert "Other classes have about 12 photos: it would gain from more." in str(
        Learner("embedded").fit(digits["digit 1"], ["many"] * 12).teach("few", digits["digit 0"][:2])
    )


def test_base_classes_are_rivals_too_unless_hidden(
    runs: dict[str, Path], digit_images: tuple[torch.Tensor, torch.Tensor], tmp_path: Path
) -> None:
    images, labels = digit_images
    learner = Learner.load(runs["transformer"] / "model")
    learner.save(tmp_path / "model")
    learner = Learner.load(tmp_path / "model")
    lesson = learner.teach("another 3", images[labels == 3][:5])
    assert (lesson.rival, lesson.closest, lesson.classes) == ("3", None, 11)
    learner.hide_base()
    assert list(learner.classes_) == ["another 3"]
    assert [each.best for each in learner.predict(images[:5])] == ["another 3"] * 5
    assert learner.predict_proba(images[:5]).tolist() == [[1.0]] * 5
    assert learner.teach("another 4", images[labels == 4][:5]).rival == "another 3"
