"""Earth mover's distances between feature maps of real images: Sinkhorn's algorithm against POT's exact ones."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fscil
from fscil import datasets, runs
from fscil.calibrators import EMD
from fscil.config import resolve
from run_helpers import QUIET

pytestmark = pytest.mark.slow
DIM, SIDE = 64, 8  # of ResNet20's maps


@pytest.fixture(scope="module")
def maps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tensor, Tensor]:
    """The mean maps of ten digits [10, d, 8, 8] and maps of 2,000 images, some of them moved by a pixel."""
    folder = tmp_path_factory.mktemp("emd") / "run"
    config = resolve("decoupled-deepemd", "digits", ["steps=300"])
    runs.start(config, runs.RunEnvironment(torch.device("cpu"), folder), QUIET)
    model, dataset = fscil.load(folder).model, datasets.get("digits")
    images = dataset.load(dataset.options(), None).test_images
    moved = [images.roll(by, axis) for by in (1, -1) for axis in (2, 3)]
    flat = (model.rows.detach(), model.embed(torch.cat([images, *moved])[:2000]))
    return tuple(each.unflatten(1, (SIDE, SIDE, DIM)).movedim(-1, 1) for each in flat)  # type: ignore[return-value]


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize(
    ("side", "queries", "device"),
    # larger maps take 16 times as long
    [(4, 2000, "cpu"), (8, 60, "cpu"), pytest.param(8, 2000, "cuda", marks=needs_cuda)],
)
def test_distances_are_within_a_percent_and_predictions_agree(
    maps: tuple[Tensor, Tensor], side: int, queries: int, device: str
) -> None:
    smaller = (F.avg_pool2d(each, SIDE // side) for each in (maps[0], maps[1][:: len(maps[1]) // queries]))
    rows, asked = (each.flatten(2).mT.flatten(1).to(device) for each in smaller)
    assert len(asked) >= queries
    exact, near = (1 - EMD(DIM, cells=side**2, solver=solver).predict(rows, asked) for solver in ("exact", "sinkhorn"))
    assert float(((near - exact) / exact).abs().max()) < 0.01
    assert float((near.argmin(1) == exact.argmin(1)).float().mean()) >= 0.99
    assert len(exact.argmin(1).unique()) == 10
