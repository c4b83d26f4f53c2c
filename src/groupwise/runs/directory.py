"""Where a run lives on disk, and the only names of the files in it.

    runs/shop-sql-20260901-143012/
        recipe.toml        the resolved recipe: every default written out
        environment.json   versions and devices
        audit.json         what the audit before training found
        plan.json          what the run was expected to take
        ledger.json        every training prompt's attempts, as far as the last finished stage
        diagnosis.json     what was found wrong with the run at its end
        metrics.jsonl      one JSON object a step, append-only
        events.jsonl       one JSON object an event, append-only
        rollouts/          grpo-000012.parquet: every completion of a step with its verdict
        checkpoints/       what a resumed run starts from
        summary.json       rewritten after every evaluation; without it not even the base was measured
        stages.json        which stages are finished: what a restarted run goes on from
        abandoned-1/       what a restart moved away: rows and files of a stage that was not finished

Files that are rewritten as a whole go through `write_atomic`, so that a reader sees the old text or the new one.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from groupwise.errors import ConfigError, DataError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The folder of one run: RunDirectory.create("runs", "shop-sql").metrics -> runs/shop-sql-.../metrics.jsonl."""

    path: Path

    @classmethod
    def create(cls, output_dir: str | Path, name: str, *, now: datetime | None = None) -> RunDirectory:
        """Make output_dir/name-YYYYmmdd-HHMMSS, or ...-2, -3 when that folder exists already (local time).

        Call it when training really starts, after every check that can refuse the recipe: a refused recipe then
        leaves nothing behind. Two processes that start in the same second get two folders.

        Raises:
            ConfigError: if name cannot be a folder name, or the folder cannot be created.
        """
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"name = {name!r} cannot name a run folder; use letters, digits, '.', '_' and '-', "
                "beginning with a letter or a digit"
            )
        parent = Path(output_dir)
        stem = f"{name}-{now or datetime.now():%Y%m%d-%H%M%S}"
        try:
            parent.mkdir(parents=True, exist_ok=True)
            path = _make_new_folder(parent, stem)
            run = cls(path)
            run.rollouts.mkdir()
            run.checkpoints.mkdir()
        except OSError as error:
            raise ConfigError(
                f"output_dir = {str(output_dir)!r} cannot hold a run folder ({error}); choose a writable folder"
            ) from error
        return run

    @classmethod
    def open(cls, path: str | Path) -> RunDirectory:
        """An existing run, to read or to resume.

        Raises:
            DataError: if path is not a folder, or holds nothing that a run writes.
        """
        run = cls(Path(path))
        if not any(p.exists() for p in (run.recipe, run.metrics, run.events, run.rollouts, run.summary)):
            raise DataError(f"{str(path)!r} is not a run folder; expected a folder that `groupwise train` made")
        return run

    @property
    def recipe(self) -> Path:
        """The resolved recipe (TOML)."""
        return self.path / "recipe.toml"

    @property
    def environment(self) -> Path:
        """Versions and devices (JSON)."""
        return self.path / "environment.json"

    @property
    def audit(self) -> Path:
        """What the audit before training found (JSON); missing where it was left out."""
        return self.path / "audit.json"

    @property
    def plan(self) -> Path:
        """What the run was expected to take (JSON), made before its first stage; missing where nobody could tell."""
        return self.path / "plan.json"

    @property
    def ledger(self) -> Path:
        """Every training prompt's attempts by stage (JSON); rewritten after every stage."""
        return self.path / "ledger.json"

    @property
    def diagnosis(self) -> Path:
        """What was found wrong with the run (JSON); rewritten whenever it is diagnosed by the run itself."""
        return self.path / "diagnosis.json"

    @property
    def metrics(self) -> Path:
        """Numbers of each step (JSON lines)."""
        return self.path / "metrics.jsonl"

    @property
    def events(self) -> Path:
        """What happened once (JSON lines)."""
        return self.path / "events.jsonl"

    @property
    def rollouts(self) -> Path:
        """Folder of one parquet file a step."""
        return self.path / "rollouts"

    @property
    def checkpoints(self) -> Path:
        """Folder that the trainer writes its checkpoints to."""
        return self.path / "checkpoints"

    @property
    def summary(self) -> Path:
        """What was measured so far (JSON). It does not say that the run is finished: see `stages`."""
        return self.path / "summary.json"

    @property
    def stages(self) -> Path:
        """Which stages are finished (JSON); replaced as a whole after each of them."""
        return self.path / "stages.json"

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Inside, no other process can claim the run. The system ends a claim with the process, however that dies.

        Raises:
            DataError: if another process writes into the run.
        """
        folder = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(folder)
            raise DataError(
                f"{self.path} is being written by another process; wait until it ends, or stop it first."
            ) from None
        try:
            yield
        finally:
            os.close(folder)

    def rollouts_of(self, stage: str, step: int) -> Path:
        """The parquet file of one step; file names sort by step. A stage name is percent-encoded where it must be."""
        return self.rollouts / f"{quote(stage, safe=' ')}-{step:06d}.parquet"


def write_atomic(path: str | Path, content: str | bytes) -> None:
    """Replace the whole file: readers, and a crash at any moment, see the old content or the new, never a mixture.

    The content is on the disk before the name points to it (fsync, then os.replace within one folder). Text is UTF-8.

    Raises:
        OSError: if the disk refuses; the old file is then untouched and nothing else is left behind.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _make_new_folder(parent: Path, stem: str) -> Path:
    """mkdir is the test and the claim in one call, so that no other process can take the name in between."""
    number = 1
    while True:
        path = parent / (stem if number == 1 else f"{stem}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
        else:
            return path
