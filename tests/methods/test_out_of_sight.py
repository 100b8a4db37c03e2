"""A method sees the images of a session while it learns it, not before and not later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from torch import Tensor

from fscil import api, methods
from fscil.benchmark import Session
from fscil.errors import UserError


class Peeking(methods.get("decoupled-cosine")):  # type: ignore[misc]
    """Trains on what has not arrived yet."""

    def check_sessions(self, sessions: Sequence[Session]) -> None:
        self.peeked = self.look(sessions[1].images)

    @staticmethod
    def look(images: Tensor) -> Tensor:
        return images[0]


@pytest.mark.parametrize(
    "look", [lambda images: images[0], lambda images: images.float(), lambda images: list(images)], ids=range(3)
)
def test_who_asks_for_images_that_have_not_arrived_is_refused(
    look: Callable[[Tensor], object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(methods.METHODS, "decoupled-cosine", Peeking)
    monkeypatch.setattr(Peeking, "look", staticmethod(look))
    with pytest.raises(UserError, match="images of a session can be seen when it is learned, not before"):
        api.run("decoupled-cosine", "digits", epochs=1, out=tmp_path / "run", device="cpu")


class Hoarding(methods.get("decoupled-cosine")):  # type: ignore[misc]
    """Keeps a session beyond its memory, which is none, and goes back to it."""

    def learn_base(self, session: Session) -> None:
        super().learn_base(session)
        self.kept = session

    def learn_session(self, session: Session) -> None:
        super().learn_session(session)
        assert session.images[0].shape == session.images.shape[1:]
        self.kept.images[0]


def test_who_asks_for_images_of_an_earlier_session_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(methods.METHODS, "decoupled-cosine", Hoarding)
    with pytest.raises(UserError, match=r"while it is learned, not later; keep exemplars in self\.memory"):
        api.run("decoupled-cosine", "digits", epochs=1, out=tmp_path / "run", device="cpu")
