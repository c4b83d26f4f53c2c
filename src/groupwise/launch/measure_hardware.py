"""`groupwise doctor --measure`: how fast this machine trains and samples, as the planner counts it.

timings.py runs the pieces of a step on a model of random weights, hardware_rates.py makes rates of their times; here
they are put together, shown, and kept where a plan looks for them.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.table import Table

from groupwise.config import load_recipe
from groupwise.errors import ConfigError
from groupwise.launch.display import Display, Quiet
from groupwise.launch.hardware_rates import hardware_of
from groupwise.launch.machine import (
    hardware_file,
    processor_name,
    resident_bytes,
    usable_cores,
    usable_memory_bytes,
)
from groupwise.launch.model_facts import model_facts
from groupwise.launch.shapes_to_measure import DEFAULT_SHAPE, QUICK_SHAPE, SHAPES, shape_to_time
from groupwise.launch.timings import Sizes, Times, Timings, random_model, time_pieces
from groupwise.planning.hardware import Hardware, read_hardware, write_hardware
from groupwise.planning.model_shape import ModelShape

CPU_SIZES = Sizes(
    trunk=128,
    branch=24,
    group=8,
    prompts=4,
    completion=9,
    few_prompts=1,
    many_prompts=8,
    decode_tokens=24,
    repetitions=3,
)
"""About the sizes of the demo's steps: prefill of 320 tokens, decoding of 8 and 64 rows, a tree of 512 nodes."""
GPU_SIZES = Sizes(
    trunk=512,
    branch=128,
    group=8,
    prompts=16,
    completion=48,
    few_prompts=4,
    many_prompts=32,
    decode_tokens=32,
    repetitions=5,
)
QUICK_SIZES = Sizes(
    trunk=6, branch=4, group=2, prompts=2, completion=3, few_prompts=1, many_prompts=3, decode_tokens=6, repetitions=1
)

MOST_PARAMS = {"cpu": 160_000_000, "cuda": 2_000_000_000}
"""A larger model is measured with its first layers only: rates are per operation, and the time of a user is short."""
WEIGHTS = {"prefill": 3, "decoding": 10, "training": 10, "optimizer": 1}
"""How long a run of each piece takes beside the others, for the time left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """One line of what was measured.

    Example:
        Rate(field="train_flops", meaning="forward and backward", value=1.4e11, unit="FLOP/s", spread=0.03)
    """

    field: str
    """Of Hardware."""
    meaning: str
    value: float
    unit: str
    spread: float
    """Width of the middle half of its timed runs / their median."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A measured machine, and how it was measured."""

    hardware: Hardware
    rates: tuple[Rate, ...]
    shape: ModelShape
    """The model that was timed."""
    note: str
    """Says so where a part of the asked model stood for it, or the decode rates could not be told apart; else empty."""
    previous: Hardware | None
    """What the same file held before."""
    path: Path | None
    """Where it was written; None = nowhere."""


def measure_machine(
    *,
    recipe: Path | None = None,
    shape: str | None = None,
    quick: bool = False,
    out: Path | None = None,
    display: Display | None = None,
) -> Profile:
    """Measures this machine, shows the rates and keeps them in `out`, or where `chosen_hardware` looks for them.

    The model has the sizes of the recipe's, or those of a name in SHAPES. quick times a tiny model for seconds; its
    rates mean nothing, so they are kept only where `out` is given.

    Raises:
        ConfigError: for an unknown shape, both a recipe and a shape, or a model that does not fit in memory.
        EngineError: if the sizes of the recipe's model cannot be read.
    """
    display = display or Quiet()
    device = torch.device("cuda" if torch.cuda.is_available() and not quick else "cpu")
    asked = _asked_shape(recipe, shape, quick)
    memory = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else usable_memory_bytes()
    number_bytes = 2 if device.type == "cuda" else 4
    timed = shape_to_time(asked, memory_bytes=memory, bytes_per_number=number_bytes, most=MOST_PARAMS[device.type])
    sizes = QUICK_SIZES if quick else GPU_SIZES if device.type == "cuda" else CPU_SIZES
    _warn_of_load(display)
    process_bytes = _process_bytes(device)
    timings = _timings(timed, sizes, device, display)
    path = out or (None if quick else hardware_file())
    previous = _previous(path)
    hardware, separable = hardware_of(
        timings,
        timed,
        sizes,
        name=machine_name(device),
        memory_bytes=memory,
        process_bytes=process_bytes,
        bytes_per_number=number_bytes,
        price_per_hour=previous.price_per_hour if previous else None,
    )
    profile = Profile(
        hardware=hardware,
        rates=_rates(hardware, timings),
        shape=timed,
        note=_note(asked, timed, separable),
        previous=previous,
        path=path,
    )
    if path is not None:
        write_hardware(path, hardware)
    _show(profile, display)
    return profile


def machine_name(device: torch.device) -> str:
    """The name of the GPU, or the number of threads and the processor: "2 threads, AMD EPYC"."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    count = f"{threads} thread{'s' if threads > 1 else ''}"
    return ", ".join(part for part in (count, processor_name()) if part)


def profile_json(profile: Profile) -> str:
    """The profile as one line of JSON."""
    return json.dumps(
        {
            "hardware": dataclasses.asdict(profile.hardware),
            "rates": [dataclasses.asdict(rate) for rate in profile.rates],
            "shape": dataclasses.asdict(profile.shape),
            "note": profile.note,
            "path": None if profile.path is None else str(profile.path),
        }
    )


def profile_table(profile: Profile) -> Table:
    """One row a rate: what it means, how far its runs differ, and how it changed since the last measurement."""
    table = Table(title=profile.hardware.name)
    columns = ["what", "rate", "runs differ by"] + (["before"] if profile.previous else [])
    for column in columns:
        table.add_column(column, justify="left" if column == "what" else "right")
    for rate in profile.rates:
        row = [rate.meaning, f"{rate.value / 1e9:.1f} G{rate.unit}", f"{rate.spread:.0%}"]
        if profile.previous:
            before = getattr(profile.previous, rate.field)
            row.append(f"{before / 1e9:.1f} ({rate.value / before - 1:+.0%})")
        table.add_row(*row)
    table.add_section()
    for name, num_bytes in (
        ("memory that may be used", profile.hardware.memory_bytes),
        ("held by the process before any weights", profile.hardware.process_bytes),
    ):
        table.add_row(name, f"{num_bytes / 1e9:.2f} GB", *[""] * (len(columns) - 2))
    return table


def _asked_shape(recipe: Path | None, shape: str | None, quick: bool) -> ModelShape:
    if recipe is not None and shape is not None:
        raise ConfigError("--recipe and --shape both say which model is measured; give one of them.")
    if recipe is not None:
        return model_facts(load_recipe(recipe)).shape
    if shape is None:
        return QUICK_SHAPE if quick else SHAPES[DEFAULT_SHAPE]
    if shape not in SHAPES:
        raise ConfigError(
            f"--shape {shape!r} is not known.\n  Known: {', '.join(SHAPES)}. For any other model give --recipe FILE."
        )
    return SHAPES[shape]


def _timings(shape: ModelShape, sizes: Sizes, device: torch.device, display: Display) -> Timings:
    with display.working("measuring this machine") as advance:
        repeated = sum(WEIGHTS.values()) - WEIGHTS["decoding"]
        total = (sizes.repetitions + 1) * repeated + 2 * WEIGHTS["decoding"]
        done = 0

        def note(name: str) -> None:
            nonlocal done
            done += WEIGHTS[name]
            advance(done, total, name)

        model = random_model(shape, device=device, dtype=torch.bfloat16 if device.type == "cuda" else torch.float32)
        return time_pieces(model, sizes, note)


def _process_bytes(device: torch.device) -> int:
    """What a run holds before its weights: on a CPU the libraries that it loads, which this process has not yet."""
    if device.type != "cuda":
        for name in ("groupwise.launch.local", "datasets", "peft"):
            importlib.import_module(name)
        return resident_bytes()
    torch.zeros(1, device=device)  # makes the context, which is most of it
    free, total = torch.cuda.mem_get_info(device)
    return total - free


def _previous(path: Path | None) -> Hardware | None:
    if path is None or not path.is_file():
        return None
    try:
        return read_hardware(path)
    except ConfigError:  # it is about to be replaced
        return None


def _rates(hardware: Hardware, timings: Timings) -> tuple[Rate, ...]:
    def rate(field: str, meaning: str, unit: str, *times: Times) -> Rate:
        return Rate(
            field=field,
            meaning=meaning,
            value=getattr(hardware, field),
            unit=unit,
            spread=max(t.spread for t in times),
        )

    decode = (timings.few, timings.many)
    return (
        rate("train_flops", "training: forward and backward of a token tree", "FLOP/s", timings.train),
        rate("prefill_flops", "prefill: a forward over prompts", "FLOP/s", timings.prefill),
        rate("decode_flops", "decoding: products of all rows", "FLOP/s", *decode),
        rate("decode_bytes_per_s", "decoding: reading weights and keys once a step", "B/s", *decode),
        rate("update_bytes_per_s", "update: clipping and AdamW", "B/s", timings.update),
    )


def _note(asked: ModelShape, timed: ModelShape, separable: bool) -> str:
    notes = []
    if timed.num_layers < asked.num_layers:
        notes.append(f"Measured with {timed.num_layers} of the model's {asked.num_layers} layers.")
    if not separable:
        notes.append(
            "The two decode rates could not be told apart: steps of many rows took as long as steps of few, or longer "
            "in proportion. Measure again on an idle machine."
        )
    return " ".join(notes)


def _warn_of_load(display: Display) -> None:
    busy, cores = os.getloadavg()[0], usable_cores()
    if busy > max(0.5, cores / 4):
        display.line(f"Other programs keep {busy:.1f} of {cores:g} cores busy: the rates will be too low.")


def _show(profile: Profile, display: Display) -> None:
    display.table(profile_table(profile))
    if profile.note:
        display.line(profile.note)
    if profile.path is None:
        display.line("Not kept: the rates of a tiny model mean nothing for a real one.")
    else:
        found = "finds it" if profile.path == hardware_file() else f"takes it with --hardware {profile.path}"
        display.line(f"Kept in {profile.path}; `groupwise plan` {found}.")
