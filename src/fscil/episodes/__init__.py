"""Fake incremental tasks (Algorithm 1), and their images or embeddings, which meta-training learns from."""

from __future__ import annotations

from fscil.episodes.checks import check_tasks
from fscil.episodes.embedding_tasks import EmbeddingTasks
from fscil.episodes.image_tasks import ImageTasks
from fscil.episodes.layout import images_of_step, query_labels, sizes
from fscil.episodes.new_classes import KINDS
from fscil.episodes.tasks import FakeTasks, TaskShape, class_members, sample_fake_tasks

__all__ = [
    "KINDS", "EmbeddingTasks", "FakeTasks", "ImageTasks", "TaskShape", "check_tasks", "class_members", "images_of_step",
    "query_labels", "sample_fake_tasks", "sizes",
]  # fmt: skip
