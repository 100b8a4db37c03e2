"""Two processes, each as on its own machine."""

from __future__ import annotations

import json
from typing import Any

import jobs
import machine_jobs
import pytest

pytestmark = pytest.mark.slow

Found = list[dict[str, Any]]  # by process


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder = tmp_path_factory.mktemp("machines")
    for rank in (0, 1):
        for other in machine_jobs.OTHER_PICTURES:
            tree = machine_jobs.copies(folder / str(rank), other)
            if rank == 1:
                machine_jobs.change(tree, other)
    jobs.together(machine_jobs.everything, folder, meeting=folder / "meeting")
    return [json.loads((folder / f"found-{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("stream", ["never", "always"])
@pytest.mark.parametrize(
    ("other", "named"),
    [("the test set", "test set"), ("other trials", "pool of later classes"), ("the base session", "session 0")],
)
def test_other_pictures_of_the_same_names_are_refused(found: Found, stream: str, other: str, named: str) -> None:
    """Resident ones to the pixel, streamed ones by length."""
    said = [each["copies"][f"{stream}, {other}"] for each in found]
    assert f"process 1 has a different {named} from process 0" in said[0]
    assert said[1] == said[0]


@pytest.mark.parametrize("stream", ["never", "always"])
def test_copies_of_the_same_pictures_are_learned(found: Found, stream: str) -> None:
    """Although their files have other modification times."""
    assert [each["copies"][f"{stream}, nothing"] for each in found] == ["not refused"] * 2


def test_who_waits_for_another_run_says_so_before_the_others_give_up(found: Found) -> None:
    assert [each["waited"] for each in found] == [[0, 0.5, 0.5], []]


@pytest.mark.parametrize(("what", "images"), [("encoder", 35), ("model", 35), ("fake tasks", 15 + 10 * 9 * 2)])
def test_an_image_is_read_by_the_process_that_embeds_it(found: Found, what: str, images: int) -> None:
    assert [each["read"][what] for each in found] == [images // 2, images - images // 2]


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("session", "a session of 1 images cannot be shared by 2 processes; start fewer, or raise way or shot"),
        ("batch", "a batch of 1 images cannot be shared by 2 processes; start fewer, or raise batch"),
        ("plain batch", "a batch of 1 images cannot be shared by 2 processes; start fewer, or raise batch"),
    ],
)
def test_a_step_too_small_is_refused_before_anything_is_trained(found: Found, what: str, words: str) -> None:
    for each in found:
        said, *left_behind = each["small steps"][what]
        assert words in said
        assert not left_behind
