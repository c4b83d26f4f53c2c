"""groupwise train RECIPE"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def train(
    recipe: Annotated[Path, typer.Argument(help="A TOML recipe.")],
    accept_audit: Annotated[
        bool, typer.Option("--accept-audit", help="Train although the audit finds that the verifier can be gamed.")
    ] = False,
) -> None:
    """Run every stage of a recipe: audit the verifier, measure, train, measure again.

    Ctrl-C once ends after the step under way, with a checkpoint; twice ends at once.
    """
    from groupwise.cli.terminal import Terminal
    from groupwise.config import load_recipe

    loaded = load_recipe(recipe)  # a mistake in the recipe is told before torch is imported
    from groupwise.launch import local

    terminal = Terminal()
    terminal.outcome(*local.train(loaded, terminal, accept_audit=accept_audit))
