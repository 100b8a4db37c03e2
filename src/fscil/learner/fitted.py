"""Fitted: what fit has done and how well its model does, for people, programs and the model's card."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fscil.learner.choosing import Choice, Chosen
from fscil.learner.plan import Plan
from fscil.naming import printable
from fscil.progress import duration

if TYPE_CHECKING:
    from fscil.learner.learner import Learner


@dataclass(frozen=True)
class Fitted:
    """What fit has done, and how well its model does. Accuracies are in percent."""

    learner: Learner = field(repr=False, compare=False)
    plan: Plan
    choices: tuple[Choice, ...]
    accuracy: float | None  # of held-out photos, before they were learned; None: there were none
    taught_accuracy: float | None  # the same with a third of the classes taught from five photos each
    test_accuracy: float | None  # of photos in test/
    left_out: tuple[str, ...]  # what was bad
    seconds: float
    sentences: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON, without the learner."""
        plain = ("accuracy", "taught_accuracy", "test_accuracy", "left_out", "seconds", "sentences")
        return {
            "plan": self.plan.as_dict(),
            "choices": [asdict(choice) for choice in self.choices],
            **{name: getattr(self, name) for name in plain},
        }

    def __str__(self) -> str:
        return "\n".join(self.sentences)


def told(
    plan: Plan, chosen: Chosen, test: float | None, test_photos: int, bad: tuple[str, ...], seconds: float
) -> tuple[str, ...]:
    said = [plan.sentences[0], *(choice.sentence for choice in chosen.choices)]
    if chosen.accuracy is not None:
        said.append(
            f"Of photos that it had not seen, {chosen.accuracy:.1f} % were recognised among {plan.classes} classes."
        )
    if chosen.verdict is not None and chosen.verdict.taught is not None:
        said.append(
            f"With a third of the classes taught from five photos each instead, {chosen.verdict.taught:.1f} % were."
        )
    if test is not None:
        said.append(f"Of the {test_photos} photos in test/, {test:.1f} % are recognised.")
    if bad:
        said.append(f"Left out: {'; '.join(bad[:5])}{f' and {len(bad) - 5} more' if len(bad) > 5 else ''}.")
    said.append(f"All photos were learned; it took {duration(seconds)}.")
    return tuple(said)


def card(fitted: Fitted, folder: str | os.PathLike[str]) -> str:
    """How the model was made, and what was measured."""
    said = "\n".join(f"- {printable(sentence)}" for sentence in fitted.sentences)
    spec = fitted.learner._knowledge.model.spec
    return f"""---
library_name: fscil
tags: [few-shot-class-incremental-learning, image-classification]
---
# {printable(Path(folder).absolute().name)}

A classifier over {fitted.plan.classes} classes, learned from {fitted.plan.photos} photos; further ones can be taught
from a handful of photos each.

```python
from fscil import Learner

learner = Learner.load("PATH OF THIS FOLDER")
learner.predict("photo.jpg")
learner.teach("another class", ["a.jpg", "b.jpg"])
```

{said}

The encoder is {spec.encoder}, which started from {spec.weights}. It sees the central {spec.input_size} of
{spec.stored_size} pixels a side. `classes.safetensors` holds embeddings of held-out photos, by which confidence and
unknown are measured, and those of photos that are taught later, but no photos.
"""
