"""Earth mover's distances between feature maps of real images: Sinkhorn's algorithm against POT's exact ones."""

from __future__ import annotations

import pytest
import torch
from test_golden_methods import START
from torch import Tensor

import fscil
from fscil import datasets, runs
from fscil.calibrators import EMD
from fscil.config import resolve
from run_helpers import QUIET

pytestmark = pytest.mark.slow
DIM, CELLS = 64, 8 * 8  # of ResNet20's maps


@pytest.fixture(scope="module")
def maps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tensor, Tensor]:
    """The mean maps of ten digits and maps of 2,000 images, some of them moved by a pixel: [.., 8 * 8 * d]."""
    folder = tmp_path_factory.mktemp("emd") / "run"
    runs.start(resolve("decoupled-deepemd", "digits", START), runs.RunEnvironment(torch.device("cpu"), folder), QUIET)
    model, dataset = fscil.load(folder).model, datasets.get("digits")
    images = dataset.load(dataset.options(), None).test_images
    moved = [images.roll(by, axis) for by in (1, -1) for axis in (2, 3)]
    return model.rows.detach(), model.embed(torch.cat([images, *moved])[:2000])


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.timeout(2400)  # 4 minutes on two cores, 7 on one
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])
def test_distances_are_within_a_percent_and_predictions_agree(maps: tuple[Tensor, Tensor], device: str) -> None:
    rows, queries = (each.to(device) for each in maps)
    assert len(queries) == 2000
    exact, near = (1 - EMD(DIM, cells=CELLS, solver=solver).predict(rows, queries) for solver in ("exact", "sinkhorn"))
    assert float(((near - exact) / exact).abs().max()) < 0.01
    assert float((near.argmin(1) == exact.argmin(1)).float().mean()) >= 0.99
    assert len(exact.argmin(1).unique()) == 10
