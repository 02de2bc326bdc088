"""`FlaskQueuey`: a `Queuey` that takes its settings from a Flask app, and works inside it.

What it puts around the jobs is in `contexts.py`; the command that runs them in `command.py`.
"""

from collections.abc import Callable, Mapping
from functools import partial, update_wrapper
from typing import Any, TypeVar

from flask import Flask

from queuey_sync.app import Queuey
from queuey_sync.backends.base import Backend
from queuey_sync.contrib.flask.contexts import AppContexts
from queuey_sync.errors import ConfigurationError
from queuey_sync.queues import QueueSet

Q = TypeVar("Q", bound=QueueSet)
F = TypeVar("F", bound=Callable[[], object])


class FlaskQueuey(Queuey[Q]):
    """A `Queuey` for a Flask app: jobs run inside an application context of that app.

    Each run of a job has a context of its own, which is torn down whatever came of the job, before
    its outcome is settled. What a teardown function raises is logged; the job's outcome stands.

    The app's configuration says where jobs wait: ``QUEUEY_URL``, as the ``url`` of `Queuey`, or
    else the environment's variable of that name; ``QUEUEY_OPTIONS``, a dictionary, are the options
    of the backend.

    Args:
        queues: The queue set.
        app: The Flask app; without it, call `init_app` when there is one.

    Attributes:
        contexts: What is around every job.

    >>> from flask import Flask, current_app
    >>> from queuey_sync import Job, QueueSet, queue
    >>> class Queues(QueueSet, prefix="shop"):
    ...     EMAILS = queue()
    >>> class SendEmail(Job[Queues], queue=Queues.EMAILS, name="mail.send"):
    ...     to: str
    >>> queuey = FlaskQueuey(Queues)
    >>> @queuey.handler
    ... def send_email(job: SendEmail) -> None:
    ...     print("from", current_app.config["SENDER"], "to", job.to)
    >>> app = Flask("shop")
    >>> app.config.update(QUEUEY_URL="inline:", SENDER="shop@example.org")
    >>> queuey.init_app(app)
    >>> job_id = queuey.enqueue(SendEmail("ada@example.org"))
    from shop@example.org to ada@example.org
    """

    def __init__(self, queues: type[Q], app: Flask | None = None) -> None:
        super().__init__(queues)
        self.contexts = AppContexts()
        self.around(self.contexts)
        self.handlers.preparations.append(self.contexts.begin_child)
        self.handlers.on_start(self.contexts.begin_jobs)
        self.on_start = self._on_start
        """``queuey.on_start(function)``: see `Handlers.on_start`; it is called inside a context."""
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Work for this app, and read its configuration; in place of any app before.

        Raises:
            ConfigurationError: The app has another `FlaskQueuey`, or the configuration is wrong.
        """
        if app.extensions.setdefault("queuey", self) is not self:
            raise ConfigurationError(f"the Flask app `{app.name}` has a FlaskQueuey already")
        options: Mapping[str, Any] = app.config.get("QUEUEY_OPTIONS") or {}
        if not isinstance(options, Mapping):
            raise ConfigurationError(f"QUEUEY_OPTIONS: expected a dictionary, got {options!r}")
        self.close()
        self.contexts.use(app)
        self._url = app.config.get("QUEUEY_URL") or None
        self._options = dict(options)
        if self._url is not None:
            self._check()

    def _check(self) -> None:
        """Say now what is wrong with the configuration, by its keys; nothing is dialled."""
        try:
            self.backend()
        except ConfigurationError as error:
            key, _, text = str(error).partition("url: ")
            said = f"QUEUEY_URL or QUEUEY_OPTIONS: {error}" if key else f"QUEUEY_URL: {text}"
            raise ConfigurationError(said) from None

    def backend(self) -> Backend:
        """Where the jobs wait; made when first asked for.

        Raises:
            ConfigurationError: There is no Flask app yet, or no URL, or it cannot be used.
        """
        self.contexts.app()
        return super().backend()

    def _on_start(self, function: F, /) -> F:
        self.handlers.on_start(function)  # refuses what cannot be called
        inside = partial(self.contexts.call, function)
        # It goes by the name of the function, should that fail.
        self.handlers.start_hooks[-1] = update_wrapper(inside, function)
        return function
