"""`groupwise runs`: what there is, how far it is, and what it achieved."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from groupwise.runs.listing import ListedRun, Rate

_PLAIN_WIDTH = 160
"""Columns of the table where there is no terminal that could tell."""


def runs(
    folder: Annotated[Path, typer.Argument(help="The output_dir of a recipe, or one run.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list instead of a table.")] = False,
) -> None:
    """List the runs of a folder, the newest last: state, steps, held-out pass rate before and after, size.

    A folder without runs is no error: it says so, and the exit code is 0. A folder that is missing is one (2).
    """
    from rich.console import Console

    from groupwise.runs.listing import list_runs
    from groupwise.runs.rollout_view import printable

    found = list_runs(folder)
    if as_json:
        print(json.dumps([run.as_json() for run in found], indent=1))
        return
    if not found:
        print(f"No runs in {folder}. Make one: groupwise train RECIPE, or groupwise demo for a bundled task.")
        return
    console = Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else _PLAIN_WIDTH)
    console.print(_table(found))
    for run in found:
        for sentence in (*([run.failure] if run.failure else []), *run.unreadable):
            console.print(printable(f"{run.name}: {sentence}"), soft_wrap=True)
    console.print(printable(f"Next: groupwise report {found[-1].path}"), soft_wrap=True)


def _table(found: list[ListedRun]) -> object:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from groupwise.runs.rollout_view import printable

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("run", overflow="fold")
    table.add_column("began")
    table.add_column("state", no_wrap=True)
    for heading in ("stages", "steps"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("held-out pass rate, 95 % interval")
    table.add_column("size", justify="right", no_wrap=True)
    for run in found:
        table.add_row(
            Text(printable(run.name)),
            f"{run.began:%Y-%m-%d %H:%M}",
            run.state,
            f"{run.stages_finished}/{run.num_stages or '?'}",
            f"{run.steps_done}/{run.num_steps or '?'}",
            Text(printable(_rates(run))),
            _size(run.num_bytes),
        )
    return table


def _rates(run: ListedRun) -> str:
    if run.before is None:
        return "not measured"
    return _rate(run.before) if run.after is None else f"{_rate(run.before)} -> {_rate(run.after)}"


def _rate(rate: Rate) -> str:
    interval = "" if rate.interval is None else f" [{100 * rate.interval.low:.0f}, {100 * rate.interval.high:.0f}]"
    return f"{rate.rate:.1%}{interval}"


def _size(num_bytes: int) -> str:
    size = float(num_bytes)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
