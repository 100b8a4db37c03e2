"""Exported files answer as the model does: through ONNX Runtime, from the bytes of photos."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image, ImageOps

from export_helpers import TINY, learner_of, model_of, tiny
from fscil import Learner, UserError
from fscil import model as models
from fscil.datasets.decode import decode_image
from fscil.export import export_onnx
from fscil.export.check import drawn
from fscil.export.resize import Resize
from fscil.model import ModelSpec

__all__ = ["tiny"]  # a fixture

DOCUMENT = Path(__file__).parent.parent / "docs" / "export.md"
CLOSE = 1e-3  # of the largest logit
SIZES = ((48, 40), (40, 75), (700, 410), (333, 500))  # width and height; of the larger ones JPEG skips detail


def photos_in(folder: Path) -> list[Path]:
    """Pictures of several shapes, and a few real photos where there are any."""
    files = []
    for i, (width, height) in enumerate(SIZES):
        files.append(folder / f"{i}.{('png', 'jpg')[width > 100]}")
        Image.fromarray(drawn(height, width, n=1, seed=i)[0].numpy()).save(files[-1])
    birds = Path(os.environ.get("FSCIL_DATA") or folder / "none", "CUB_200_2011", "images")
    return files + sorted(birds.glob("00[1-3]*/*_0001_*.jpg"))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return photos_in(tmp_path_factory.mktemp("photos"))


SMALL = ModelSpec("resnet20", 32, 32, (0.5, 0.45, 0.4), (0.25,) * 3, power=0.5, mirror=True, base_margin=0.4)
MODELS = {
    "transformer": replace(SMALL, calibrator="transformer", calibrator_options={"scale": 2.0}),
    "paired": replace(
        SMALL,
        encoder="resnet18-32",
        mirror=False,
        shift=1,
        calibrator="paired",
        calibrator_options={"scale": 16.0, "common": 0.5},
    ),
    "cosine": replace(
        SMALL, encoder="resnet18", stored_size=72, input_size=64, mirror=False, calibrator_options={"scale": 16.0}
    ),
}


@dataclass
class Pair:
    learner: Learner
    path: Path
    session: Any
    about: dict[str, Any]

    def wanted(self, files: list[Path]) -> np.ndarray:
        """The model's logits by row."""
        knowledge = self.learner._knowledge
        embeddings = np.stack([sample.embedding for sample in knowledge.samples(files)[0]])
        return knowledge.model.classify(torch.from_numpy(embeddings)).numpy()

    def run(self, output: str, file: Path, n: int = 1, **inputs: np.ndarray) -> np.ndarray:
        """Of n copies of a photo."""
        (found,) = self.session.run([output], {"images": np.repeat(self.pixels(file), n, 0), **inputs})
        return found

    def pixels(self, file: Path) -> np.ndarray:
        photo = Image.open(file)
        photo.draft(None, (2 * self.about["stored_size"],) * 2)
        return np.array(ImageOps.exif_transpose(photo).convert("RGB"))[None]


def opened(learner: Learner, path: Path) -> Pair:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options)
    return Pair(learner, path, session, json.loads(session.get_modelmeta().custom_metadata_map["fscil"]))


FIRST, *OTHERS = MODELS


@pytest.fixture(scope="module", params=[FIRST, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def pair(request: pytest.FixtureRequest, photos: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A learner with four base classes, one of them forgotten, and two that it was taught; and its file."""
    learner = learner_of(model_of(MODELS[request.param], 4), ["oak", "elm", "ash", "fir"])
    learner.teach("rose", photos[:2])
    learner.teach("tulip", photos[2:3])
    learner.forget("elm")
    path = tmp_path_factory.mktemp("exported") / "flowers.onnx"
    assert export_onnx(learner, path).difference < CLOSE
    return opened(learner, path)


def share_of_largest(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def test_logits_are_the_models_from_the_bytes_of_photos(pair: Pair, photos: list[Path]) -> None:
    answered = [name is not None for name in pair.about["classes"]]
    for i, file in enumerate(photos):
        wanted = pair.wanted([file])
        found = pair.run("logits", file, n=1 + i % 3)
        assert found.shape == (1 + i % 3, 6)
        assert share_of_largest(found[:, answered], wanted[:, answered]) < CLOSE
        assert np.isneginf(found[:, 1]).all()  # forgotten
    names = [pair.about["classes"][pair.run("logits", file).argmax()] for file in photos]
    assert names == [each.best for each in pair.learner.predict(photos)]


def test_a_class_taught_after_the_export_gets_the_learners_answer(pair: Pair, photos: list[Path]) -> None:
    rows, margins = pair.session.run(["known_rows", "known_margins"], {"images": np.zeros((1, 1, 1, 3), np.uint8)})
    row = np.mean([pair.run("embeddings", file) for file in photos[1:4]], 0)
    given = {"rows": np.concatenate([rows, row]), "margins": np.append(margins, np.float32(0))}
    pair.learner.teach("daisy", photos[1:4])
    try:
        for file in photos:
            wanted, found = pair.wanted([file]), pair.run("logits", file, **given)
            assert share_of_largest(np.delete(found, 1, 1), np.delete(wanted, 1, 1)) < CLOSE
    finally:
        pair.learner.undo()


def test_metadata_says_what_a_program_needs(pair: Pair) -> None:
    spec, about = pair.learner._knowledge.model.spec, pair.about
    assert about["format"] == 2
    assert about["classes"] == ["oak", None, "ash", "fir", "rose", "tulip"]
    assert about["base"] == [True] * 4 + [False] * 2
    assert (about["margin"], about["temperature"], about["threshold"]) == (0.4, None, None)
    assert (about["stored_size"], about["input_size"]) == (spec.stored_size, spec.input_size)
    assert (about["encoder"], about["calibrator"]) == (spec.encoder, spec.calibrator)
    shape = {each.name: each.shape for each in pair.session.get_inputs()}["images"]
    assert shape == ["batch", "height", "width", 3]


def test_files_name_nothing_of_this_machine(pair: Pair) -> None:
    data = pair.path.read_bytes()
    assert str(Path(models.__file__).parent).encode() not in data
    assert b"site-packages" not in data


@dataclass
class Documented:
    learner: Learner
    folder: Path
    printed: list[str]


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory, photos: list[Path]) -> Documented:
    """A folder where the document's examples ran."""
    folder, printed = tmp_path_factory.mktemp("documented"), io.StringIO()
    learner = learner_of(model_of(TINY, 0), [])
    for label in range(4):
        learner.teach(f"flower{label}", [each.numpy() for each in drawn(30, 40, n=6, seed=10 + label)])
    learner.save(folder / "flowers")
    for name in ("new", "tulip-1", "tulip-2"):
        Image.open(photos[2]).save(folder / f"{name}.jpg")
    blocks = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        exec("\n".join(blocks), {})
    return Documented(learner, folder, printed.getvalue().split())


@pytest.mark.slow
def test_examples_of_the_document_give_the_learners_answers(documented: Documented) -> None:
    name, probability, taught = documented.printed
    (answer,) = documented.learner.predict(documented.folder / "new.jpg")
    assert (name, taught) == (answer.name, "tulip")
    assert float(probability) == pytest.approx(answer.probability, rel=1e-3)


def test_measured_temperature_and_threshold_are_in_the_metadata(documented: Documented, photos: list[Path]) -> None:
    learner = documented.learner
    pair = opened(learner, documented.folder / "flowers.onnx")
    about = pair.about
    assert about["temperature"] == pytest.approx(learner.confidence.temperature)
    assert about["threshold"] == pytest.approx(learner.unknown.threshold)
    assert (about["share"], about["rivals"]) == (learner.unknown.share, 10)
    for file, answer in zip(photos, learner.predict(photos), strict=True):
        best, *others = np.sort(pair.run("logits", file)[0])[::-1]
        assert best - about["share"] * np.mean(others[:10]) == pytest.approx(answer.score, abs=16 * CLOSE)


def test_the_encoder_alone_gives_what_rows_are_means_of(documented: Documented, photos: list[Path]) -> None:
    pair = opened(documented.learner, documented.folder / "encoder.onnx")
    assert [each.name for each in pair.session.get_inputs()] == ["images"]
    assert [each.name for each in pair.session.get_outputs()] == ["embeddings"]
    for file in photos:
        wanted = documented.learner._knowledge.samples([file])[0][0].embedding
        assert share_of_largest(pair.run("embeddings", file, n=2), wanted) < CLOSE


@pytest.mark.parametrize("seed", range(40))
def test_resizing_is_pillows_bit_for_bit(seed: int) -> None:
    width, height, size = np.random.default_rng(seed).integers(1, [200, 200, 100]).tolist()
    picture = drawn(height, width, n=1, seed=seed)
    wanted = decode_image(Image.fromarray(picture[0].numpy()), size, "picture")
    np.testing.assert_array_equal(Resize(size)(picture)[0].permute(1, 2, 0).numpy(), wanted)


def test_a_program_with_other_answers_is_not_written(
    documented: Documented, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = documented.folder.joinpath("flowers.onnx").read_bytes()  # of a model without power
    monkeypatch.setattr("fscil.export.onnx.program_of", lambda graph, known: other)
    with pytest.raises(UserError, match="gives other answers once exported"):
        export_onnx(learner_of(model_of(replace(TINY, power=0.5), 0), []), tmp_path / "a.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_learner_without_classes_is_exported_for_those_to_come(tmp_path: Path) -> None:
    learner = learner_of(model_of(TINY, 0), [])
    export_onnx(learner, tmp_path / "a.onnx")
    pair = opened(learner, tmp_path / "a.onnx")
    assert [each.name for each in pair.session.get_inputs()] == ["images", "rows", "margins"]
    images = drawn(20, 30).numpy()
    (rows,) = pair.session.run(
        ["embeddings"], {"images": images, "rows": np.ones((1, 8), np.float32), "margins": [0.0]}
    )
    learner.teach("a", images[0])
    learner.teach("b", images[1])
    (logits,) = pair.session.run(["logits"], {"images": images, "rows": rows, "margins": np.zeros(2, np.float32)})
    assert [["a", "b"][i] for i in logits.argmax(1)] == [each.best for each in learner.predict(list(images))]
