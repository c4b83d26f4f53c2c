"""[model]: which weights are trained, and in which numbers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .section import Many, Section


class LoraSection(Section):
    """[model.lora]: train low-rank adapters and leave the weights themselves alone."""

    rank: int = Field(default=16, ge=1)
    """Width of the adapters, 1 or more; their size and memory grow with it."""
    alpha: float = Field(default=32.0, gt=0)
    """An adapter's change is multiplied by alpha / rank, above 0; common is twice the rank."""
    targets: Many[str] = ()
    """Last parts of the names of the adapted linear layers, such as "q_proj"; [] = all of them but the LM head."""


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
    """Stop where numbers that must agree differ by more than rounding: tree attention and the plain path, sampler and
    trainer, both before the first step, and sampler and trainer in each step. false = trust them, and compare nothing
    but for the metrics."""
    gradient_checkpointing: bool = False
    """Keep fewer activations and compute them again in the backward pass: less memory, about a third more time."""
    lora: LoraSection | None = None
    """Adapters instead of full training; they need a larger lr, often ten times. None = all weights are trained."""
