"""Writes the ten-step curves that tests/training/test_golden_curves.py compares with.

    python scripts/record_golden_curves.py

Run it where a change is meant to change what a method learns, and say in the same commit why. It takes seconds.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "training")]

from golden_curves import GOLDEN, record  # noqa: E402

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        record(Path(folder))
    print(f"wrote {', '.join(sorted(path.name for path in GOLDEN.glob('*.json')))}")
