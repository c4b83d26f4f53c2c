from __future__ import annotations

import pytest

from groupwise.config import Recipe, dump_toml, parse_recipe
from groupwise.errors import ConfigError

RECIPE = """name = "x"
model = { name = "m" }
data = { train = "train.jsonl", heldout = "heldout.jsonl" }
verifier = { kind = "sql", snapshots = ["a.sqlite"] }
curation = { CURATION }
[[stages]]
steps = 1
algorithm = { name = "grpo" }
optim = { lr = 1e-5 }
"""


def read(curation: str) -> Recipe:
    return parse_recipe(RECIPE.replace("CURATION", curation))


def test_the_defaults() -> None:
    section = read("").curation
    assert (section.enabled, section.ledger, section.num_prompts) == (True, None, None)
    assert (section.samples_per_prompt, section.max_samples_per_prompt) == (4, 16)
    assert (section.retire_confidence, section.solved_above, section.hopeless_below) == (0.8, 0.95, 0.05)
    assert (section.probe_every, section.max_empty_steps, section.max_unscored_frac) == (10, 8, 0.1)


def test_what_is_written_is_kept() -> None:
    recipe = read('ledger = "curated.jsonl", retire_confidence = 0, samples_per_prompt = 16, probe_every = 0')
    assert recipe.curation.ledger == "curated.jsonl"
    assert parse_recipe(dump_toml(recipe)).curation == recipe.curation


@pytest.mark.parametrize(
    ("given", "key", "complaint"),
    [
        ("samples_per_prompt = 17", "max_samples_per_prompt", "samples_per_prompt = 17 or more"),
        ("retire_confidence = 0.4", "retire_confidence", "0.5 or more"),
        ("retire_confidence = 1", "retire_confidence", "under 1"),
        ("hopeless_below = 0.3, solved_above = 0.3", "hopeless_below", "smaller than solved_above = 0.3"),
        ("solved_above = 1", "solved_above", "under 1"),
        ("max_empty_steps = 0", "max_empty_steps", "1 or more"),
        ("retire_after_visits = 2", "retire_after_visits", "not a known key"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given: str, key: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(given)
    assert f"curation.{key}" in str(caught.value)
    assert complaint in str(caught.value)
