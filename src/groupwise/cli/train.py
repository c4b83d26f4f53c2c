"""groupwise train RECIPE, or groupwise train --resume RUN"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def train(
    recipe: Annotated[
        Path | None, typer.Argument(help="A TOML recipe; with --resume only where stages still to do have changed.")
    ] = None,
    accept_audit: Annotated[
        bool, typer.Option("--accept-audit", help="Train although the audit finds that the verifier can be gamed.")
    ] = False,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the run in this folder behind its last finished stage.")
    ] = None,
    from_stage: Annotated[
        str | None, typer.Option(help="With --resume: do this stage and those after it, finished or not.")
    ] = None,
) -> None:
    """Run every stage of a recipe: audit the verifier, measure, train, measure again.

    Ctrl-C once ends after the step under way, with a checkpoint; twice ends at once. A run that was stopped, or that
    crashed, goes on with --resume: finished stages are kept, the one under way starts again from its beginning.
    """
    from groupwise.cli.terminal import Terminal
    from groupwise.config import load_recipe

    _refuse_contradictions(recipe, resume, from_stage, accept_audit)
    loaded = None if recipe is None else load_recipe(recipe)  # a mistake in it is told before torch is imported
    from groupwise.launch import local

    terminal = Terminal()
    if resume is not None:
        terminal.outcome(*local.resume(resume, terminal, recipe=loaded, from_stage=from_stage))
    elif loaded is not None:
        terminal.outcome(*local.train(loaded, terminal, accept_audit=accept_audit))


def _refuse_contradictions(
    recipe: Path | None, resume: Path | None, from_stage: str | None, accept_audit: bool
) -> None:
    from groupwise.errors import ConfigError

    if resume is None and recipe is None:
        raise ConfigError("there is nothing to train; give a recipe (a .toml file), or --resume with a run folder.")
    if resume is None and from_stage is not None:
        raise ConfigError("--from-stage has no effect without --resume; give the folder of the run to go on with.")
    if resume is not None and accept_audit:
        raise ConfigError("--accept-audit has no effect with --resume: a run is audited once, when it begins.")
