"""The published extraction cases as sections, tasks and completions: two invoices, one right answer, what breaks it."""

from __future__ import annotations

import json
from typing import Any

from groupwise.types import Task

DOCUMENT = (
    "ACME GmbH. Rechnung Nr. 0042-A. Datum: 03.04.2024. Zahlbar innerhalb 30 Tagen. "
    "Gesamt 1.234,50 EUR inkl. 19 % MwSt. (locale de)"
)
FIELDS: dict[str, dict[str, Any]] = {
    "vendor": {"kind": "text"},
    "invoice_no": {"kind": "id"},
    "issue_date": {"kind": "date"},
    "due_date": {"kind": "date", "presence": "optional"},
    "currency": {"kind": "enum", "values": ["EUR", "USD", "GBP", "CHF"]},
    "total": {"kind": "decimal", "minimum": 0, "places": 2},
    "tax_rate": {"kind": "decimal", "minimum": 0, "maximum": 1},
    "term": {"kind": "quantity", "values": ["day", "month"]},
}
LINE_FIELDS: dict[str, dict[str, Any]] = {
    "line_items[].name": {"kind": "text"},
    "line_items[].qty": {"kind": "int", "minimum": 1},
    "line_items[].price": {"kind": "decimal", "places": 2},
}
GOLD: dict[str, Any] = {
    "vendor": "ACME GmbH",
    "invoice_no": "0042-A",
    "issue_date": "2024-04-03",
    "due_date": None,
    "currency": "EUR",
    "total": 1234.50,
    "tax_rate": 0.19,
    "term": {"n": 30, "unit": "day"},
}
LINES = [
    {"name": "Schrauben M4", "qty": 100, "price": 4.5},
    {"name": "Muttern M4", "qty": 100, "price": 3.85},
    {"name": "Versand", "qty": 1, "price": 400},
]
ONE = {"kind": "extraction", "fields": FIELDS}
WITH_LINES = {"kind": "extraction", "fields": FIELDS | LINE_FIELDS}


def tasks() -> list[tuple[str, dict[str, Any], Task, str, str]]:
    """(case id, section, task, completion, verdict) for every case; the verdict is "PASS" or "FAIL"."""
    invoice = Task(id="D1", prompt=DOCUMENT, columns={"gold": json.dumps(GOLD)})
    with_lines = Task(id="D2", prompt=DOCUMENT, columns={"gold": json.dumps(GOLD | {"line_items": LINES})})
    whole = json.dumps(GOLD)
    changed: list[tuple[str, dict[str, Any], str]] = [
        ("EXT-01", {}, "PASS"),
        ("EXT-02", {"issue_date": "03.04.2024"}, "FAIL"),
        ("EXT-03", {"issue_date": "2024-03-04"}, "FAIL"),
        ("EXT-04", {"total": "1.234,50"}, "FAIL"),
        ("EXT-05", {"total": 1234.5}, "PASS"),
        ("EXT-07", {"total": "EUR 1234.50"}, "FAIL"),
        ("EXT-08", {"currency": "\u20ac"}, "FAIL"),
        ("EXT-09", {"tax_rate": 19}, "FAIL"),
        ("EXT-10", {"invoice_no": "42-A"}, "FAIL"),
        ("EXT-11", {"invoice_no": 42}, "FAIL"),
        ("EXT-12", {"vendor": "ACME GMBH"}, "PASS"),
        ("EXT-13", {"vendor": "ACME"}, "FAIL"),
        ("EXT-15", {"due_date": None}, "PASS"),
        ("EXT-16", {"due_date": "2024-05-03"}, "FAIL"),
        ("EXT-24", {"total": float("nan")}, "FAIL"),
        ("EXT-27", {"term": {"n": 1, "unit": "month"}}, "FAIL"),
    ]
    cases = [(case, ONE, invoice, json.dumps(GOLD | change), verdict) for case, change, verdict in changed]
    without_due_date = {name: value for name, value in GOLD.items() if name != "due_date"}
    cases += [
        ("EXT-17", ONE, invoice, json.dumps(without_due_date), "PASS"),
        ("EXT-18", ONE, invoice, "{}", "FAIL"),
        ("EXT-18", ONE, invoice, json.dumps(dict.fromkeys(GOLD)), "FAIL"),
        ("EXT-20", ONE, invoice, json.dumps(GOLD | {"total": 1}) + "\n" + whole, "FAIL"),
        ("EXT-21", ONE, invoice, f"```json\n{whole}\n```", "PASS"),
        ("EXT-22", WITH_LINES, with_lines, json.dumps(GOLD | {"line_items": LINES[::-1]}), "PASS"),
        ("EXT-23", WITH_LINES, with_lines, json.dumps(GOLD | {"line_items": [*LINES, LINES[0]]}), "FAIL"),
    ]
    return cases
