from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from groupwise.config import Recipe
from groupwise.config.problems import sections_in

MAX_FIELDS_PER_SECTION = 12
MAX_FIELDS = 115


def every_section(section: type[BaseModel]) -> list[type[BaseModel]]:
    inner = [found for field in section.model_fields.values() for found in sections_in(field.annotation)]
    return [section, *(deeper for found in inner for deeper in every_section(found))]


SECTIONS = list(dict.fromkeys(every_section(Recipe)))


def test_every_section_is_looked_at() -> None:
    assert {"Recipe", "SplitSection", "GrpoSection", "SftSection", "OptimSection", "SqlVerifierSection"} <= {
        section.__name__ for section in SECTIONS
    }


def test_every_field_says_what_it_is() -> None:
    silent = [
        f"{section.__name__}.{name}"
        for section in SECTIONS
        for name, field in section.model_fields.items()
        if not field.description
    ]
    assert silent == []


def num_settings(section: type[BaseModel]) -> int:
    """Fields without the one that only tells sections apart, such as kind or an algorithm's name."""
    return sum(
        len(get_args(f.annotation)) != 1 or get_origin(f.annotation) is not Literal
        for f in section.model_fields.values()
    )


def test_the_recipe_stays_small_enough_to_be_read() -> None:
    sizes = {section.__name__: num_settings(section) for section in SECTIONS}
    assert {name: size for name, size in sizes.items() if size > MAX_FIELDS_PER_SECTION} == {}
    kinds = sections_in(Recipe.model_fields["verifier"].annotation)
    of_kinds = [{section.__name__ for section in every_section(kind)} for kind in kinds]
    shared = sum(size for name, size in sizes.items() if name not in set().union(*of_kinds))
    of_kinds = [names for names in of_kinds if "ComposeVerifierSection" not in names]
    largest = max(sum(sizes[name] for name in names) for names in of_kinds)  # a recipe has one kind of verifier
    assert shared + largest <= MAX_FIELDS


def test_every_section_is_frozen_and_knows_its_keys() -> None:
    settings: list[Any] = [section.model_config for section in SECTIONS]
    assert all(config["frozen"] and config["extra"] == "forbid" and config["strict"] for config in settings)
