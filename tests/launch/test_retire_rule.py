"""When a stage sets prompts aside, as the recipe says it."""

from __future__ import annotations

import pytest

from groupwise.config.curation import CurationSection
from groupwise.curation import RetireRule
from groupwise.launch.assemble import retire_rule


def test_the_rule_is_what_the_recipe_says() -> None:
    section = CurationSection(retire_confidence=0.9, solved_above=0.8, hopeless_below=0.1)
    assert retire_rule(section) == RetireRule(confidence=0.9, solved_above=0.8, hopeless_below=0.1)
    assert retire_rule(CurationSection()) == RetireRule()


@pytest.mark.parametrize("section", [CurationSection(enabled=False), CurationSection(retire_confidence=0)])
def test_the_arm_to_compare_with_sets_nothing_aside(section: CurationSection) -> None:
    assert retire_rule(section) is None
