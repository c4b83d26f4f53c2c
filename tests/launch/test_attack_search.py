"""The audit's attacks among paid completions."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from groupwise.audit import Attack
from groupwise.config import VerifierSection
from groupwise.errors import VerifierError
from groupwise.launch import attack_search
from groupwise.launch.attack_search import AttackSearch, even_json, even_spaces, even_sql, evener
from groupwise.launch.attacks import AttackPlan
from groupwise.types import Completion, Group, Prompt, Rollout, Status, Task, Verdict


def section(**settings: Any) -> VerifierSection:
    made: VerifierSection = TypeAdapter(VerifierSection).validate_python(settings)
    return made


def group(task: Task, *texts: str, paid: bool = True) -> Group:
    verdict = Verdict(status=Status.SCORED, reward=float(paid), outcome=paid, reason="same_rows")
    rollouts = tuple(Rollout(completion=Completion(text=text), verdict=verdict) for text in texts)
    return Group(task=task, prompt=Prompt(task_id=task.id, token_ids=(1,)), rollouts=rollouts)


def task(number: int, gold: str, **columns: Any) -> Task:
    return Task(id=f"q{number}", prompt=f"Question {number}?", columns={"gold": gold, **columns})


def gold_column(one: Task) -> str:
    return str(one.columns["gold"])


@pytest.fixture
def sql(tmp_path: Path) -> Iterator[AttackSearch]:
    with closing(sqlite3.connect(tmp_path / "one.sqlite")) as connection, connection:
        connection.execute("CREATE TABLE t (a INTEGER, b TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(3, "x"), (1, "y"), (5, "X")])
    search = AttackSearch.of(section(kind="sql", snapshots=("one.sqlite",)), tmp_path, gold_column)
    yield search
    search.close()


GOLD = "SELECT a FROM t WHERE b = 'x' OR a = 5"


def test_a_paid_trick_is_found_by_the_name_that_the_audit_gives_it(sql: AttackSearch) -> None:
    tricks = ("values (3),  (5);", "SELECT 3 UNION ALL SELECT 5", "SELECT * FROM sqlite_master")
    found = sql.look([group(task(0, GOLD), *tricks)])
    assert [hit.attack for hit in found.hits] == ["constant_rows", "constant_selects", "schema_table"]
    assert found.compared == (("constant_rows", "q0"), ("constant_selects", "q0"), ("schema_table", "q0"))
    assert found.hits[0].why == "the gold's rows as constants"


def test_the_gold_and_honest_queries_are_no_hits(sql: AttackSearch) -> None:
    honest = ("select a from t where b='x' or a=5 ;", "SELECT t.a FROM t WHERE t.a IN (3, 5)")
    assert sql.look([group(task(0, GOLD), *honest)]).compared == (None, None)


def test_what_was_not_paid_is_not_looked_at(sql: AttackSearch) -> None:
    assert sql.look([group(task(0, GOLD), "VALUES (3), (5)", paid=False)]).compared == ()


def text_search(**changes: Any) -> AttackSearch:
    search = AttackSearch.of(section(kind="function", path="m:f"), Path(), gold_column)
    for name, value in changes.items():
        setattr(search, name, value)
    return search


def test_one_text_paid_for_many_different_golds_is_a_constant_answer() -> None:
    search = text_search(gold_is_the_answer=True)
    groups = [group(task(n, f"answer {n}"), "the key word") for n in range(6)]
    found = search.look(groups)
    assert [None if one is None else one[0] for one in found.compared] == [None] * 4 + ["constant_answer"] * 2
    assert "5 different golds" in found.hits[0].why


def test_where_a_gold_is_one_right_answer_of_many_a_constant_answer_is_counted_and_alarms_nobody() -> None:
    search = AttackSearch.of(section(kind="function", path="m:f"), Path(), gold_column)
    found = search.look([group(task(n, f"answer {n}"), "the key word") for n in range(6)])
    assert [hit.attack for hit in found.hits] == ["constant_answer"] * 2
    assert found.compared == (None,) * 6


def test_one_text_that_is_the_gold_of_many_tasks_or_whose_golds_are_one_is_none() -> None:
    search = text_search()
    assert search.look([group(task(n, "yes"), "yes") for n in range(9)]).hits == ()
    assert search.look([group(task(n, "Yes, it is."), "yes indeed") for n in range(9, 18)]).hits == ()


def test_without_golds_nobody_can_say_what_is_constant() -> None:
    def unknown(one: Task) -> str:
        raise VerifierError("gold_unknown")

    search = text_search(gold_of=unknown)
    groups = [group(task(n, ""), "the key word", f"Question  {n}?") for n in range(6)]
    assert {hit.attack for hit in search.look(groups).hits} == {"prompt_copied"}


def test_two_labels_are_enough_where_a_label_decides() -> None:
    labels = section(kind="classification", labels=("a", "b"), label_column="label")
    search = AttackSearch.of(labels, Path(), lambda one: f"label: {one.columns['label']}")
    texts = [group(task(n, "", label="ab"[n % 2]), "whatever is asked") for n in range(2)]
    assert [hit.attack for hit in search.look(texts).hits] == ["constant_answer"]
    right = [group(task(n, "", label="a"), "LABEL: a") for n in range(2, 7)]
    assert search.look(right).hits == ()


def plan_of(make: Callable[[Task, str], list[Attack]]) -> AttackPlan:
    return AttackPlan(attack=make)


def test_attacks_that_may_be_right_are_left_out_and_so_is_one_that_equals_the_gold() -> None:
    made = [
        Attack(name="may", text="perhaps", why="", may_pass=True),
        Attack(name="same", text="right  answer", why=""),
        Attack(name="wrong", text="wrong answer", why="it is"),
    ]
    search = text_search(plan=plan_of(lambda one, gold: made))
    found = search.look([group(task(0, "right answer"), "perhaps", "right answer", "wrong\nanswer")])
    assert [hit.attack for hit in found.hits] == ["wrong"]


def test_attacks_are_made_once_a_task_and_not_beyond_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def slow(one: Task, gold: str) -> list[Attack]:
        made.append(one.id)
        time.sleep(0.02)
        return []

    monkeypatch.setattr(attack_search, "FREE_SECONDS", 0.05)
    search = text_search(plan=plan_of(slow))
    for _ in range(3):
        search.look([group(task(n, f"gold {n}"), f"text {n}") for n in range(20)])
    assert len(made) == len(set(made)) <= 4
    assert search.seconds < 0.05 + 0.03 + attack_search.SHARE_OF_TIME * 10


def test_columns_that_do_not_fit_an_attack_are_no_error() -> None:
    def breaks(one: Task, gold: str) -> list[Attack]:
        raise KeyError("labels")

    assert text_search(plan=plan_of(breaks)).look([group(task(0, "gold"), "text")]).compared == (None,)


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [
        ("SELECT  a,b FROM t;", "select a , b from T", True),
        ("```sql\nSELECT a FROM t\n```", "select a from t", True),
        ("SELECT 'Oslo'", "select 'oslo'", False),
        ("SELECT 'a  b'", "SELECT 'a b'", False),
        ('SELECT "A"', 'SELECT "a"', False),
        ("SELECT ab", "SELECT a b", False),
        ("SELECT 'it''s;'", "SELECT  'it''s;' ;", True),
    ],
)
def test_sql_is_evened_out_but_for_what_stands_in_quotes(first: str, second: str, alike: bool) -> None:
    assert (even_sql(first) == even_sql(second)) is alike


def test_json_is_evened_out_by_the_order_of_its_keys() -> None:
    assert even_json('{"b": 1, "a": [2, 3]}') == even_json('```json\n{"a":[2,3],\n"b":1}\n```')
    assert even_json('{"a": [2, 3]}') != even_json('{"a": [3, 2]}')
    assert even_json("no  json") == even_spaces("no json ")


def test_a_composition_is_evened_out_as_what_decides_in_it() -> None:
    parts = (
        {"name": "form", "role": "gate", "verifier": {"kind": "function", "path": "m:f"}},
        {"name": "rows", "verifier": {"kind": "sql", "snapshots": ["one.sqlite"]}},
    )
    assert evener(section(kind="compose", parts=parts)) is even_sql
