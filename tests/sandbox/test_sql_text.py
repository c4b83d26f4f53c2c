import pytest

from groupwise.sandbox.sql_text import scan_sql


@pytest.mark.parametrize(
    ("text", "first_words"),
    [
        ("SELECT 1", ("select",)),
        ("select 1;", ("select",)),
        ("-- a; b\n/* ; */ With x AS (SELECT 1) SELECT * FROM x ; -- end;", ("with",)),
        ("SELECT ';' || \";\" || [;] || `;`", ("select",)),
        ("SELECT 'it''s; fine'", ("select",)),
        ("SELECT 1; DROP TABLE t", ("select", "drop")),
        ("(SELECT 1)", ("",)),
        ("", ()),
        ("-- nothing", ()),
        (";;", ()),
        ("SELECT 'open; DROP TABLE t", ("select",)),
        ("/* open; DROP TABLE t", ()),
    ],
)
def test_statements(text, first_words):
    assert scan_sql(text).first_words == first_words


@pytest.mark.parametrize(
    ("text", "has_order"),
    [
        ("SELECT a FROM t ORDER BY a", True),
        ("SELECT a FROM t ORDER\n/* x */ BY a LIMIT 1", True),
        ("WITH x AS (SELECT 1) SELECT * FROM x UNION SELECT 2 ORDER BY 1", True),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a)", False),
        ("SELECT rank() OVER (ORDER BY a) FROM t", False),
        ("SELECT 'ORDER BY a' FROM t -- ORDER BY a", False),
        ('SELECT "order" FROM t', False),
    ],
)
def test_only_an_outer_order_by_counts(text, has_order):
    assert scan_sql(text).has_order is has_order


@pytest.mark.parametrize(
    ("text", "names_clock"),
    [
        ("SELECT date('now')", True),
        ("SELECT date( )", True),
        ("SELECT strftime('%Y')", True),
        ("SELECT strftime('%Y', d) FROM t", False),
        ("SELECT date(d) FROM t", False),
        ("SELECT now FROM t", False),
    ],
)
def test_the_clock(text, names_clock):
    assert scan_sql(text).names_clock is names_clock


def test_table_expressions():
    form = scan_sql("WITH a AS (SELECT 1), b(x) AS NOT MATERIALIZED (SELECT 2) SELECT * FROM t AS u, a")
    assert {"a", "b"} <= form.expression_names
    assert not {"t", "u"} & form.expression_names


def test_a_long_text_is_scanned_in_linear_time():
    for text in ("(" * 200_000, "'" * 200_001, "/*" * 100_000, "a" * 200_000, "- " * 100_000):
        scan_sql(text)
