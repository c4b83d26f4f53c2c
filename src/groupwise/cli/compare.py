"""groupwise compare RUN [RUN ...]"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def compare(
    evaluations: Annotated[
        list[str],
        typer.Argument(
            help="A run folder (its last evaluation), RUN:NAME (RUN:base, RUN:sft), or a folder of `eval --out`."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print all numbers as JSON.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the comparison to this HTML file.")] = None,
    confidence: Annotated[float, typer.Option(min=0.5, max=0.999, help="Of the intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap and of the sign-flip test.")] = 0,
) -> None:
    """Compare evaluations on the same prompts: which is better, or that nobody can tell.

    Every other one is compared with the first. A run alone is compared with its own base.
    """
    from groupwise.cli.terminal import Terminal
    from groupwise.errors import DataError
    from groupwise.launch.compare_show import comparison_lines, notes_of, read_places
    from groupwise.runs import write_atomic
    from groupwise.runs.comparison.as_json import comparison_json
    from groupwise.runs.comparison.compare import compare_many
    from groupwise.runs.comparison.page import comparison_page

    records = read_places(evaluations)
    found = compare_many(records, confidence=confidence, seed=seed)
    terminal = Terminal()
    if as_json:
        named = [{"label": r.label, "source": r.source, "name": r.name, "settings": r.settings} for r in records]
        compared = [comparison_json(c) for c in found]
        print(json.dumps({"evaluations": named, "comparisons": compared, "notes": notes_of(found)}))
    else:
        for record in records:
            if record.label not in (record.source, f"{record.source} {record.name}"):
                terminal.line(f"{record.label}: {record.source} {record.name}".rstrip())
        for part in comparison_lines(found):
            terminal.line(part) if isinstance(part, str) else terminal.table(part)
    if out is not None:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(out, comparison_page(found, notes_of(found)))
        except OSError as error:
            raise DataError(f"--out {out}: cannot be written ({error}); choose a writable place") from error
        if not as_json:
            terminal.line(f"Page: {out}")
