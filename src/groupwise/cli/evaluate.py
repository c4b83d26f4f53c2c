"""groupwise eval RECIPE"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer


def evaluate(
    recipe: Annotated[Path, typer.Argument(help="A TOML recipe.")],
    model: Annotated[str | None, typer.Option(help="Another model than the recipe's: folder, .gguf or hub id.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Measure a model on the recipe's held-out tasks. Writes nothing."""
    from groupwise.cli.terminal import Terminal
    from groupwise.config import load_recipe

    loaded = load_recipe(recipe)
    from groupwise.launch import local
    from groupwise.runs import stage_table

    if model is not None:
        name = str(Path(model).resolve()) if Path(model).exists() else model
        loaded = loaded.model_copy(update={"model": loaded.model.model_copy(update={"name": name})})
    terminal = Terminal()
    summary = local.evaluate(loaded, terminal)
    if as_json:
        print(json.dumps(asdict(summary)))
    else:
        terminal.table(stage_table([summary]))
