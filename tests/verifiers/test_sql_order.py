import pytest

from groupwise.verifiers.sql_order import OrderPlan, plan_order, tie_groups


@pytest.mark.parametrize(
    ("gold", "keyed_sql", "num_hidden", "visible_keys", "offset"),
    [
        ("SELECT a, b FROM t ORDER BY b", None, 0, (1,), 0),
        ("SELECT a, b FROM t ORDER BY 2 DESC, A", None, 0, (1, 0), 0),
        ("SELECT a AS n FROM t ORDER BY n", None, 0, (0,), 0),
        ("SELECT a FROM t UNION SELECT b FROM t ORDER BY a", None, 0, (0,), 0),
        ("SELECT a FROM t ORDER BY b", "SELECT a, b AS order_key_0 FROM t ORDER BY b", 1, (), 0),
        ("SELECT * FROM t ORDER BY b", "SELECT *, b AS order_key_0 FROM t ORDER BY b", 1, (), 0),
        ("SELECT a FROM t ORDER BY a LIMIT 2 OFFSET 3", "SELECT a FROM t ORDER BY a", 0, (0,), 3),
        (
            "SELECT a FROM t GROUP BY a ORDER BY count(*) DESC LIMIT 1",
            "SELECT a, COUNT(*) AS order_key_0 FROM t GROUP BY a ORDER BY COUNT(*) DESC",
            1,
            (),
            0,
        ),
    ],
)
def test_plan(gold, keyed_sql, num_hidden, visible_keys, offset):
    assert plan_order(gold) == OrderPlan(
        keyed_sql=keyed_sql, num_hidden=num_hidden, visible_keys=visible_keys, offset=offset
    )


@pytest.mark.parametrize(
    "gold",
    [
        "SELECT DISTINCT a FROM t ORDER BY b",
        "SELECT a FROM t",
        "SELECT FROM WHERE",
        "SELECT a FROM t ORDER BY a LIMIT 1 OFFSET (1 + 1)",
    ],
)
def test_no_plan(gold):
    assert plan_order(gold) is None


def test_groups_are_cut_to_the_window():
    plan = OrderPlan(keyed_sql="...", num_hidden=1, visible_keys=(), offset=1)
    keyed = [("a", 1), ("b", 1), ("c", 2), ("d", 3), ("e", 3)]
    groups = tie_groups(plan, keyed, num_shown=3, complete=True)  # shows b c and one of d e
    assert [(g.num_shown, g.rows) for g in groups] == [
        (1, (("a",), ("b",))),
        (1, (("c",),)),
        (1, (("d",), ("e",))),
    ]
    assert tie_groups(plan, keyed, num_shown=3, complete=False) is None
    assert tie_groups(plan, keyed, num_shown=2, complete=False) is not None
    assert tie_groups(plan, keyed, num_shown=9, complete=True) is None
