"""groupwise audit RECIPE"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer


def audit(
    recipe: Annotated[Path, typer.Argument(help="A TOML recipe; [verifier] and [data] will do.")],
    labelled: Annotated[
        Path | None,
        typer.Option(help="A .jsonl file of completions with a person's label: id, completion, correct."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Attack the verifier before it pays anyone: golds earn 1, exploits earn 0. Exit code 1 on a no-go.

    No model is needed. With --labelled, false-positive and false-negative rates are measured too.
    """
    from groupwise.audit import audit_table
    from groupwise.cli.terminal import Terminal
    from groupwise.config import load_scoring_recipe
    from groupwise.launch.audit import audit_recipe, report_json
    from groupwise.launch.display import Quiet
    from groupwise.launch.score import open_completions

    loaded = load_scoring_recipe(recipe)
    terminal = Terminal()
    with nullcontext(None) if labelled is None else open_completions(labelled) as file:
        display = Quiet() if as_json else terminal
        report = audit_recipe(loaded, display, labelled=file, labelled_name=str(labelled))
    if as_json:
        print(report_json(report))
    else:
        terminal.table(audit_table(report.findings))
        terminal.line(report.headline())
    raise typer.Exit(0 if report.go else 1)
