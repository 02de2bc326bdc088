"""What can be sent to a child process: things that it can import by name, or that can be pickled.

It is asked when a worker is built, so that nothing is refused only once a job is there. What is
sent, and how, is in `child_process.py`.
"""

import pickle
from typing import Any

from queuey_sync.errors import ConfigurationError
from queuey_sync.handlers import Handlers
from queuey_sync.observe.escaping import describe


def check_handlers(handlers: Handlers[Any]) -> list[str]:
    """Refuse what no child can be given.

    Returns:
        The names of the modules that a child will import.

    Raises:
        ConfigurationError: One of the handlers, or what goes with them, cannot be sent.
    """
    for handler in handlers:
        check_sendable(f"the handler of job `{handler.job_type.name}`", handler.source)
        check_sendable(f"job `{handler.job_type.name}`", handler.job_type.cls)
    for what, functions in (
        ("preparation", handlers.preparations),
        ("around", handlers.arounds),
        ("on_start", handlers.start_hooks),
        ("end hook", handlers.end_hooks),
    ):
        for function in functions:
            check_sendable(what, function)
    sources = [one for handler in handlers for one in (handler.job_type.cls, handler.source)]
    modules = dict.fromkeys(getattr(one, "__module__", None) for one in sources)
    return [name for name in modules if name is not None and name != "__main__"]


def check_sendable(what: str, thing: object) -> None:
    """Refuse one thing, called `what` in the error, that no child can be given.

    Raises:
        ConfigurationError: It cannot be sent.

    >>> check_sendable("initializer", len)
    """
    try:
        pickle.dumps(thing)
    except Exception as error:
        raise ConfigurationError(
            f"{what}: {getattr(thing, '__qualname__', type(thing).__qualname__)} cannot be sent to"
            f" a child process ({describe(error)}): a child imports it, so define it at the top"
            " level of a module, or use threads"
        ) from error
