"""groupwise curate RECIPE"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def curate(
    recipe: Annotated[Path, typer.Argument(help="A TOML recipe.")],
    samples: Annotated[
        int | None, typer.Option(min=1, help="Completions of every prompt; default: curation.samples_per_prompt.")
    ] = None,
    max_samples: Annotated[
        int | None,
        typer.Option(min=1, help="Completions of a prompt that stays open; default: curation.max_samples_per_prompt."),
    ] = None,
    budget: Annotated[
        int | None, typer.Option(min=1, help="Completions in all, those of earlier calls included; default: no limit.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results; default: curated-NAME beside the recipe.")
    ] = None,
    drop_undetermined: Annotated[
        bool, typer.Option("--drop-undetermined", help="Drop prompts whose gold a wrong answer may equal.")
    ] = False,
    keep_undecided: Annotated[
        bool, typer.Option("--keep-undecided", help="Keep prompts of which more samples would tell.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Sample every training prompt with the recipe's model, and keep those that it solves sometimes.

    Golds are proven first; duplicates and leaks into the held-out set go, too. Every prompt gets a reason. Ctrl-C and
    the same command again go on where it stopped; larger limits refine what is there. Exit code 1 where none is kept.
    """
    from groupwise.cli.terminal import Terminal
    from groupwise.config import load_recipe
    from groupwise.launch.display import Quiet

    loaded = load_recipe(recipe)  # a mistake in the recipe is told before torch is imported
    from groupwise.curation.curation_page import headline, histogram_lines, reason_table
    from groupwise.launch.curate import CurateChoices, curate_recipe, with_samples

    terminal = Terminal()
    curated = curate_recipe(
        with_samples(loaded, samples, max_samples),
        Quiet() if as_json else terminal,
        CurateChoices(out=out, budget=budget, drop_undetermined=drop_undetermined, keep_undecided=keep_undecided),
    )
    if as_json:
        print(json.dumps(curated.summary))
    else:
        terminal.table(reason_table(curated.decisions))
        for line in histogram_lines(curated.curation):
            terminal.line(line)
        terminal.line(headline(curated.decisions, curated.curation.num_samples))
        terminal.line(f"Ledger: {curated.ledger}   Page: {curated.folder / 'summary.html'}")
        for line in curated.next_lines(recipe):
            terminal.line(line)
    raise typer.Exit(0 if curated.num_kept else 1)
