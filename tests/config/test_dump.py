from __future__ import annotations

import tomllib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from groupwise.config import (
    DataSection,
    GrpoSection,
    ModelSection,
    OptimSection,
    Recipe,
    RolloutSection,
    SftSection,
    SplitSection,
    SqlVerifierSection,
    StageSection,
    dump_toml,
    parse_recipe,
)

any_text = st.text(st.characters(exclude_categories=["Cs"]))


def recipe(prompt: str = "Say.", column: str = "db", values: tuple[object, ...] = ("a", 1, 0.5, True)) -> Recipe:
    optim = OptimSection(lr=3e-6)
    return Recipe(
        name="run",
        model=ModelSection(name="m"),
        data=DataSection(
            source="rows.jsonl",
            split=SplitSection(heldout=2, demonstrations=1),
            system_prompt=prompt.replace("{", "{{").replace("}", "}}"),
            where={column: values},
        ),
        verifier=SqlVerifierSection(kind="sql", snapshots=("a.sqlite",)),
        rollout=RolloutSection(stop=("\n\n", prompt or "x")),
        stages=(
            StageSection(name="first", steps=3, algorithm=SftSection(name="sft"), optim=optim),
            StageSection(name="second", steps=3, algorithm=GrpoSection(name="grpo", clip_high=0.28), optim=optim),
        ),
    )


@example(prompt='\x7f \\ " \U0001f600 \r\n\t\0', column="a.b \x7f\n", number=float("inf"))
@given(prompt=any_text, column=any_text, number=st.floats(allow_nan=False))
def test_what_is_dumped_loads_to_an_equal_recipe(prompt: str, column: str, number: float) -> None:
    before = recipe(prompt, column, (prompt, 2**40, number, False))
    assert parse_recipe(dump_toml(before)) == before


def test_the_types_of_values_survive() -> None:
    where = parse_recipe(dump_toml(recipe())).data.where
    assert [type(value) for value in where["db"]] == [str, int, float, bool]


def test_defaults_are_written_out_and_none_is_left_out() -> None:
    values = tomllib.loads(dump_toml(recipe()))
    assert values["rollout"]["group_size"] == 8
    assert values["stages"][1]["algorithm"]["kl"]["estimator"] == "k3"
    assert "revision" not in values["model"]
    assert "folder" not in values


def test_recipes_that_differ_are_not_equal() -> None:
    assert recipe("a") != recipe("b")


def test_a_recipe_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        recipe().seed = 3  # type: ignore[misc]
