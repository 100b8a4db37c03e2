"""The standard ResNet18, as the benchmark uses it for images of 84 and 224 pixels."""

from __future__ import annotations

import torchvision
from torch import nn


def resnet18() -> nn.Module:
    """float images [n, 3, h, w] -> embeddings [n, 512]; torchvision's without its head, 11,176,512 parameters."""
    network = torchvision.models.resnet18(weights=None)
    network.fc = nn.Identity()
    network.dim = 512
    return network
