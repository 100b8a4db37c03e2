"""Batched augmentations on the training device: crop, flip, AutoAugment, cutout."""

from fscil.augment.pipeline import AUGMENTATIONS, CROPS, Augment, build

__all__ = ["AUGMENTATIONS", "CROPS", "Augment", "build"]
