"""The pool must survive whatever a worker does, and never mix up or lose a reply."""

import contextlib
import gc
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from groupwise.sandbox import WorkerCrashed, WorkerLimits, WorkerPool, WorkerStarved, WorkerTimeout, WorkerUnavailable
from groupwise.sandbox.workers import _stop_all

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
TRICKS = Path(__file__).with_name("tricks_handler.py")
LIMITS = WorkerLimits(memory_mb=512, open_files=64)


@pytest.fixture
def pool():
    pool = WorkerPool(TRICKS, num_workers=2, limits=LIMITS, handler_settings={"colour": "red"})
    yield pool
    pool.close()


def echo(pool, value, **extra):
    return pool.call({"trick": "echo", "value": value, **extra}, cpu_limit_s=5.0)["value"]


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition, limit_s=5.0):
    deadline = time.monotonic() + limit_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def test_a_reply_comes_back_with_the_handler_settings(pool):
    reply = pool.call({"trick": "echo", "value": [1, None, "é", 2.5]}, cpu_limit_s=5.0)
    assert reply["value"] == [1, None, "é", 2.5]
    assert reply["settings"] == {"colour": "red"}


def test_a_worker_that_is_too_slow_to_start_says_so(pool, monkeypatch):
    monkeypatch.setattr("groupwise.sandbox.workers.START_LIMIT_S", 0.0)
    with pytest.raises(WorkerUnavailable, match="did not start: no answer in 0 s"):
        echo(pool, 1)


def test_many_threads_each_get_their_own_reply(pool):
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda i: echo(pool, i), range(200))) == list(range(200))
    assert len(pool.pids()) == 2


def test_two_workers_work_at_the_same_time(pool):
    with ThreadPoolExecutor(2) as threads:
        pids = list(
            threads.map(
                lambda i: pool.call({"trick": "echo", "value": i, "sleep_s": 0.3}, cpu_limit_s=5)["pid"], range(2)
            )
        )
    assert len(set(pids)) == 2


@pytest.mark.parametrize("trick", ["spin", "one_long_c_call"])
def test_cpu_time_ends_work_even_inside_one_c_call(pool, trick):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with pytest.raises(WorkerTimeout):
        pool.call({"trick": trick}, cpu_limit_s=0.2, wall_limit_s=30.0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert 0.2 <= after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.5  # ended workers only
    assert echo(pool, "after") == "after"


def test_idle_waiting_is_starvation_and_not_the_works_fault(pool):
    with pytest.raises(WorkerStarved):
        pool.call({"trick": "sleep"}, cpu_limit_s=5.0, wall_limit_s=0.2)


def test_repeated_hangs_leave_no_orphan_and_no_smaller_pool(pool):
    seen = set()
    for _ in range(3):
        echo(pool, 1)
        seen.update(pool.pids())
        with pytest.raises(WorkerTimeout):
            pool.call({"trick": "spin"}, cpu_limit_s=0.05, wall_limit_s=30.0)
    assert not any(is_alive(pid) for pid in seen - set(pool.pids()))
    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(lambda i: echo(pool, i), range(20))) == list(range(20))


def test_a_hang_in_one_worker_does_not_stop_the_other(pool):
    echo(pool, 0)
    errors = []

    def hang():
        with pytest.raises(WorkerStarved):
            pool.call({"trick": "sleep"}, cpu_limit_s=5.0, wall_limit_s=1.5)
        errors.append(time.monotonic())

    thread = threading.Thread(target=hang)
    thread.start()
    assert [echo(pool, i) for i in range(20)] == list(range(20))
    finished = time.monotonic()
    thread.join()
    assert finished < errors[0]


def test_a_crash_is_reported_and_the_worker_replaced(pool):
    with pytest.raises(WorkerCrashed):
        pool.call({"trick": "exit"}, cpu_limit_s=5.0)
    assert echo(pool, "after") == "after"


def test_a_worker_killed_while_idle_is_nobodys_failure(pool):
    echo(pool, 0)
    for pid in pool.pids():
        os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda pid=pid: not is_alive(pid))
    assert echo(pool, 1) == 1


def test_an_exception_in_the_handler_is_data_and_retires_the_worker(pool):
    pid = pool.call({"trick": "echo", "value": 0}, cpu_limit_s=5.0)["pid"]
    reply = pool.call({"trick": "raise"}, cpu_limit_s=5.0)
    assert reply["status"] == "handler_error"
    assert "lost" in reply["message"]
    assert pool.call({"trick": "echo", "value": 0}, cpu_limit_s=5.0)["pid"] != pid


def test_memory_is_bounded(pool):
    assert pool.call({"trick": "memory"}, cpu_limit_s=5.0)["status"] == "memory"
    assert echo(pool, "after") == "after"


def test_printing_cannot_forge_a_reply(pool):
    assert pool.call({"trick": "forge"}, cpu_limit_s=5.0)["value"] == "honest"


def test_a_worker_can_reach_nothing(pool):
    world = pool.call({"trick": "world"}, cpu_limit_s=5.0)["value"]
    pid = pool.call({"trick": "echo", "value": 0}, cpu_limit_s=5.0)["pid"]
    Path(f"/tmp/groupwise-test-{pid}").unlink(missing_ok=True)
    assert world["relative_file"] == "FileNotFoundError"
    assert world["bytes_in_a_file"] == "OSError"
    assert world["network"] != "worked"
    assert world["open_files"] == "OSError"


def test_close_ends_the_workers_and_later_calls_say_so(pool):
    echo(pool, 0)
    pids = pool.pids()
    pool.close()
    pool.close()
    assert not any(is_alive(pid) for pid in pids)
    with pytest.raises(WorkerUnavailable, match="closed"):
        echo(pool, 1)


def test_close_while_a_call_runs_ends_that_call(pool):
    echo(pool, 0)
    outcome = []

    def call():
        try:
            pool.call({"trick": "sleep"}, cpu_limit_s=30.0)
        except (WorkerCrashed, WorkerUnavailable) as error:
            outcome.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    time.sleep(0.1)
    pool.close()
    thread.join(timeout=5.0)
    assert outcome


def test_a_forgotten_pool_ends_its_workers():
    pool = WorkerPool(TRICKS, num_workers=1, limits=LIMITS)
    echo(pool, 0)
    pids = pool.pids()
    del pool
    gc.collect()
    assert wait_until(lambda: not any(is_alive(pid) for pid in pids))


SCRIPT = """
import os, sys, time
from pathlib import Path
from groupwise.sandbox import WorkerPool
pool = WorkerPool(Path(sys.argv[1]), num_workers=1)
print(pool.call({"trick": "echo", "value": 0}, cpu_limit_s=5.0)["pid"], flush=True)
if sys.argv[2] == "killed":
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("end", ["normal", "killed"])
def test_workers_die_with_their_parent_and_need_no_main_guard(end):
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(TRICKS), end], capture_output=True, text=True, timeout=30)
    pid = int(done.stdout)
    assert done.stderr == ""
    assert wait_until(lambda: not is_alive(pid))


def test_a_forked_copy_of_the_pool_starts_workers_of_its_own(pool):
    echo(pool, 0)
    parents = set(pool.pids())
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            answer = pool.call({"trick": "echo", "value": 5}, cpu_limit_s=5.0)
            os.write(write_end, f"{answer['value']} {answer['pid']}".encode())
            pool.close()
        os._exit(0)
    os.waitpid(child, 0)
    value, pid = os.read(read_end, 100).split()
    os.close(read_end)
    os.close(write_end)
    assert int(value) == 5
    assert int(pid) not in parents
    assert all(is_alive(pid) for pid in parents)
    assert echo(pool, 1) == 1


def test_a_forked_copy_works_although_all_workers_were_busy():
    pool = WorkerPool(TRICKS, num_workers=1, limits=LIMITS)
    echo(pool, 0)
    busy = threading.Thread(target=lambda: echo(pool, 1, sleep_s=0.5))
    busy.start()
    time.sleep(0.1)
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        answer = 0
        with contextlib.suppress(BaseException):
            answer = echo(pool, 5)
            pool.close()
        os._exit(answer)
    _, status = os.waitpid(child, 0)
    busy.join()
    pool.close()
    assert os.waitstatus_to_exitcode(status) == 5


def test_a_copy_of_the_pool_does_not_end_its_parents_workers(pool):
    echo(pool, 0)
    pids = pool.pids()
    _stop_all(pool._workers, owner_pid=os.getpid() + 1)
    assert pool.pids() == pids
    _stop_all(pool._workers, owner_pid=os.getpid())
    assert pool.pids() == []


def test_a_handler_that_cannot_start_is_named():
    pool = WorkerPool(Path("no_such_handler.py"), num_workers=1)
    with pytest.raises(WorkerUnavailable, match="no_such_handler"):
        pool.call({}, cpu_limit_s=1.0)
    pool.close()


def test_a_worker_holds_the_standard_library_only(pool):
    modules = pool.call({"trick": "modules"}, cpu_limit_s=5.0)["value"]
    assert not {"groupwise", "torch", "pydantic", "transformers", "sqlglot", "numpy", "site"} & set(modules)
