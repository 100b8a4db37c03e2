"""Training on a CPU keeps the memory that it frees."""

from __future__ import annotations

import ctypes
import platform
from functools import cache

# of glibc's malloc.h
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


@cache
def keep_freed_memory() -> None:
    """Activations of the next step take the place of the last one's.

    glibc would give large blocks back to the system, and getting them again, page by page, takes a seventh of a
    training step of ResNet20. Other C libraries have their own ways and are left alone.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, 2**25)  # the most that it takes
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
