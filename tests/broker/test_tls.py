"""TLS to a real broker, with the certificates and the settings of the page about it."""

import contextlib
import re
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from queuey_sync.backends.base import Inbox
from queuey_sync.backends.rabbitmq.backend import RabbitMQBackend
from queuey_sync.errors import BrokerUnavailable, ConfigurationError
from queuey_sync.queues import QueueConfig
from tests.contract.adapters import Listener
from tests.support.broker import Broker
from tests.support.publishing import envelope
from tests.support.source import ROOT

_PAGE = (ROOT / "docs" / "how-to" / "use-tls.md").read_text(encoding="utf-8")
_NAME = "mq.example.org"
_QUEUE = QueueConfig("tls")

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")


def _block(language: str) -> str:
    (block,) = re.findall(rf"^```{language}\n(.*?)^```", _PAGE, re.MULTILINE | re.DOTALL)
    return str(block)


def _openssl(folder: Path, command: str) -> None:
    done = subprocess.run(
        ["bash", "-ec", command], cwd=folder, capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode, done.stderr


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the commands of the page have run."""
    folder = tmp_path_factory.mktemp("certificates")
    _openssl(folder, _block("bash"))
    return folder


@pytest.fixture(scope="module")
def tls_broker(certificates: Path, broker: Broker) -> Iterator[tuple[Broker, int]]:
    """A node with the settings of the page, and its port for TLS."""
    conf = dict(line.split(" = ") for line in _block("ini").splitlines())
    port = _free_port()
    del conf["listeners.ssl.default"]
    for key in ("cacertfile", "certfile", "keyfile"):
        conf[f"ssl_options.{key}"] = str(certificates / conf[f"ssl_options.{key}"])
    with Broker(conf={"listeners.ssl.1": f"127.0.0.1:{port}", **conf}) as node:
        yield node, port


def _url(port: int, folder: Path, *names: str, **more: str) -> str:
    files = {"cafile": "ca.pem", "certfile": "client.pem", "keyfile": "client.key"}
    query = {name: str(folder / files[name]) for name in names} | more
    return f"amqps://guest:guest@127.0.0.1:{port}/?" + "&".join(
        f"{k}={v}" for k, v in query.items()
    )


def _fault(url: str) -> str:
    """Why publishing fails; consuming and looking say the same."""
    backend = RabbitMQBackend(url)
    try:
        with pytest.raises(BrokerUnavailable) as declaring:
            backend.declare([_QUEUE])
        with pytest.raises(BrokerUnavailable) as looking:
            backend.depths([_QUEUE])
    finally:
        backend.close()
    reason = str(declaring.value).partition("`: ")[2]
    assert reason == str(looking.value).partition("`: ")[2]
    assert "\n" not in reason
    return reason


@pytest.mark.parametrize("by_keyword", [False, True], ids=["url", "keyword"])
def test_a_job_goes_both_ways(
    tls_broker: tuple[Broker, int], certificates: Path, by_keyword: bool
) -> None:
    """With the authority, a certificate and the name, publishing and consuming work."""
    _, port = tls_broker
    names = ("cafile", "certfile", "keyfile")
    if by_keyword:
        backend = RabbitMQBackend(
            _url(port, certificates),
            cafile=str(certificates / "ca.pem"),
            certfile=str(certificates / "client.pem"),
            keyfile=str(certificates / "client.key"),
            server_name=_NAME,
        )
    else:
        backend = RabbitMQBackend(_url(port, certificates, *names, server_name=_NAME))
    backend.declare([_QUEUE])
    sent = envelope("tls")
    backend.publish(sent)
    inbox, listener = Inbox(), Listener()
    consumption = backend.consume([_QUEUE], inbox, listener)
    delivery = inbox.get(timeout=20)
    assert delivery is not None
    assert sent.job_id == delivery.envelope.job_id
    delivery.ack()
    consumption.stop(0)
    consumption.close()
    assert ([], []) == (listener.errors, listener.failed)
    backend.close()


def test_another_name_is_refused(tls_broker: tuple[Broker, int], certificates: Path) -> None:
    """A certificate of another name than the host is not accepted."""
    _, port = tls_broker
    fault = _fault(_url(port, certificates, "cafile", "certfile", "keyfile"))
    assert "certificate was not accepted (IP address mismatch" in fault


def test_an_unknown_authority_is_refused(
    tls_broker: tuple[Broker, int], certificates: Path
) -> None:
    """A certificate that nobody known has signed is not accepted."""
    _, port = tls_broker
    fault = _fault(_url(port, certificates, server_name=_NAME))
    assert "its certificate was not accepted (" in fault
    assert "issuer" in fault or "self-signed" in fault


def test_no_client_certificate(tls_broker: tuple[Broker, int], certificates: Path) -> None:
    """A broker that asks for a certificate, and gets none, is told in a line that says so."""
    _, port = tls_broker
    fault = _fault(_url(port, certificates, "cafile", server_name=_NAME))
    assert "it does not speak AMQP 0-9-1 there, or expects another client certificate" == fault


def test_tls_to_the_plain_port(tls_broker: tuple[Broker, int], certificates: Path) -> None:
    """It is no fallback: the connection fails."""
    port = int(tls_broker[0].url.rpartition(":")[2].partition("/")[0])
    assert "it does not speak TLS there" == _fault(_url(port, certificates, "cafile"))


def test_plain_to_the_tls_port(tls_broker: tuple[Broker, int]) -> None:
    """The text names TLS as what may be missing."""
    fault = _fault(f"amqp://guest:guest@127.0.0.1:{tls_broker[1]}/")
    assert "it does not speak AMQP 0-9-1 there, or expects TLS" == fault


@pytest.fixture
def impostor(tmp_path: Path) -> Iterator[Callable[[str], int]]:
    """Listens with a certificate that a command makes, as ``cert.pem`` and ``key.pem``."""
    with contextlib.ExitStack() as stack:

        def listen(command: str) -> int:
            _openssl(tmp_path, command)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            thread = threading.Thread(target=_greet, args=(listener, context), daemon=True)
            thread.start()
            stack.callback(thread.join, 5)
            stack.callback(listener.shutdown, socket.SHUT_RDWR)
            port: int = listener.getsockname()[1]
            return port

        yield listen


def _greet(listener: socket.socket, context: ssl.SSLContext) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = listener.accept()
            with contextlib.suppress(OSError), client:
                context.wrap_socket(client, server_side=True).close()


_SELF_SIGNED = (
    'openssl req -x509 -newkey rsa:2048 -nodes -subj "/CN=mq" -addext'
    ' "subjectAltName=IP:127.0.0.1" -keyout key.pem -out cert.pem'
)


def test_a_self_signed_certificate(impostor: Callable[[str], int], tmp_path: Path) -> None:
    """It is refused, though its name is right, unless it is the one to trust."""
    port = impostor(f"{_SELF_SIGNED} -days 30")
    assert "its certificate was not accepted (self-signed certificate)" == _fault(
        _url(port, tmp_path)
    )
    trusted = _fault(_url(port, tmp_path, cafile=str(tmp_path / "cert.pem")))
    assert "not accepted" not in trusted


def test_an_expired_certificate(impostor: Callable[[str], int], tmp_path: Path) -> None:
    """It is refused, though its authority is trusted and its name is right."""
    port = impostor(
        'openssl req -newkey rsa:2048 -nodes -subj "/CN=mq" -keyout key.pem -out mq.csr\n'
        'printf "subjectAltName=IP:127.0.0.1" > mq.ext\n'
        "openssl x509 -req -in mq.csr -signkey key.pem -days -1 -extfile mq.ext -out cert.pem"
    )
    fault = _fault(_url(port, tmp_path, cafile=str(tmp_path / "cert.pem")))
    assert "its certificate was not accepted (certificate has expired)" == fault


def test_an_encrypted_key(certificates: Path, tmp_path: Path) -> None:
    """Nobody is there to type its passphrase, so it is refused before anything is dialled."""
    encrypted = tmp_path / "encrypted.key"
    _openssl(
        certificates, f"openssl rsa -aes128 -passout pass:S3cret -in client.key -out {encrypted}"
    )
    url = _url(1, certificates, "cafile", "certfile", keyfile=str(encrypted))
    with pytest.raises(ConfigurationError, match="url: keyfile: it is encrypted"):
        RabbitMQBackend(url)
