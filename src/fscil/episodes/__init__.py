"""Fake incremental tasks (Algorithm 1), CEC's pseudo-incremental ones, and the images or embeddings of both."""

from __future__ import annotations

from fscil.episodes.checks import check_tasks
from fscil.episodes.embedding_tasks import EmbeddingTasks
from fscil.episodes.image_tasks import ImageTasks
from fscil.episodes.layout import images_of_step, query_labels, sizes
from fscil.episodes.new_classes import KINDS
from fscil.episodes.pseudo_tasks import (
    PseudoEmbeddingTasks,
    PseudoImageTasks,
    PseudoShape,
    check_pseudo_tasks,
    sample_pseudo_tasks,
)
from fscil.episodes.tasks import FakeTasks, TaskShape, class_members, draw_images, sample_fake_tasks

__all__ = [
    "KINDS", "EmbeddingTasks", "FakeTasks", "ImageTasks", "PseudoEmbeddingTasks", "PseudoImageTasks", "PseudoShape",
    "TaskShape", "check_pseudo_tasks", "check_tasks", "class_members", "draw_images", "images_of_step", "query_labels",
    "sample_fake_tasks", "sample_pseudo_tasks", "sizes",
]  # fmt: skip
