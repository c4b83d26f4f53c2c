"""The rules of the house, checked: sizes, names, documentation, who imports whom, and where torch stays out."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "groupwise"
FILES = sorted(PACKAGE.rglob("*.py"))

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 80
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}
TORCH_FREE = (
    "types",
    "errors",
    "config",
    "data",
    "sandbox",
    "verifiers",
    "audit",
    "curation",
    "planning",
    "bundled",
    "runs",
    "pages",
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))  # a syntax error then names its file


def long_functions(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, Function):
            num_lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if num_lines > MAX_FUNCTION_LINES:
                yield f"{node.lineno} {node.name} has {num_lines} lines"


def undocumented(module: ast.Module) -> Iterator[str]:
    if ast.get_docstring(module) is None:
        yield "1 the module"
    yield from _undocumented_members(module)


def _undocumented_members(parent: ast.Module | ast.ClassDef) -> Iterator[str]:
    for node in parent.body:
        if not isinstance(node, Function | ast.ClassDef) or node.name.startswith("_"):
            continue
        if ast.get_docstring(node) is None:
            yield f"{node.lineno} {node.name}"
        if isinstance(node, ast.ClassDef):
            yield from _undocumented_members(node)


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_package_is_found() -> None:
    assert PACKAGE / "types.py" in FILES


def test_no_file_is_too_long() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in FILES}
    assert {name: n for name, n in lengths.items() if n > MAX_FILE_LINES} == {}


def test_no_function_is_too_long() -> None:
    found = [f"{path.relative_to(ROOT)}:{line}" for path in FILES for line in long_functions(parse(path))]
    assert found == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    found = [path for path in FILES if VAGUE_NAMES & set(path.relative_to(PACKAGE).with_suffix("").parts)]
    assert found == []


def test_everything_public_is_documented() -> None:
    found = [f"{path.relative_to(ROOT)}:{line}" for path in FILES for line in undocumented(parse(path))]
    assert found == []


def test_the_checks_above_can_fail() -> None:
    body = "    x = 1\n" * MAX_FUNCTION_LINES
    assert list(long_functions(ast.parse(f"class A:\n  def f():\n{body}"))) == ["2 f has 81 lines"]
    source = "class A:\n  '''Doc.'''\n  def f(self): ...\n  def _g(self): ...\nasync def h(): ...\n"
    assert list(undocumented(ast.parse(source))) == ["1 the module", "3 f", "5 h"]


def test_the_layers_hold() -> None:
    pytest.importorskip("importlinter")
    found = run_python(
        "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True, no_logo=True))"
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_torch_free_rooms_import_no_torch() -> None:
    """Every module of every such room, in one process; the first that brings torch in is named."""
    files = [path.relative_to(PACKAGE.parent).with_suffix("") for path in FILES]
    rooms = [path for path in files if path.parts[1] in TORCH_FREE and path.name != "__main__"]
    modules = [".".join(path.parts).removesuffix(".__init__") for path in rooms]
    found = run_python(
        "import importlib, sys\n"
        f"for module in {['groupwise', *modules]!r}:\n"
        "    importlib.import_module(module)\n"
        "    if 'torch' in sys.modules: sys.exit(f'{module} imports torch')\n"
    )
    assert found.returncode == 0, found.stderr


@pytest.mark.skipif(not (PACKAGE / "cli" / "main.py").exists(), reason="the command line does not exist yet")
def test_help_imports_no_torch() -> None:
    found = run_python(
        "import sys\n"
        "from groupwise.cli.main import main\n"
        "sys.argv = ['groupwise', '--help']\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as stop:\n"
        "    assert not stop.code, stop.code\n"
        "sys.exit('--help imports torch' if 'torch' in sys.modules else 0)\n"
    )
    assert found.returncode == 0, found.stderr
    assert "Usage" in found.stdout
