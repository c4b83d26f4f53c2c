"""How fast a machine works and what it holds: measured on the spot, or assumed for a named card.

Two sources, and an estimate says which one it used (`Hardware.measured`):

    measured   what the machine at hand reached with our own code, kept in a JSON file
    named      the published peaks of a card times ASSUMED shares of them (TRAIN_SHARE and the others below)
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from groupwise.errors import ConfigError
from groupwise.planning.bounds import require, require_count, require_number

TRAIN_SHARE = 0.4
"""Assumed share of the dense bf16 peak in forward and backward. Large dense runs report 0.3 to 0.5."""
PREFILL_SHARE = 0.5
"""Assumed share of the dense bf16 peak in a forward over many tokens."""
DECODE_SHARE = 0.3
"""Assumed share of the dense bf16 peak in the products of a decode step."""
DECODE_BANDWIDTH_SHARE = 0.4
"""Assumed share of the memory bandwidth when decoding: OLMo 3 reports 0.13 to 0.43 (arXiv:2512.13961, table 23)."""
UPDATE_BANDWIDTH_SHARE = 0.5
"""Assumed share of the memory bandwidth in the optimizer's update."""
GPU_PROCESS_BYTES = 1 << 30
"""Assumed: driver context, loaded kernels and the workspaces of the libraries."""

GPU_LAYER_S = 5e-4
"""Assumed: launching the 20 to 40 kernels of a decoder layer from Python, 15 microseconds each. It bounds small models
and small batches, whatever the card."""

_GIB = 1 << 30
_CARDS: dict[str, tuple[int, float, float]] = {
    "a100": (80 * _GIB, 312e12, 2.04e12),
    "h100": (80 * _GIB, 989e12, 3.35e12),
    "h200": (140 * _GIB, 989e12, 4.8e12),
    "h20": (96 * _GIB, 148e12, 4.0e12),
    "b200": (179 * _GIB, 2.25e15, 8.0e12),
    "a6000": (48 * _GIB, 154.8e12, 0.768e12),
    "l40s": (48 * _GIB, 362e12, 0.864e12),
    "l4": (24 * _GIB, 121e12, 0.3e12),
    "rtx3090": (24 * _GIB, 71e12, 0.936e12),
    "rtx4090": (24 * _GIB, 165.2e12, 1.008e12),
    "rtx5090": (32 * _GIB, 209.5e12, 1.792e12),
}
"""Memory, dense bf16 FLOP/s with float32 sums, bytes/s of memory; from NVIDIA's data sheets, without sparsity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One device: a GPU, or the CPU with its memory.

    Example:
        Hardware(name="2 cores", memory_bytes=16 << 30, bytes_per_number=4, train_flops=1.0e11, prefill_flops=1.2e11,
                 decode_flops=6e10, decode_bytes_per_s=2e10, update_bytes_per_s=1e10, process_bytes=500 << 20)

    Raises:
        ConfigError: for a rate or a size that is not positive and finite.
    """

    name: str
    memory_bytes: int
    bytes_per_number: int
    """Of weights, keys and activations: 4 = float32 (CPU), 2 = bf16 (GPU)."""
    train_flops: float
    """FLOP/s reached in forward and backward, of the operations that compute.py counts."""
    prefill_flops: float
    """FLOP/s reached in a forward over many tokens: prompts, and log-probabilities without gradient."""
    decode_flops: float
    """FLOP/s reached in the products of a decode step, apart from the time that reading weights takes."""
    decode_bytes_per_s: float
    """Bytes/s reached when a decode step reads weights and keys."""
    update_bytes_per_s: float
    """Bytes/s reached in clipping and AdamW, of the bytes that compute.update_bytes counts."""
    process_bytes: int
    """What the process holds before the weights are loaded."""
    layer_s: float = 0.0
    """Seconds that a layer takes at least in one forward, however little there is to compute: launching its kernels."""
    price_per_hour: float | None = None
    """Of this device, in any currency; None: no price is computed."""
    measured: bool = False
    """True: rates measured on this machine; False: assumed."""

    def __post_init__(self) -> None:
        require(
            isinstance(self.name, str) and self.name != "", "Hardware.name", self.name, "a name", "Name the machine."
        )
        require_count("Hardware.memory_bytes", self.memory_bytes)
        require_count("Hardware.process_bytes", self.process_bytes, least=0)
        require(
            self.bytes_per_number in (2, 4),
            "Hardware.bytes_per_number",
            self.bytes_per_number,
            "4 (float32) or 2 (bf16)",
            "Use 4 for a CPU and 2 for a GPU.",
        )
        for name in ("train_flops", "prefill_flops", "decode_flops", "decode_bytes_per_s", "update_bytes_per_s"):
            require_number(f"Hardware.{name}", getattr(self, name), positive=True, advice="Give the rate per second.")
        is_flag = isinstance(self.measured, bool)
        require(is_flag, "Hardware.measured", self.measured, "true or false", "Say true for rates of this machine.")
        require_number("Hardware.layer_s", self.layer_s, advice="0 where nothing is launched.")
        if self.price_per_hour is not None:
            require_number("Hardware.price_per_hour", self.price_per_hour, advice="Leave it out for no price.")


def hardware_names() -> tuple[str, ...]:
    """The cards that `named_hardware` knows."""
    return tuple(_CARDS)


def named_hardware(name: str, *, price_per_hour: float | None = None) -> Hardware:
    """A card by its name, in any case and with or without spaces or hyphens ("RTX 4090"): peaks times assumed shares.

    Raises:
        ConfigError: for an unknown name, with the known ones.
    """
    key = "".join(character for character in name.lower() if character.isalnum())
    require(
        key in _CARDS,
        "hardware",
        name,
        f"one of {', '.join(_CARDS)}",
        "For another machine measure it, or write its rates into a hardware file.",
    )
    memory, flops, bandwidth = _CARDS[key]
    return Hardware(
        name=key,
        memory_bytes=memory,
        bytes_per_number=2,
        train_flops=TRAIN_SHARE * flops,
        prefill_flops=PREFILL_SHARE * flops,
        decode_flops=DECODE_SHARE * flops,
        decode_bytes_per_s=DECODE_BANDWIDTH_SHARE * bandwidth,
        update_bytes_per_s=UPDATE_BANDWIDTH_SHARE * bandwidth,
        process_bytes=GPU_PROCESS_BYTES,
        layer_s=GPU_LAYER_S,
        price_per_hour=price_per_hour,
    )


def write_hardware(path: Path, hardware: Hardware) -> None:
    """Writes the record as JSON; makes the folder where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(dataclasses.asdict(hardware), indent=2) + "\n", encoding="utf-8")


def read_hardware(path: Path) -> Hardware:
    """The record that `write_hardware` wrote, or that someone wrote by hand with the same keys.

    Raises:
        ConfigError: if the file is missing or no JSON object, or a key is missing, unknown or has an impossible value.
    """
    advice = "Measure the machine again, or name a card."
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"hardware file {path}: cannot be read ({error}).\n  {advice}") from error
    require(isinstance(loaded, dict), f"hardware file {path}", type(loaded).__name__, "a JSON object", advice)
    known = {field.name: field.default is dataclasses.MISSING for field in dataclasses.fields(Hardware)}
    unknown = sorted(set(loaded) - set(known))
    missing = sorted(name for name, needed in known.items() if needed and name not in loaded)
    if unknown or missing:
        wrong = [f"{key} is unknown" for key in unknown] + [f"{key} is missing" for key in missing]
        raise ConfigError(f"hardware file {path}: {'; '.join(wrong)}.\n  Keys: {', '.join(known)}. {advice}")
    try:
        return Hardware(**loaded)
    except ConfigError as error:
        raise ConfigError(f"hardware file {path}: {error}") from error
