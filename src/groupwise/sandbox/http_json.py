"""One JSON question to an HTTP endpoint, with limits: for judges and for models behind an OpenAI-compatible server.

What comes back was written by somebody else: it is bounded in time and in size, and a redirect is not followed, because
that would send the key and the question to a host that nobody named. Failures that may pass are tried again.
"""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

RETRY_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
MAX_WAIT_S = 60.0
"""The longest pause between two attempts, whatever the server asks for."""
_SHOWN_BYTES = 2000
"""How much of a refusal is read, to say why."""


class HttpFailure(Exception):
    """No usable reply. `status` is the HTTP status of the last attempt, None where there was none; `body` what came
    with it, cut to some 2000 characters."""

    def __init__(self, problem: str, *, status: int | None = None, body: str = "") -> None:
        super().__init__(problem)
        self.status, self.body = status, body


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """How long, how large, how often: HttpLimits(time_limit_s=30.0, max_bytes=1 << 20)."""

    time_limit_s: float
    """Seconds for one attempt, from connecting to the last byte."""
    max_bytes: int
    """The largest reply that is read."""
    num_retries: int = 2
    """Further attempts after one that failed in a way that may pass."""
    retry_wait_s: float = 1.0
    """Seconds before the first of them; doubled each time, or what the server's Retry-After says."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """See the module's text."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """Follows nothing: the redirect is then an HTTPError."""


def is_http_url(url: str) -> bool:
    """Whether a URL names an http or https host."""
    address = urlsplit(url)
    return address.scheme in ("http", "https") and bool(address.hostname)


def post_json(url: str, body: Mapping[str, Any], *, key_variable: str, limits: HttpLimits) -> Any:
    """The parsed reply to one POST. The key is read from the environment variable; one that is not set sends none.

    Raises:
        HttpFailure: no attempt gave a JSON reply within the limits.
    """
    headers = {"Content-Type": "application/json"}
    key = os.environ.get(key_variable, "")
    if key:
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(url, data=json.dumps(body).encode(), headers=headers, method="POST")
    wait_s = limits.retry_wait_s
    for attempt in range(limits.num_retries + 1):
        asked_wait_s = 0.0
        try:
            return _parsed(_received(request, limits))
        except urllib.error.HTTPError as error:
            failure = _refusal(error, key)
            if error.code not in RETRY_STATUS:
                raise failure from None
            asked_wait_s = _retry_after(error)
        except (OSError, http.client.HTTPException) as error:
            failure = HttpFailure(f"{type(error).__name__}: {error}"[:120])
        if attempt < limits.num_retries:
            time.sleep(min(max(wait_s, asked_wait_s), MAX_WAIT_S))
            wait_s *= 2
    raise failure


def _received(request: urllib.request.Request, limits: HttpLimits) -> bytes:
    deadline = time.monotonic() + limits.time_limit_s
    received = bytearray()
    with urllib.request.build_opener(_NoRedirect).open(request, timeout=limits.time_limit_s) as response:
        while chunk := response.read1(65_536):
            received += chunk
            if len(received) > limits.max_bytes:
                raise HttpFailure(f"a reply of more than {limits.max_bytes} bytes")
            if time.monotonic() > deadline:
                raise TimeoutError(f"no whole reply within {limits.time_limit_s:g} s")
    return bytes(received)


def _parsed(received: bytes) -> Any:
    try:
        return json.loads(received)
    except (ValueError, RecursionError) as error:
        raise HttpFailure(f"the reply is not JSON ({type(error).__name__})") from None


def _refusal(error: urllib.error.HTTPError, key: str) -> HttpFailure:
    try:
        body = error.read(_SHOWN_BYTES).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        body = ""
    finally:
        error.close()
    if key:
        body = body.replace(key, "[key]")  # what a server repeats of it must not reach a log
    return HttpFailure(f"HTTP status {error.code}", status=error.code, body=body)


def _retry_after(error: urllib.error.HTTPError) -> float:
    """Seconds; 0 where the header is missing or is a date."""
    try:
        return max(0.0, float(error.headers.get("Retry-After", "0")))
    except ValueError:
        return 0.0
