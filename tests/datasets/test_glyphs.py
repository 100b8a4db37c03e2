from __future__ import annotations

import unicodedata

import pytest
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from fscil.benchmark import Benchmark, validation_benchmark
from fscil.datasets import glyph_images, glyphs
from fscil.errors import UserError


@pytest.fixture(scope="module")
def small() -> Benchmark:
    return glyphs.load(glyphs.GlyphsOptions(images_per_class=15, test_images_per_class=3))


@pytest.fixture(scope="module")
def plain() -> dict[str, Tensor]:
    """Every character in each of its faces, centred and undisturbed: {character: [faces, canvas, canvas]}."""
    return {
        character: torch.stack([glyph_images.draw(character, face) for face in glyph_images.faces_of(script)])
        for script, character in glyphs.classes()
    }


def correlations(pictures: Tensor) -> Tensor:
    """Of pictures [n, height, width] with each other, at half the resolution, the diagonal blanked: [n, n]."""
    blurred = avg_pool2d(pictures[:, None], 3, stride=2, padding=1).flatten(1)
    return torch.corrcoef(blurred).fill_diagonal_(0)


def test_protocol_of_the_default_options() -> None:
    benchmark = glyphs.load(glyphs.GlyphsOptions())
    assert [len(session.classes) for session in benchmark.sessions] == [60] + [5] * 8
    assert [len(session.labels) for session in benchmark.sessions] == [6000] + [25] * 8
    assert benchmark.test_images.shape == (5000, 3, 32, 32)
    assert benchmark.test_images.dtype == torch.uint8
    assert benchmark.test_labels.bincount().tolist() == [50] * 100


def test_same_recipe_same_pictures(small: Benchmark) -> None:
    glyphs.render.cache_clear()
    again = glyphs.load(glyphs.GlyphsOptions(images_per_class=15, test_images_per_class=3))
    assert torch.equal(small.sessions[0].images, again.sessions[0].images)
    assert torch.equal(small.test_images, again.test_images)
    assert small.split_checksum == again.split_checksum


def test_fewer_images_are_the_first_ones_of_more(small: Benchmark) -> None:
    fewer = glyphs.load(glyphs.GlyphsOptions(images_per_class=6, test_images_per_class=3))
    base = small.sessions[0]
    assert torch.equal(fewer.sessions[0].images[:6], base.images[base.labels == 0][:6])
    assert torch.equal(fewer.test_images, small.test_images)
    assert fewer.split_checksum != small.split_checksum


def test_trials_draw_other_shots(small: Benchmark) -> None:
    second = glyphs.load(glyphs.GlyphsOptions(trial=2, images_per_class=15, test_images_per_class=3))
    assert second.split_checksum != small.split_checksum
    assert torch.equal(second.sessions[0].images, small.sessions[0].images)
    assert not torch.equal(second.sessions[3].images, small.sessions[3].images)


def test_training_and_test_pictures_differ(small: Benchmark) -> None:
    seen = {image.numpy().tobytes() for session in small.sessions for image in session.images}
    assert len(seen) == sum(len(session.labels) for session in small.sessions)
    assert not seen & {image.numpy().tobytes() for image in small.test_images}


def test_scripts_are_mixed_in_the_order_of_arrival() -> None:
    scripts = [script for script, _ in glyphs.classes()]
    assert len(set(glyphs.classes())) == 100
    for script in glyphs.CHARACTERS:
        assert 0.4 < scripts[:60].count(script) / scripts.count(script) < 0.8
    assert all(len(set(scripts[first : first + 5])) >= 2 for first in range(60, 100, 5))


def test_every_character_is_of_its_script() -> None:
    for script, character in glyphs.classes():
        name = unicodedata.name(character)
        assert name.startswith(script.upper()) or (script == "Latin" and name.startswith("DIGIT")), name


def test_every_face_carries_its_characters() -> None:
    from matplotlib import get_data_path
    from matplotlib.ft2font import FT2Font

    for face in glyph_images.faces_of("Latin"):
        carried = FT2Font(f"{get_data_path()}/fonts/ttf/{face}.ttf").get_charmap()
        for script, characters in glyphs.CHARACTERS.items():
            if face in glyph_images.faces_of(script):
                assert {ord(character) for character in characters} <= set(carried), (face, script)


def test_no_face_draws_an_empty_picture_or_one_picture_twice(plain: dict[str, Tensor]) -> None:
    assert all(float(picture.sum()) > 20 for drawn in plain.values() for picture in drawn)
    for f in range(len(glyph_images.faces_of("Latin"))):
        of_face = [drawn[f] for drawn in plain.values() if f < len(drawn)]
        assert len({picture.numpy().tobytes() for picture in of_face}) == len(of_face)
    for character, drawn in plain.items():
        assert len({picture.numpy().tobytes() for picture in drawn}) == len(drawn), character


def test_no_two_classes_are_homoglyphs(plain: dict[str, Tensor]) -> None:
    means = correlations(torch.stack([drawn.mean(0) for drawn in plain.values()]))
    names = list(plain)
    worst = divmod(int(means.argmax()), len(names))
    assert means.max() < 0.9, (names[worst[0]], names[worst[1]], float(means.max()))
    for f in range(len(glyph_images.faces_of("Latin"))):
        of_face = correlations(torch.stack([drawn[f] for drawn in plain.values() if f < len(drawn)]))
        assert of_face.max() < 0.96


@pytest.mark.parametrize("pair", ["AΑ", "Oо", "cС", "xX"])
def test_the_homoglyph_bound_would_catch_one(pair: str) -> None:
    faces = glyph_images.faces_of("Latin")
    means = torch.stack([torch.stack([glyph_images.draw(c, face) for face in faces]).mean(0) for c in pair])
    assert correlations(means).max() >= 0.9


def test_too_few_images_are_refused() -> None:
    with pytest.raises(UserError, match="images_per_class must be at least 5"):
        glyphs.load(glyphs.GlyphsOptions(images_per_class=4))


def test_missing_typeface_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(line.startswith("ok: ") for line in glyphs.verify(None))
    with pytest.raises(UserError, match=r"NoSuchFace\.ttf.*reinstall matplotlib"):
        glyph_images.font("NoSuchFace")


def test_validation_benchmark_is_made_of_base_training_images_alone(small: Benchmark) -> None:
    inner = validation_benchmark(small)
    assert [len(session.classes) for session in inner.sessions] == [40, 5, 5, 5, 5]
    assert [len(session.labels) for session in inner.sessions] == [40 * 12] + [25] * 4
    assert inner.test_labels.bincount().tolist() == [3] * 60
    assert inner.class_names == small.class_names[:60]
    trained = {image.numpy().tobytes() for session in inner.sessions for image in session.images}
    held_out = {image.numpy().tobytes() for image in inner.test_images}
    base = {image.numpy().tobytes() for image in small.sessions[0].images}
    assert not trained & held_out
    assert trained | held_out <= base
    assert not (trained | held_out) & {image.numpy().tobytes() for image in small.test_images}
