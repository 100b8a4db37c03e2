from __future__ import annotations

import pytest
from interrupted_runs import ARGUMENTS, RunFolder

from cli_process import fscil_process


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    code, _, err = fscil_process(*ARGUMENTS, "--out", "run", cwd=folder)
    assert code == 0, err
    return RunFolder(folder / "run")
