"""Triton kernels for much of a ResNet20 training step on a GPU, and the layers that use them where possible."""
