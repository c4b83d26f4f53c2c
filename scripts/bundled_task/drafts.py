"""What a pattern draws, and the finishing touches that every question gets."""

from __future__ import annotations

import random
from collections.abc import Sequence

Draft = tuple[str, str] | tuple[str, str, str]
"""(gold, question), or with another reading of the question, which must give the same answer on every snapshot."""

POLITE_RATE = 0.12
"""How often a question starts with "Please" or "Can you tell me"."""
LOWER_RATE = 0.12
"""How often a question starts with a small letter."""
BARE_RATE = 0.15
"""How often the final full stop or question mark is missing."""


def phrase(templates: Sequence[str], rng: random.Random, **slots: str) -> str:
    """Fill one of the templates and vary the manner: polite, lower case, no final mark."""
    text = " ".join(rng.choice(templates).format(**slots).split())
    text = text[0].upper() + text[1:]
    if rng.random() < POLITE_RATE:
        inner = text if text.startswith("I ") else text[0].lower() + text[1:]
        if text.endswith("?"):
            text = rng.choice(("Tell me, ", "Quick question: ", "I wonder, ")) + inner
        elif text.split()[0] in ("Count", "Give", "List", "Show", "Find", "Compute", "Return", "Sort"):
            text = rng.choice(("Please ", "Could you ")) + inner
            text = text.rstrip(".") + "?" if text.startswith("Could") else text
    if rng.random() < LOWER_RATE and not text.startswith("I "):
        text = text[0].lower() + text[1:]
    if rng.random() < BARE_RATE:
        text = text.rstrip("?.")
    return text
