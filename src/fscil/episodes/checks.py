"""Fake tasks that the base session cannot provide are refused in one line, before any training."""

from __future__ import annotations

import math

import torch

from fscil.benchmark import Session
from fscil.distributed import check_step_size
from fscil.episodes.layout import sizes
from fscil.episodes.tasks import TaskShape
from fscil.errors import CannotLearn


def check_tasks(shape: TaskShape, session: Session, *, encoder_learns: bool) -> None:
    kind, base_classes = shape.kind, len(session.classes)
    if min(shape.phases, shape.way, shape.shot, shape.queries) < 1:
        raise CannotLearn("fake_phases, fake_way, fake_shot and fake_queries must all be at least 1")
    # if the parents' rows leave the classifier, at least one base class must stay
    needed = shape.way * shape.phases * kind.parents + (not kind.base_rows_stay)
    if needed > base_classes:
        raise CannotLearn(
            f"fake tasks of {shape.phases} phases x {shape.way}-way need {needed} base classes, but there are "
            f"{base_classes}; lower fake_way or fake_phases, for instance fake_way=1"
        )
    fewest = int(torch.bincount(session.labels, minlength=base_classes).min())
    if fewest < shape.shot + shape.queries:
        raise CannotLearn(
            f"a fake task needs {shape.shot} shots and {shape.queries} queries of a class, but one base class has "
            f"{fewest} images; lower fake_shot or fake_queries"
        )
    if kind.turned:
        check_square(session, f"fake_classes={kind.name}", "set fake_classes=base or fake_classes=mixed")
    if encoder_learns:
        check_step_size(sum(sizes(shape, base_classes)), "a fake task", "raise fake_way, fake_shot or fake_queries")
    elif kind.parents > 1:
        # h images of each parent make h * h different blends, so the square root is enough
        half, needed = fewest // 2, max(shape.queries, math.isqrt(shape.shot + shape.queries - 1) + 1, 2)
        if half < needed:
            raise CannotLearn(
                f"blended fake classes take half of a base class's images, here {half}, but {shape.shot} shots and "
                f"{shape.queries} queries need {needed}; set fake_classes=base or lower fake_shot and fake_queries"
            )


def check_square(session: Session, what: str, remedy: str) -> None:
    height, width = session.images.shape[-2:]
    if height != width:
        raise CannotLearn(
            f"{what} turns images by 90 degrees, so they must be square, but these have {height} x {width} pixels; "
            f"{remedy}"
        )
