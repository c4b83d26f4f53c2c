"""The labelled math cases as tasks: what each setting means for a verifier."""

from __future__ import annotations

import json
from pathlib import Path

from groupwise.types import Task

SECTION = {"kind": "math", "gold_column": "gold"}
_TAGGED = frozenset({"MATH-12"})  # its setting declares the tag as the form of an answer


def tasks(cases: Path) -> list[tuple[str, dict[str, object], Task, str, str]]:
    """(case id, section, task, completion, "PASS" or "FAIL") of every math line of a cases file."""
    found = []
    for line in cases.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        if case["domain"] == "math":
            section = {**SECTION, "answer_in": "tag" if case["id"] in _TAGGED else "auto"}
            task = Task(id=case["id"], prompt="Solve it.", columns={"gold": case["setting"]})
            found.append((case["id"], section, task, case["candidate"], case["verdict"]))
    return found
