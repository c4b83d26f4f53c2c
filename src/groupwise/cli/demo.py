"""groupwise demo"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    seed: Annotated[int | None, typer.Option(help="Another seed than the recipe's.")] = None,
    output_dir: Annotated[Path, typer.Option(help="Folder that receives the run.")] = Path("runs"),
    quick: Annotated[bool, typer.Option(help="A tiny random model: checks the machinery, learns nothing.")] = False,
) -> None:
    """The whole job on the bundled text-to-SQL task: SmolLM2-135M, SFT, then GRPO. Minutes on a laptop CPU."""
    from groupwise import bundled
    from groupwise.cli.terminal import Terminal
    from groupwise.config import load_recipe

    recipe = load_recipe(bundled.path("quick.toml" if quick else "recipe.toml"))
    changes: dict[str, object] = {"output_dir": str(output_dir.resolve())}
    if seed is not None:
        changes["seed"] = seed
    recipe = recipe.model_copy(update=changes)
    from groupwise.launch import local

    terminal = Terminal()
    terminal.outcome(*local.train(recipe, terminal))
