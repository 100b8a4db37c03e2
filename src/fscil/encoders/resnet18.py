"""The standard ResNet18, as the benchmark uses it for images of 84 and 224 pixels."""

from __future__ import annotations

import torchvision
from torch import Tensor, nn
from torchvision.models import ResNet18_Weights
from torchvision.models.resnet import BasicBlock


class ResNet18(torchvision.models.ResNet):  # type: ignore[misc]  # torchvision has no types
    """512-dimensional embeddings, 11,176,512 parameters; for photos

    torchvision's without its head: float images [n, 3, h, w] -> embeddings [n, 512]
    """

    dim = 512
    imagenet: str = ResNet18_Weights.IMAGENET1K_V1.url

    def __init__(self) -> None:
        super().__init__(BasicBlock, [2, 2, 2, 2])
        self.fc = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.avgpool(self.spatial(x)).flatten(1)

    def spatial(self, x: Tensor) -> Tensor:
        """The features before pooling: [n, 3, h, w] -> [n, 512, h / 32, w / 32], rounded up"""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        return self.layer4(self.layer3(self.layer2(self.layer1(x))))
