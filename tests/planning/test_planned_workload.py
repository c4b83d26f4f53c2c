"""What a workload refuses."""

from __future__ import annotations

import dataclasses

import pytest
from plan_sizes import workload

from groupwise.errors import ConfigError


def test_rows_are_prompts_times_group() -> None:
    assert workload(prompts=3, group=8).num_rows == 24


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("prompts_per_step", 0, "whole number >= 1"),
        ("group_size", 2.5, "whole number >= 1"),
        ("steps", -1, "whole number >= 1"),
        ("prompt_tokens", 0.5, ">= 1"),
        ("completion_tokens", float("nan"), "finite"),
        ("trunk_tokens", 344, "<= 343"),
        ("live_share", 1.1, "<= 1"),
        ("live_share", -0.1, ">= 0"),
        ("longest_completion", 31, "between completion_tokens = 32"),
        ("longest_completion", 33, "max_completion_tokens = 32"),
    ],
)
def test_impossible_sizes_are_refused(field: str, value: float, reason: str) -> None:
    with pytest.raises(ConfigError, match=rf"Workload\.{field}[^\n]*{reason}"):
        dataclasses.replace(workload(), **{field: value})
