"""groupwise report RUN [RUN ...]"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; with several they are compared with the first.")],
    out: Annotated[
        Path | None,
        typer.Option(help="The HTML file; default: report.html in the run, or runs.html here for several."),
    ] = None,
) -> None:
    """One HTML file of a run, or of several beside each other: outcome, diagnosis, curves, prompts, answers to read.

    The file needs no network and no second file. A run that is still going on, or that died, has a report too.
    """
    from groupwise.cli.terminal import Terminal
    from groupwise.errors import DataError
    from groupwise.runs import read_run, write_atomic
    from groupwise.runs.report.page import report_page

    records = [read_run(run) for run in runs]
    target = out or (records[0].directory.path / "report.html" if len(records) == 1 else Path("runs.html"))
    page = report_page(records)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(target, page)
    except OSError as error:
        raise DataError(f"{target}: the report cannot be written ({error}); give --out a writable place") from error
    terminal = Terminal()
    for sentence in dict.fromkeys(line for record in records for line in record.unreadable):
        terminal.line(sentence)
    terminal.line(f"Report: {target} ({len(page.encode()) / 1e6:.1f} MB)")
