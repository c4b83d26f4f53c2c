"""Asks a language model behind an OpenAI-compatible endpoint, and keeps every reply.

The key of a reply is the hash of (endpoint, model, prompt). The first reply that is stored is the reply from then on,
in every thread and process that shares the file: with it verdicts are pure, and a run can be judged again without the
endpoint. A failure is never stored and never a reply: the caller gets a JudgeError. The API key is read from the
environment when it is needed and is written nowhere.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import sqlite3
import time
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from groupwise.errors import VerifierError

MAX_REPLY_BYTES = 1 << 20
MAX_REPLY_TOKENS = 1024
"""Room for a model that thinks aloud first; only the last line is read."""
CACHE_WAIT_S = 30.0
"""Seconds to wait for another process that writes to the cache."""
RETRY_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504})


class JudgeError(Exception):
    """The judge gave no usable reply: not reachable, too slow, refused, or not what was asked for."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would send the key and the prompt to a host that nobody named."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """Follows nothing: the redirect is then an HTTPError."""


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
        address = urlsplit(url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise VerifierError(f"judge: url = {url!r} cannot be used; give http://HOST/v1 or https://HOST/v1")
        if not model or time_limit_s <= 0 or num_retries < 0:
            raise VerifierError(
                f"judge: model {model!r}, time_limit_s {time_limit_s}, num_retries {num_retries} cannot be used; "
                "give a name, seconds above 0, and 0 or more retries"
            )
        self.url, self.model = url.rstrip("/"), model
        self._cache, self._key_variable = cache, key_variable
        self._time_limit_s, self._num_retries, self._retry_wait_s = time_limit_s, num_retries, retry_wait_s
        self._opener = urllib.request.build_opener(_NoRedirect)

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
            return self._store(key, text, self._attempts(text))
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

    def _attempts(self, prompt: str) -> str:
        wait_s = self._retry_wait_s
        for attempt in range(self._num_retries + 1):
            try:
                return self._request(prompt)
            except urllib.error.HTTPError as error:
                error.close()
                problem = f"HTTP status {error.code}"
                if error.code not in RETRY_STATUS:
                    break
            except (OSError, http.client.HTTPException) as error:
                problem = f"{type(error).__name__}: {error}"[:120]
            if attempt < self._num_retries:
                time.sleep(wait_s)
                wait_s *= 2
        raise JudgeError(f"no reply from model {self.model!r}: {problem}")

    def _request(self, prompt: str) -> str:
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "max_tokens": MAX_REPLY_TOKENS,
        }
        headers = {"Content-Type": "application/json"}
        key = os.environ.get(self._key_variable, "")
        if key:
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(
            f"{self.url}/chat/completions", data=json.dumps(body).encode(), headers=headers, method="POST"
        )
        deadline = time.monotonic() + self._time_limit_s
        received = bytearray()
        with self._opener.open(request, timeout=self._time_limit_s) as response:
            while chunk := response.read1(65_536):
                received += chunk
                if len(received) > MAX_REPLY_BYTES:
                    raise JudgeError(f"a reply of more than {MAX_REPLY_BYTES} bytes")
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no whole reply within {self._time_limit_s:g} s")
        try:
            content = json.loads(received)["choices"][0]["message"]["content"]
        except (ValueError, KeyError, IndexError, TypeError, RecursionError):
            content = None
        if not isinstance(content, str):
            raise JudgeError("the reply has no text at choices[0].message.content")
        return content
