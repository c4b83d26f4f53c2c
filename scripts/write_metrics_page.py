"""Writes the tables of docs/metrics.md anew from the registry in src/groupwise/runs/metrics/registry.py.

    python scripts/write_metrics_page.py

The text above them is written by hand and stays.
"""

from __future__ import annotations

from pathlib import Path

from groupwise.runs import metrics_table

PAGE = Path(__file__).resolve().parents[1] / "docs" / "metrics.md"
FIRST = "### "
"""How the first line of the tables begins; nothing above it does."""


def main() -> None:
    """Replaces everything from the first table on."""
    text = PAGE.read_text(encoding="utf-8")
    by_hand = text[: text.index("\n" + FIRST) + 1] if "\n" + FIRST in text else text
    PAGE.write_text(by_hand + metrics_table(), encoding="utf-8")


if __name__ == "__main__":
    main()
