"""Checkpoints: ordinary Hugging Face folders with one extra file of ours."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupwise.models.loading import LoadedModel


def save_checkpoint(folder: Path, loaded: LoadedModel, state: Mapping[str, Any]) -> Path:
    """Writes a folder that AutoModelForCausalLM.from_pretrained opens, with `groupwise.json` beside the weights.

    Written beside and renamed into place, so that a folder under its final name is complete.
    """
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    loaded.model.save_pretrained(partial)
    loaded.tokenizer.save_pretrained(partial)
    (partial / "groupwise.json").write_text(json.dumps(state, indent=1))
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return folder
