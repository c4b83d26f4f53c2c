"""What a reader needs to trust and repeat a run: audit, settings, versions, seeds, and how the page was made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.pages import Board, Card, Cell, Listing, Section, Table
from groupwise.runs.record import RunRecord
from groupwise.runs.report.words import cut, several

MAX_LISTING = 60_000
_MAX_DIFFERENCES = 60


def audit_section(record: RunRecord) -> Section:
    """The verdict of the audit before training, every check, and examples of what was paid."""
    audit = record.audit
    if audit is None:
        why = "No audit is on record: the run was started without one, or by an older version."
        return Section(heading="Audit of the verifier", text=(why,))
    findings = [f for f in audit.get("findings") or () if isinstance(f, Mapping)]
    rows: list[tuple[Cell, ...]] = [
        (str(f.get("check")), "go" if f.get("go") else "NO-GO", str(f.get("found", "")), str(f.get("allowed") or ""))
        for f in findings
    ]
    cards = tuple(
        Card(
            title=f"{f.get('check')}: {example.get('task_id', '')}",
            text=cut(str(example.get("completion", "")), 1000),
            notes=tuple(str(example[name]) for name in ("prompt", "reason") if example.get(name)),
            tone="warning" if f.get("go") else "problem",
        )
        for f in findings
        if isinstance(example := f.get("example"), Mapping)
    )
    verdict = "GO" if audit.get("go") else "NO-GO"
    failed = [str(f.get("check")) for f in findings if not f.get("go")]
    text = f"Before training the verifier was attacked: {verdict}" + (f" ({', '.join(failed)})." if failed else ".")
    return Section(
        heading="Audit of the verifier",
        text=(text,),
        tables=(Table(columns=("check", "result", "found", "allowed"), rows=tuple(rows), caption="What was tried."),)
        if rows
        else (),
        boards=(Board(title=f"{several(len(cards), 'example')} of what the audit found", cards=cards),)
        if cards
        else (),
    )


def settings_section(record: RunRecord, command: str) -> Section:
    """The resolved recipe, environment, seeds, and the command that makes this page again."""
    listings = []
    text = [f"This page again: {command}"]
    if record.directory.recipe.exists():
        text.append(f"The run again: groupwise train {record.directory.recipe}")
        recipe = record.directory.recipe.read_text(encoding="utf-8", errors="replace")
        listings.append(Listing(title="Resolved recipe (TOML)", text=cut(recipe, MAX_LISTING)))
    if record.environment:
        shown = json.dumps(record.environment, indent=1, ensure_ascii=False, default=str)
        listings.append(Listing(title="Environment", text=cut(shown, MAX_LISTING)))
    restarts = record.events_named("restarted")
    if restarts:
        stages = ", ".join(str(event.get("stage")) for event in restarts)
        text.append(f"The run was restarted {several(len(restarts), 'time')} (at {stages}).")
    tables = (table,) if (table := _facts_table(record)) is not None else ()
    return Section(heading="Settings and versions", text=tuple(text), tables=tables, listings=tuple(listings))


def _facts_table(record: RunRecord) -> Table | None:
    rows: list[tuple[Cell, ...]] = []
    model = record.recipe.get("model") or {}
    if model.get("name"):
        rows.append(("model", str(model["name"])))
    for stage in record.stages:
        algorithm = stage.get("algorithm") or {}
        optim = stage.get("optim") or {}
        lr = f", learning rate {optim['lr']:g}" if isinstance(optim.get("lr"), int | float) else ""
        rows.append((f"stage {stage.get('name')}", f"{algorithm.get('name')}, {stage.get('steps')} steps{lr}"))
    seeds: Mapping[str, Any] = record.summary.seeds if record.summary else {"run": record.recipe.get("seed")}
    rows += [(f"seed of the {name}", str(seed)) for name, seed in seeds.items() if seed is not None]
    versions = record.environment.get("versions") or (record.summary.versions if record.summary else {})
    if isinstance(versions, Mapping):
        rows += [(str(name), str(version)) for name, version in versions.items()]
    if record.environment.get("verifier_version"):
        rows.append(("verifier", str(record.environment["verifier_version"])))
    return Table(columns=("what", "value"), rows=tuple(rows), caption="What decides the numbers.") if rows else None


def differing_settings(recipes: Sequence[tuple[str, Mapping[str, Any]]]) -> Table | None:
    """Every setting that is not the same in all runs; None where there is none."""
    flat = [dict(_flattened(recipe, "")) for _, recipe in recipes]
    names = dict.fromkeys(name for settings in flat for name in settings)
    rows: list[tuple[Cell, ...]] = []
    for name in names:
        values = [cut(str(settings[name]), 200) if name in settings else "-" for settings in flat]
        if len(set(values)) > 1:
            rows.append((name, *values))
    if not rows:
        return None
    more = f"; the first {_MAX_DIFFERENCES} of {len(rows)}" if len(rows) > _MAX_DIFFERENCES else ""
    columns = ("setting", *(name for name, _ in recipes))
    caption = f"{several(len(rows), 'setting')} that the runs do not share{more}."
    return Table(columns=columns, rows=tuple(rows[:_MAX_DIFFERENCES]), caption=caption)


def _flattened(value: Any, name: str) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        parts = [(f"{name}.{key}" if name else str(key), item) for key, item in value.items()]
        return [leaf for key, item in parts for leaf in _flattened(item, key)]
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        named = [(f"{name}[{item.get('name', number)}]", item) for number, item in enumerate(value, start=1)]
        return [leaf for key, item in named for leaf in _flattened(item, key)]
    return [(name, value)]
