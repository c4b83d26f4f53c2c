"""One question over HTTP: what is bounded, what is tried again, what never leaves."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from fake_endpoint import Answer, FakeServer
from groupwise.sandbox.http_json import HttpFailure, HttpLimits, is_http_url, post_json

LIMITS = {"time_limit_s": 5.0, "max_bytes": 1000, "num_retries": 0, "retry_wait_s": 0.0}


def post(server: FakeServer, **limits: Any) -> Any:
    how = HttpLimits(**{**LIMITS, **limits})
    return post_json(f"{server.url}/completions", {"prompt": "p"}, key_variable="A_KEY", limits=how)


def test_a_reply_is_parsed_and_the_key_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "sesame")
    with FakeServer(lambda asked: Answer(raw='{"a": [1]}')) as server:
        assert post(server) == {"a": [1]}
    assert server.asked[0].key == "Bearer sesame"


@pytest.mark.parametrize(
    ("answer", "message", "status"),
    [
        (Answer(raw="{" + " " * 2000 + "}"), "more than 1000 bytes", None),
        (Answer(raw="[" * 900), "not JSON", None),
        (Answer(status=302, headers={"Location": "http://127.0.0.1:9/"}, raw="{}"), "HTTP status 302", 302),
        (Answer(status=418, raw="no key sesame here"), "HTTP status 418", 418),
    ],
)
def test_a_failure_says_which_and_repeats_no_key(
    answer: Answer, message: str, status: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", "sesame")
    with FakeServer(lambda asked: answer) as server, pytest.raises(HttpFailure, match=message) as caught:
        post(server, num_retries=3)
    assert caught.value.status == status
    assert "sesame" not in caught.value.body
    assert len(server.asked) == 1  # none of these passes by itself


def test_a_server_that_asks_for_a_pause_gets_it() -> None:
    answers = iter([Answer(status=429, headers={"Retry-After": "0.2"}), Answer(raw="1")])
    with FakeServer(lambda asked: next(answers)) as server:
        started = time.monotonic()
        assert post(server, num_retries=1) == 1
    assert time.monotonic() - started >= 0.2


def test_the_last_failure_is_the_one_that_is_told() -> None:
    statuses = itertools.chain([503, 429], itertools.repeat(500))
    with FakeServer(lambda asked: Answer(status=next(statuses))) as server:
        with pytest.raises(HttpFailure, match="HTTP status 500"):
            post(server, num_retries=2)
        assert len(server.asked) == 3


def test_which_addresses_can_be_asked() -> None:
    assert is_http_url("http://localhost:8000/v1")
    assert is_http_url("https://host/v1")
    assert not any(map(is_http_url, ("file:///etc/passwd", "localhost:8000", "", "ftp://host", "http://")))
