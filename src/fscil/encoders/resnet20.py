"""The CIFAR ResNet20 of the benchmark: 3 stages of 3 basic blocks, 16-32-64 channels, 1x1 convolutions as shortcuts."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from fscil.kernels.convolution import Conv2d
from fscil.kernels.fused_norm import norm_relu


def conv3x3(channels_in: int, channels_out: int, stride: int = 1) -> nn.Conv2d:
    return Conv2d(channels_in, channels_out, 3, stride, padding=1)


class BasicBlock(nn.Module):
    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3x3(channels_in, channels_out, stride), nn.BatchNorm2d(channels_out)
        self.conv2, self.bn2 = conv3x3(channels_out, channels_out), nn.BatchNorm2d(channels_out)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            projection = Conv2d(channels_in, channels_out, 1, stride)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(channels_out))

    def forward(self, x: Tensor) -> Tensor:
        y = norm_relu(self.bn1, self.conv1(x))
        return norm_relu(self.bn2, self.conv2(y), self.shortcut(x))


class ResNet20(nn.Module):
    """64 dimensions, 271,824 parameters; for small images, 32 px

    float images [n, 3, h, w] -> embeddings [n, 64]
    """

    dim = 64

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv3x3(3, 16), nn.BatchNorm2d(16))
        blocks = []
        for channels_in, channels_out, stride in [(16, 16, 1), (16, 32, 2), (32, 64, 2)]:
            blocks.append(BasicBlock(channels_in, channels_out, stride))
            blocks += [BasicBlock(channels_out, channels_out, 1) for _ in range(2)]
        self.stages = nn.Sequential(*blocks)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(self.spatial(x), 1).flatten(1)

    def spatial(self, x: Tensor) -> Tensor:
        """The features before pooling: [n, 3, h, w] -> [n, 64, h / 4, w / 4], rounded up"""
        conv, bn = self.stem
        return self.stages(norm_relu(bn, conv(x)))

    def first(self, x: Tensor) -> Tensor:
        """Two of the three stages: [n, 3, h, w] -> [n, 32, h / 2, w / 2], rounded up"""
        conv, bn = self.stem
        return self.stages[:6](norm_relu(bn, conv(x)))

    def second(self, x: Tensor) -> Tensor:
        """The last stage and pooling: -> [n, 64]"""
        return F.adaptive_avg_pool2d(self.stages[6:](x), 1).flatten(1)
