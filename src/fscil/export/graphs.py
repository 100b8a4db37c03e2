"""What is exported, as modules of torch: a model with all that is done to a photo before it, and rows from outside."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fscil.export.resize import Resize
from fscil.model import Model


class EncoderGraph(nn.Module):
    """Photos uint8 [n, height, width, 3] -> embeddings [n, d], whose mean over a class's photos is its row."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model, self.resize = model, Resize(model.spec.stored_size)

    def forward(self, images: Tensor) -> Tensor:
        return self.as_rows(self.queries(images))

    def queries(self, images: Tensor) -> Tensor:
        """All views of all images go through the encoder together, which halves the program or more."""
        views = torch.stack(self.model.views(self.resize(images)), 1)  # [n, views, 3, size, size]
        features = self.model.encoder(views.flatten(0, 1)).unflatten(0, (-1, views.shape[1]))
        return self.model.join_views(features.unbind(1))

    def as_rows(self, queries: Tensor) -> Tensor:
        """Where rows are pairs, those of new classes have no trained row."""
        if not self.model.calibrator.two_inputs:
            return queries
        embeddings = queries[:, : self.model.encoder.dim]
        return torch.cat([embeddings, torch.zeros_like(embeddings)], 1)


class ClassifierGraph(EncoderGraph):
    """Photos, rows [C, d] and what is subtracted from each class's logits [C] -> logits [n, C], embeddings [n, d]"""

    def forward(self, images: Tensor, rows: Tensor, margins: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        queries = self.queries(images)
        return self.model.calibrator.predict(rows, queries) - margins, self.as_rows(queries)
