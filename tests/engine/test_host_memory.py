from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# what a training step does: several activations are made and freed; prints how many pages of them were fetched anew
STEPS = """
import resource, sys, torch
from fscil.engine import Engine
if sys.argv[1] == "engine":
    Engine()
def step():
    activations = [torch.ones(4 * 2**20) for _ in range(6)]
step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def pages_fetched(how: str) -> int:
    run = subprocess.run([sys.executable, "-c", STEPS, how], check=True, capture_output=True, text=True)
    return int(run.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_an_engine_on_a_cpu_uses_the_memory_of_the_step_before() -> None:
    assert pages_fetched("engine") < pages_fetched("no engine") / 10
