"""TLS for ``amqps://``: from file names to what pika needs. Always verified.

There is no way to switch the check of the broker's certificate off, nor to go on without TLS.
Knows no URLs but their query; `dialling.py` asks, and tells of what goes wrong on the way.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote

import pika

from queuey_sync.errors import ConfigurationError

_KEYS = ("cafile", "certfile", "keyfile", "server_name")


@dataclass(frozen=True, slots=True, kw_only=True)
class TLS:
    """Whom to trust, and what to show. See `Options`."""

    cafile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    server_name: str | None = None

    def given(self) -> dict[str, str]:
        """What is not None, by key.

        >>> TLS(cafile="ca.pem").given()
        {'cafile': 'ca.pem'}
        """
        values = {key: getattr(self, key) for key in _KEYS}
        return {key: value for key, value in values.items() if value is not None}

    def ssl_options(self) -> pika.SSLOptions:
        """Read the files.

        Raises:
            ConfigurationError: One of them cannot be read, or is not what it should be.
        """
        try:
            context = ssl.create_default_context(cafile=self.cafile)
        except OSError as fault:
            raise _unusable("cafile", self.cafile, fault) from None
        if self.keyfile is not None and self.certfile is None:
            raise ConfigurationError("keyfile: it needs a certfile")
        if self.certfile is not None:
            self._load_certificate(context, self.certfile)
        return pika.SSLOptions(context, self.server_name)

    def _load_certificate(self, context: ssl.SSLContext, certfile: str) -> None:
        for key, path in (("certfile", certfile), ("keyfile", self.keyfile)):
            try:
                if path is not None:
                    Path(path).open("rb").close()  # ssl does not say which of the two is missing
            except OSError as fault:
                raise _unusable(key, path, fault) from None
        try:
            context.load_cert_chain(certfile, self.keyfile, password=_refuse_encrypted)
        except OSError as fault:
            raise _unusable("certfile", certfile, fault) from None


def take_from(url: str) -> tuple[str, TLS]:
    """A URL without the parameters of ours, and what they say.

    >>> take_from("amqps://mq/shop?cafile=%2Fca.pem&heartbeat=5")[0]
    'amqps://mq/shop?heartbeat=5'
    """
    base, _, query = url.partition("?")
    ours: dict[str, str] = {}
    others: list[str] = []
    for piece in query.split("&") if query else ():
        key, _, value = piece.partition("=")
        if key == "ssl_options":
            raise ConfigurationError(f"url: ssl_options: say it with {', '.join(_KEYS)}")
        if key in _KEYS:
            if not value:
                raise ConfigurationError(f"url: {key}: it is empty")
            ours[key] = unquote(value)
        else:
            others.append(piece)
    return base + ("?" + "&".join(others) if others else ""), TLS(**ours)


def _refuse_encrypted() -> NoReturn:
    """In place of OpenSSL, which would ask for the passphrase at the terminal."""
    raise ConfigurationError("keyfile: it is encrypted; a process that starts alone needs it plain")


def _unusable(key: str, path: str | None, fault: OSError) -> ConfigurationError:
    why = fault.strerror or str(fault)
    if isinstance(fault, ssl.SSLError):
        why = f"not usable PEM ({fault.reason or why})"
    return ConfigurationError(f"{key}: {path}: {why}")
