"""`groupwise variants`: copies of a database that tell wrong queries from right ones."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from groupwise.verifiers.variants import Variants
    from groupwise.verifiers.variants_schema import Relation


def variants(
    database: Annotated[Path, typer.Argument(help="The SQLite file that the questions are about.")],
    questions: Annotated[Path, typer.Option(help="A .jsonl, .json or .parquet file with the right queries.")],
    out: Annotated[Path, typer.Option(help="Folder for the copies; made if missing.")],
    copies: Annotated[int, typer.Option(help="How many copies are kept.")] = 3,
    gold_column: Annotated[str, typer.Option(help="The column with the right query.")] = "gold",
    where: Annotated[
        str, typer.Option(help="COLUMN=VALUE: only questions with this value, where a file is about several databases.")
    ] = "",
    foreign_key: Annotated[
        list[str] | None,
        typer.Option(help="CHILD.COLUMN=PARENT.COLUMN that the file does not declare; may be given several times."),
    ] = None,
    tables: Annotated[
        Path | None, typer.Option(help="A tables.json in Spider's form; its foreign keys for this database are kept.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Other seeds give other copies.")] = 0,
    show: Annotated[int, typer.Option(help="How many surviving wrong answers are listed.")] = 20,
) -> None:
    """Make copies of a database on which wrong queries return other rows than right ones.

    Keys and foreign keys stay intact; the golds' own literals and their near misses are planted. Every copy is tried
    with broken versions of each gold, and the copies that tell most of them are kept: OUT/NAME_v1.sqlite and so on.
    """
    from groupwise.cli.terminal import Terminal
    from groupwise.data.sources import read_rows
    from groupwise.verifiers.variants import make_variants

    rows = read_rows(questions.name, questions.absolute().parent)
    column, _, wanted = where.partition("=")
    golds = [str(row.value(gold_column)) for row in rows if not where or str(row.value(column)) == wanted]
    relations = [_relation(text) for text in foreign_key or []]
    if tables is not None:
        relations += _spider_relations(tables, database.stem)
    terminal = Terminal()
    with terminal.working(f"Variants of {database.name}") as advance:
        made = make_variants(
            database,
            golds,
            out,
            num_copies=copies,
            relations=relations,
            seed=seed,
            advance=lambda title, done, total: advance(done, total, title),
        )
    _print(terminal, made, database, show)


def _relation(text: str) -> Relation:
    from groupwise.errors import VerifierError

    match = re.fullmatch(r"\s*(.+?)\.(.+?)\s*=\s*(.+?)\.(.+?)\s*", text)
    if match is None:
        raise VerifierError(f"--foreign-key {text!r} cannot be read; write CHILD.COLUMN=PARENT.COLUMN")
    child, column, parent, target = match.groups()
    return child, column, parent, target


def _spider_relations(path: Path, name: str) -> list[Relation]:
    """The foreign keys of one database in a tables.json as Spider ships it."""
    from groupwise.errors import VerifierError

    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        entry = next((entry for entry in entries if entry["db_id"] == name), None)
        if entry is None:
            raise VerifierError(f"{path.name} has no database {name!r}; leave --tables out or rename the file")
        columns, names = entry["column_names_original"], entry["table_names_original"]
        pairs = [(columns[child], columns[parent]) for child, parent in entry["foreign_keys"]]
        return [(names[child[0]], child[1], names[parent[0]], parent[1]) for child, parent in pairs]
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        if isinstance(error, VerifierError):
            raise
        raise VerifierError(f"{path}: not a tables.json in Spider's form ({error!r}); leave --tables out") from error


def _print(terminal: object, made: Variants, database: Path, show: int) -> None:
    from rich.table import Table

    from groupwise.cli.terminal import Terminal
    from groupwise.verifiers.variants import Survival, survival_by_kind
    from groupwise.verifiers.variants_trial import CONSTANT, survivors

    assert isinstance(terminal, Terminal)
    table = Table(title="Wrong answers that nothing tells from the gold")
    for name in ("kind", "tried", f"on {database.name} alone", f"with {len(made.copies)} copies"):
        table.add_column(name, justify="left" if name == "kind" else "right")
    kinds = survival_by_kind(made)
    mutants = [kind for kind in kinds if kind.kind != CONSTANT]
    total = Survival(
        kind="all mutants",
        num=sum(kind.num for kind in mutants),
        on_original=sum(kind.on_original for kind in mutants),
        on_all=sum(kind.on_all for kind in mutants),
    )
    for kind in [*mutants, total, *(kind for kind in kinds if kind.kind == CONSTANT)]:
        table.add_row(kind.kind, str(kind.num), _share(kind.on_original, kind.num), _share(kind.on_all, kind.num))
    terminal.table(table)
    alive = survivors(made.trial, made.chosen)
    for attempt in alive[:show]:
        terminal.line(f"survives  {attempt.kind}: {attempt.sql or 'the rows of: ' + attempt.gold}")
    if len(alive) > show:
        terminal.line(
            f"... and {len(alive) - show} more; --show {len(alive)} lists all. Many mean the same as the gold."
        )
    for gold, reason in made.trial.unusable_golds:
        terminal.line(f"not used  {reason}: {gold}")
    terminal.line("Snapshots for the recipe, the original first:")
    terminal.line("  snapshots = " + json.dumps([str(path) for path in (database, *made.copies)]))


def _share(part: int, whole: int) -> str:
    return f"{part} ({part / whole:.0%})" if whole else "0"
