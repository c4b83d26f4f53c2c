"""The command line as a process of its own: help without torch, a whole run, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from groupwise.config import load_recipe
from tiny_job import write_job

ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
} | {"COLUMNS": "100"}


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


HELP_WITHOUT_TORCH = """
import sys
from groupwise.cli.main import main
sys.argv = ["groupwise", *sys.argv[1:]]
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
sys.exit("torch was imported" if "torch" in sys.modules else 0)
"""


@pytest.mark.parametrize("verb", ["", "train", "eval", "demo"])
def test_help_works_without_torch(verb: str) -> None:
    called = python("-c", HELP_WITHOUT_TORCH, *verb.split(), "--help")
    assert called.returncode == 0, called.stderr
    assert "Usage" in called.stdout
    assert (verb or "train") in called.stdout


def test_a_mistake_in_the_recipe_is_told_without_torch(tmp_path: Path) -> None:
    code = HELP_WITHOUT_TORCH.replace("assert not stop.code", "assert stop.code == 2")
    called = python("-c", code, "train", str(tmp_path / "none.toml"))
    assert called.returncode == 0, called.stderr
    assert called.stderr.startswith("ConfigError: ")


def test_openmp_spins_briefly_then_sleeps_unless_the_user_decided() -> None:
    code = (
        "import os; from groupwise.cli import main\n"
        "main.app = lambda: print(os.environ['OMP_WAIT_POLICY'], os.environ.get('GOMP_SPINCOUNT'))\n"
        "main.main()"
    )
    assert python("-c", code).stdout == "passive 10000\n"
    assert python("-c", code, GOMP_SPINCOUNT="7").stdout == "passive 7\n"
    assert python("-c", code, OMP_WAIT_POLICY="active").stdout == "active None\n"


def the_run(folder: Path) -> Path:
    (run,) = (folder / "runs").iterdir()
    return run


def test_a_recipe_trains_from_end_to_end(tmp_path: Path) -> None:
    recipe = write_job(tmp_path)
    called = python("-m", "groupwise.cli.main", "train", str(recipe))
    assert called.returncode == 0, called.stderr
    assert called.stderr == ""  # no warning, no bar where there is no terminal
    run = the_run(tmp_path)
    assert load_recipe(run / "recipe.toml").stages == load_recipe(recipe).stages
    summary = json.loads((run / "summary.json").read_text())
    assert [s["name"] for s in summary["stages"]] == ["base", "sft", "grpo"]
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 12
    assert pq.read_table(run / "rollouts" / "grpo-000001.parquet").num_rows == 8
    assert "Held-out pass rates" in called.stdout
    assert str(run) in called.stdout
    lines = [line.strip() for line in called.stdout.strip().splitlines()]
    (load,) = [line for line in lines if line.startswith('python -c "from transformers import AutoModelForCausalLM; ')]
    assert str(run / "checkpoints" / "grpo-2") in load
    assert lines[-1] == f"groupwise report {run}"


def test_one_ctrl_c_ends_after_the_step_with_a_checkpoint_and_a_summary(tmp_path: Path) -> None:
    def change(text: str) -> str:
        return text.replace("steps = 10", "steps = 100000")

    recipe = write_job(tmp_path, change)
    process = subprocess.Popen(
        [sys.executable, "-m", "groupwise.cli.main", "train", str(recipe)],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 90
        while not list(tmp_path.glob("runs/*/metrics.jsonl")):
            assert process.poll() is None, process.stderr and process.stderr.read()
            assert time.monotonic() < deadline, "no step within 90 s"
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process of the job
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert "Traceback" not in err
    assert "Stopping after this step; press Ctrl-C again to stop at once." in out
    run = the_run(tmp_path)
    num_steps = len((run / "metrics.jsonl").read_text().splitlines())
    assert num_steps < 100_000
    assert (run / "checkpoints" / f"sft-{num_steps}" / "groupwise.json").is_file()
    assert f"Stopped after step {num_steps} of sft, as asked." in out
    summary = json.loads((run / "summary.json").read_text())
    assert [s["name"] for s in summary["stages"]] == ["base", "sft"]
