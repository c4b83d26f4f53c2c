"""An sft stage whose demonstrations are sampled: its defaults, and what contradicts them."""

from __future__ import annotations

import pytest

from groupwise.config import Recipe, SftSection, dump_toml, parse_recipe
from groupwise.errors import ConfigError

RECIPE = """
name = "job"
[model]
name = "m"
[data]
{data}
heldout = "h.jsonl"
[verifier]
kind = "sql"
snapshots = ["one.sqlite"]
[[stages]]
steps = 3
algorithm = {{ name = "sft"{settings} }}
optim = {{ lr = 1e-3 }}
"""


def recipe(settings: str, data: str = 'train = "t.jsonl"') -> Recipe:
    return parse_recipe(RECIPE.format(settings=settings, data=data))


def sft(found: Recipe) -> SftSection:
    section = found.stages[0].algorithm
    assert isinstance(section, SftSection)
    return section


def test_best_of_n_needs_training_tasks_and_no_demonstrations_and_writes_its_defaults_out() -> None:
    found = recipe(', source = "best_of_n"')
    section = sft(found)
    assert (section.samples_per_prompt, section.max_per_prompt, section.prefer) == (8, 1, "random")
    assert parse_recipe(dump_toml(found)) == found
    assert 'prefer = "random"' in dump_toml(found)
    with pytest.raises(ConfigError, match=r"learns from tasks and there are none; set data\.train"):
        recipe(', source = "best_of_n"', data='demonstrations = "d.jsonl"')


def test_demonstrations_of_the_data_stay_as_they_were() -> None:
    found = recipe("", data='demonstrations = "d.jsonl"')
    section = sft(found)
    assert (section.source, section.samples_per_prompt, section.prefer) == ("demonstrations", None, None)
    assert parse_recipe(dump_toml(found)) == found
    with pytest.raises(ConfigError, match=r"imitates demonstrations and there are none"):
        recipe("")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (", samples_per_prompt = 4", r"samples_per_prompt.*has no effect with source = \"demonstrations\""),
        (", max_per_prompt = 1", r"max_per_prompt.*has no effect"),
        (', prefer = "shortest"', r"prefer.*has no effect"),
        (
            ', source = "best_of_n", samples_per_prompt = 2, max_per_prompt = 3',
            r"must be samples_per_prompt = 2 or less",
        ),
        (', source = "best_of_n", samples_per_prompt = 0', r"samples_per_prompt"),
    ],
)
def test_contradictions_are_refused(settings: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        recipe(settings, data='train = "t.jsonl"\ndemonstrations = "d.jsonl"')
