from __future__ import annotations

import math

import torch
from torch import Tensor

from fscil.calibrators import Virtual


def test_answers_go_directly_and_by_way_of_virtual_prototypes() -> None:
    """(1 - eta) p(i | q) + eta sum_v p(v | q) p(i | v), one number after the other in float64"""
    torch.manual_seed(3)
    rows, queries = torch.randn(4, 6), torch.randn(3, 6)
    calibrator = Virtual(6, virtual=5, scale=7.0, eta=0.3)
    found = calibrator.predict(rows, queries).exp()

    def chances(x: torch.Tensor, among: torch.Tensor) -> list[float]:
        x, among = x.double(), among.detach().double()
        scores = [math.exp(7 * float(x @ each) / float(x.norm() * each.norm())) for each in among]
        return [score / sum(scores) for score in scores]

    for q, query in enumerate(queries):
        direct, virtual = chances(query, rows), chances(query, calibrator.prototypes)
        for i in range(4):
            onwards = [chances(each.detach(), rows)[i] for each in calibrator.prototypes]
            indirect = sum(p * onward for p, onward in zip(virtual, onwards, strict=True))
            assert math.isclose(float(found[q, i]), 0.7 * direct[i] + 0.3 * indirect, rel_tol=1e-4)
    assert torch.allclose(found.sum(1), torch.ones(3))


def test_virtual_prototypes_start_orthogonal() -> None:
    prototypes = Virtual(8, virtual=5).prototypes
    assert torch.allclose(prototypes @ prototypes.T, torch.eye(5), atol=1e-5)


def test_virtual_prototypes_start_alike_however_many_threads_there_are() -> None:
    def start(threads: int) -> Tensor:
        torch.set_num_threads(threads)
        torch.manual_seed(3)
        return Virtual(512, virtual=100).prototypes

    before = torch.get_num_threads()
    try:
        assert torch.equal(start(1), start(2))
    finally:
        torch.set_num_threads(before)
