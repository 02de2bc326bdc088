"""What `import queuey_sync` offers, and that the version is the same wherever it is written."""

import ast
import configparser
import re
import types
from pathlib import Path

import pytest

import queuey_sync
from tests.support.source import ROOT

PROMISED = """
    Queuey QueueSet QueueConfig queue Job Handlers RetryPolicy JobContext current_job JobLogFilter
    Producer Worker WorkerHandle connect Backend Delivery Consumption Listener Inbox MemoryBackend
    Envelope DeadLetter DeadLetterCause Shutdown Watcher Backoff Duration
    QueueyError SerializationError MalformedEnvelope BackendError UnknownQueue DuplicateHandler
    ShutDown ConsumerStopped WorkerStuck ConfigurationError SettleError
    PublishError PublishUnroutable PublishRefused PublishUnconfirmed BrokerUnavailable
    JobError Retryable Fatal Deferred JobTimedOut SoftTimeout Stopping
""".split()  # noqa: SIM905 - a list of one name a line is three pages long


@pytest.mark.parametrize("name", PROMISED)
def test_promised_names_are_there(name: str) -> None:
    """Each name that the documentation uses can be imported from the top of the package."""
    assert hasattr(queuey_sync, name)


def test_the_three_lists_of_names_agree() -> None:
    """`__all__` is sorted, and what checkers see and what is imported are exactly its names."""
    shown = {
        (alias.name, statement.module)
        for statement in ast.walk(ast.parse(Path(queuey_sync.__file__).read_text()))
        if isinstance(statement, ast.ImportFrom) and statement.module != "typing"
        for alias in statement.names
    }
    found = {
        (name, f"queuey_sync.{module}")
        for module, names in queuey_sync._HOMES.items()
        for name in names
    }
    assert sorted(name for name, _ in found) == queuey_sync.__all__
    assert shown == found


def test_other_names_are_refused() -> None:
    """A name that does not exist is an ordinary AttributeError, and dir() shows those that do."""
    with pytest.raises(AttributeError, match="no attribute 'Quewy'"):
        _ = queuey_sync.Quewy
    assert set(queuey_sync.__all__) <= set(dir(queuey_sync))


def test_public_classes_and_functions_have_docstrings() -> None:
    """help() on any public name tells something, also where the docstring would be inherited."""
    values = {name: getattr(queuey_sync, name) for name in queuey_sync.__all__}
    described = {
        name: value
        for name, value in values.items()
        if isinstance(value, type | types.FunctionType)
    }
    assert [
        name for name, value in described.items() if not vars(value).get("__doc__", value.__doc__)
    ] == []


def test_the_version_heads_the_changelog() -> None:
    """The newest section of the changelog is about the version in setup.cfg."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    newest = re.search(r"^## \[?([^]\s]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert setup["metadata"]["version"] == newest[1]
