"""Seeds by name: every stage and every epoch has its own, so a resumed run draws what an uninterrupted one draws."""

from __future__ import annotations

import hashlib


def seed_for(*names: object) -> int:
    """A 63-bit seed that depends on all names, for instance seed_for(run_seed, "pretrain", epoch)."""
    digest = hashlib.sha256("/".join(str(name) for name in names).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
