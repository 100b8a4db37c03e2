"""LIMIT's fake tasks (FIT) against CEC's pseudo-incremental ones (PIL): the cost of a step's data.

As on CIFAR100: 60 base classes of 500 images, each task with the sizes that its preset has there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from benchmarks.figures import Figure, seconds, wait
from fscil import augment
from fscil.benchmark import Session
from fscil.config import resolve
from fscil.episodes import (
    ImageTasks,
    PseudoImageTasks,
    PseudoShape,
    TaskShape,
    class_members,
    sample_fake_tasks,
    sample_pseudo_tasks,
    sizes,
)
from fscil.methods.fake_tasks import fake_shape, pseudo_shape

CLASSES, OF_CLASS = 60, 500
FIT = ("limit", "limit-paper")  # presets with fake tasks
STEPS = 10


def session_on(device: str) -> Session:
    n = CLASSES * OF_CLASS
    images = torch.randint(0, 256, (n, 3, 32, 32), dtype=torch.uint8, device=device)
    return Session(tuple(range(CLASSES)), images, torch.arange(n, device=device) % CLASSES)


def shapes(name: str) -> tuple[TaskShape, PseudoShape]:
    """Of the preset's fake tasks and of CEC's pseudo-incremental ones."""
    fake, pseudo = (resolve(each, "cifar100").method_settings() for each in (name, "cec"))
    return fake_shape(fake), pseudo_shape(pseudo)


def draws(session: Session, fit: TaskShape, pil: PseudoShape) -> tuple[Callable[[], object], Callable[[], object]]:
    """Which images each task has, alone."""
    members, counts = class_members(session.labels, CLASSES)
    generator = torch.Generator(members.device).manual_seed(1)
    return (
        lambda: sample_fake_tasks(members, counts, fit, STEPS, generator),
        lambda: sample_pseudo_tasks(members, counts, pil, STEPS, generator),
    )


def images(session: Session, fit: TaskShape, pil: PseudoShape) -> tuple[Callable[[], object], Callable[[], object]]:
    """The augmented images, too."""
    augmentation = augment.build("basic", size=32)
    fake, pseudo = ImageTasks(session, fit, augmentation), PseudoImageTasks(session, pil, augmentation)
    return lambda: fake.sample(STEPS, 1), lambda: pseudo.sample(STEPS, 1)


def measure(repeat: int = 5) -> Iterator[Figure]:
    for device in ("cpu", *(["cuda"] if torch.cuda.is_available() else [])):
        session = session_on(device)
        wait()
        for name in FIT:
            fit, pil = shapes(name)
            items = {"FIT": sum(sizes(fit, CLASSES)), "PIL": 2 * pil.images}
            for what, tasks in (("drawing", draws), ("drawing and augmenting", images)):
                taken = zip(items, tasks(session, fit, pil), strict=True)
                ms = {key: 1000 * seconds(each, repeat) / STEPS for key, each in taken}
                measured = {f"{key}, ms a task": value for key, value in ms.items()}
                title = f"{what} FIT of {name} over PIL, {device}"
                yield Figure(f"{title}, a task", ms["FIT"] / ms["PIL"], "times the time", measured)
                each = {key: 1000 * ms[key] / items[key] for key in ms}
                measured = {f"{key}, us an item of {items[key]}": value for key, value in each.items()}
                yield Figure(f"{title}, an item", each["FIT"] / each["PIL"], "times the time", measured)
