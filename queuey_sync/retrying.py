"""Makes tenacity obey a shutdown: a ``sleep`` that a stop cuts short, and a ``stop`` condition.

Both raise ``Stopping``, which escapes from a handler and gives its job back without costing an
attempt; tenacity's own ``RetryError`` would count as a failure of the job. The toolkit itself is in
``shutdown.py`` and does not import this module, because importing tenacity takes its time.
"""

from collections.abc import Callable

from tenacity import RetryCallState
from tenacity.stop import stop_base

from queuey_sync.errors import Stopping
from queuey_sync.shutdown import Watcher

__all__ = ["sleep_until_stop", "stop_when_stopping"]


def sleep_until_stop(watcher: Watcher) -> Callable[[float], None]:
    """Make the ``sleep=`` of ``tenacity.Retrying``: it ends when a stop is requested.

    Returns:
        A function of a number of seconds. It raises ``Stopping`` when a stop cuts the sleep short
        or came before it.

    >>> from tenacity import Retrying, wait_fixed
    >>> calls = iter([OSError("gone"), None])
    >>> def fetch():
    ...     if error := next(calls):
    ...         raise error
    ...     return "page"
    >>> Retrying(sleep=sleep_until_stop(Watcher()), wait=wait_fixed(0.001))(fetch)
    'page'
    """

    def sleep(seconds: float) -> None:
        if not watcher.sleep(seconds):
            raise Stopping("a stop arrived while a retry was waiting")

    return sleep


class stop_when_stopping(stop_base):  # noqa: N801 - named as tenacity names its own conditions
    """The ``stop=`` of ``tenacity.Retrying``: no further attempt once a stop was requested.

    It composes with tenacity's conditions by ``|``; write it first, since tenacity asks from left
    to right and the first yes ends the asking. An attempt that succeeds is never thrown away.

    Raises:
        Stopping: An attempt failed and the watcher is stopping; its cause is that failure.

    >>> from tenacity import stop_after_attempt
    >>> stop = stop_when_stopping(Watcher()) | stop_after_attempt(5)
    """

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def __call__(self, retry_state: RetryCallState) -> bool:
        """Raise ``Stopping`` once a stop was requested; until then answer no."""
        if self._watcher.is_running():
            return False
        outcome = retry_state.outcome
        failure = outcome.exception() if outcome is not None else None
        raise Stopping("a stop arrived after a failed attempt") from failure
