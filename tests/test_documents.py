"""The documents say what is true: the recipe loads, the named places exist, the make targets are there."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import groupwise
from groupwise.config import load_scoring_recipe, parse_recipe
from groupwise.config.algorithm_dpo import SAMPLED_DEFAULTS, DpoSection
from groupwise.config.algorithm_ppo import PpoSection
from groupwise.config.algorithm_reward_model import RewardModelSection
from groupwise.config.section import Section
from groupwise.config.stage import BEST_OF_N_DEFAULTS, SftSection
from groupwise.launch.verifiers import build_verifier
from groupwise.models.reward_files import save_reward_model
from groupwise.models.reward_model import reward_model_from
from groupwise.types import Status, Task

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "groupwise"
DOCUMENTS = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "benchmarks/README.md",
    "docs/verifiers.md",
    "docs/planning.md",
    "docs/algorithms.md",
    "docs/metrics.md",
    "docs/seeing.md",
)
PAGES = ("algorithms", "metrics", "planning", "seeing", "verifiers")
"""Of docs/."""
KINDS = ("sql", "tools", "extraction", "classification", "math", "function", "reward_model", "compose")
SETTINGS = {
    "SFT": (SftSection, BEST_OF_N_DEFAULTS),
    "DPO": (DpoSection, SAMPLED_DEFAULTS),
    "Reward models": (RewardModelSection, {}),
    "PPO": (PpoSection, {}),
}
"""By section of docs/algorithms.md: whose settings it lists, and defaults that hold for one source alone."""
STAGE_NEEDS = """\
name = "stage"
[model]
name = "model"
[data]
demonstrations = "demonstrations.jsonl"
train = "train.jsonl"
heldout = "heldout.jsonl"
pairs = "pairs.jsonl"
[verifier]
kind = "math"
"""


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


def test_the_settings_of_monitor_and_tracking_load() -> None:
    for page, table in (("seeing", "[tracking]"), ("verifiers", "[monitor.held_back]")):
        [block] = [found for found in blocks(read(f"docs/{page}.md"), "toml") if table in found]
        needs = STAGE_NEEDS if "[verifier]" not in block else STAGE_NEEDS.split("[verifier]")[0]
        stage = '[[stages]]\nname = "grpo"\nsteps = 1\nalgorithm = { name = "grpo" }\noptim = { lr = 1e-5 }\n'
        recipe = parse_recipe(needs + block + stage)
        assert recipe.tracking.tensorboard or recipe.monitor.held_back is not None


def test_every_name_that_the_package_offers_is_there() -> None:
    assert {"evaluate", "load_recipe", "resume", "train"} <= set(groupwise.__all__)
    assert [name for name in groupwise.__all__ if not hasattr(groupwise, name)] == []


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


def test_a_task_and_every_verdict_of_the_reward_model_section(tiny_model: Any, tmp_path: Path) -> None:
    """The reasons and rewards of its table, from a tiny model in the folder that the example names."""
    section = section_of("reward_model")
    [recipe], [row] = blocks(section, "toml"), [json.loads(value) for value in blocks(section, "json")]
    task = Task(id=row["id"], prompt=row["prompt"], columns=row)
    loaded = tiny_model()
    folder = tmp_path / load_scoring_recipe(_written(tmp_path, recipe)).verifier.path  # type: ignore[union-attr]
    folder.parent.mkdir(parents=True)
    model = reward_model_from(loaded.model, seed=0)
    save_reward_model(folder, model, loaded.tokenizer, end_token_id=loaded.end_token_ids[0], mean=0.0, std=1.0)

    def verdict(more: str = "", task: Task = task) -> Any:
        verifier = build_verifier(load_scoring_recipe(_written(tmp_path, f'{recipe}device = "cpu"\n{more}')))
        try:
            return verifier.judge(task, "Turn it on.")
        finally:
            verifier.close()

    reward = verdict().reward
    score = math.log(reward / (1 - reward))  # of four digits: good for the first three of another reward
    assert verdict(f"mean = {score - 1}").reward == pytest.approx(0.7311, abs=1e-3)
    assert verdict(f"mean = {score + 1}").reward == pytest.approx(0.2689, abs=1e-3)
    assert [verdict(f'pays = "outcome"\nmean = {score + off}').reward for off in (-1, 1)] == [1.0, 0.0]
    seen = {
        "solved": verdict(f"mean = {score - 1}"),
        "not_solved": verdict(f"mean = {score + 1}"),
        "too_long": verdict("max_tokens = 40"),
        "prompt_too_long": verdict("max_tokens = 4"),
        "prompt_unusable": verdict(task=Task(id="e", prompt="")),
    }
    rows = [line for line in section.splitlines() if line.startswith("|")]
    for word, found in seen.items():
        assert found.reason.split(":")[0] == word
        [listed] = [line for line in rows if re.search(rf"`{word}[:`]", line)]
        if found.status is not Status.SCORED:
            assert f", {found.status} |" in listed


def _written(folder: Path, recipe: str) -> Path:
    path = folder / "recipe.toml"
    path.write_text(recipe, encoding="utf-8")
    return path


def algorithm_section(name: str) -> str:
    return read("docs/algorithms.md").split(f"\n## {name}\n")[1].split("\n## ")[0]


def settings_in(section: type[Section], filled: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """(setting, default) as the page shows them: dotted names, TOML values, none where nothing is given."""
    for name, field in section.model_fields.items():
        default = filled.get(name, field.default)
        if isinstance(default, Section):
            yield from settings_in(type(default), {}, f"{prefix}{name}.")
        elif name != "name":
            is_number = isinstance(default, int | float) and not isinstance(default, bool)
            shown = f"{default:g}" if is_number else json.dumps(default).replace("null", "none")
            yield f"{prefix}{name}", shown


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_of_an_algorithm_is_listed_with_its_default(name: str) -> None:
    section, filled = SETTINGS[name]
    listed = re.findall(r"^\| `([\w.]+)` \| `([^`|]+)` \| ", algorithm_section(name), re.MULTILINE)
    assert sorted(listed) == sorted(settings_in(section, filled))


@pytest.mark.parametrize("name", SETTINGS)
def test_every_metric_that_is_explained_is_one_that_is_reported(name: str) -> None:
    table = algorithm_section(name).split("\n| metric |")[1].split("\n\n")[0]
    metrics = re.findall(r"`(\w+)`", " ".join(line.split(" | ")[0] for line in table.splitlines()))
    assert metrics
    sources = "".join(path.read_text(encoding="utf-8") for path in sorted((PACKAGE / "training").glob("*.py")))
    assert [m for m in metrics if f'"{m.removeprefix("critic_")}"' not in sources] == []


def test_every_stage_and_recipe_of_the_algorithms_parses() -> None:
    found = blocks(read("docs/algorithms.md"), "toml")
    stages = [
        stage for block in found for stage in parse_recipe(block if "[model]" in block else STAGE_NEEDS + block).stages
    ]
    assert {stage.algorithm.name for stage in stages} == {"sft", "dpo", "reward_model", "ppo", "grpo"}
    assert ["sft", "dpo", "grpo"] in [
        [stage.algorithm.name for stage in parse_recipe(block).stages] for block in found if "[model]" in block
    ]


@pytest.mark.parametrize("name", PAGES)
def test_prose_is_plain_and_fits_the_width(name: str) -> None:
    fenced = False
    for number, line in enumerate(read(f"docs/{name}.md").splitlines(), start=1):
        fenced ^= line.startswith("```")
        assert line.isascii(), number
        assert fenced or line.startswith("|") or len(line) <= 120, number


@pytest.mark.parametrize("name", PAGES)
def test_links_into_a_page_meet_a_heading(name: str) -> None:
    pages = {page: read(f"docs/{page}.md") for page in PAGES}
    for page, anchor in re.findall(r"\]\((?:(\w+)\.md)?#([^)]+)\)", pages[name]):
        headings = re.findall(r"^#+ (.+)$", pages[page or name], re.MULTILINE)
        known = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert anchor in known, f"{page or name}#{anchor}"
