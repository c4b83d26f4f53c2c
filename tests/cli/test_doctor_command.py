"""groupwise doctor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from groupwise.cli.main import app
from groupwise.errors import ConfigError
from groupwise.launch import doctor
from groupwise.launch.findings import Diagnosis, Finding, Standing
from groupwise.planning.hardware import read_hardware


def run(*arguments: str):
    return CliRunner().invoke(app, ["doctor", *arguments])


def test_json_lists_the_findings() -> None:
    called = run("--json")
    assert called.exit_code == 0, called.output
    found = json.loads(called.stdout)
    assert found["healthy"] is True
    assert {"section", "name", "value", "standing", "remedy"} == set(found["findings"][0])


def test_something_essential_that_is_missing_gives_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = Finding(section="packages", name="torch", value="missing", standing=Standing.PROBLEM, remedy="pip it")
    monkeypatch.setattr(doctor, "diagnose", lambda *, ask_hub: Diagnosis(findings=(finding,)))
    called = run()
    assert called.exit_code == 1
    assert "torch" in called.stdout
    assert "-> pip it" in called.stdout
    assert run("--json").exit_code == 1


def test_measuring_prints_the_rates_and_writes_them(tmp_path: Path) -> None:
    out = tmp_path / "rates.json"
    called = run("--measure", "--quick", "--out", str(out))
    assert called.exit_code == 0, called.output
    assert "GFLOP/s" in called.stdout
    assert str(out) in called.stdout.replace("\n", "")
    assert read_hardware(out).measured
    called = run("--measure", "--quick", "--out", str(out), "--json")
    assert json.loads(called.stdout)["hardware"] == json.loads(out.read_text())


@pytest.mark.parametrize("options", [("--quick",), ("--shape", "smollm2-135m"), ("--out", "x.json")])
def test_options_of_measuring_need_measuring(options: tuple[str, ...]) -> None:
    called = run(*options)
    assert isinstance(called.exception, ConfigError)
    assert "--measure" in str(called.exception)
