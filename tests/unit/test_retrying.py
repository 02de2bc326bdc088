"""Tests of the two tenacity adapters against the real tenacity."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from tenacity import (
    RetryError,
    Retrying,
    retry,
    retry_always,
    retry_if_exception,
    retry_if_exception_type,
    stop_after_attempt,
    stop_never,
    wait_fixed,
)
from tenacity.retry import retry_base

from queuey_sync.errors import Stopping
from queuey_sync.retrying import sleep_until_stop, stop_when_stopping
from queuey_sync.shutdown import Shutdown, Watcher


@pytest.fixture
def shutdown() -> Shutdown:
    """Give a shutdown that nobody has stopped."""
    return Shutdown()


class Call:
    """A function that raises what it is told, by turns, and counts its calls."""

    def __init__(self, *raises: BaseException | None, stop: Shutdown | None = None) -> None:
        self.raises = list(raises)
        self.stop = stop
        self.calls = 0

    def __call__(self) -> str:
        """Raise or return."""
        self.calls += 1
        if self.stop is not None:
            self.stop.stop()
        error = self.raises.pop(0) if len(self.raises) > 1 else self.raises[0]
        if error is not None:
            raise error
        return "done"


Run = Callable[[Retrying, Call], None]


def retrying_call(retrying: Retrying, call: Call) -> None:
    """Use tenacity as a caller."""
    retrying(call)


def retrying_loop(retrying: Retrying, call: Call) -> None:
    """Use tenacity as a loop of context managers."""
    for attempt in retrying:
        with attempt:
            call()


def retrying_decorator(retrying: Retrying, call: Call) -> None:
    """Use tenacity as a decorator."""

    @retry(sleep=retrying.sleep, stop=retrying.stop, wait=retrying.wait, retry=retrying.retry)
    def decorated() -> None:
        call()

    decorated()


@pytest.fixture(params=[retrying_call, retrying_loop, retrying_decorator])
def run(request: pytest.FixtureRequest) -> Run:
    """Give each of the ways to use tenacity."""
    way: Run = request.param
    return way


@pytest.fixture(
    params=[retry_if_exception_type(), retry_always, retry_if_exception(lambda _: True)],
    ids=["default", "always", "any exception"],
)
def predicate(request: pytest.FixtureRequest) -> retry_base:
    """Give what is retried, in words of tenacity."""
    chosen: retry_base = request.param
    return chosen


def test_nothing_changes_without_a_stop(shutdown: Shutdown, run: Run) -> None:
    """While running, tenacity retries, and gives up, as ever."""
    watcher, call = shutdown.watcher(), Call(OSError("gone"))
    stop = stop_when_stopping(watcher) | stop_after_attempt(3)
    with pytest.raises(RetryError):
        run(Retrying(sleep=sleep_until_stop(watcher), stop=stop, wait=wait_fixed(0.001)), call)
    assert 3 == call.calls


def test_a_stop_cuts_the_sleep_of_a_retry(shutdown: Shutdown, run: Run) -> None:
    """A retry that waits for an hour ends with ``Stopping`` as soon as the stop arrives."""
    watcher, call = shutdown.watcher(), Call(OSError("gone"))
    retrying = Retrying(
        sleep=sleep_until_stop(watcher), stop=stop_after_attempt(5), wait=wait_fixed(3600)
    )
    with ThreadPoolExecutor() as threads:
        running = threads.submit(run, retrying, call)
        assert not watcher.wait("50ms")
        shutdown.stop()
        assert isinstance(running.exception(timeout=0.5), Stopping)
    assert 1 == call.calls


@pytest.mark.parametrize("composed", [False, True])
def test_a_stop_during_an_attempt_allows_no_other(
    shutdown: Shutdown, run: Run, *, composed: bool
) -> None:
    """The condition alone suffices; its cause is the failure of the last attempt."""
    watcher, failure = shutdown.watcher(), OSError("gone")
    call = Call(failure, stop=shutdown)
    ours = stop_when_stopping(watcher)
    with pytest.raises(Stopping) as caught:
        run(Retrying(stop=ours | stop_after_attempt(1) if composed else ours), call)
    assert 1 == call.calls
    assert failure is caught.value.__cause__


def test_a_stop_before_the_sleep_allows_no_other_attempt(
    shutdown: Shutdown, run: Run, predicate: retry_base
) -> None:
    """The sleep alone suffices too, whatever is retried, also with no time to wait."""
    watcher, call = shutdown.watcher(), Call(OSError("gone"), stop=shutdown)
    with pytest.raises(Stopping):
        run(Retrying(sleep=sleep_until_stop(watcher), stop=stop_never, retry=predicate), call)
    assert 1 == call.calls


def test_a_success_during_a_stop_is_kept(shutdown: Shutdown, run: Run) -> None:
    """An attempt that ends well is not thrown away because a stop was requested meanwhile."""
    watcher, call = shutdown.watcher(), Call(None, stop=shutdown)
    run(Retrying(sleep=sleep_until_stop(watcher), stop=stop_when_stopping(watcher)), call)
    assert 1 == call.calls


def test_stopping_from_inside_an_attempt_is_not_retried(
    shutdown: Shutdown, run: Run, predicate: retry_base
) -> None:
    """A retry nested in another one ends both, whatever the outer one retries."""
    watcher, call = shutdown.watcher(), Call(Stopping("inner"), stop=shutdown)
    stop = stop_when_stopping(watcher) | stop_after_attempt(5)
    with pytest.raises(Stopping):
        run(Retrying(sleep=sleep_until_stop(watcher), stop=stop, retry=predicate), call)
    assert 1 == call.calls


def test_the_error_callback_is_not_asked_about_a_stop(shutdown: Shutdown) -> None:
    """``retry_error_callback`` turns exhaustion into a value; a stop is no exhaustion."""
    stop = stop_when_stopping(shutdown.watcher())
    with pytest.raises(Stopping):
        Retrying(stop=stop, retry_error_callback=lambda _: "hidden")(
            Call(OSError("gone"), stop=shutdown)
        )


def test_a_watcher_that_never_stops_is_neutral() -> None:
    """A handler called by hand, with the default watcher, retries as usual."""
    call = Call(OSError("gone"), None)
    watcher = Watcher()
    stop = stop_when_stopping(watcher)
    assert "done" == Retrying(sleep=sleep_until_stop(watcher), stop=stop)(call)
    assert 2 == call.calls
