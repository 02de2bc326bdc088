"""What RabbitMQ's management API says: how many messages are on each queue of a vhost.

Hold queues come and go with the delays that jobs ask for, and only this API lists them. It is one
GET, so Python's own client does. Which names are those of hold queues is in `topology.py`.
"""

import base64
import json
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import SplitResult, quote, unquote, urlsplit

from pika.connection import Parameters

from queuey_sync.backends.rabbitmq.dialling import fault_text
from queuey_sync.backends.rabbitmq.topology import Topology
from queuey_sync.errors import BackendError, BrokerUnavailable, ConfigurationError
from queuey_sync.observe.escaping import one_line

_TIMEOUT_SECONDS = 10.0
_LONGEST_REASON = 200
_QUERY = "disable_stats=true&enable_queue_totals=true&columns=name,messages"
"""Totals instead of statistics, which lag by seconds and cost a broker with many queues a lot."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The login is for the address that was given, and for no other."""

    def redirect_request(self, *_: object, **_and: object) -> None:
        """Let a redirect be an answer like any other that is not wanted."""


class Management:
    """The management API at a URL.

    Args:
        url: ``http://user:password@host:15672`` or ``https://…``, with the path under which a proxy
            has it, if any.

    Raises:
        ConfigurationError: The URL cannot be read.

    >>> Management("http://ada:secret@mq.example.org:15672/").address
    'http://mq.example.org:15672'
    """

    def __init__(self, url: str) -> None:
        parts = _read(url)
        if parts is None:
            raise ConfigurationError(
                "management_url: expected http:// or https://, then user:password@host:15672, with"
                " characters other than letters and digits in user and password percent-encoded"
            )
        self.address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        """Scheme, host and port."""
        self._root = self.address + quote(parts.path.rstrip("/"), safe="/%")
        self._user = unquote(parts.username or "")
        self._password = unquote(parts.password or "")

    def messages(self, parameters: Parameters) -> dict[str, int | None]:
        """How many messages each queue of the vhost holds; None where the broker does not know.

        Args:
            parameters: Those of the broker, whose vhost counts.

        Raises:
            BackendError: It refused, or is something else than RabbitMQ.
            BrokerUnavailable: It cannot be reached.
        """
        vhost = parameters.virtual_host
        where = f"cannot ask the management API at {self.address} about vhost `{vhost}`"
        request = urllib.request.Request(  # noqa: S310 - the scheme is one of two
            f"{self._root}/api/queues/{quote(vhost, safe='')}?{_QUERY}", headers=self._headers()
        )
        try:
            opener = urllib.request.build_opener(_NoRedirects)
            with opener.open(request, timeout=_TIMEOUT_SECONDS) as response:
                body = response.read()
        except HTTPError as refusal:
            with refusal:
                raise BackendError(f"{where}: {self._refusal_text(refusal)}") from None
        except HTTPException as fault:
            raise BrokerUnavailable(f"{where}: no whole answer in HTTP came from there") from fault
        except OSError as fault:
            raise BrokerUnavailable(f"{where}: {fault_text(fault, parameters)}") from fault
        try:
            return {queue["name"]: queue.get("messages") for queue in json.loads(body)}
        except (AttributeError, LookupError, TypeError, ValueError):
            raise BackendError(f"{where}: what answers there is not RabbitMQ") from None

    def _headers(self) -> dict[str, str]:
        if not self._user:
            return {}
        login = base64.b64encode(f"{self._user}:{self._password}".encode()).decode()
        return {"Authorization": f"Basic {login}"}

    def _refusal_text(self, refusal: HTTPError) -> str:
        reason = _reason(refusal)
        if refusal.code != 401:
            return f"it answered {refusal.code} ({reason})"
        who = f"for user `{self._user}`" if self._user else "without a user in the URL"
        return f"access refused {who} ({reason})"


def _read(url: str) -> SplitResult | None:
    if " " in url or not url.isprintable():
        return None
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        (parts.hostname or "").encode("idna")
    except ValueError:  # its text may quote a part of the password, so it is no cause
        return None
    # A password that is not encoded may end the host early, and the rest of it is further on.
    cut = "@" in parts.path or parts.query or parts.fragment
    return parts if known and not cut else None


def _reason(refusal: HTTPError) -> str:
    """RabbitMQ's own words if there are any, such as `Not management user`; else those of HTTP."""
    reason: object = None
    with suppress(Exception):
        answer: dict[str, Any] = json.loads(refusal.read())
        reason = answer["reason"]
    return one_line(reason or refusal.reason, _LONGEST_REASON)


def held(
    messages: Mapping[str, int | None], queues: Sequence[str], topology: Topology
) -> list[int | None]:
    """How much the hold queues of each queue hold together; None if one of them is unknown.

    >>> from queuey_sync.backends.rabbitmq.options import Options
    >>> messages = {"mail": 7, "mail.deferred.1000": 1, "mail.deferred.5000": 2, "img": 0}
    >>> held(messages, ["mail", "img"], Topology(Options()))
    [3, 0]

    Raises:
        BackendError: A queue is missing, so this is the API of another broker.
    """
    sums: dict[str, int | None] = dict.fromkeys(queues, 0)
    for queue in queues:
        if queue not in messages:
            raise BackendError(
                f"the management API does not list queue `{queue}`: it is that of another broker"
            )
    for name, count in messages.items():
        behind = topology.queue_behind(name)
        so_far = None if behind is None else sums.get(behind)
        if behind is not None and so_far is not None:
            sums[behind] = None if count is None else so_far + count
    return [sums[queue] for queue in queues]
