"""LIMIT's fake tasks (FIT) against CEC's pseudo-incremental ones (PIL): the cost of a step's data.

As on CIFAR100: 60 base classes of 500 images, either sampler with the sizes of its own method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from benchmarks.figures import Figure, seconds, wait
from fscil import augment
from fscil.benchmark import Session
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

CLASSES, OF_CLASS = 60, 500
FIT = TaskShape(phases=2, way=5, shot=5, queries=2)  # of limit on most benchmarks
PIL = PseudoShape(way=15, shot=1, queries=15)  # of cec
STEPS = 10


def session_on(device: str) -> Session:
    n = CLASSES * OF_CLASS
    images = torch.randint(0, 256, (n, 3, 32, 32), dtype=torch.uint8, device=device)
    return Session(tuple(range(CLASSES)), images, torch.arange(n, device=device) % CLASSES)


def draws(session: Session) -> tuple[Callable[[], object], Callable[[], object]]:
    """Which images each task has, alone."""
    members, counts = class_members(session.labels, CLASSES)
    generator = torch.Generator(members.device).manual_seed(1)
    return (
        lambda: sample_fake_tasks(members, counts, FIT, STEPS, generator),
        lambda: sample_pseudo_tasks(members, counts, PIL, STEPS, generator),
    )


def images(session: Session) -> tuple[Callable[[], object], Callable[[], object]]:
    """The augmented images, too."""
    augmentation = augment.build("basic", size=32)
    fake, pseudo = ImageTasks(session, FIT, augmentation), PseudoImageTasks(session, PIL, augmentation)
    return lambda: fake.sample(STEPS, 1), lambda: pseudo.sample(STEPS, 1)


def measure(repeat: int = 5) -> Iterator[Figure]:
    items = {"FIT": sum(sizes(FIT, CLASSES)), "PIL": 2 * PIL.images}
    for device in ("cpu", *(["cuda"] if torch.cuda.is_available() else [])):
        session = session_on(device)
        wait()
        for what, (fit, pil) in (("drawing", draws(session)), ("drawing and augmenting", images(session))):
            ms = {"FIT": 1000 * seconds(fit, repeat) / STEPS, "PIL": 1000 * seconds(pil, repeat) / STEPS}
            measured = {f"{name}, ms a task": value for name, value in ms.items()}
            yield Figure(f"{what} FIT over PIL, {device}, a task", ms["FIT"] / ms["PIL"], "times the time", measured)
            each = {name: 1000 * ms[name] / items[name] for name in ms}
            measured = {f"{name}, us an item of {items[name]}": value for name, value in each.items()}
            ratio = each["FIT"] / each["PIL"]
            yield Figure(f"{what} FIT over PIL, {device}, an item", ratio, "times the time", measured)
