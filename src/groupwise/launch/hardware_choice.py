"""Which machine a plan is made for: a card by its name, a hardware file, or what was measured here."""

from __future__ import annotations

from pathlib import Path

from groupwise.errors import ConfigError
from groupwise.launch.machine import hardware_file
from groupwise.planning.hardware import Hardware, hardware_names, named_hardware, read_hardware

THIS = "this"
"""The name by which the machine at hand is asked for."""


def chosen_hardware(name: str | None = None) -> Hardware:
    """The rates to plan with.

        None or "this"      what `groupwise doctor --measure` measured on this machine
        a path to .json     a hardware file, measured elsewhere or written by hand
        anything else       a card: its published peaks times assumed shares

    Raises:
        ConfigError: where this machine was not measured, the file cannot be used, or the card is not known.
    """
    if name is not None and name.endswith(".json"):
        return read_hardware(Path(name).expanduser())
    if name is not None and name != THIS:
        return named_hardware(name)
    path = hardware_file()
    if not path.is_file():
        raise ConfigError(
            f"hardware = {THIS if name else 'not given'}: this machine was not measured yet.\n"
            "  Run `groupwise doctor --measure` (a minute), or pass --hardware NAME with one of "
            f"{', '.join(hardware_names())}, or with a .json file of rates."
        )
    return read_hardware(path)
