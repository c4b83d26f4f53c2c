from __future__ import annotations

from decimal import Decimal

import pytest

from groupwise.errors import VerifierError
from groupwise.verifiers.extraction_fields import FieldRule, Malformed, fold_text, leaf_key, rule_from_settings

DAYS = FieldRule(kind="quantity", values=("day", "month"))


def same(rule, left, right):
    left, right = leaf_key(rule, left), leaf_key(rule, right)
    return not isinstance(left, Malformed) and left == right


@pytest.mark.parametrize(
    ("rule", "gold", "found"),
    [
        (FieldRule(kind="id"), "0042", "0042"),
        (FieldRule(kind="text"), "ACME GmbH", " acme\u00a0 GMBH\n"),
        (FieldRule(kind="text"), "Stra\u00dfe", "STRASSE"),
        (FieldRule(kind="text"), "fi\u200bne", "\ufb01ne"),
        (FieldRule(kind="enum", values=("a", "b")), "a", "a"),
        (FieldRule(kind="bool"), True, True),
        (FieldRule(kind="int"), 7, 7),
        (FieldRule(kind="decimal"), Decimal("1234.50"), Decimal("1234.5")),
        (FieldRule(kind="decimal"), 3, Decimal("3.0")),
        (FieldRule(kind="decimal", places=2), Decimal("1.2300"), Decimal("1.23")),
        (FieldRule(kind="decimal", places=0), Decimal("1E2"), 100),
        (FieldRule(kind="money"), {"amount": 3, "currency": "EUR"}, {"currency": "EUR", "amount": Decimal("3.00")}),
        (DAYS, {"n": 30, "unit": "day"}, {"n": 30, "unit": "day"}),
        (FieldRule(kind="date"), "2024-02-29", "2024-02-29"),
        (FieldRule(kind="datetime"), "2024-03-12T10:00:00Z", "2024-03-12T11:30:00+01:30"),
        (FieldRule(kind="datetime"), "0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00.000+14:00"),
    ],
)
def test_the_same_value(rule, gold, found):
    assert same(rule, gold, found)
    assert same(rule, found, gold)


@pytest.mark.parametrize(
    ("rule", "gold", "found"),
    [
        (FieldRule(kind="id"), "0042", "42"),
        (FieldRule(kind="id"), "a", "A"),
        (FieldRule(kind="id"), "a", "\uff41"),
        (FieldRule(kind="text"), "ACME GmbH", "ACME"),
        (FieldRule(kind="text"), "ACME", "ACME."),
        (FieldRule(kind="text"), "cafe", "caf\u00e9"),
        (FieldRule(kind="bool"), True, False),
        (FieldRule(kind="int"), 10000, 1000),
        (FieldRule(kind="decimal"), Decimal("0.1"), Decimal("0.1000000000000000055511151231257827")),
        (FieldRule(kind="money"), {"amount": 3, "currency": "EUR"}, {"amount": 3, "currency": "USD"}),
        (DAYS, {"n": 30, "unit": "day"}, {"n": 1, "unit": "month"}),
        (FieldRule(kind="date"), "2024-03-12", "2024-12-03"),
        (FieldRule(kind="datetime"), "2024-03-12T10:00:00Z", "2024-03-12T10:00:00+01:00"),
    ],
)
def test_another_value(rule, gold, found):
    assert not isinstance(leaf_key(rule, found), Malformed)
    assert not same(rule, gold, found)


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        (FieldRule(kind="id"), 42),
        (FieldRule(kind="id"), ""),
        (FieldRule(kind="id"), "42 "),
        (FieldRule(kind="id", max_chars=2), "423"),
        (FieldRule(kind="text"), " \u200b"),
        (FieldRule(kind="text"), ["a"]),
        (FieldRule(kind="enum", values=("EUR",)), "eur"),
        (FieldRule(kind="enum", values=("EUR",)), "\u20ac"),
        (FieldRule(kind="bool"), 1),
        (FieldRule(kind="bool"), "true"),
        (FieldRule(kind="int"), True),
        (FieldRule(kind="int"), Decimal("1.0")),
        (FieldRule(kind="int"), "1"),
        (FieldRule(kind="int", minimum=Decimal(2)), 1),
        (FieldRule(kind="decimal"), "12.50"),
        (FieldRule(kind="decimal", maximum=Decimal(1)), 19),
        (FieldRule(kind="decimal", places=2), Decimal("1.234")),
        (FieldRule(kind="money"), 3),
        (FieldRule(kind="money"), {"amount": 3}),
        (FieldRule(kind="money"), {"amount": "3", "currency": "EUR"}),
        (FieldRule(kind="money"), {"amount": 3, "currency": "euro"}),
        (FieldRule(kind="money", values=("USD",)), {"amount": 3, "currency": "EUR"}),
        (FieldRule(kind="money"), {"amount": 3, "currency": "EUR", "note": 1}),
        (DAYS, {"n": 30, "unit": "days"}),
        (DAYS, {"n": 30, "unit": ["day"]}),
        (FieldRule(kind="quantity"), {"n": 30, "unit": " "}),
        (FieldRule(kind="date"), "12th of March"),
        (FieldRule(kind="date"), "2023-02-29"),
        (FieldRule(kind="date"), "20240312"),
        (FieldRule(kind="date"), "2024-W11-2"),
        (FieldRule(kind="date"), "2024-03-12T00:00:00Z"),
        (FieldRule(kind="date"), "\u0662024-03-12"),
        (FieldRule(kind="datetime"), "2024-03-12T10:00:00"),
        (FieldRule(kind="datetime"), "2024-03-12T25:00:00Z"),
        (FieldRule(kind="datetime"), "2024-03-12T10:00:00+24:00"),
        (FieldRule(kind="datetime"), "2024-03-12 10:00:00Z"),
    ],
)
def test_a_wrong_form(rule, found):
    assert isinstance(leaf_key(rule, found), Malformed)


def test_folding_twice_changes_nothing():
    for text in ("\u01c5 X", "\u0345\u0345", "\u1e9e", "A\u030a B\u00ad"):
        assert fold_text(fold_text(text)) == fold_text(text)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "no kind"),
        ({"kind": "number"}, "known: id, text"),
        ({"kind": "id", "pattern": "x"}, "'pattern'"),
        ({"kind": "enum"}, "values"),
        ({"kind": "id", "values": ["a"]}, "values are for"),
        ({"kind": "money", "values": "EUR"}, "list of texts"),
        ({"kind": "text", "minimum": 1}, "minimum"),
        ({"kind": "decimal", "places": -1}, "places"),
        ({"kind": "decimal", "minimum": float("inf")}, "not finite"),
        ({"kind": "id", "ordered": True}, "ordered is for list"),
        ({"kind": "id", "presence": "maybe"}, "presence"),
        ({"kind": "id", "max_chars": 0}, "max_chars"),
    ],
)
def test_settings_that_cannot_be(settings, words):
    with pytest.raises(VerifierError, match=words):
        rule_from_settings("total", settings)
