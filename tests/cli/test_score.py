"""groupwise score: verdicts for given texts, in the order of the file, without a model."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest

from groupwise.config import load_recipe, load_scoring_recipe
from groupwise.errors import ConfigError, DataError
from groupwise.launch.score import ScoreCounts, score_file, verdict_line
from groupwise.types import Check, Status, Verdict
from tiny_job import GOLD, write_job

BARE = '[verifier]\nkind = "sql"\nsnapshots = ["one.sqlite", "two.sqlite"]\nnum_workers = 1\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scored")
    write_job(folder)
    (folder / "bare.toml").write_text(BARE)
    return folder


def lines(*rows):
    return io.StringIO("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))


def own(number, completion, **columns):
    return {"id": number, "completion": completion, "columns": {"gold": GOLD, **columns}}


def test_the_command_prints_one_verdict_a_line_and_imports_no_torch(folder):
    rows = [
        {"id": "heldout-0001", "completion": GOLD},
        {"id": "train-0002", "completion": "SELECT 1"},
        own("mine", "DROP TABLE t"),
    ]
    (folder / "c.jsonl").write_text(lines(*rows).read())
    code = (
        "import sys; from groupwise.cli.main import main\n"
        "try:\n    main()\n"
        "finally:\n    assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    command = [
        sys.executable,
        "-c",
        code,
        "score",
        str(folder / "recipe.toml"),
        "--completions",
        str(folder / "c.jsonl"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    verdicts = [json.loads(line) for line in done.stdout.splitlines()]
    assert [list(v) for v in verdicts] == [["id", "status", "reward", "outcome", "reason", "checks"]] * 3
    assert [(v["id"], v["status"], v["reward"], v["outcome"]) for v in verdicts] == [
        ("heldout-0001", "scored", 1.0, True),
        ("train-0002", "scored", 0.0, False),
        ("mine", "invalid", 0.0, False),
    ]
    assert verdicts[0]["checks"][0] == {"name": "columns", "passed": True, "expected": "1", "found": "1"}
    assert "3 completions, 1 solved (invalid 1, scored 2)" in done.stderr


def test_the_verifier_alone_will_do(folder):
    recipe = load_scoring_recipe(folder / "bare.toml")
    found = list(score_file(recipe, lines(own(1, GOLD), "", own("b", "SELECT 2")), "c"))
    assert [(task_id, verdict.reward) for task_id, verdict in found] == [("1", 1.0), ("b", 0.0)]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("{", "c:2: not JSON"),
        ("[1]", "c:2: holds list"),
        ("[" * 100_000, "c:2: not JSON that can be read"),
        ({"id": "a"}, "c:2: has no 'completion'"),
        ({"completion": "x"}, "c:2: has no 'id'"),
        ({"id": True, "completion": "x"}, "c:2: id is True"),
        ({"id": "a", "completion": 3}, "c:2: completion is int"),
        ({"id": "a", "completion": "x", "columns": []}, "c:2: columns is list"),
        ({"id": "a", "completion": "x", "colums": {}}, "unknown keys colums"),
        ({"id": "a", "completion": "x"}, "no .data."),
    ],
)
def test_a_line_that_cannot_be_used_is_named_before_anything_is_judged(folder, row, words):
    recipe = load_scoring_recipe(folder / "bare.toml")
    with pytest.raises(DataError, match=words):
        next(score_file(recipe, lines(own("a", GOLD), row), "c"))


def test_many_bad_lines_are_one_message(folder):
    recipe = load_scoring_recipe(folder / "bare.toml")
    with pytest.raises(DataError, match="8 lines cannot be used:") as error:
        next(score_file(recipe, lines(*["{"] * 8), "c"))
    assert "c:5:" in str(error.value)
    assert "and 3 more" in str(error.value)


def test_an_empty_file_and_an_unknown_task_are_refused(folder):
    with pytest.raises(DataError, match="no completion"):
        next(score_file(load_scoring_recipe(folder / "bare.toml"), lines(), "c"))
    with pytest.raises(DataError, match=r"c:1: no task of the recipe has the id 'x' .11 have others, such as"):
        next(score_file(load_scoring_recipe(folder / "recipe.toml"), lines({"id": "x", "completion": ""}), "c"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[verifer]\n", "verifer is not a known key"),
        (BARE + "nun_workers = 2\n", "verifier.nun_workers is not a known key"),
        ("seed = 1\n", "verifier is missing"),
        (BARE + "[model]\nnme = 1\n[[stages]]\n", "model.nme"),
    ],
)
def test_mistakes_in_the_recipe_are_told(tmp_path, text, words):
    (tmp_path / "r.toml").write_text(text)
    with pytest.raises(ConfigError, match=words):
        load_scoring_recipe(tmp_path / "r.toml")


def test_a_verdict_is_one_ascii_line_and_shows_parts_where_there_are_any():
    verdict = Verdict(status=Status.SCORED, reward=1.0, outcome=True, reason="a\nb\u2028", parts={"answer": 1.0})
    line = verdict_line("q", verdict)
    assert line.isascii()
    assert len(line.splitlines()) == 1
    assert json.loads(line)["parts"] == {"answer": 1.0}


COMPOSED = """
[verifier]
kind = "compose"
partial_cap = 0.1

[[verifier.parts]]
name = "answer"
weight = 3.0
verifier = { kind = "sql", snapshots = ["one.sqlite", "two.sqlite"], num_workers = 1 }

[[verifier.parts]]
name = "form"
role = "gate"
verifier = { kind = "sql", snapshots = ["one.sqlite"], num_workers = 1 }
"""


def test_a_composition_is_written_in_the_recipe(folder):
    (folder / "composed.toml").write_text(COMPOSED)
    recipe = load_scoring_recipe(folder / "composed.toml")
    texts = (GOLD, f"{GOLD} LIMIT 2", "SELECT 1", "DROP TABLE t")
    found = [verdict for _, verdict in score_file(recipe, lines(*(own("a", text) for text in texts)), "c")]
    assert [(v.reward, v.reason.split()[0].rstrip(":")) for v in found] == [
        (1.0, "solved"),
        (0.0, "answer_wrong"),
        (0.0, "form_failed"),
        (0.0, "form_invalid"),
    ]
    assert found[0].parts == {"answer": 1.0}


def test_a_composition_keeps_its_files_when_the_recipe_moves(folder):
    whole = (folder / "recipe.toml").read_text()
    start, end = whole.index("[verifier]"), whole.index("[rollout]")
    (folder / "whole.toml").write_text(whole[:start] + COMPOSED + whole[end:])
    moved = load_recipe(folder / "whole.toml").with_absolute_paths()
    assert moved.verifier.parts[0].verifier.snapshots[1] == str((folder / "two.sqlite").absolute())


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('role = "gate"', 'role = "gait"', 'verifier.parts.1..role = "gait" is not known'),
        ('name = "form"', 'name = "answer"', "also the name of another part"),
        ('role = "gate"', 'role = "outcome"', None),
        ("weight = 3.0", 'role = "shaping"', "would decide what is right"),
    ],
)
def test_a_composition_that_cannot_be_is_refused(folder, old, new, words):
    (folder / "wrong.toml").write_text(COMPOSED.replace(old, new))
    if words is None:
        assert load_scoring_recipe(folder / "wrong.toml").verifier.kind == "compose"
        return
    with pytest.raises(ConfigError, match=words):
        load_scoring_recipe(folder / "wrong.toml")


def test_the_summary_names_a_collapse_and_the_judges_disagreement() -> None:
    """30 verdicts that give "a" where a third is rightly "a"; a judge that supported once and contradicted once."""
    counts = ScoreCounts()
    for number in range(30):
        right = "abc"[number % 3]
        checks = [Check(name="wrong_label", passed=right == "a", expected=right, found="a")]
        if number < 2:
            checks.append(Check(name="judge", passed=number == 0, found=("supports: x", "contradicts: x")[number]))
        counts.add(Verdict(status=Status.SCORED, reward=0.0, outcome=False, reason="planted", checks=tuple(checks)))
    collapse, judged = counts.lines()[2:]
    assert collapse == "label collapse: 'a' is 100% of the labels given and 33% of the right ones"
    assert judged == "judge: asked 2 times, disagreed 50%, unclear 0, failed 0"
