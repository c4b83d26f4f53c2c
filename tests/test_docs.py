"""What the documents promise exists: every command is a verb, every recipe parses."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from groupwise.cli.main import app
from groupwise.config import load_recipe, parse_recipe

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
RECIPES = sorted([*ROOT.glob("recipes/*.toml"), *ROOT.glob("src/groupwise/bundled/*.toml")])

COMMAND = re.compile(r"^\s*(?:\$ )?(?:\S*/)?groupwise\s+(?P<rest>\S.*)$")
INLINE = re.compile(r"`groupwise\s+(?P<rest>[^`]+)`")


def commands(markdown: str) -> list[list[str]]:
    """The arguments of every `groupwise ...` in a fenced or indented block or between backticks; [ ] mark options."""
    found: list[str] = []
    fenced = False
    for line in markdown.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif (fenced or line.startswith("    ")) and (command := COMMAND.match(line)):
            found.append(command["rest"])
        else:
            found += [inline["rest"] for inline in INLINE.finditer(line)]
    return [shlex.split(rest.translate(str.maketrans("", "", "[]")), comments=True) for rest in found]


def problem_of(arguments: list[str]) -> str | None:
    """Why the command line would refuse this verb or these options, or None."""
    verbs = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    verb, *rest = arguments
    if verb.startswith("-"):
        return None if verb == "--help" else f"groupwise has no option {verb}"
    if verb not in verbs:
        return f"{verb!r} is no verb; there are {', '.join(verbs)}"
    known = {name for parameter in verbs[verb].params for name in (*parameter.opts, *parameter.secondary_opts)}
    unknown = [a for a in rest if a.startswith("--") and a.partition("=")[0] not in {*known, "--help"}]
    return f"{verb} has no option {unknown[0]}" if unknown else None


@pytest.mark.parametrize(
    ("path", "command"),
    [
        (README, "demo"),
        (ROOT / "docs" / "verifiers.md", "audit"),
        (ROOT / "docs" / "planning.md", "curate"),
        (ROOT / "docs" / "algorithms.md", "pairs"),
        (ROOT / "docs" / "seeing.md", "diagnose"),
        (ROOT / "ARCHITECTURE.md", "report"),
        (ROOT / "CHANGELOG.md", "report"),
    ],
    ids=["README", "verifiers", "planning", "algorithms", "seeing", "architecture", "changelog"],
)
def test_every_command_in_the_documents_exists(path: Path, command: str) -> None:
    found = commands(path.read_text(encoding="utf-8"))
    assert command in [arguments[0] for arguments in found]
    assert [problem for arguments in found if (problem := problem_of(arguments))] == []


def test_every_verb_is_in_the_readme() -> None:
    verbs = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert {arguments[0] for arguments in commands(README.read_text(encoding="utf-8"))} >= verbs


def test_the_check_above_finds_what_is_wrong() -> None:
    text = "groupwise is\n```sh\n$ groupwise trane x.toml\n```\n    bin/groupwise demo [--quik]  # `groupwise x`\n"
    assert commands(text) == [["trane", "x.toml"], ["demo", "--quik"]]
    assert commands("Say `groupwise demo` twice, `groupwise eval x`.") == [["demo"], ["eval", "x"]]
    unknown = problem_of(["trane", "x.toml"])
    assert unknown is not None
    assert unknown.startswith("'trane' is no verb; there are ")
    assert {"audit", "train", "eval", "score", "demo"} <= set(unknown.partition("there are ")[2].split(", "))
    assert problem_of(["demo", "--quik"]) == "demo has no option --quik"
    assert problem_of(["demo", "--quick", "--seed=3"]) is None
    assert problem_of(["--help"]) is None


def test_there_are_recipes_to_check() -> None:
    assert {"recipe.toml", "quick.toml"} <= {path.name for path in RECIPES}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_recipe_parses(path: Path) -> None:
    load_recipe(path)


def test_the_recipe_in_the_readme_parses() -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```", README.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    whole = [block for block in blocks if "[[stages]]" in block]
    assert whole
    for block in whole:
        parse_recipe(block)
