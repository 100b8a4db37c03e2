"""The standard ResNet18, as the benchmark uses it for images of 84 and 224 pixels, and its form for 32 pixels."""

from __future__ import annotations

import torchvision
from torch import Tensor, nn
from torchvision.models import ResNet18_Weights
from torchvision.models.resnet import BasicBlock


class Headless(torchvision.models.ResNet):  # type: ignore[misc]  # torchvision has no types
    """torchvision's ResNet18 without its head: float images [n, 3, h, w] -> embeddings [n, 512]"""

    dim = 512

    def __init__(self) -> None:
        super().__init__(BasicBlock, [2, 2, 2, 2])
        self.fc = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.avgpool(self.spatial(x)).flatten(1)

    def spatial(self, x: Tensor) -> Tensor:
        """The features before pooling: [n, 3, h, w] -> [n, 512, h', w']"""
        return self.layer4(self.layer3(self.first(x)))

    def first(self, x: Tensor) -> Tensor:
        """Two of the four stages: [n, 3, h, w] -> [n, 128, 2h', 2w']"""
        return self.layer2(self.layer1(self.maxpool(self.relu(self.bn1(self.conv1(x))))))

    def second(self, x: Tensor) -> Tensor:
        """The other two, and pooling: -> [n, 512]"""
        return self.avgpool(self.layer4(self.layer3(x))).flatten(1)


class ResNet18(Headless):
    """512 dimensions, 11,176,512 parameters; for photos

    Spatial features are [n, 512, h / 32, w / 32], rounded up.
    """

    imagenet: str = ResNet18_Weights.IMAGENET1K_V1.url


class ResNet18For32(Headless):
    """512 dimensions, 11,168,832 parameters; for small images, 32 px

    The usual stem leaves a 1 x 1 map of 32 pixels; this one keeps their resolution. Nobody publishes ImageNet weights
    for it. Spatial features are [n, 512, h / 8, w / 8], rounded up.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        nn.init.kaiming_normal_(self.conv1.weight, mode="fan_out", nonlinearity="relu")  # as torchvision does
        self.maxpool = nn.Identity()
