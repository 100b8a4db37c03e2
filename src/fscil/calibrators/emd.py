"""Earth mover's distance between feature maps: DeepEMD (Zhang et al., "DeepEMD", CVPR 2020).

A map is a set of cells u_1 .. u_m in R^d. Moving a unit of mass from cell u_i of the query to cell v_j of a class costs
1 - cos(u_i, v_j). How much mass a cell has says the other map (cross-reference): cells that resemble it count more.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fscil.calibrators.calibrator import Calibrator
from fscil.errors import UserError

SOLVERS = ("auto", "exact", "sinkhorn")
AT_ONCE = {"cuda": 2**25, "cpu": 2**18}  # entries of the cost matrices that are solved together
COOLING, OVER_RELAXATION = 0.7, 1.85  # of Sinkhorn's algorithm; chosen against exact distances
SMALLEST = 1e-30  # that a row of a kernel may sum to
LEAST_MASS = 1e-3  # as in DeepEMD's code: no cell, and so no map, is without mass

Problem = tuple[Tensor, Tensor, Tensor]  # cost [..., m, m], mass of the query's cells [..., m], of the class's [..., m]


class EMD(Calibrator):
    """scale * (1 - EMD(query, row)); it has no parameters.

    Rows [C, m * d] and queries [Q, m * d] are maps of m cells, flattened cell by cell. Predictions on CPUs solve the
    transport problems exactly, on all cores; on GPUs, in exported programs and in training, Sinkhorn's algorithm does.
    """

    permutation_equivariant = True
    independent = True
    row_by_row = True

    def __init__(
        self,
        dim: int,
        *,
        cells: int = 1,
        scale: float = 1.0,
        solver: str = "auto",
        regularisation: float = 0.005,
        rounds: int = 80,
        iterations: int = 20,
    ) -> None:
        super().__init__()
        if solver not in SOLVERS:
            raise UserError(f"unknown solver {solver!r}; known are {', '.join(SOLVERS)}")
        self.dim, self.cells, self.scale, self.solver = dim, cells, scale, solver
        self.regularisation, self.rounds, self.iterations = regularisation, rounds, iterations

    @property
    def options(self) -> dict[str, Any]:
        names = ("cells", "scale", "solver", "regularisation", "rounds", "iterations")
        return {name: getattr(self, name) for name in names}

    def forward(self, rows: Tensor, queries: Tensor) -> Tensor:
        """All at once, by Sinkhorn's algorithm: memory for Q * C cost matrices."""
        problem = transport(self._maps(rows)[None], self._maps(queries)[:, None])
        return self.scale * (1 - self._sinkhorn(problem))

    @torch.no_grad()
    def predict(self, rows: Tensor, queries: Tensor) -> Tensor:
        """Class by class, a few queries at a time; so an answer does not depend on what else was asked."""
        if torch.compiler.is_compiling():
            return self.forward(rows, queries)
        distances = queries.new_empty(len(queries), len(rows))
        is_exact = self.solver == "exact" or (self.solver == "auto" and queries.device.type == "cpu")
        solve = exact_solver() if is_exact else self._sinkhorn
        parts = queries.split(max(1, AT_ONCE.get(queries.device.type, 2**18) // self.cells**2))
        for c, row in enumerate(self._maps(rows)):
            columns = [solve(transport(row, self._maps(part))) for part in parts]
            distances[:, c] = torch.cat(columns)
        return self.scale * (1 - distances)

    def _maps(self, flat: Tensor) -> Tensor:
        return flat.unflatten(-1, (self.cells, self.dim))

    def _sinkhorn(self, problem: Problem) -> Tensor:
        return sinkhorn(problem, self.regularisation, self.rounds, self.iterations)


def transport(row: Tensor, queries: Tensor) -> Problem:
    """Cost and masses between a class's map [..., m, d] and queries [..., m, d].

    Mass of query cell i: max(u_i . mean_j v_j, 0), normalised to 1 over the map; and the same the other way round.
    """
    cost = 1 - F.normalize(queries, dim=-1) @ F.normalize(row, dim=-1).mT
    mass = (queries @ row.mean(-2, keepdim=True).mT).squeeze(-1).relu() + LEAST_MASS
    own_mass = (row @ queries.mean(-2, keepdim=True).mT).squeeze(-1).relu() + LEAST_MASS
    return cost, mass / mass.sum(-1, keepdim=True), own_mass / own_mass.sum(-1, keepdim=True)


def sinkhorn(problem: Problem, regularisation: float, rounds: int, iterations: int) -> Tensor:
    """Transport costs [...] of the entropic problems: at most 1 % off where `rounds` suffice.

    In the log domain: f and g are the dual potentials, and the plan is exp((f_i + g_j - cost_ij) / epsilon). A round
    takes the potentials into a kernel K and scales its rows by u and columns by v, which needs products alone. Epsilon
    is relative to a problem's mean cost, so the error is, too; it falls from round to round, since at a small one the
    potentials move slowly. There they are over-relaxed, for the same reason.
    """
    cost, mass, own_mass = problem
    mean = cost.mean((-2, -1), keepdim=True).clamp(min=1e-6)
    cost = cost / mean
    a, b = mass.unsqueeze(-1), own_mass.unsqueeze(-1)
    g = torch.zeros_like(own_mass)
    for r in range(rounds):
        epsilon = max(regularisation, COOLING**r)
        omega = OVER_RELAXATION if epsilon == regularisation and r < rounds - 1 else 1.0
        f = epsilon * (mass.log() - torch.logsumexp((g.unsqueeze(-2) - cost) / epsilon, -1))
        g = epsilon * (own_mass.log() - torch.logsumexp((f.unsqueeze(-1) - cost) / epsilon, -2))
        K = ((f.unsqueeze(-1) + g.unsqueeze(-2) - cost) / epsilon).exp()
        u, v = torch.ones_like(a), torch.ones_like(b)
        for _ in range(iterations):
            u = u * (a / (u * (K @ v)).clamp(min=SMALLEST)).pow(omega)
            v = v * (b / (v * (K.mT @ u)).clamp(min=SMALLEST)).pow(omega)
        g = g + epsilon * v.squeeze(-1).log()
    plan = u * K * v.mT
    return (plan * cost).sum((-2, -1)) * mean.squeeze((-2, -1))


def exact_solver() -> Callable[[Problem], Tensor]:
    """POT's network simplex on as many cores as torch uses; it releases Python's lock while it solves."""
    try:
        emd2 = import_module("ot").emd2
    except ImportError as error:
        raise UserError(
            'exact earth mover\'s distances need POT; pip install "fscil[emd]", or set solver=sinkhorn'
        ) from error

    def solve(problem: Problem) -> Tensor:
        cost, mass, own_mass = (each.double().cpu().numpy() for each in problem)

        def one(i: int) -> float:
            # POT demands that both sides have the same mass to the last digits of float64
            return float(emd2(mass[i] / mass[i].sum(), own_mass[i] / own_mass[i].sum(), cost[i]))

        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            found = list(pool.map(one, range(len(cost))))
        return torch.tensor(found).to(problem[0])

    return solve
