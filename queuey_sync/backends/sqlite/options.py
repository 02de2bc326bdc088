"""The knobs of the store, with their defaults and their checks, and what its URL says.

Knows nothing of connections. `schema.py` turns them into settings of a connection.
"""

import os
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Literal, TypedDict, get_args
from urllib.parse import parse_qsl, unquote, urlsplit

from queuey_sync.durations import Duration, ceil_ms, parse_duration
from queuey_sync.errors import ConfigurationError
from queuey_sync.retry import check_duration

Synchronous = Literal["normal", "full"]

_SHORTEST_LEASE = timedelta(seconds=1)
_EXPECTED = "expected sqlite:///relative/path.db or sqlite:////absolute/path.db"


class OptionKeywords(TypedDict, total=False):
    """The fields of `Options`, as the keywords of `SQLiteBackend` and ``connect``."""

    synchronous: Synchronous
    busy_timeout: Duration
    lease: Duration
    keep_dead_letters: Duration | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How this store writes, waits and cleans up. All of them may stand in the URL as well.

    Args:
        synchronous: What a job survives once it is enqueued: ``"normal"`` the end of any process,
            ``"full"`` a power cut as well.
        busy_timeout: How long to wait for a file that others are writing to.
        lease: How long a worker that shows no sign of life, and yet is not gone, keeps its jobs.
        keep_dead_letters: Older dead letters are deleted by workers; None keeps them for ever.

    Raises:
        ConfigurationError: An option has a value that cannot work; the text names it.

    >>> Options(synchronous="full", busy_timeout="500ms").busy_limit
    datetime.timedelta(microseconds=500000)
    """

    synchronous: Synchronous = "normal"
    busy_timeout: Duration = "10s"
    lease: Duration = "30s"
    keep_dead_letters: Duration | None = None

    def __post_init__(self) -> None:
        if self.synchronous not in get_args(Synchronous):
            raise ConfigurationError(
                f"synchronous: expected 'normal' or 'full', got {self.synchronous!r}"
            )
        check_duration(self.busy_timeout, "busy_timeout")
        if check_duration(self.lease, "lease") < _SHORTEST_LEASE:
            raise ConfigurationError(f"lease: {self.lease!r} is shorter than 1s")
        if self.keep_dead_letters is not None:
            check_duration(self.keep_dead_letters, "keep_dead_letters")

    @property
    def busy_limit(self) -> timedelta:
        """`busy_timeout`, parsed."""
        return parse_duration(self.busy_timeout)

    @property
    def lease_ms(self) -> int:
        """`lease` in milliseconds."""
        return ceil_ms(parse_duration(self.lease))

    @property
    def keep_dead_ms(self) -> int | None:
        """`keep_dead_letters` in milliseconds."""
        if self.keep_dead_letters is None:
            return None
        return ceil_ms(parse_duration(self.keep_dead_letters))


def read_url(url: str, keywords: OptionKeywords) -> tuple[str, Options]:
    """The path of the file, made absolute, and the options in the URL and the keywords together.

    Raises:
        ConfigurationError: The URL names no file, or an option is unknown, wrong or given twice.

    >>> read_url("sqlite:////var/lib/shop/jobs.db?synchronous=full", {})[0]
    '/var/lib/shop/jobs.db'
    """
    parts = urlsplit(url)
    if parts.netloc or parts.fragment or not parts.path.startswith("/"):
        raise ConfigurationError(f"url: {url!r} names no file; {_EXPECTED}, with # written as %23")
    path = unquote(parts.path[1:])
    if not path or path == ":memory:" or path.endswith("/") or "\0" in path:
        raise ConfigurationError(f"url: {url!r} names no file; {_EXPECTED}")
    if path.startswith("~"):
        raise ConfigurationError(f"url: {url!r}: ~ is not expanded; write the whole path")
    given: dict[str, Any] = dict(keywords)
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        if key in given:
            raise ConfigurationError(f"{key}: given twice, the second time in the URL {url!r}")
        given[key] = value
    known = {field.name for field in fields(Options)}
    for key in given:
        if key not in known:
            raise ConfigurationError(f"options of sqlite: unknown option {key!r}")
    return os.path.abspath(path), Options(**given)  # noqa: PTH100 - Path would keep a ".."
