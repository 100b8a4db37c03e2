"""Whether an exported file answers as the model does, from a picture's pixels on."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fscil.methods.prototypes import as_prototypes
from fscil.model import Model
from fscil.pictures import stacked

MOST = 50  # classes that are compared
SIZES = ((96, 140), (150, 70))  # height and width of pictures


def largest_difference(data: bytes, model: Model, encoder_only: bool) -> float:
    """From the model's logits, or its embeddings, over drawn pictures; as a share of the largest."""
    file = open_onnx(data)
    rows = torch.cat([model.rows.detach()[:MOST], new_rows(model)])
    margins = torch.linspace(0, 1, len(rows))
    found = []
    for height, width in SIZES:
        pictures = drawn(height, width)
        embeddings = embed(model, pictures)
        if encoder_only:
            wanted, given = embeddings[:, : model.encoder.dim], answer(file, "embeddings", images=pictures)
        else:
            wanted = model.calibrator.predict(rows, embeddings) - margins
            given = answer(file, "logits", images=pictures, rows=rows, margins=margins)
        found.append((given[:, : wanted.shape[1]] - wanted).abs().max() / wanted.abs().max())
    return float(torch.stack(found).max())


def open_onnx(data: bytes) -> Any:
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # it would warn that rows and margins may be given, which is what they are for
    return runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def answer(file: Any, output: str, **inputs: Tensor) -> Tensor:
    (found,) = file.run([output], {name: tensor.numpy() for name, tensor in inputs.items()})
    return torch.from_numpy(found)


def embed(model: Model, pictures: Tensor) -> Tensor:
    return model.embed_here(stacked([picture.numpy() for picture in pictures], model.spec.stored_size))


def new_rows(model: Model) -> Tensor:
    """Of classes that were taught one picture each."""
    return as_prototypes(embed(model, drawn(64, 64, n=3, seed=1)), model)


def drawn(height: int, width: int, n: int = 2, seed: int = 0) -> Tensor:
    """Smooth shades with some noise, uint8 [n, height, width, 3]"""
    generator = torch.Generator().manual_seed(seed)
    shades = F.interpolate(torch.rand(n, 3, 5, 5, generator=generator), (height, width), mode="bilinear")
    noise = torch.rand(n, 3, height, width, generator=generator)
    return (200 * shades + 55 * noise).to(torch.uint8).permute(0, 2, 3, 1).contiguous()
