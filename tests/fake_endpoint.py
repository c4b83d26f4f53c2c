"""A server in a thread that answers as an OpenAI-compatible one: what a test wants to see was asked, it keeps."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Asked(NamedTuple):
    """One request: Asked(path="/v1/chat/completions", body={"model": "m", ...}, key="Bearer sesame")."""

    path: str
    body: Mapping[str, Any]
    key: str | None

    @property
    def prompt(self) -> str:
        """The text, or the last turn."""
        return self.body["prompt"] if "prompt" in self.body else self.body["messages"][-1]["content"]


class Answer(NamedTuple):
    """What the server sends: Answer(text="yes"), or a refusal with Answer(status=400, raw='{"error": "no seed"}')."""

    text: str | None = ""
    finish_reason: str = "stop"
    status: int = 200
    raw: str | None = None
    wait_s: float = 0.0
    headers: Mapping[str, str] = {}


class FakeServer:
    """`with FakeServer(lambda asked: Answer("yes")) as server:` listens at server.url."""

    def __init__(self, answer: Callable[[Asked], Answer]) -> None:
        self.asked: list[Asked] = []
        self.most_at_once = 0
        self._now, self._lock = 0, threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                asked = Asked(self.path, body, self.headers.get("Authorization"))
                with outer._lock:
                    outer.asked.append(asked)
                    outer._now += 1
                    outer.most_at_once = max(outer.most_at_once, outer._now)
                given = answer(asked)
                time.sleep(given.wait_s)
                with outer._lock:
                    outer._now -= 1
                outer.send(self, asked, given)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def send(self, handler: BaseHTTPRequestHandler, asked: Asked, given: Answer) -> None:
        place = {"text": given.text} if "prompt" in asked.body else {"message": {"content": given.text}}
        reply = {
            "choices": [{**place, "finish_reason": given.finish_reason}],
            "usage": {"prompt_tokens": 5, "completion_tokens": len((given.text or "").split())},
        }
        raw = json.dumps(reply).encode() if given.raw is None else given.raw.encode()
        try:
            handler.send_response(given.status)
            for name, value in {"Content-Length": str(len(raw)), **given.headers}.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(raw)
        except OSError:
            pass  # the client gave up

    def __enter__(self) -> FakeServer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
