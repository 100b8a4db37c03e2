"""Can all photos of a dataset be read? One that cannot would otherwise be found after hours, and only then the next."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console

from fscil.datasets.decode import decode_resized, read_bytes
from fscil.datasets.photo_store import Store
from fscil.errors import UserError
from fscil.naming import printable
from fscil.progress import stage_progress
from fscil.reading import thread_count

MOST_NAMED = 100  # files; if a whole folder is missing, nobody reads more


def check_readable(title: str, store: Store) -> None:
    """Decode every photo; names files that cannot be read, a line each if there are several."""

    def problem(path: Path) -> str | None:
        try:
            decode_resized(read_bytes(path), store.resize, str(path))
        except UserError as error:
            return str(error)
        return None

    problems: list[str] = []
    console = Console(stderr=True)
    with (
        ThreadPoolExecutor(thread_count()) as threads,
        stage_progress(console, f"verify {title}", len(store.paths)) as progress,
    ):
        for part in store.parts:
            problems += filter(None, threads.map(problem, store.paths[part]))
            progress.update(min(part.stop, len(store.paths)))
    if len(problems) == 1:
        raise UserError(f"{title}: {problems[0]}")
    if problems:
        for line in problems[:MOST_NAMED]:
            console.print(printable(line), soft_wrap=True, markup=False, emoji=False, highlight=False)
        more = f" and {len(problems) - MOST_NAMED} more" if len(problems) > MOST_NAMED else ""
        raise UserError(
            f"{title}: the {len(problems[:MOST_NAMED])} photos above{more} cannot be read; replace them, or copy the "
            "dataset again"
        )
