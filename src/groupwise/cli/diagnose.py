"""groupwise diagnose RUN"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer


def diagnose(
    run: Annotated[Path, typer.Argument(help="A run folder; the run may still be going on.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """What is wrong with a run: at most five findings, each with its evidence and the one setting to change.

    Exit code 0 where there is no problem (warnings may be printed), 1 with a problem, 2 where it is no run.
    """
    from groupwise.runs import diagnosis as rules
    from groupwise.runs import read_run
    from groupwise.runs.listing import ended_badly

    record = read_run(run)
    findings = rules.diagnose(record)
    if as_json:
        seen = rules.coverage(record)
        shown = {"asked": seen.asked, "open": seen.open, "unreadable": record.unreadable}
        print(json.dumps({"run": record.name, "findings": [asdict(f) for f in findings], **shown}))
    else:
        broken_off = [ended] if (ended := ended_badly(record)) else []
        for line in (*record.unreadable, *broken_off, *(rules.finding_lines(findings) or rules.nothing_found(record))):
            print(line)
    raise typer.Exit(1 if any(f.severity == "problem" for f in findings) else 0)
