from __future__ import annotations

import json
from pathlib import Path

from fscil.methods.limit import Limit
from results import epochs


def test_every_epoch_is_tested_and_the_last_one_is_the_run(tiny_dataset: str, tmp_path: Path) -> None:
    refresh = Limit.refresh
    settings = "refresh_every=2 augmented_steps=2 meta_steps=6 meta_milestones= fake_way=2 encoder_lr=0.001 epochs=2"
    words = f"{tmp_path} --benchmark {tiny_dataset} --device cpu --seeds 1 2 --set {settings}"
    epochs.main(words.split())
    found = json.loads((tmp_path / "epochs.json").read_text())["accuracy"]
    assert list(found) == ["1", "2"]
    for seed, its in found.items():
        assert len(its) == 3
        result = json.loads((tmp_path / f"limit-released-seed{seed}" / "result.json").read_text())
        assert its[-1] == [round(accuracy, 2) for accuracy in result["accuracy"]]
    assert Limit.refresh is refresh
