"""Batched augmentations on the training device: crop, flip, AutoAugment, cutout."""

from fscil.augment.draws import keys_for, shuffled
from fscil.augment.pipeline import AUGMENTATIONS, CROPS, Augment, build

__all__ = ["AUGMENTATIONS", "CROPS", "Augment", "build", "keys_for", "shuffled"]
