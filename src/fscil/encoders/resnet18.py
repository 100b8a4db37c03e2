"""The standard ResNet18, as the benchmark uses it for images of 84 and 224 pixels, and its form for 32 pixels.

Parts, their names and the order in which weights are drawn are torchvision's, whose published weights fit; a test
compares them bit by bit. torchvision itself would take longer to import than all the rest.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class BasicBlock(nn.Module):
    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        shortcut = None
        if stride != 1 or channels_in != channels_out:
            projection = nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)
            shortcut = nn.Sequential(projection, nn.BatchNorm2d(channels_out))
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.downsample = shortcut

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += x if self.downsample is None else self.downsample(x)
        return F.relu(y, inplace=True)


class Headless(nn.Module):
    """ResNet18 without its head: float images [n, 3, h, w] -> embeddings [n, 512]"""

    dim = 512

    def __init__(self) -> None:
        super().__init__()
        self.conv1: nn.Module = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool: nn.Module = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1, self.layer2 = stage(64, 64, stride=1), stage(64, 128, stride=2)
        self.layer3, self.layer4 = stage(128, 256, stride=2), stage(256, 512, stride=2)
        nn.Linear(512, 1000)  # the head, which draws weights here, too
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))

    def spatial(self, x: Tensor) -> Tensor:
        """The features before pooling: [n, 3, h, w] -> [n, 512, h', w']"""
        return self.layer4(self.layer3(self.first(x)))

    def first(self, x: Tensor) -> Tensor:
        """Two of the four stages: [n, 3, h, w] -> [n, 128, 2h', 2w']"""
        return self.layer2(self.layer1(self.maxpool(F.relu(self.bn1(self.conv1(x)), inplace=True))))

    def second(self, x: Tensor) -> Tensor:
        """The other two, and pooling: -> [n, 512]"""
        return F.adaptive_avg_pool2d(self.layer4(self.layer3(x)), 1).flatten(1)


def stage(channels_in: int, channels_out: int, stride: int) -> nn.Sequential:
    return nn.Sequential(BasicBlock(channels_in, channels_out, stride), BasicBlock(channels_out, channels_out, 1))


class ResNet18(Headless):
    """512 dimensions, 11,176,512 parameters; for photos

    Spatial features are [n, 512, h / 32, w / 32], rounded up.
    """

    imagenet: str = "https://download.pytorch.org/models/resnet18-f37072fd.pth"


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
