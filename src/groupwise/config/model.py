"""[model]: which weights are trained, and in which numbers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .section import Section


class ModelSection(Section):
    """The policy to be trained."""

    name: str = Field(min_length=1)
    """A Hugging Face id ("org/name"), a folder with a saved model, or a .gguf file."""
    revision: str | None = None
    """Branch, tag or commit of a Hugging Face id; None = its main branch."""
    device: str = Field(default="auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")
    """auto, cpu, mps, cuda or cuda:N; auto = the first GPU where there is one, else the CPU."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Number format of weights and activations; auto = float32 on a CPU, bfloat16 on a GPU."""
    attention_check: bool = True
    """Compare tree attention with the plain path before the first step and stop where they differ; false = trust it."""
    gradient_checkpointing: bool = False
    """Keep fewer activations and compute them again in the backward pass: less memory, about a third more time."""
