"""Asks a language model behind an OpenAI-compatible endpoint, and keeps every reply.

The key of a reply is the hash of (endpoint, model, prompt). The first reply that is stored is the reply from then on,
in every thread and process that shares the file: with it verdicts are pure, and a run can be judged again without the
endpoint. A failure is never stored and never a reply: the caller gets a JudgeError. The API key is read from the
environment when it is needed and is written nowhere.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path

from groupwise.errors import VerifierError
from groupwise.sandbox.http_json import HttpFailure, HttpLimits, is_http_url, post_json

MAX_REPLY_BYTES = 1 << 20
MAX_REPLY_TOKENS = 1024
"""Room for a model that thinks aloud first; only the last line is read."""
CACHE_WAIT_S = 30.0
"""Seconds to wait for another process that writes to the cache."""


class JudgeError(Exception):
    """The judge gave no usable reply: not reachable, too slow, refused, or not what was asked for."""


class JudgeClient:
    """One model, one cache file. Safe from many threads and processes.

    Example:
        client = JudgeClient(url="http://localhost:8000/v1", model="judge", cache=Path("judge.sqlite"))
        client.ask("Is a dog an animal? Answer yes or no.")   -> "yes"

    Args:
        url: the endpoint up to /v1; "/chat/completions" is added.
        model: its name at the endpoint.
        cache: the SQLite file with the replies; made where it is missing.
        key_variable: the environment variable with the API key; a variable that is not set sends none.
        time_limit_s: seconds for one attempt, from connecting to the last byte.
        num_retries: further attempts after one that failed in a way that may pass.
        retry_wait_s: seconds before the first of them; doubled each time.

    Raises:
        VerifierError: a setting cannot be used.
    """

    def __init__(
        self,
        *,
        url: str,
        model: str,
        cache: Path,
        key_variable: str = "OPENAI_API_KEY",
        time_limit_s: float = 30.0,
        num_retries: int = 2,
        retry_wait_s: float = 1.0,
    ) -> None:
        if not is_http_url(url):
            raise VerifierError(f"judge: url = {url!r} cannot be used; give http://HOST/v1 or https://HOST/v1")
        if not model or time_limit_s <= 0 or num_retries < 0:
            raise VerifierError(
                f"judge: model {model!r}, time_limit_s {time_limit_s}, num_retries {num_retries} cannot be used; "
                "give a name, seconds above 0, and 0 or more retries"
            )
        self.url, self.model = url.rstrip("/"), model
        self._cache, self._key_variable = cache, key_variable
        self._limits = HttpLimits(
            time_limit_s=time_limit_s,
            max_bytes=MAX_REPLY_BYTES,
            num_retries=num_retries,
            retry_wait_s=retry_wait_s,
        )

    def ask(self, prompt: str) -> str:
        """The reply to one prompt, from the cache or from the endpoint at temperature 0.

        Raises:
            JudgeError: no attempt gave a reply, or the cache cannot be used.
        """
        text = prompt.encode("utf-8", "replace").decode("utf-8")
        key = hashlib.sha256(json.dumps([self.url, self.model, text]).encode()).hexdigest()
        try:
            stored = self._stored(key)
            if stored is not None:
                return stored
            return self._store(key, text, self._request(text))
        except sqlite3.Error as error:
            raise JudgeError(f"the cache {self._cache.name} cannot be used: {error}") from error

    def _stored(self, key: str) -> str | None:
        if not self._cache.is_file():
            return None
        with closing(self._connect()) as connection:
            row = connection.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def _store(self, key: str, prompt: str, reply: str) -> str:
        with closing(self._connect()) as connection, connection:
            connection.execute("INSERT OR IGNORE INTO replies VALUES (?, ?, ?, ?)", (key, self.model, prompt, reply))
            return str(connection.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()[0])

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._cache, timeout=CACHE_WAIT_S)
        try:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, model TEXT, prompt TEXT, reply TEXT)"
            )
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _request(self, prompt: str) -> str:
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "max_tokens": MAX_REPLY_TOKENS,
        }
        try:
            reply = post_json(
                f"{self.url}/chat/completions", body, key_variable=self._key_variable, limits=self._limits
            )
        except HttpFailure as error:
            raise JudgeError(f"no reply from model {self.model!r}: {error}") from error
        try:
            content = reply["choices"][0]["message"]["content"]
        except (KeyError, IndexError, TypeError):
            content = None
        if not isinstance(content, str):
            raise JudgeError("the reply has no text at choices[0].message.content")
        return content
