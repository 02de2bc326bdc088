"""A progress bar on standard error, for a command that has an end. click draws it.

It is drawn by a thread of its own, a few times a second, and only on a terminal. It knows no
worker: it is given a function that says how far things are.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

_INTERVAL = 0.2
_ERASE_LINE = "\r\x1b[K"


@contextmanager
def progress_bar(label: str, progress: Callable[[], tuple[int, int]]) -> Iterator[None]:
    """Show how far something is until the block ends; does nothing without a terminal.

    Args:
        label: What is being done.
        progress: How much is done, and how much there is to do, as far as is known.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    drawing = _Drawing(label, progress)
    handlers = logging.getLogger().handlers
    for handler in handlers:
        handler.addFilter(drawing.make_room)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(drawing.make_room)
        drawing.end()


class _Drawing:
    """The bar, and the thread that draws it."""

    def __init__(self, label: str, progress: Callable[[], tuple[int, int]]) -> None:
        self._progress = progress
        self._began = time.monotonic()
        self._bar = click.progressbar(
            length=0, label=label, file=sys.stderr, show_pos=True, item_show_func=self._rate
        )
        self._lock = threading.Lock()
        """Held to draw, so that a line of the log and the bar do not mix."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="queuey-progress", daemon=True)
        self._thread.start()

    def make_room(self, _record: logging.LogRecord) -> bool:
        """Take the bar away for a line of the log, until it changes; the filter of its handlers."""
        with self._lock:
            click.echo(_ERASE_LINE, file=sys.stderr, nl=False)
        return True

    def end(self) -> None:
        """Draw it once more, as it is at the end."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(_INTERVAL):
            self._draw()
        self._draw()
        self._bar.render_finish()

    def _draw(self) -> None:
        done, total = self._progress()
        with self._lock:
            self._bar.length = total
            self._bar.finished = False  # jobs that arrive late make more to do
            self._bar.update(done - self._bar.pos)
            self._bar.render_progress()

    def _rate(self, _item: object) -> str:
        seconds = max(time.monotonic() - self._began, _INTERVAL)
        return f"{self._bar.pos / seconds:,.0f}/s"
