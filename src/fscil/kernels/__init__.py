"""Triton kernels for what fills a training step of ResNet20 on a GPU, and the layers that use them where they can."""
