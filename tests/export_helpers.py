"""Small models to be exported."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from fscil import Learner, encoders
from fscil import model as models
from fscil.learner.sources import model_from_nothing
from fscil.model import Model, ModelSpec


def model_of(spec: ModelSpec, classes: int) -> Model:
    """Random but for an encoder of 32 px images, and with all that may be done to embeddings."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = models.build(spec, classes)
        model.whitening.add_(0.05 * torch.randn(model.encoder.dim, model.encoder.dim))
    model.requires_grad_(False).eval()
    if spec.encoder == "resnet20":
        model.encoder.backbone.load_state_dict(model_from_nothing("embedded").encoder.backbone.state_dict())
    if classes:
        size, n = spec.stored_size, len(model.rows)
        pixels = torch.randint(0, 256, (n, 3, size, size), generator=torch.Generator().manual_seed(1))
        model.rows += model.embed_here(pixels.to(torch.uint8))
    return model


def learner_of(model: Model, base: list[str]) -> Learner:
    learner = Learner()
    learner._begin(model, base)
    return learner


class Tiny(nn.Module):
    dim = 8

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 8, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).relu().mean((2, 3))


TINY = ModelSpec("tiny", 36, 32, (0.5,) * 3, (0.25,) * 3, mirror=True, calibrator_options={"scale": 16.0})


@pytest.fixture(scope="module", autouse=True)
def tiny() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(encoders.BACKBONES, "tiny", Tiny)
        yield
