from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from groupwise.config import GrpoSection, SftSection, load_recipe, parse_recipe
from groupwise.errors import ConfigError

RECIPE = """name = "shop-sql"
seed = 17

[model]
name = "models/tiny"

[data]
train = "train.jsonl"
heldout = "heldout.jsonl"
demonstrations = "demonstrations.jsonl"

[verifier]
kind = "sql"
snapshots = ["shop.sqlite", "db/{db_id}.sqlite"]

[rollout]
group_size = 4

[[stages]]
steps = 10
[stages.algorithm]
name = "sft"
[stages.optim]
lr = 1e-4

[[stages]]
name = "main"
steps = 100
[stages.algorithm]
name = "grpo"
[stages.optim]
lr = 1
"""


def complaint(old: str, new: str) -> str:
    assert RECIPE.count(old) == 1, old
    with pytest.raises(ConfigError) as caught:
        parse_recipe(RECIPE.replace(old, new))
    return str(caught.value)


def test_a_recipe_is_read_with_its_defaults() -> None:
    recipe = parse_recipe(RECIPE)
    assert recipe.seed == 17
    assert recipe.rollout.group_size == 4
    assert recipe.rollout.temperature == 1.0
    assert recipe.verifier.snapshots == ("shop.sqlite", "db/{db_id}.sqlite")
    assert [stage.name for stage in recipe.stages] == ["sft", "main"]
    assert isinstance(recipe.stages[0].algorithm, SftSection)
    grpo = recipe.stages[1].algorithm
    assert isinstance(grpo, GrpoSection)
    assert (grpo.scale, grpo.clip_low, grpo.clip_high) == ("std", 0.2, None)
    assert recipe.stages[1].optim.lr == 1.0


def test_paths_start_at_the_folder_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(RECIPE)
    recipe = load_recipe(tmp_path / "recipe.toml")
    assert recipe.folder == tmp_path
    assert recipe.data.train == "train.jsonl"
    assert recipe.resolve("a/b.jsonl") == tmp_path / "a" / "b.jsonl"
    assert recipe.resolve(str(tmp_path / "c")) == tmp_path / "c"
    assert load_recipe(tmp_path / "recipe.toml", folder="/elsewhere").resolve("x") == Path("/elsewhere/x")


def test_the_folder_cannot_be_written_in_the_file() -> None:
    assert "folder is not a known key" in complaint("seed = 17", 'folder = "/"')


def test_a_wrong_algorithm_names_the_known_ones_the_nearest_and_the_line() -> None:
    text = complaint('name = "grpo"', 'name = "grop"')
    line = RECIPE.splitlines().index('name = "grpo"') + 1
    assert text == (
        'stages[1].algorithm.name = "grop" is not known.\n'
        f'  known: dpo, grpo, ppo, reward_model, sft.  Did you mean "grpo"?   (recipe.toml:{line})'
    )


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "group_size = 4",
            "group_sise = 4",
            ["rollout.group_sise is not a known key", 'Did you mean "group_size"?', ":17)"],
        ),
        ("seed = 17", "group_size = 4", ["group_size is not a known key", "It belongs in [rollout]", ":2)"]),
        ("seed = 17", 'seed = "17"', ['seed = "17"', "a whole number", ":2)"]),
        ("seed = 17", "seed = true", ["seed = true", "a whole number"]),
        ("seed = 17", "seed = 1.5", ["seed = 1.5", "a whole number"]),
        ("seed = 17", "seed = -1", ["seed = -1 is out of range", "0 or more"]),
        ("seed = 17", "threads = 0", ["threads = 0 is out of range", "1 or more"]),
        ('"shop-sql"', '"shop sql"', ["name =", "letters, digits"]),
        ('"shop-sql"', '"../shop"', ["name =", "letters, digits"]),
        ("group_size = 4", "group_size = 1", ["cannot be its own baseline", "2 to 256", ":17)"]),
        ("group_size = 4", "group_size = 257", ["allowed: 2 to 256"]),
        ("group_size = 4", "temperature = 0", ["every rollout of a group would be the same", "above 0"]),
        ("group_size = 4", "top_p = 1.5", ["above 0 and at most 1"]),
        ("group_size = 4", "temperature = inf", ["a finite number"]),
        ("group_size = 4", 'stop = [""]', ["would end every completion"]),
        ("group_size = 4", 'stop = "x"', ["rollout.stop", "a list"]),
        ("group_size = 4", "stop = [1]", ["rollout.stop[0] = 1", "text in quotes"]),
        ('name = "models/tiny"', 'nme = "models/tiny"', ["model.name is missing", "model.nme is not a known key"]),
        ('name = "models/tiny"', 'name = "m"\ndevice = "gpu"', ['model.device = "gpu"', "cuda", ":6)"]),
        ('name = "models/tiny"', 'name = "m"\ndtype = "bf16"', ["known: auto, float32, bfloat16", '"bfloat16"?']),
        ('kind = "sql"', 'kind = "sqll"', ['verifier.kind = "sqll" is not known', "known: ", 'mean "sql"?', ":13)"]),
        ('kind = "sql"\n', "", ["verifier.kind is missing", ":12)"]),
        ('snapshots = ["shop.sqlite", "db/{db_id}.sqlite"]', "snapshots = []", ["verifier.snapshots is empty"]),
        ("lr = 1e-4", "", ["stages[0].optim.lr is missing", ":23)"]),
        ("lr = 1e-4", "lr = 0", ["stages[0].optim.lr = 0", "above 0"]),
        ("lr = 1e-4", "lr = 1\nbetas = [0.9, 1]", ["betas", "under 1"]),
        ("lr = 1e-4", "lr = 1\nwarmup_steps = 10", ["stages[0].optim.warmup_steps = 10", "smaller than steps = 10"]),
        (
            'name = "sft"',
            'nam = "sft"',
            ["stages[0].algorithm.name is missing", "known: dpo, grpo, ppo, reward_model, sft"],
        ),
        ('name = "main"', 'name = "sft"', ['stages[1].name = "sft"', "also the name of stages[0]", ":27)"]),
        ('name = "main"', 'name = ""', ["stages[1].name"]),
        ('demonstrations = "demonstrations.jsonl"\n', "", ["stages[0].algorithm.name", "set data.demonstrations"]),
        ('train = "train.jsonl"\n', "", ["stages[1].algorithm.name", "set data.train"]),
        ('heldout = "heldout.jsonl"\n', "", ["data needs heldout", ":7)"]),
        ('heldout = "heldout.jsonl"', 'heldout = "train.jsonl"', ["the same as train", "measure memory", ":9)"]),
        ('train = "train.jsonl"', 'source = "train.jsonl"', ["is given and so is source"]),
        ("[verifier]", "[data.split]\nheldout = 1\n[verifier]", ["divides data.source, which is not given"]),
        ("[rollout]", "[evaluation]\nsamples_per_prompt = 0\ngreedy = false\n[rollout]", ["measures nothing", ":17)"]),
        ("[verifier]", '[data.where]\n"a.b" = []\n[verifier]', ["lists no value", ":13)"]),
        ("[verifier]", "[data.where]\na = [[1]]\n[verifier]", ["data.where.a", "numbers, true and false only"]),
        (
            'train = "train.jsonl"',
            'train = "t"\nprompt_template = "{a"',
            ["prompt_template", "write {{ and }} for braces"],
        ),
        ('train = "train.jsonl"', 'train = "t"\nprompt_template = "{}"', ["empty placeholder {}"]),
    ],
)
def test_what_cannot_work_is_refused_with_what_is_allowed(old: str, new: str, expected: list[str]) -> None:
    text = complaint(old, new)
    assert [part for part in expected if part not in text] == [], text


@pytest.mark.parametrize("restriction", ["top_p = 0.9", "top_k = 40"])
def test_restricted_sampling_needs_a_correction_and_the_ways_out_are_told(restriction: str) -> None:
    text = complaint("group_size = 4", f"group_size = 4\n{restriction}")
    parts = [
        "stages[1].algorithm.importance_cap is not given",
        f"rollout.{restriction}",
        "importance_cap = 2.0",
        "rollout.top_p = 1, rollout.top_k = 0",
        "rollout.temperature",
        "(recipe.toml:",
    ]
    assert [part for part in parts if part not in text] == [], text
    restricted = RECIPE.replace("group_size = 4", f"group_size = 4\n{restriction}")
    corrected = restricted.replace('name = "grpo"', 'name = "grpo"\nimportance_cap = 2.0')
    assert parse_recipe(corrected).rollout.is_restricted
    parse_recipe(restricted[: restricted.index('\n[[stages]]\nname = "main"')])  # SFT samples nothing


def test_no_tasks_at_all_is_refused() -> None:
    start, end = RECIPE.index("train ="), RECIPE.index("[verifier]")
    with pytest.raises(ConfigError, match="names no tasks; give train and heldout"):
        parse_recipe(RECIPE[:start] + RECIPE[end:])


def split_recipe(split: str) -> str:
    start, end = RECIPE.index("train ="), RECIPE.index("[verifier]")
    return RECIPE[:start] + f'source = "rows.jsonl"\n{split}' + RECIPE[end:]


def test_a_source_is_read_with_its_split_and_refused_without() -> None:
    recipe = parse_recipe(split_recipe("[data.split]\nheldout = 5\ndemonstrations = 3\n"))
    assert recipe.data.split is not None
    assert (recipe.data.split.heldout, recipe.data.split.train) == (5, None)
    with pytest.raises(ConfigError, match=r"data.source = .* needs \[data.split\]"):
        parse_recipe(split_recipe(""))


def test_sft_on_a_split_needs_a_share_of_demonstrations() -> None:
    with pytest.raises(ConfigError, match=r"set data\.split\.demonstrations to 1 or more"):
        parse_recipe(split_recipe("[data.split]\nheldout = 5\n"))


def test_all_problems_are_told_at_once_in_the_order_of_the_file() -> None:
    broken = RECIPE.replace("seed = 17", "sed = 17").replace("group_size = 4", "group_size = 1").replace("1e-4", "-1")
    with pytest.raises(ConfigError) as caught:
        parse_recipe(broken)
    text = str(caught.value)
    assert text.startswith("3 problems in recipe.toml:\n")
    assert text.index("sed is not") < text.index("rollout.group_size") < text.index("stages[0].optim.lr")
    assert all(f"(recipe.toml:{line})" in text for line in (2, 17, 24))


def test_a_broken_stage_does_not_also_count_as_no_stage() -> None:
    one_stage = RECIPE[: RECIPE.index('\n[[stages]]\nname = "main"')]
    with pytest.raises(ConfigError) as caught:
        parse_recipe(one_stage.replace("1e-4", "-1"))
    assert "lr = -1" in str(caught.value)
    assert "stages is empty" not in str(caught.value)


def test_no_stages_are_refused() -> None:
    with pytest.raises(ConfigError, match="stages is missing"):
        parse_recipe(RECIPE[: RECIPE.index("[[stages]]")])
    with pytest.raises(ConfigError, match="stages is empty"):
        parse_recipe(
            RECIPE[: RECIPE.index("[model]")] + "stages = []\n" + RECIPE[RECIPE.index("[model]") :].split("[[")[0]
        )


def test_a_missing_file_a_folder_and_bad_toml_are_config_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load_recipe(tmp_path / "no.toml")
    with pytest.raises(ConfigError, match="is a folder"):
        load_recipe(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(ConfigError, match="UTF-8"):
        load_recipe(tmp_path / "latin.toml")
    with pytest.raises(ConfigError, match=r"not valid TOML: .*\(recipe.toml:2\)"):
        parse_recipe('name = "a"\nseed = \n')


def test_a_byte_order_mark_is_no_problem(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_bytes(b"\xef\xbb\xbf" + RECIPE.encode())
    assert load_recipe(tmp_path / "recipe.toml").seed == 17


def test_reading_a_recipe_needs_no_torch() -> None:
    code = "import sys, groupwise.config as c; assert not {'torch', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_length_penalty_that_never_acts_is_refused() -> None:
    penalty = 'name = "grpo"\nlength_penalty = { strength = 0.2, free_tokens = 100000 }'
    text = complaint('name = "grpo"', penalty)
    assert "length_penalty.free_tokens = 100000 must be smaller than rollout.max_completion_tokens = 128" in text


def test_comparing_parts_one_by_one_allows_no_partial_credit() -> None:
    start, end = RECIPE.index("[verifier]"), RECIPE.index("\n[", RECIPE.index("[verifier]") + 1)
    compose = """[verifier]
kind = "compose"
normalize_parts = true
partial_cap = 0.1
[[verifier.parts]]
name = "number"
verifier = { kind = "math" }
"""
    recipe = RECIPE[:start] + compose + RECIPE[end:]
    with pytest.raises(ConfigError, match="normalize_parts = true needs partial_cap = 0"):
        parse_recipe(recipe)
    assert parse_recipe(recipe.replace("partial_cap = 0.1\n", "")).verifier.kind == "compose"
