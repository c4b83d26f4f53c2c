"""The documents say what is true: the recipe loads, the named places exist, the make targets are there."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from groupwise.config import load_scoring_recipe, parse_recipe
from groupwise.launch.verifiers import build_verifier
from groupwise.types import Task

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "groupwise"
DOCUMENTS = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "benchmarks/README.md",
    "docs/verifiers.md",
)
KINDS = ("sql", "tools", "extraction", "classification", "math", "function", "compose")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def names_in(paths: list[Path]) -> set[str]:
    """Functions and classes of these files; a method as Class.method."""
    names: set[str] = set()
    for path in paths:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(node.name)
            if isinstance(node, ast.ClassDef):
                names |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return names


def test_the_recipe_of_the_readme_loads() -> None:
    block = re.search(r"```toml\n(.*?)```", read("README.md"), re.DOTALL)
    assert block is not None
    assert [stage.name for stage in parse_recipe(block[1]).stages] == ["sft", "grpo"]


def test_every_place_in_the_architecture_exists() -> None:
    section = read("ARCHITECTURE.md").split("## 6. Where is it?")[1].split("## 7.")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if "`" in line[:1000]
    ]
    rows = [row for row in rows if len(row) == 3]
    assert len(rows) > 20
    for concept, files, names in rows:
        given = re.findall(r"`([^`]+)`", files)
        folder = Path(given[0]).parent if given[0].endswith(".py") else Path(given[0])
        paths = [PACKAGE / folder / Path(name).name for name in given if name.endswith(".py")]
        missing = [path.name for path in paths if not path.is_file()]
        assert not missing, f"{concept}: no file {missing}"
        known = names_in(paths or sorted((PACKAGE / folder).glob("*.py")))
        unknown = [name for name in re.findall(r"`([^`]+)`", names) if name not in known]
        assert not unknown, f"{concept}: {unknown} is not in {files}"


def test_the_readme_lists_every_room() -> None:
    section = read("README.md").split("## The rooms")[1]
    listed = set(re.findall(r"^      (\w+)(?:/|\.py) ", section, re.MULTILINE))
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} | {"types", "errors"}
    assert listed == rooms


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_make_target_and_link_exists(name: str) -> None:
    text = read(name)
    targets = set(re.findall(r"^([\w-]+):", read("Makefile"), re.MULTILINE))
    assert set(re.findall(r"(?:^    |`)make ([\w-]+)", text, re.MULTILINE)) <= targets
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    missing = [link for link in links if not ((ROOT / name).parent / link).exists()]
    assert not missing


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def section_of(kind: str) -> str:
    return read("docs/verifiers.md").split(f"\n## {kind}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("kind", KINDS)
def test_each_verifier_section_of_the_documents_loads(kind: str, tmp_path: Path) -> None:
    found = blocks(section_of(kind), "toml")
    assert found
    for block in found:
        (tmp_path / "recipe.toml").write_text(block, encoding="utf-8")
        assert load_scoring_recipe(tmp_path / "recipe.toml").verifier.kind == kind


@pytest.mark.parametrize("kind", ["tools", "extraction", "classification", "math", "function"])
def test_the_tasks_of_the_documents_are_usable(kind: str, tmp_path: Path) -> None:
    section = section_of(kind)
    values = blocks(section, "json")
    rows = [json.loads(value) for value in values if value.startswith('{"id"')]
    recipes = blocks(section, "toml")
    assert rows
    assert len(rows) == len(recipes)
    for value in values:
        if not value.startswith('{"id"'):
            (tmp_path / "world.json").write_text(value, encoding="utf-8")
    for function in blocks(section, "python"):
        (tmp_path / "rewards.py").write_text(function, encoding="utf-8")
    for row, recipe in zip(rows, recipes, strict=True):
        (tmp_path / "recipe.toml").write_text(recipe, encoding="utf-8")
        verifier = build_verifier(load_scoring_recipe(tmp_path / "recipe.toml"))
        task = Task(id=row["id"], prompt=row["prompt"], columns=row)
        try:
            assert verifier.check([task]) == []
            assert verifier.judge(task, verifier.gold(task)).reward == 1.0
        finally:
            verifier.close()
