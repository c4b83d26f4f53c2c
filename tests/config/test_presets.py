"""Presets are nothing but settings; settings that contradict a preset, or each other, are refused with both names."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest

from groupwise.config import GrpoSection, dump_toml, parse_recipe
from groupwise.config.algorithm_grpo import PRESETS
from groupwise.errors import ConfigError

RECIPE = """\
name = "job"
[model]
name = "model"
[data]
train = "train.jsonl"
heldout = "heldout.jsonl"
[verifier]
%s
[rollout]
%s
[[stages]]
steps = 3
algorithm = { name = "grpo"%s }
optim = { lr = 1e-6 }
"""
MATH = 'kind = "math"'
COMPOSED = 'kind = "compose"\nnormalize_parts = true\nparts = [{ name = "number", verifier = { kind = "math" } }]'

# preset: loss.kind, advantage.kind, scale, std, normalize, clip_low, clip_high, beta, kl.place, kl.estimator, truncated
DOCUMENTED: dict[str, tuple[Any, ...]] = {
    "grpo": ("clipped", "group", "std", "population", "sequence", 0.2, 0.2, 0.04, "loss", "k3", "count"),
    "dr_grpo": ("clipped", "group", "none", "population", "constant", 0.2, 0.2, 0.0, "loss", "k3", "count"),
    "dapo": ("clipped", "group", "std", "population", "token", 0.2, 0.28, 0.0, "loss", "k3", "penalise"),
    "rloo": ("reinforce", "leave_one_out", "none", "population", "constant", 0.2, None, 0.03, "reward", "k1", "count"),
    "gspo": ("gspo", "group", "std", "population", "sequence", 3e-4, 4e-4, 0.0, "loss", "k3", "count"),
    "gspo_token": ("gspo_token", "group", "std", "population", "sequence", 3e-4, 4e-4, 0.0, "loss", "k3", "count"),
    "cispo": ("cispo", "group", "std", "population", "token", 1.0, 4.0, 0.0, "loss", "k3", "count"),
    "maxrl": ("clipped", "max_rl", "none", "population", "token", 0.2, 0.2, 0.0, "loss", "k3", "count"),
    "lite_ppo": ("clipped", "group", "batch_std", "sample", "token", 0.2, 0.2, 0.0, "loss", "k3", "count"),
    "reinforce_pp": ("clipped", "batch", "none", "population", "token", 0.2, 0.2, 0.001, "reward", "k1", "count"),
    "reinforce_pp_baseline": (
        "clipped", "group", "centered_batch_std", "population", "token", 0.2, 0.2, 0.0, "loss", "k3", "count",
    ),
}  # fmt: skip


def parse(settings: str = "", *, verifier: str = MATH, rollout: str = ""):
    return parse_recipe(RECIPE % (verifier, rollout, settings), folder=Path("."), file="recipe.toml")


def section(settings: str = "") -> GrpoSection:
    found = parse(settings).stages[0].algorithm
    assert isinstance(found, GrpoSection)
    return found


def test_every_preset_can_be_written_and_has_its_values_here() -> None:
    written = set(get_args(GrpoSection.model_fields["preset"].annotation)) - {"none"}
    assert written == set(PRESETS) == set(DOCUMENTED)
    assert all(preset.source.startswith("arXiv:") for preset in PRESETS.values())


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_preset_resolves_to_its_documented_values(name: str) -> None:
    s = section(f', preset = "{name}"')
    assert DOCUMENTED[name] == (
        s.loss.kind, s.advantage.kind, s.scale, s.advantage.std, s.normalize, s.clip_low, s.clip_high, s.beta,
        s.kl.place, s.kl.estimator, s.advantage.truncated,
    )  # fmt: skip
    assert (s.loss.epochs, s.loss.minibatches, s.loss.dual_clip, s.importance_cap) == (1, 1, None, None)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_resolved_preset_shows_its_values_and_loads_to_the_same(name: str) -> None:
    before = parse(f', preset = "{name}"')
    text = dump_toml(before)
    assert parse_recipe(text, folder=Path("."), file="resolved.toml") == before
    shown = tomllib.loads(text)["stages"][0]["algorithm"]
    for key, value in PRESETS[name].values.items():
        table, _, setting = key.rpartition(".")
        assert (shown[table] if table else shown)[setting] == value
    assert section(f', preset = "{name}"') == GrpoSection(name="grpo", preset=name)  # type: ignore[arg-type]


def test_dapo_loses_half_a_reward_over_the_last_fifth() -> None:
    s = section(', preset = "dapo"')
    assert (s.advantage.overlong_share, s.advantage.overlong_penalty) == (4096 / 20480, 1 / 2)


def test_what_a_preset_leaves_open_may_be_set_and_what_it_sets_may_be_repeated() -> None:
    s = section(', preset = "dapo", clip_high = 0.28, loss = { epochs = 2, dual_clip = 3.0 }, importance_cap = 2.0')
    assert (s.clip_high, s.loss.epochs, s.loss.dual_clip, s.loss.kind, s.importance_cap) == (0.28, 2, 3.0, "clipped", 2)


def test_a_table_that_is_given_is_not_changed() -> None:
    loss = {"epochs": 2}
    assert GrpoSection(name="grpo", preset="gspo", loss=loss).loss.kind == "gspo"  # type: ignore[arg-type]
    assert loss == {"epochs": 2}


@pytest.mark.parametrize("kind", ["gspo", "gspo_token", "cispo"])
def test_a_loss_kind_brings_its_own_clip(kind: str) -> None:
    s = section(f', loss = {{ kind = "{kind}" }}')
    assert (s.clip_low, s.clip_high) == ((1.0, 4.0) if kind == "cispo" else (3e-4, 4e-4))
    assert section(f', loss = {{ kind = "{kind}" }}, clip_low = 0.1').clip_low == 0.1


def test_leave_one_out_is_not_scaled_and_a_kl_in_the_reward_is_k1() -> None:
    assert section(', advantage = { kind = "leave_one_out" }').scale == "none"
    assert section(', beta = 0.1, kl = { place = "reward" }').kl.estimator == "k1"


CONTRADICTIONS = [
    (', preset = "dapo", clip_high = 0.3', 'clip_high = 0.3 contradicts preset = "dapo", which sets clip_high = 0.28'),
    (', preset = "gspo", normalize = "token"', 'normalize = "token" contradicts preset = "gspo"'),
    (', preset = "dr_grpo", loss = { kind = "cispo" }', r'loss.kind = "cispo" contradicts preset = "dr_grpo"'),
    (', loss = { kind = "gspo" }, normalize = "token"', 'normalize = "token" contradicts loss.kind = "gspo"'),
    (', loss = { kind = "reinforce", epochs = 2 }', 'loss.epochs = 2 .*loss.kind = "reinforce" .*loss.epochs = 1'),
    (', preset = "rloo", loss = { minibatches = 2 }', "loss.minibatches = 2 .*in place of preset = rloo"),
    (', loss = { kind = "cispo", dual_clip = 3.0 }', 'loss.dual_clip = 3.0 is not part of loss.kind = "cispo"'),
    (", loss = { importance_floor = 0.5 }", "loss.importance_floor = 0.5 .*importance_cap"),
    (', loss = { importance_level = "product" }', 'loss.importance_level = "product" .*importance_cap'),
    (', advantage = { kind = "max_rl" }, scale = "std"', 'scale = "std" contradicts advantage.kind = "max_rl"'),
    (', advantage = { kind = "max_rl", truncated = "penalise" }', 'truncated = "penalise" .*advantage.kind = "max_rl"'),
    (', advantage = { kind = "leave_one_out", step_end = "x" }', 'step_end = "x" needs advantage.kind = "group"'),
    (', advantage = { step_end = "x", truncated = "penalise" }', 'step_end = "x" .*advantage.truncated = "penalise"'),
    (', advantage = { step_end = "x" }, loss = { kind = "gspo" }', 'step_end = "x" .*loss.kind = "gspo"'),
    (', kl = { place = "reward" }', 'kl.place = "reward" has nothing to place with beta = 0'),
    (', beta = 0.1, kl = { place = "reward", weighted = true }', 'kl.weighted .*kl.place = "reward"'),
    (
        ', beta = 0.1, kl = { place = "reward" }, advantage = { kind = "max_rl" }',
        'kl.place .*advantage.kind = "max_rl"',
    ),
    (', beta = 0.1, kl = { place = "reward" }, advantage = { step_end = "x" }', "kl.place .*advantage.step_end"),
    (', beta = 0.1, kl = { estimator = "k1" }', 'kl.estimator = "k1" .*kl.place = "reward"'),
    (", loss = { minibatches = 65 }", "loss.minibatches = 65 .*rollout.prompts_per_step = 8"),
]


@pytest.mark.parametrize(("settings", "message"), CONTRADICTIONS)
def test_contradictions_name_both_settings(settings: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (', advantage = { kind = "leave_one_out" }', "advantage.kind .*verifier.normalize_parts"),
        (', advantage = { truncated = "penalise" }', "advantage.truncated .*verifier.normalize_parts"),
        (', advantage = { step_end = "x" }', "advantage.step_end .*verifier.normalize_parts"),
        (', beta = 0.1, kl = { place = "reward" }', "kl.place .*verifier.normalize_parts"),
    ],
)
def test_what_changes_the_whole_reward_cannot_compare_its_parts(settings: str, message: str) -> None:
    parse(settings)
    parse("", verifier=COMPOSED)
    with pytest.raises(ConfigError, match=message):
        parse(settings, verifier=COMPOSED)


def test_a_kl_in_the_reward_needs_all_tokens() -> None:
    settings = ', beta = 0.1, kl = { place = "reward" }, importance_cap = 2.0'
    with pytest.raises(ConfigError, match=r"kl.place .*rollout.top_p"):
        parse(settings, rollout="top_p = 0.9")


def preset_rows() -> list[str]:
    """The table of presets as docs/algorithms.md has it."""

    def shown(value: object) -> str:
        return f'"{value}"' if isinstance(value, str) else f"{value:g}"

    settings = {n: ", ".join(f"{key} = {shown(v)}" for key, v in p.values.items()) for n, p in PRESETS.items()}
    return [f"| `{name}` | {settings[name]} | {preset.source} |" for name, preset in PRESETS.items()]


def test_the_documented_table_is_the_one_that_is_used() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "algorithms.md").read_text(encoding="utf-8")
    assert "\n".join(preset_rows()) in page
