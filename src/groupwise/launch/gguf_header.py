"""The header of a .gguf file: its settings, and the names and sizes of its tensors.

    "GGUF", version, number of tensors, number of settings
    settings   key, type, value;   an array has its own type, a length and its elements
    tensors    name, number of dimensions, dimensions, type, offset

Numbers are little-endian; texts are a length and UTF-8. Lists of a hundred thousand tokens are skipped, not read: the
`gguf` package spends seconds on them. Format: the GGUF specification of the ggml project, versions 2 and 3.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Type codes of single numbers, as `struct` names them."""
_TEXT, _ARRAY = 8, 9
_MOST = 1 << 20
"""Most settings or tensors of a file that is taken for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """What stands before the weights: read_header(Path("model.gguf")).settings["general.architecture"]."""

    settings: Mapping[str, str | int | float]
    """Texts and numbers by key; of an array its length."""
    tensors: Mapping[str, int]
    """Elements of each tensor."""


def read_header(path: Path) -> GgufHeader:
    """The header of a file.

    Raises:
        ValueError: if it is no GGUF file of a known version, or ends too early.
        OSError: if it cannot be read.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:4] != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        try:
            return _Reader(data).header()
        except (struct.error, IndexError) as error:
            raise ValueError("it ends within its header") from error


@dataclass(slots=True)
class _Reader:
    data: mmap.mmap
    place: int = 4

    def header(self) -> GgufHeader:
        version, num_tensors, num_settings = self.number("I"), self.number("Q"), self.number("Q")
        if version not in (2, 3) or max(num_tensors, num_settings) > _MOST:
            raise ValueError(f"version {version} with {num_settings} settings and {num_tensors} tensors is not known")
        settings = {self.text(): self.value(int(self.number("I"))) for _ in range(int(num_settings))}
        tensors = {}
        for _ in range(int(num_tensors)):
            name = self.text()
            tensors[name] = math.prod(int(self.number("Q")) for _ in range(int(self.number("I"))))
            self.place += 4 + 8  # type and offset
        return GgufHeader(settings=settings, tensors=tensors)

    def number(self, code: str) -> int | float:
        (value,) = struct.unpack_from("<" + code, self.data, self.place)
        self.place += struct.calcsize("<" + code)
        return value

    def text(self) -> str:
        length = int(self.number("Q"))
        self.place += length
        return self.data[self.place - length : self.place].decode()

    def value(self, kind: int) -> str | int | float:
        if kind == _TEXT:
            return self.text()
        if kind == _ARRAY:
            return self.skip_array()
        if kind not in _NUMBERS:
            raise ValueError(f"type {kind} of a setting is not known")
        return self.number(_NUMBERS[kind])

    def skip_array(self) -> int:
        """Moves behind the array and returns its length."""
        kind, length = int(self.number("I")), int(self.number("Q"))
        if kind in _NUMBERS:
            self.place += length * struct.calcsize("<" + _NUMBERS[kind])
        elif kind == _TEXT:
            size_of = struct.Struct("<Q").unpack_from
            for _ in range(length):
                self.place += 8 + size_of(self.data, self.place)[0]
        else:
            for _ in range(length):
                self.value(kind)
        return length
