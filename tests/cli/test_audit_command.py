"""groupwise audit, and the audit that training begins with."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from groupwise import bundled
from groupwise.config import load_recipe, load_scoring_recipe
from groupwise.errors import VerifierError
from groupwise.launch import local
from groupwise.launch.audit import audit_recipe, rejudge
from groupwise.types import Status, Task
from tiny_job import GOLD, replaced, write_job

ONE_SNAPSHOT = replaced('["one.sqlite", "two.sqlite"]', '["one.sqlite"]')


def run_audit(folder, *options):
    code = (
        "import sys; from groupwise.cli.main import main\n"
        "try:\n    main()\n"
        "finally:\n    assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    command = [sys.executable, "-c", code, "audit", str(folder / "recipe.toml"), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_a_sound_job_is_a_go_and_imports_no_torch(tmp_path):
    write_job(tmp_path)
    done = run_audit(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "audit: GO (11 of 11 tasks attacked" in done.stdout
    assert "two processes agree" in done.stdout


def test_one_snapshot_is_a_no_go_that_shows_the_query(tmp_path):
    write_job(tmp_path, ONE_SNAPSHOT)
    done = run_audit(tmp_path, "--json")
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    assert report["go"] is False
    example = next(f["example"] for f in report["findings"] if f["check"] == "attack: limit_trick")
    assert example["completion"] == f"{GOLD} LIMIT 2"


def test_labelled_completions_give_error_rates(tmp_path):
    write_job(tmp_path)
    rows = [(GOLD, True), ("SELECT 1", False), ("SELECT a FROM t WHERE 1", False), ("SELECT b FROM t", True)]
    lines = [json.dumps({"id": "train-0001", "completion": text, "correct": right}) for text, right in rows]
    (tmp_path / "cases.jsonl").write_text("\n".join(lines))
    done = run_audit(tmp_path, "--json", "--labelled", str(tmp_path / "cases.jsonl"))
    assert done.returncode == 1
    found = {f["check"]: f for f in json.loads(done.stdout)["findings"]}
    assert found["false positives"]["found"] == "50.0% [9.5%, 90.5%], 1 of 2 wrong completions"
    assert found["false positives"]["example"]["completion"] == "SELECT a FROM t WHERE 1"
    assert found["false negatives"]["found"].endswith("1 of 2 right completions")
    (tmp_path / "cases.jsonl").write_text('{"id": "train-0001", "completion": "x", "correct": 1}\n')
    bad = run_audit(tmp_path, "--labelled", str(tmp_path / "cases.jsonl"))
    assert bad.returncode == 2
    assert "cases.jsonl:1: correct is 1; give true or false." in bad.stderr


def test_an_audit_needs_tasks(tmp_path):
    (tmp_path / "recipe.toml").write_text('[verifier]\nkind = "sql"\nsnapshots = ["one.sqlite"]\n')
    done = run_audit(tmp_path)
    assert done.returncode == 2
    assert "no [data]" in done.stderr


def test_training_with_a_verifier_that_can_be_gamed_is_refused_and_writes_nothing(tmp_path):
    recipe = load_recipe(write_job(tmp_path, ONE_SNAPSHOT))
    before = set(tmp_path.rglob("*"))
    with pytest.raises(VerifierError, match="NO-GO") as error:
        local.train(recipe)
    assert "--accept-audit" in str(error.value)
    assert f"{GOLD} LIMIT 2" in str(error.value)
    assert set(tmp_path.rglob("*")) == before


def test_an_accepted_audit_is_kept_with_the_run(tmp_path):
    recipe = load_recipe(write_job(tmp_path, ONE_SNAPSHOT))
    directory, _ = local.train(recipe, accept_audit=True)
    assert json.loads(directory.audit.read_text())["go"] is False


def test_the_audit_before_training_can_be_left_out(tmp_path):
    def change(text):
        return ONE_SNAPSHOT(text) + "\n[audit]\nfast_tasks = 0\n"

    directory, _ = local.train(load_recipe(write_job(tmp_path, change)))
    assert not directory.audit.exists()


def test_a_second_process_gives_the_same_verdicts(tmp_path):
    write_job(tmp_path)
    recipe = load_scoring_recipe(tmp_path / "recipe.toml")
    task = Task(id="t", prompt="?", columns={"gold": GOLD})
    right, wrong, invalid = rejudge(recipe.verifier, recipe.folder, [(task, GOLD), (task, "SELECT 1"), (task, "")])
    assert (right.reward, wrong.reward, invalid.status) == (1.0, 0.0, Status.INVALID)


def test_a_verifier_that_cannot_start_elsewhere_is_told(tmp_path):
    write_job(tmp_path)
    recipe = load_scoring_recipe(tmp_path / "recipe.toml")
    broken = recipe.verifier.model_copy(update={"memory_limit_mb": 1})
    with pytest.raises(VerifierError, match=r"second process: .*memory_limit_mb"):
        rejudge(broken, recipe.folder, [(Task(id="t", prompt="?"), "x")])


def test_one_and_the_same_recipe_gives_one_and_the_same_report(tmp_path):
    write_job(tmp_path)
    recipe = load_scoring_recipe(tmp_path / "recipe.toml")

    def stable():
        return [f for f in audit_recipe(recipe).findings if f.check != "latency"]

    assert stable() == stable()


@pytest.mark.parametrize("name", ["recipe.toml", "quick.toml"])
def test_the_bundled_job_passes_with_the_share_that_it_states(name):
    recipe = load_scoring_recipe(bundled.path(name))
    recipe = recipe.model_copy(update={"audit": recipe.audit.model_copy(update={"tasks": 60})})
    report = audit_recipe(recipe.in_folder(bundled.path(name).parent))
    assert report.go, report.no_gos
    assert recipe.audit.max_attack_share <= 0.1
