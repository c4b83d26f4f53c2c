"""groupwise doctor"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def doctor(
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure how fast this machine is, for `groupwise plan`. Takes a minute.")
    ] = False,
    recipe: Annotated[Path | None, typer.Option(help="With --measure: the sizes of this recipe's model.")] = None,
    shape: Annotated[str | None, typer.Option(help="With --measure: a model of these sizes, by name.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="With --measure: a tiny model, in seconds; checks that measuring works.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="With --measure: a .json file for the rates, in place of the user's cache.")
    ] = None,
    hub: Annotated[bool, typer.Option("--hub", help="Also ask whether the model hub can be reached.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Versions, devices, what is missing and the command that installs it. Exit code 1 where something essential is.

    With --measure, times training and sampling of a random model on this machine and keeps the rates for `plan`.
    """
    from groupwise.cli.terminal import Terminal
    from groupwise.errors import ConfigError
    from groupwise.launch.display import Quiet
    from groupwise.launch.doctor import diagnose
    from groupwise.launch.findings import findings_table

    terminal = Terminal()
    if not measure and (quick or any(option is not None for option in (recipe, shape, out))):
        raise ConfigError("--recipe, --shape, --quick and --out say how the machine is measured; add --measure.")
    if measure:
        from groupwise.launch.measure_hardware import measure_machine, profile_json

        display = Quiet() if as_json else terminal
        profile = measure_machine(recipe=recipe, shape=shape, quick=quick, out=out, display=display)
        if as_json:
            print(profile_json(profile))
        return
    diagnosis = diagnose(ask_hub=hub)
    if as_json:
        print(json.dumps(diagnosis.as_dict()))
    else:
        terminal.table(findings_table(diagnosis))
    raise typer.Exit(0 if diagnosis.healthy else 1)
