"""TOML text to Recipe. Everything that is wrong in a file is told in one message."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from groupwise.errors import ConfigError

from .lines import key_lines
from .problems import describe
from .recipe import Recipe


def load_recipe(path: str | Path, *, folder: str | Path | None = None) -> Recipe:
    """Read and check a recipe file.

    Relative paths in it start at `folder`; None = the folder of the file. (A copy kept in a run directory is loaded
    with the folder of the file it was copied from.)

    Raises:
        ConfigError: no such file, not TOML, unknown keys, wrong types, impossible values; all problems at once.
    """
    path = Path(path)
    return parse_recipe(read_text(path), folder=path.parent if folder is None else folder, file=str(path))


def read_text(path: Path) -> str:
    """The text of a recipe file.

    Raises:
        ConfigError: no such file, a folder, or not UTF-8.
    """
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; give the recipe file in it (a .toml file).")
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise ConfigError(f"{path} does not exist; give the path of a recipe (a .toml file).") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as UTF-8 text: {error}") from error


def parse_toml(text: str, file: str) -> Mapping[str, Any]:
    """TOML to values.

    Raises:
        ConfigError: not TOML, with the line.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_not_toml(str(error), file)) from error


def parse_recipe(text: str, *, folder: str | Path = ".", file: str = "recipe.toml") -> Recipe:
    """The same for TOML text that is already in memory; `file` is the name used in messages.

    Raises:
        ConfigError: as load_recipe.
    """
    values = parse_toml(text, file)
    try:
        recipe = Recipe.model_validate(values)
    except ValidationError as error:
        raise ConfigError(describe(error.errors(), Recipe, key_lines(text), file)) from None
    return recipe.in_folder(Path(folder))


def _not_toml(message: str, file: str) -> str:
    place = re.search(r" \(at line (\d+), column (\d+)\)", message)
    if place is None:
        return f"not valid TOML: {message}.   ({file})"
    return f"not valid TOML: {message.replace(place[0], '')}, column {place[2]}.   ({file}:{place[1]})"
