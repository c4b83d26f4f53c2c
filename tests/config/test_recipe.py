from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from groupwise.config import Recipe
from groupwise.config.problems import sections_in
from groupwise.config.stage import StageSection

MAX_FIELDS_PER_SECTION = 12
MAX_FIELDS = 140


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
    """Fields, without those that only tell sections apart (kind, an algorithm's name), and those that hold a section:
    its own fields are counted."""
    return sum(
        not list(sections_in(f.annotation))
        and (len(get_args(f.annotation)) != 1 or get_origin(f.annotation) is not Literal)
        for f in section.model_fields.values()
    )


def alternatives(field: Any) -> list[set[str]]:
    """The names of the sections that each alternative of this field brings along; a recipe has one of them."""
    return [{section.__name__ for section in every_section(kind)} for kind in sections_in(field.annotation)]


def test_the_recipe_stays_small_enough_to_be_read() -> None:
    sizes = {section.__name__: num_settings(section) for section in SECTIONS}
    assert {name: size for name, size in sizes.items() if size > MAX_FIELDS_PER_SECTION} == {}
    kinds = [n for n in alternatives(Recipe.model_fields["verifier"]) if "ComposeVerifierSection" not in n]
    algorithms = alternatives(StageSection.model_fields["algorithm"])
    either_or = set().union(*kinds, *algorithms, {"ComposeVerifierSection"})
    shared = sum(size for name, size in sizes.items() if name not in either_or)
    largest = [max(sum(sizes[name] for name in names) for names in some) for some in (kinds, algorithms)]
    assert shared + sum(largest) <= MAX_FIELDS


def test_every_section_is_frozen_and_knows_its_keys() -> None:
    settings: list[Any] = [section.model_config for section in SECTIONS]
    assert all(config["frozen"] and config["extra"] == "forbid" and config["strict"] for config in settings)
