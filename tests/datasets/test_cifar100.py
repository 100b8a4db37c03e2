from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import torch

from fscil.benchmark import checksum
from fscil.datasets import cifar100, data_root
from fscil.errors import UserError

Options = cifar100.Cifar100Options


@pytest.fixture(scope="module")
def real_root() -> Path:
    root = data_root(None)
    if root is None or not (root / "cifar-100-python" / "train").is_file():
        pytest.skip("needs cifar-100-python under FSCIL_DATA")
    return root


@pytest.fixture
def fake_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the right form but fewer images, nearly all black, with labels in turn."""
    monkeypatch.setattr(cifar100, "PER_CLASS", {"train": 20, "test": 4})
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    dump(folder / "train", part(2000))
    dump(folder / "test", part(400))
    dump(folder / "meta", {"fine_label_names": [f"class {i}" for i in range(100)]})
    return tmp_path


def part(rows: int) -> dict[str, Any]:
    pixels = np.zeros((rows, 3072), np.uint8)
    pixels[:, 0] = np.arange(rows) % 251  # the first red pixel
    pixels[:, 1024 + 33] = 7  # green, row 1, column 1
    return {"data": pixels, "fine_labels": [i % 100 for i in range(rows)]}


def dump(path: Path, content: object) -> None:
    path.write_bytes(pickle.dumps(content, protocol=4))


@pytest.mark.slow
def test_real_data_gives_the_published_sessions(real_root: Path) -> None:
    benchmark = cifar100.load(Options(), real_root)
    assert [len(session.labels) for session in benchmark.sessions] == [30_000] + [25] * 8
    assert benchmark.split_checksum == checksum(cifar100.SESSION_CHECKSUMS)
    assert benchmark.test_images.shape == (10_000, 3, 32, 32)
    assert (benchmark.class_names[0], benchmark.class_names[99]) == ("apple", "worm")
    pixels = benchmark.sessions[0].images.double() / 255
    assert benchmark.mean == pytest.approx(pixels.mean((0, 2, 3)).tolist(), rel=1e-12)
    assert benchmark.std == pytest.approx(pixels.std((0, 2, 3), correction=0).tolist(), rel=1e-12)
    second = cifar100.load(Options(trial=2), real_root)
    assert second.split_checksum != benchmark.split_checksum
    assert torch.equal(second.sessions[0].labels, benchmark.sessions[0].labels)


def test_real_data_is_verified_session_by_session(real_root: Path) -> None:
    lines = cifar100.verify(real_root)
    for i, published in enumerate(cifar100.SESSION_CHECKSUMS):
        assert f"ok: session {i} is the published one ({published})" in lines


def test_images_are_channels_rows_columns(fake_root: Path) -> None:
    benchmark = cifar100.load(Options(), fake_root)
    image = benchmark.sessions[0].images[3]
    assert image[0, 0, 0] == 3
    assert image[1, 1, 1] == 7
    assert int(image.sum()) == 10
    assert benchmark.test(0)[1].bincount().tolist() == [4] * 60
    benchmark.test_images[0] = 0  # a copy that can be written to


def test_images_are_normalised_by_the_base_session(fake_root: Path) -> None:
    folder, before = fake_root / "cifar-100-python", cifar100.load(Options(), fake_root)
    pixels = before.sessions[0].images.numpy() / 255
    assert before.mean == pytest.approx(pixels.mean((0, 2, 3)).tolist())
    assert before.std[0] == pytest.approx(pixels[:, 0].std())  # green and blue hardly vary
    train, test = part(2000), part(400)
    train["data"][60::100] = 200  # a class of the first session
    test["data"][:] = 100
    dump(folder / "train", train)
    dump(folder / "test", test)
    after = cifar100.load(Options(), fake_root)
    assert (after.mean, after.std) == (before.mean, before.std)


def test_unofficial_files_are_used_with_a_warning(fake_root: Path) -> None:
    warnings = cifar100.load(Options(), fake_root).warnings
    for name in ("train", "test", "meta"):
        assert any(f"cifar-100-python/{name} is not byte-identical to the official file" in line for line in warnings)
    assert any("sessions differ" in line for line in warnings)
    lines = cifar100.verify(fake_root)
    assert sum(line.startswith("warning: session") for line in lines) == 9
    assert sum("byte-identical" in line for line in lines) == 3


def test_official_files_bring_no_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("train", "test", "meta"):
        (tmp_path / name).write_bytes(b"abc")
    monkeypatch.setattr(
        cifar100, "OFFICIAL_MD5", dict.fromkeys(["train", "test", "meta"], "900150983cd24fb0d6963f7d28e17f72")
    )
    assert cifar100.unofficial_files(tmp_path) == []


def test_trial_1_is_the_standard_draw() -> None:
    labels = np.repeat(np.arange(100), 500)
    standard = cifar100.session_checksums(labels)
    rows = [60 * 500 + 500 * c + i for c in range(5) for i in (304, 340, 47, 67, 479)]
    assert standard[1] == checksum(sorted(rows))
    second = cifar100.session_checksums(labels, trial=2)
    assert second[0] == standard[0]
    assert all(a != b for a, b in zip(standard[1:], second[1:], strict=True))


def test_a_payload_in_a_dataset_file_is_refused(tmp_path: Path) -> None:
    class Payload:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, (f"touch {tmp_path / 'was_run'}",)

    dump(tmp_path / "meta", {"fine_label_names": Payload()})
    with pytest.raises(UserError, match=r"meta is damaged or not a CIFAR-100 file.*system"):
        cifar100.read_names(tmp_path / "meta")
    assert not (tmp_path / "was_run").exists()


def spoil_shape(content: dict[str, Any]) -> None:
    content["data"] = content["data"][:, :3000]


def spoil_type(content: dict[str, Any]) -> None:
    content["data"] = content["data"].astype(np.int16)


def spoil_count(content: dict[str, Any]) -> None:
    content["fine_labels"] = content["fine_labels"][:-1]


def spoil_balance(content: dict[str, Any]) -> None:
    content["fine_labels"][0] = 1


def spoil_range(content: dict[str, Any]) -> None:
    content["fine_labels"][0] = 100


def spoil_kind(content: dict[str, Any]) -> None:
    content["fine_labels"][0] = "apple"


def spoil_labels(content: dict[str, Any]) -> None:
    del content["fine_labels"]


@pytest.mark.parametrize(
    "spoil", [spoil_shape, spoil_type, spoil_count, spoil_balance, spoil_range, spoil_kind, spoil_labels]
)
def test_wrong_content_is_one_clear_line(tmp_path: Path, spoil: Callable[[dict[str, Any]], None]) -> None:
    content = part(200)
    dump(tmp_path / "test", content)
    assert len(cifar100.read_part(tmp_path / "test", 2)[1]) == 200
    spoil(content)
    dump(tmp_path / "test", content)
    with pytest.raises(UserError, match=r"^cifar100: .*test .*fscil data prepare cifar100"):
        cifar100.read_part(tmp_path / "test", 2)


@pytest.mark.parametrize("keep", [0, 10, 1000, -1])
def test_truncated_files_are_one_clear_line(tmp_path: Path, keep: int) -> None:
    dump(tmp_path / "test", part(200))
    whole = (tmp_path / "test").read_bytes()
    (tmp_path / "test").write_bytes(whole[:keep])
    with pytest.raises(UserError, match="damaged"):
        cifar100.read_part(tmp_path / "test", 2)


@pytest.mark.parametrize(
    "names",
    [
        ["a"] * 100,
        [f"{i}" for i in range(99)],
        [f"{i % 100}" for i in range(101)],
        "abc",
        list(range(100)),
        [10**5000, *map(str, range(99))],
        [["a"], *map(str, range(99))],
    ],
)
def test_class_names_must_be_a_hundred(tmp_path: Path, names: object) -> None:
    dump(tmp_path / "meta", {"fine_label_names": names})
    with pytest.raises(UserError, match="meta"):
        cifar100.read_names(tmp_path / "meta")


def test_missing_data_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no data folder.*torchvision\.datasets\.CIFAR100.*FSCIL_DATA"):
        cifar100.load(Options(), None)
    with pytest.raises(UserError, match=r"lacks train, test, meta.*torchvision"):
        cifar100.load(Options(), tmp_path)


def test_class_names_can_be_written_into_results(tmp_path: Path) -> None:
    dump(tmp_path / "meta", {"fine_label_names": ["\ud800", b"\xff", *map(str, range(98))]})
    names = cifar100.read_names(tmp_path / "meta")
    assert len(names) == 100
    "".join(names).encode()


def test_prepare_without_network_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Offline:
        tgz_md5 = "0"

        def __init__(self, *_: object, **__: object) -> None:
            raise URLError("no route to host")

    monkeypatch.setattr("torchvision.datasets.CIFAR100", Offline)
    with pytest.raises(UserError, match=r"download failed.*no route to host.*cifar-100-python") as caught:
        cifar100.prepare(tmp_path / "new")
    assert "\n" not in str(caught.value)


def test_prepare_downloads_into_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr("torchvision.datasets.CIFAR100", lambda root, download: calls.append((root, download)))
    assert str(tmp_path / "cifar-100-python") in cifar100.prepare(tmp_path)
    assert calls == [(str(tmp_path), True)]


def test_prepare_names_a_truncated_archive(tmp_path: Path) -> None:
    (tmp_path / "cifar-100-python.tar.gz").write_bytes(b"\x1f\x8b and then nothing")
    with pytest.raises(UserError, match=r"cifar-100-python\.tar\.gz is damaged or incomplete; delete it"):
        cifar100.prepare(tmp_path)


def test_prepare_leaves_present_files_alone(fake_root: Path) -> None:
    assert "nothing to do" in cifar100.prepare(fake_root)


def test_prepare_makes_no_folder_for_a_user_who_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="~nosuchuser is nobody's home"):
        cifar100.prepare(data_root(Path("~nosuchuser")))
    assert list(tmp_path.iterdir()) == []
