"""Tests of the shutdown toolkit: no signals here, those need a process of their own."""

import copy
import gc
import pickle
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from queuey_sync.durations import Duration, parse_duration
from queuey_sync.shutdown import Backoff, Shutdown, Watcher
from tests.support.waiting import eventually


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    """Give threads that are joined when the test ends."""
    with ThreadPoolExecutor(max_workers=64) as pool:
        yield pool


class RecordingWatcher(Watcher):
    """Completes every sleep at once, up to a number of them, and keeps what was asked."""

    def __init__(self, allowed: int = 10**9) -> None:
        super().__init__()
        self.allowed = allowed
        self.slept: list[timedelta] = []

    def sleep(self, delay: Duration) -> bool:
        """Record a sleep."""
        self.slept.append(parse_duration(delay))
        return len(self.slept) <= self.allowed


def seconds_of(call: Callable[[], object]) -> float:
    """Measure a call."""
    start = time.monotonic()
    call()
    return time.monotonic() - start


def list_of(backoff: Backoff, failures: int) -> list[float]:
    """Fail a number of times and list the delays in seconds."""
    return [backoff.failed().total_seconds() for _ in range(failures)]


# Shutdown and Watcher


def test_s1_stop_is_one_way_and_reaches_every_watcher() -> None:
    """S1: stopping twice turns watchers taken before and after, and a wait returns at once."""
    shutdown = Shutdown()
    before = shutdown.watcher()
    assert (True, False) == (before.is_running(), before.is_stopping())
    shutdown.stop()
    shutdown.stop()
    for watcher in (before, shutdown.watcher()):
        assert (False, True) == (watcher.is_running(), watcher.is_stopping())
        assert watcher.wait()


def test_s1_dropping_a_shutdown_stops_nothing() -> None:
    """S1: the watcher of a collected shutdown still says running."""
    shutdown = Shutdown()
    watcher = shutdown.watcher()
    del shutdown
    gc.collect()
    assert watcher.is_running()


def test_a_watcher_of_no_shutdown_runs() -> None:
    """A watcher made directly is the neutral default: it runs, and it sleeps."""
    watcher = Watcher()
    assert watcher.is_running()
    assert watcher.sleep(0)
    assert not watcher.wait(0)


@pytest.mark.parametrize("delay", ["50ms", 0.05, timedelta(milliseconds=50)])
def test_s2_a_sleep_is_completed(delay: Duration) -> None:
    """S2: an undisturbed sleep is true, and never early, in every spelling of a duration."""
    watcher = Shutdown().watcher()
    start = time.monotonic()
    assert watcher.sleep(delay)
    assert time.monotonic() - start >= 0.05


def test_s2_a_stop_from_another_thread_cuts_every_sleep(threads: ThreadPoolExecutor) -> None:
    """S2: fifty sleeping threads are all woken at once, well before they look by themselves."""
    shutdown = Shutdown()
    watcher = shutdown.watcher()
    sleeps = [threads.submit(watcher.sleep, 900) for _ in range(50)]
    eventually(lambda: len(watcher._bells) == 50)
    start = time.monotonic()
    shutdown.stop()
    assert [False] * 50 == [sleep.result(timeout=5) for sleep in sleeps]
    assert time.monotonic() - start < 0.5


def test_s2_a_sleep_after_the_stop_is_false_at_once() -> None:
    """S2: when already stopping nothing sleeps, not even for no time."""
    shutdown = Shutdown()
    shutdown.stop()
    assert seconds_of(lambda: shutdown.watcher().sleep(900)) < 0.1
    assert not shutdown.watcher().sleep(0)


def test_wait_has_a_timeout() -> None:
    """A wait that no stop ends is false, and not early."""
    watcher = Shutdown().watcher()
    start = time.monotonic()
    assert not watcher.wait("50ms")
    assert time.monotonic() - start >= 0.05


def test_waiters_leave_nothing_behind() -> None:
    """A watcher that served many waits holds nothing of them."""
    watcher = Watcher()
    for _ in range(100):
        watcher.wait(0)
    assert set() == watcher._bells


@pytest.mark.parametrize("delay", ["soon", -1, float("nan")])
def test_a_delay_that_is_none_is_refused(delay: Duration) -> None:
    """A wrong duration is an error that names the argument."""
    with pytest.raises(ValueError, match="delay"):
        Watcher().sleep(delay)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_watcher_cannot_be_copied(duplicate: Callable[[Watcher], object]) -> None:
    """A copy that would never see the stop is refused instead."""
    with pytest.raises(TypeError, match="no stop would reach it"):
        duplicate(Shutdown().watcher())


def test_listening_needs_the_main_thread(threads: ThreadPoolExecutor) -> None:
    """Elsewhere it is an error that says where to call it."""
    with pytest.raises(RuntimeError, match="on the main thread"):
        threads.submit(Shutdown().listen_for_signals).result()


# Backoff


def test_s3_the_default_schedule() -> None:
    """S3: five seconds, doubled up to fifteen minutes; a success starts again."""
    backoff = Backoff()
    assert (timedelta(seconds=5), 0) == (backoff.delay(), backoff.attempt())
    assert timedelta(seconds=5) == backoff.failed()
    assert (timedelta(seconds=10), 1) == (backoff.delay(), backoff.attempt())
    assert timedelta(seconds=10) == backoff.failed()
    assert (timedelta(seconds=20), 2) == (backoff.delay(), backoff.attempt())
    assert [20, 40, 80, 160, 320, 640, 900, 900] == list_of(backoff, 8)
    assert 10 == backoff.attempt()
    backoff.succeeded()
    assert (timedelta(seconds=5), 0) == (backoff.delay(), backoff.attempt())


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (Backoff("100ms", "30s", factor=3), [0.1, 0.3, 0.9, 2.7, 8.1, 24.3, 30, 30]),
        (Backoff(factor=0), [5, 5, 5]),
        (Backoff(factor=1), [5, 5, 5]),
        (Backoff(initial=0), [0, 0]),
        (Backoff(max=0), [0, 0]),
        (Backoff(factor=10**30), [5, 900, 900]),
        (Backoff("1d", max=timedelta.max, factor=10**9), [86400, timedelta.max.total_seconds()]),
    ],
)
def test_s3_other_schedules(backoff: Backoff, expected: list[float]) -> None:
    """S3: the factor and the ceiling hold, also at their ends, without an overflow."""
    assert expected == list_of(backoff, len(expected))


@pytest.mark.parametrize(
    "backoff", [Backoff(initial="60s", max="30s"), Backoff(max="30s", initial="60s")]
)
def test_s4_an_initial_delay_above_the_ceiling_is_clamped(backoff: Backoff) -> None:
    """S4: the delay never counts down, in whichever order the two were given."""
    assert timedelta(seconds=30) == backoff.delay()
    assert [30, 30] == list_of(backoff, 2)
    backoff.succeeded()
    assert [30] == list_of(backoff, 1)


def test_s5_a_stop_ends_a_wait_at_the_ceiling() -> None:
    """S5: after twenty failures and a stop the wait is false at once."""
    shutdown, backoff = Shutdown(), Backoff()
    list_of(backoff, 20)
    shutdown.stop()
    served = []
    assert seconds_of(lambda: served.append(backoff.wait(shutdown.watcher()))) < 0.1
    assert [False] == served


def test_s5_the_loop_leaves_without_another_unit_of_work(threads: ThreadPoolExecutor) -> None:
    """S5: a stop during the wait of the documented loop ends the loop, not only the wait."""
    shutdown, backoff = Shutdown(), Backoff()
    watcher = shutdown.watcher()
    units = []

    def loop() -> None:
        while watcher.is_running():
            units.append("failed")
            backoff.failed()
            if not backoff.wait(watcher):
                break

    running = threads.submit(loop)
    eventually(lambda: len(watcher._bells) == 1)
    shutdown.stop()
    running.result(timeout=5)
    assert ["failed"] == units


@pytest.mark.parametrize(
    ("failures", "expected"), [(0, [60, 30]), (1, [60, 30]), (2, [60, 60, 60]), (5, [60] * 15)]
)
def test_a_wait_serves_the_delay_of_the_last_failure_in_slices(
    failures: int, expected: list[float]
) -> None:
    """It serves what ``failed()`` returned, or the initial delay, in slices that add up to it."""
    watcher, backoff = RecordingWatcher(), Backoff("90s", "15m", slice="1m")
    list_of(backoff, failures)
    assert backoff.wait(watcher)
    assert [timedelta(seconds=seconds) for seconds in expected] == watcher.slept


def test_a_wait_after_a_success_serves_the_initial_delay() -> None:
    """A success also forgets the delay that was still to serve."""
    watcher, backoff = RecordingWatcher(), Backoff()
    list_of(backoff, 3)
    backoff.succeeded()
    assert backoff.wait(watcher)
    assert [timedelta(seconds=5)] == watcher.slept


def test_a_stop_between_slices_ends_the_wait() -> None:
    """No slice follows the one that a stop cut short."""
    watcher = RecordingWatcher(allowed=2)
    assert not Backoff("10m").wait(watcher)
    assert 3 == len(watcher.slept)


@pytest.mark.parametrize("slice_", [0, timedelta(microseconds=1)])
def test_a_tiny_slice_does_not_spin(slice_: Duration) -> None:
    """A slice is never so short that the wait becomes a busy loop."""
    watcher = RecordingWatcher()
    assert Backoff("1s", slice=slice_).wait(watcher)
    assert 100 == len(watcher.slept)


def test_a_delay_of_nothing_still_sees_the_stop() -> None:
    """Without a delay a wait is true while running, false when stopping."""
    shutdown, backoff = Shutdown(), Backoff(initial=0)
    assert backoff.wait(shutdown.watcher())
    shutdown.stop()
    assert not backoff.wait(shutdown.watcher())


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"initial": "soon"}, ValueError, "initial"),
        ({"max": -1}, ValueError, "max"),
        ({"slice": None}, TypeError, "slice"),
        ({"factor": -1}, ValueError, "factor"),
        ({"factor": 1.5}, TypeError, "factor"),
        ({"factor": True}, TypeError, "factor"),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: dict[str, int], error: type[Exception], text: str
) -> None:
    """A wrong value is an error that names its argument."""
    with pytest.raises(error, match=text):
        Backoff(**arguments)
