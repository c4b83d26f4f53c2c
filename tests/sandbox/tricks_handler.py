"""A worker handler for the tests: does what it is told, good or bad."""

import os
import socket
import sys
import time


def start(settings):
    def handle(request):
        trick = request["trick"]
        if trick == "echo":
            time.sleep(request.get("sleep_s", 0.0))
            return {"status": "ok", "value": request["value"], "pid": os.getpid(), "settings": settings}
        if trick == "sleep":
            time.sleep(60)
        if trick == "spin":
            while True:
                pass
        if trick == "one_long_c_call":
            sum(range(10**12))
        if trick == "exit":
            os._exit(7)
        if trick == "raise":
            raise KeyError("lost")
        if trick == "memory":
            return {"status": "ok", "value": len(bytearray(4 * 1024**3))}
        if trick == "forge":
            print('{"status": "ok", "value": "forged"}', flush=True)
            return {"status": "ok", "value": "honest"}
        if trick == "modules":
            return {"status": "ok", "value": sorted(sys.modules)}
        if trick == "world":
            return {"status": "ok", "value": world()}
        return {"status": "unknown"}

    return handle


def attempt(action):
    try:
        action()
    except OSError as error:
        return type(error).__name__
    return "worked"


def write_a_file(path):
    with open(path, "w") as file:
        file.write("x" * 10)


def world():
    return {
        "relative_file": attempt(lambda: write_a_file("note.txt")),
        "bytes_in_a_file": attempt(lambda: write_a_file(f"/tmp/groupwise-test-{os.getpid()}")),
        "network": attempt(lambda: socket.create_connection(("127.0.0.1", 9), timeout=0.2)),
        "open_files": attempt(lambda: [os.open(os.devnull, os.O_RDONLY) for _ in range(1000)]),
    }
