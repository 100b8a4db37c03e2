from __future__ import annotations

import torch

from fscil.datasets import digits


def test_shapes_and_protocol() -> None:
    benchmark = digits.load(digits.DigitsOptions())
    assert [len(session.classes) for session in benchmark.sessions] == [4, 2, 2, 2]
    assert [len(session.labels) for session in benchmark.sessions] == [479, 10, 10, 10]
    assert benchmark.test_images.shape == (602, 3, 32, 32)
    assert benchmark.test_images.dtype == torch.uint8
    assert benchmark.test_images.max() == 255
    assert len(benchmark.test_labels.unique()) == 10
    assert benchmark.class_names == tuple("0123456789")


def test_the_pictures_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits

    benchmark = digits.load(digits.DigitsOptions())
    source = load_digits()
    zero = benchmark.sessions[0].images[0]  # row 0 is a zero and comes first
    assert source.target[0] == 0
    small = torch.nn.functional.avg_pool2d(zero[:1].float()[None], 4)[0, 0] / 255
    assert (
        torch.corrcoef(torch.stack([small.flatten(), torch.from_numpy(source.images[0]).float().flatten()]))[0, 1] > 0.9
    )


def test_trials_draw_other_shots_and_the_same_base() -> None:
    one, again, two = (digits.load(digits.DigitsOptions(trial=trial)) for trial in (1, 1, 2))
    assert one.split_checksum == again.split_checksum != two.split_checksum
    assert torch.equal(one.test_images, two.test_images)
    assert torch.equal(one.sessions[0].images, two.sessions[0].images)
    assert not torch.equal(one.sessions[1].images, two.sessions[1].images)


def test_verify_and_prepare_need_no_root() -> None:
    assert all(line.startswith("ok: ") for line in digits.verify(None))
    assert "nothing to prepare" in digits.prepare(None)
