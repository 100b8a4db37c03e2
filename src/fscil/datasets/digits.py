"""digits: scikit-learn's small handwritten digits, embedded and real; a benchmark for the first minute."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn.functional import interpolate

from fscil.benchmark import Benchmark, split
from fscil.datasets.registry import LAST_TRIAL, TRIAL, Dataset
from fscil.errors import UserError
from fscil.settings import setting

SIZE = 32
BASE_CLASSES, WAYS, SHOTS = 4, [2, 2, 2], [5, 5, 5]


@dataclass(frozen=True)
class DigitsOptions:
    trial: int = setting(1, TRIAL, least=0, most=LAST_TRIAL)


def load(options: DigitsOptions, root: Path | None = None) -> Benchmark:
    """The first two thirds of every digit's pictures are for training, the rest for testing.

    The pictures are ordered by writer, so most writers in the test set are new.
    """
    from sklearn.datasets import load_digits

    source = load_digits()
    labels = torch.from_numpy(source.target).long()
    grey = torch.from_numpy(source.images).float()[:, None] * (255 / 16)  # [n, 1, 8, 8]
    enlarged = interpolate(grey, size=(SIZE, SIZE), mode="bilinear", align_corners=False)
    images = enlarged.round().clamp(0, 255).to(torch.uint8).expand(-1, 3, -1, -1).contiguous()
    train: list[int] = []
    test: list[int] = []
    for label in range(10):
        rows = torch.nonzero(labels == label).flatten().tolist()
        cut = len(rows) * 2 // 3
        train += rows[:cut]
        test += rows[cut:]
    train.sort()
    test.sort()
    return split(
        "digits",
        [str(digit) for digit in range(10)],
        images[train],
        labels[train],
        train,
        images[test],
        labels[test],
        base_classes=BASE_CLASSES,
        ways=WAYS,
        shots=SHOTS,
        trial=options.trial,
    )


def prepare(root: Path | None) -> str:
    return "digits is part of scikit-learn; nothing to prepare"


def verify(root: Path | None) -> list[str]:
    benchmark = load(DigitsOptions())
    found = len(benchmark.sessions[0].labels), len(benchmark.test_labels)
    if found != (479, 602):
        raise UserError(f"digits: {found[0]} base and {found[1]} test pictures, not 479 and 602; update scikit-learn")
    return ["ok: 479 base and 602 test pictures of 10 digits"]


DATASET = Dataset(
    name="digits",
    description="handwritten digits, embedded: 4 base + 3 x 2-way 5-shot, 32 px",
    options=DigitsOptions,
    load=load,
    defaults={
        "encoder": "resnet20",
        "augmentation": "basic",
        "crop": "pad",
        "flip": False,
        "mirror": False,
        "cutout": 0,
        "recipe": "small",
    },
    prepare=prepare,
    verify=verify,
)
