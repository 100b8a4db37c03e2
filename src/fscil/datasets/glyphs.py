"""glyphs: characters of five scripts, embedded; a benchmark of CIFAR100's shape that needs no download."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fscil.benchmark import Benchmark, split
from fscil.datasets import glyph_images
from fscil.datasets.registry import LAST_TRIAL, TRIAL, Dataset
from fscil.errors import UserError
from fscil.settings import setting

# One character of every shape. Homoglyphs across scripts (A of Latin, Greek and Cyrillic) and letters whose cases
# differ in size alone cannot be told apart here, so only one of each such group is included; the rest were chosen
# so that their pictures correlate least with each other (tests/datasets/test_glyphs.py has the bound).
CHARACTERS = {
    "Latin": "ADGLQRUXYZefhijkvw24579",
    "Greek": "ΔΝΞΣαβεζηλμπςτψω",
    "Cyrillic": "ГДЖЗИРЧШЫЮЯалмсфьЂЉЋЏњ",
    "Armenian": "ԴԵԶԸԹԺԾՀՁՃՆՇՊՌՎՒՔՖէխկմչջ",
    "Georgian": "აბლორტფქღშცწჭჯჰ",
}
BASE_CLASSES, WAY, SHOT, SESSIONS = 60, 5, 5, 8
ORDER_SEED = 2024  # of the classes' order of arrival, which mixes the scripts
IMAGE_SEED = 100_000


@dataclass(frozen=True)
class GlyphsOptions:
    trial: int = setting(1, TRIAL, least=0, most=LAST_TRIAL)
    images_per_class: int = setting(
        100, "for training; fewer are faster to draw and learn, but less accurate", least=SHOT, most=10_000
    )
    test_images_per_class: int = setting(50, "5000 test images in all", least=1, most=10_000)


def classes() -> list[tuple[str, str]]:
    """(script, character) of every class in order of arrival."""
    listed = [(script, character) for script, characters in CHARACTERS.items() for character in characters]
    return [listed[i] for i in np.random.RandomState(ORDER_SEED).permutation(len(listed))]


def load(options: GlyphsOptions, root: Path | None = None) -> Benchmark:
    n, n_test = options.images_per_class, options.test_images_per_class
    if n < SHOT or n_test < 1:
        raise UserError(f"glyphs: images_per_class must be at least {SHOT}, test_images_per_class at least 1")
    names = [f"{script} {character}" for script, character in classes()]
    train, test = render(n, n_test)
    return split(
        "glyphs",
        names,
        train,
        torch.arange(len(names)).repeat_interleave(n),
        [f"{name} {i}" for name in names for i in range(n)],
        test,
        torch.arange(len(names)).repeat_interleave(n_test),
        base_classes=BASE_CLASSES,
        ways=[WAY] * SESSIONS,
        shots=[SHOT] * SESSIONS,
        trial=options.trial,
    )


@lru_cache(maxsize=1)  # trials differ only in their shots; split() copies what it takes
def render(n: int, n_test: int) -> tuple[Tensor, Tensor]:
    """Training and test images of all classes, class by class: uint8 [100 n, 3, 32, 32] and [100 n_test, 3, 32, 32]."""
    train, test = [], []
    for label, (script, character) in enumerate(classes()):
        drawn = glyph_images.draw_all(character, script)
        seed = IMAGE_SEED + 10 * label
        train.append(glyph_images.pictures(drawn, n, seed))
        test.append(glyph_images.pictures(drawn, n_test, seed + 5))
    return torch.cat(train), torch.cat(test)


def prepare(root: Path | None) -> str:
    return "glyphs is drawn from matplotlib's typefaces when it is loaded; nothing to prepare"


def verify(root: Path | None) -> list[str]:
    faces = glyph_images.faces_of("Latin")
    for face in faces:
        glyph_images.font(face)
    return [f"ok: all {len(faces)} typefaces can be read", f"ok: {len(classes())} classes of {len(CHARACTERS)} scripts"]


DATASET = Dataset(
    name="glyphs",
    description="characters, embedded: 60 base + 8 x 5-way 5-shot, 32 px",
    options=GlyphsOptions,
    load=load,
    # writing has no mirror images
    defaults={
        "encoder": "resnet20",
        "augmentation": "basic",
        "crop": "pad",
        "flip": False,
        "mirror": False,
        "cutout": 0,
        "recipe": "quick",
    },
    prepare=prepare,
    verify=verify,
)
