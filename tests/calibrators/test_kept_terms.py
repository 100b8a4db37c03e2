"""Terms kept between predictions: always those of the current rows and weights, and cheap to update."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from torch import Tensor, nn

from fscil.calibrators import Transformer, kept_terms
from tensor_sizes import TensorSizes

DIM = 6


def calibrator(dim: int = DIM, **options: float | bool) -> Transformer:
    torch.manual_seed(1)
    module = Transformer(dim, **{"cosine": True, "scale": 16.0, **options}).double().eval()
    for parameter in (module.W_FC.bias, module.layer_norm.weight, module.layer_norm.bias):
        nn.init.normal_(parameter, 0.5, 0.3)
    return module.requires_grad_(False)


def tokens(n: int, seed: int, dim: int = DIM) -> Tensor:
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class ComingAndGoing(RuleBasedStateMachine):
    """Classes are taught and forgotten in any order; predictions equal those of a fresh calibrator."""

    def __init__(self) -> None:
        super().__init__()
        self.exact = calibrator()
        self.double, self.single = copy.deepcopy(self.exact), copy.deepcopy(self.exact).float()
        self.rows, self.queries = tokens(12, 2), tokens(3, 3)

    @rule(n=st.integers(1, 4), size=st.sampled_from([0.0, 0.1, 1.0, 4.0]), seed=st.integers(0, 99))
    def teach(self, n: int, size: float, seed: int) -> None:
        self.rows = torch.cat([self.rows, size * tokens(n, seed).float().double()])

    @rule(place=st.integers(0, 999))
    def teach_the_same_again(self, place: int) -> None:
        self.rows = torch.cat([self.rows, self.rows[place % len(self.rows)][None]])

    @rule(places=st.lists(st.integers(0, 999), min_size=1, max_size=3))
    def forget(self, places: list[int]) -> None:
        gone = {place % len(self.rows) for place in places}
        if len(gone) < len(self.rows):
            self.rows = self.rows[[i for i in range(len(self.rows)) if i not in gone]]

    @invariant()
    def predictions_are_exact(self) -> None:
        exact = self.exact.attend(self.rows, self.queries)
        largest = exact.abs().max()
        assert (self.double.predict(self.rows, self.queries) - exact).abs().max() < 1e-10 * largest
        single = self.single.predict(self.rows.float(), self.queries.float())
        assert (single - exact).abs().max() < 1e-4 * largest


TestComingAndGoing = ComingAndGoing.TestCase
TestComingAndGoing.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_terms_do_not_drift() -> None:
    """After hundreds of changes the terms equal freshly built ones."""
    module, rows = calibrator(), tokens(60, 2)
    generator = torch.Generator().manual_seed(3)
    module.predict(rows, tokens(1, 4))
    for step in range(400):
        gone = int(torch.randint(len(rows), (), generator=generator))
        rows = torch.cat([rows[:gone], rows[gone + 1 :]])
        module.predict(rows, tokens(1, 4))
        rows = torch.cat([rows, 2 * tokens(1, 100 + step)])
        module.predict(rows, tokens(1, 4))
    kept, module.kept = module.kept, None
    module.predict(rows, tokens(1, 4))
    assert kept is not None
    assert module.kept is not None
    assert not torch.equal(kept.terms.A, module.kept.terms.A)  # so this test can fail: they were not rebuilt
    assert torch.allclose(kept.terms.A, module.kept.terms.A, rtol=0, atol=1e-12)
    assert torch.allclose(kept.terms.log_mass, module.kept.terms.log_mass, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dominance", [3.0, 30.0, 3000.0])
def test_forgetting_the_class_that_all_others_attend_to(dominance: float) -> None:
    """What is left of their attention is a difference of nearly equal numbers, or nothing at all."""
    module = calibrator()
    rows = tokens(40, 2)
    key = module.W_K.weight.T @ module.W_Q.weight @ rows.mean(0)
    rows = torch.cat([rows[:20], dominance * key[None] / key.norm(), rows[20:]])
    queries = tokens(3, 3)
    module.predict(rows, queries)
    rows = torch.cat([rows[:20], rows[21:]])
    exact = module.attend(rows, queries)
    assert (module.predict(rows, queries) - exact).abs().max() < 1e-10 * exact.abs().max()


def test_forgetting_bit_by_bit_what_all_others_attend_to() -> None:
    """None of the forgotten classes held nearly everything, but together they did; new ones hold next to nothing."""
    module = calibrator()
    for projection in (module.W_Q, module.W_K):
        projection.weight.copy_(torch.eye(DIM) * DIM**0.25)  # the score of two tokens is their inner product
    stay, go, come = (0.1 * tokens(n, n) for n in (10, 20, 20))
    stay[:, 0], go[:, 0] = 1.0, 1.8 * torch.arange(20, 0, -1)  # each has six times the mass of the next
    queries = tokens(3, 4)
    for gone in range(21):
        rows = torch.cat([stay, go[gone:], come[:gone]])
        found = module.predict(rows, queries)
    exact = module.attend(rows, queries)
    assert (found - exact).abs().max() < 1e-10 * exact.abs().max()


Change = Callable[[Transformer, Tensor], object]
CHANGES: dict[str, Change] = {
    "a weight, in place": lambda module, rows: module.W_Q.weight.mul_(2),
    "a weight, past autograd": lambda module, rows: module.W_K.weight.data.mul_(2),
    "one number of a weight": lambda module, rows: module.W_V.weight.data[1].__setitem__(2, 3.0),
    "a bias": lambda module, rows: module.W_FC.bias.add_(tokens(1, 5)[0]),
    "layer normalisation": lambda module, rows: module.layer_norm.weight.neg_(),
    "its bias": lambda module, rows: module.layer_norm.bias.data.zero_(),
    "its epsilon": lambda module, rows: setattr(module.layer_norm, "eps", 0.1),
    "the scale": lambda module, rows: setattr(module, "scale", 3.0),
    "the logits": lambda module, rows: setattr(module, "cosine", False),
    "the query's length": lambda module, rows: setattr(module, "query_length", True),
    "another parameter": lambda module, rows: setattr(module.W_FC, "weight", nn.Parameter(tokens(DIM, 5))),
    "a loaded state": lambda module, rows: module.load_state_dict(
        {name: tensor * 1.5 for name, tensor in module.state_dict().items()}
    ),
    "a row, in place": lambda module, rows: rows[3].mul_(2),
    "a row, past autograd": lambda module, rows: rows.data[-1].zero_(),
    "two rows exchanged": lambda module, rows: rows.copy_(rows[[1, 0, *range(2, len(rows))]]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_kept_terms_are_never_stale(change: Change) -> None:
    module, rows, queries = calibrator(), tokens(20, 2), tokens(3, 3)
    before = module.predict(rows, queries)
    change(module, rows)
    after = module.predict(rows, queries)
    assert not torch.allclose(after, before, rtol=0, atol=1e-3)
    assert torch.allclose(after, module.attend(rows, queries), rtol=0, atol=1e-10)


@pytest.mark.parametrize("dim", [66, 67])
@pytest.mark.parametrize("place", [0, -1])
def test_one_number_is_noticed_wherever_it_stands(dim: int, place: int) -> None:
    module, rows, queries = calibrator(dim).float(), tokens(100, 2, dim).float(), tokens(3, 3, dim).float()
    module.predict(rows, queries)
    for tensor in (rows, *module.parameters()):
        kept = module.kept
        tensor.data.view(-1)[place] += 0.5
        found = module.predict(rows, queries)
        assert module.kept is not kept
        assert torch.allclose(found, module.attend(rows, queries), rtol=0, atol=1e-3)
        assert module.predict(rows, queries).equal(found)


def test_a_gradient_step_is_noticed() -> None:
    module, rows, queries = calibrator().requires_grad_(), tokens(20, 2), tokens(3, 3)
    before = module.predict(rows, queries)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    module(rows, queries).square().sum().backward()
    optimizer.step()
    assert not torch.allclose(module.predict(rows, queries), before, rtol=0, atol=1e-3)
    assert torch.allclose(module.predict(rows, queries), module.attend(rows, queries), rtol=0, atol=1e-10)


def test_another_precision_is_noticed() -> None:
    module, rows, queries = calibrator(), tokens(20, 2), tokens(3, 3)
    exact = module.predict(rows, queries)
    single = module.float().predict(rows.float(), queries.float())
    assert single.dtype == torch.float32
    assert torch.allclose(single.double(), exact, rtol=0, atol=1e-3)


def test_copies_go_their_own_ways() -> None:
    """As in trials: every draw of the shots starts from a copy of the base model."""
    base, rows, queries = calibrator(), tokens(20, 2), tokens(3, 3)
    base.predict(rows, queries)
    copies = [copy.deepcopy(base) for _ in range(2)]
    for seed, module in enumerate(copies):
        taught = torch.cat([rows, tokens(2, 10 + seed)])
        assert torch.allclose(module.predict(taught, queries), module.attend(taught, queries), rtol=0, atol=1e-10)
    copies[0].W_Q.weight.mul_(2)
    assert torch.allclose(base.predict(rows, queries), base.attend(rows, queries), rtol=0, atol=1e-10)


def test_the_state_to_save_is_that_of_the_weights() -> None:
    module = calibrator()
    names = set(module.state_dict())
    module.predict(tokens(20, 2), tokens(3, 3))
    assert set(module.state_dict()) == names


def test_the_next_prediction_makes_nothing_of_the_classes_again() -> None:
    module, rows, queries = calibrator(), tokens(50, 2), tokens(3, 3)
    for first in (True, False):
        with TensorSizes() as sizes:
            module.predict(rows, queries)
        assert any(shape[:1] == (50,) and numel > 50 for shape, numel in sizes.seen.items()) is first


def test_teaching_and_forgetting_take_time_linear_in_the_classes() -> None:
    """A class attends to all others and they to it; the attention among the others is not recomputed."""
    module, rows, queries = calibrator(), tokens(500, 2), tokens(1, 3)
    with TensorSizes() as sizes:
        module.predict(rows, queries)
    assert sizes.largest == 500 * 500
    taught = torch.cat([rows, tokens(2, 4)])
    forgotten = torch.cat([taught[:100], taught[101:300], taught[301:]])
    exchanged = torch.cat([forgotten[1:], tokens(1, 5)])
    for changed in (taught, forgotten, exchanged):
        with TensorSizes() as sizes:
            found = module.predict(changed, queries)
        assert sizes.largest <= 503 * DIM  # all rows and the query
        assert torch.allclose(found, module.attend(changed, queries), rtol=0, atol=1e-10)


def views(rows: Tensor) -> tuple[Tensor, ...]:
    """The same rows at an odd place of a larger tensor, with gaps, and as they are."""
    odd = torch.cat([rows.new_zeros(1), rows.flatten()])[1:].view(rows.shape)
    gaps = torch.cat([rows, rows], 1)[:, : rows.shape[1]]
    return odd, gaps, rows


def test_rows_may_lie_anywhere_in_memory() -> None:
    module = calibrator(64).float()
    rows, queries = tokens(100, 2, 64).float(), tokens(2, 3, 64).float()
    expected = module.predict(rows, queries)
    for same_rows in views(rows):
        assert torch.equal(module.predict(same_rows, queries), expected)
        assert module.predict(same_rows[1:], queries).shape == (2, 99)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_rows_that_stay_are_found_in_any_precision(dtype: torch.dtype) -> None:
    """Without multiplying any: some CPUs crash on products of bfloat16."""
    rows = tokens(100, 2, 64).to(dtype)
    new = torch.cat([rows[:3], rows[4:90], rows[:1]])
    for old in views(rows):
        assert kept_terms.survivors(old, new).tolist() == [*range(3), *range(4, 90)]
