"""Private RabbitMQ nodes: free ports, an own folder, loopback only, gone when their owner is.

`scripts/broker` is the command over this module, and the tests use `Broker` directly. Standard
library only and nothing of the package, so that it works before anything is installed.
"""

import base64
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.rabbitmq import BrokerFailed, complaint, rabbitmq_sbin, tail

_LOOPBACK = "127.0.0.1"
_START_SECONDS = 90.0
_STOP_SECONDS = 30.0
_PORTS = range(20_000, 32_000)
"""Below what the kernel gives to outgoing connections, so that a restart finds its ports free."""

_DEFAULT_CONF = {
    "disk_free_limit.absolute": "50MB",
    "collect_statistics_interval": "500",
    "management.rates_mode": "none",
    "management.tcp.ip": _LOOPBACK,
    "log.file.level": "info",
    "log.console": "false",
}


class Broker:
    """One private node. Its ports and its data stay the same over `stop` or `kill` and `start`.

    A node started from the main thread dies with this process, even if that is killed, unless
    `detached`. Not safe for use by several threads at once.

    Attributes:
        name: What other nodes and `ctl` know it by.
        url: Where it listens, as an AMQP URL of the user `guest`.
        api_url: Where its management API listens.
    """

    def __init__(
        self,
        folder: Path | None = None,
        conf: Mapping[str, str] | None = None,
        *,
        vm_args: str = "",
        detached: bool = False,
        mapper: "PortMapper | None" = None,
    ) -> None:
        """Choose ports; nothing is started yet.

        Args:
            folder: Where data, logs and ports are kept, to be found again by the next `Broker` on
                it; by default a temporary folder, removed by `close`.
            conf: Lines for rabbitmq.conf, by key, over the defaults.
            vm_args: More arguments for the Erlang virtual machine of the node.
            detached: Whether the node outlives this process.
            mapper: That of a cluster; by default the node has one of its own.
        """
        self._temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="queuey-broker-")) if folder is None else folder
        self.folder = self.folder.resolve()
        self._state_file = self.folder / "node.json"
        self._detached = detached
        self._conf = dict(conf or {})
        self._vm_args = vm_args
        self._processes: list[subprocess.Popen[bytes]] = []
        self._mapper = mapper
        self._ports: dict[str, int] = self._saved().get("ports") or _free_ports()
        if mapper is not None:
            self._ports["epmd"] = mapper.port
        amqp = self._ports["amqp"]
        self.url = f"amqp://guest:guest@{_LOOPBACK}:{amqp}/%2F"
        self.api_url = f"http://{_LOOPBACK}:{self._ports['management']}/api/"
        self.name = f"queuey-{amqp}@localhost"

    def __enter__(self) -> Self:
        """Start the node."""
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the node and remove a temporary folder."""
        self.close()

    def start(self) -> None:
        """Start the node, and return when it takes connections; nothing when it runs already.

        Raises:
            BrokerMissing: RabbitMQ is not installed.
            BrokerFailed: It did not start.
        """
        if self.is_running():
            return
        sbin = rabbitmq_sbin()
        self.kill()
        self._write_configuration()
        (self.folder / "output.txt").unlink(missing_ok=True)
        if self._mapper is None:
            self._spawn(_mapper_command(self._ports["epmd"]))
        server = self._spawn([str(sbin / "rabbitmq-server")])
        self._state_file.write_text(
            json.dumps(
                {
                    "url": self.url,
                    "api_url": self.api_url,
                    "ports": self._ports,
                    "pids": [process.pid for process in self._processes],
                }
            )
        )
        try:
            self._await_start(server)
        except BaseException:
            self._end_processes()
            raise

    def stop(self) -> None:
        """Stop the node in good order; nothing when it is not running."""
        self._end_processes(gently=True)

    def kill(self) -> None:
        """End the node as a crash would, by SIGKILL."""
        self._end_processes()

    def restart(self) -> None:
        """Stop the node and start it again, on the same ports and data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the node for good, and remove its folder if that was a temporary one."""
        if self._temporary:
            self.kill()
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            self.stop()

    def is_running(self) -> bool:
        """Whether the node takes connections."""
        return any(is_alive(pid) for pid in self.pids()) and self._answers()

    def was_started(self) -> bool:
        """Whether a node was ever started in this folder."""
        return self._state_file.exists()

    def pids(self) -> list[int]:
        """The processes of a started node: its port mapper, then itself, whoever started them."""
        if self._processes:
            return [process.pid for process in self._processes]
        return [pid for pid in self._saved().get("pids", []) if self._is_ours(pid)]

    def ctl(self, *arguments: str) -> str:
        """What rabbitmqctl printed; takes 1 to 2 seconds, so prefer `api`.

        Raises:
            BrokerFailed: The command failed.
        """
        done = subprocess.run(
            [str(rabbitmq_sbin() / "rabbitmqctl"), "--quiet", *arguments],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise BrokerFailed(f"rabbitmqctl {' '.join(arguments)} failed:\n{tail(done.stdout)}")
        return done.stdout

    def api(self, path: str, method: str = "GET", body: object = None) -> Any:
        """Call the management API, which answers in milliseconds.

        Its counts of messages and its lists of connections lag by up to half a second: poll them.

        Args:
            path: Such as ``queues/%2F`` or ``connections``.
            method: The HTTP method; ``DELETE`` on a connection closes it.
            body: Sent as JSON, if any.

        Returns:
            The decoded answer, None if it was empty.

        Raises:
            urllib.error.HTTPError: The node refused; 404 for what does not exist.
        """
        credentials = base64.b64encode(b"guest:guest").decode()
        request = urllib.request.Request(
            urllib.parse.urljoin(self.api_url, path),
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={"authorization": f"Basic {credentials}", "content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            answer = response.read()
        return json.loads(answer) if answer else None

    def _environment(self) -> dict[str, str]:
        """RabbitMQ's settings; those of the caller's environment and of /etc are shut out."""
        foreign = ("RABBITMQ_", "ERL_", "CONF_ENV_FILE")
        clean = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        folder = str(self.folder)
        return {
            **clean,
            "HOME": folder,
            "ERL_EPMD_ADDRESS": _LOOPBACK,
            "ERL_EPMD_PORT": str(self._ports["epmd"]),
            # RabbitMQ then replaces the start script, so that the pid we know is the node's own.
            "RUNNING_UNDER_SYSTEMD": "1",
            "RABBITMQ_NODENAME": self.name,
            "RABBITMQ_NODE_IP_ADDRESS": _LOOPBACK,
            "RABBITMQ_NODE_PORT": str(self._ports["amqp"]),
            "RABBITMQ_DIST_PORT": str(self._ports["distribution"]),
            "RABBITMQ_CONF_ENV_FILE": f"{folder}/no-environment-file",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{folder}/advanced.config",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/enabled_plugins",
            "RABBITMQ_GENERATED_CONFIG_DIR": f"{folder}/config",
            "RABBITMQ_MNESIA_BASE": f"{folder}/data",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_PID_FILE": f"{folder}/pid",
            # Several nodes share few cores here: none may claim one for itself.
            "RABBITMQ_SCHEDULER_BIND_TYPE": "u",
            "RABBITMQ_SCHEDULER_BUSY_WAIT_THRESHOLD": "none",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": self._vm_args,
        }

    def _await_start(self, server: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if server.poll() is not None or time.monotonic() > deadline:
                output = (self.folder / "output.txt").read_text(errors="replace")
                raise BrokerFailed(f"RabbitMQ did not start:\n{complaint(output)}")
            time.sleep(0.05)

    def _write_configuration(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = {
            **_DEFAULT_CONF,
            "management.tcp.port": str(self._ports["management"]),
            **self._conf,
        }
        lines = "".join(f"{key} = {value}\n" for key, value in settings.items())
        (self.folder / "rabbitmq.conf").write_text(lines)
        (self.folder / "enabled_plugins").write_text("[rabbitmq_management].\n")
        cookie = self.folder / ".erlang.cookie"
        if not cookie.exists():
            cookie.write_text(self._mapper.cookie if self._mapper else secrets.token_hex(16))
            cookie.chmod(0o400)

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        """Start a process that a Ctrl-C in this terminal does not reach, and that dies with us."""
        if not self._detached:
            command = _dying_with_us(command)
        with (self.folder / "output.txt").open("ab") as output:
            process = subprocess.Popen(
                command,
                env=self._environment(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def _end_processes(self, *, gently: bool = False) -> None:
        """End the node, then its port mapper; `gently` lets the node close its files first."""
        pids = self.pids()
        if gently and pids:
            _signal(pids[-1], signal.SIGTERM)
            _await_end(pids[-1], _STOP_SECONDS)
        for pid in reversed(pids):
            _signal(pid, signal.SIGKILL)
            _await_end(pid, _STOP_SECONDS)
        for process in self._processes:
            process.wait()
        self._processes.clear()
        if self._state_file.exists():
            self._state_file.write_text(json.dumps({**self._saved(), "pids": []}))

    def _saved(self) -> dict[str, Any]:
        with contextlib.suppress(FileNotFoundError, ValueError):
            saved: dict[str, Any] = json.loads(self._state_file.read_text())
            return saved
        return {}

    def _is_ours(self, pid: int) -> bool:
        """A pid in a file may meanwhile be another program's."""
        with contextlib.suppress(OSError):
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            return f"HOME={self.folder}".encode() in environment.split(b"\0")
        return False

    def _answers(self) -> bool:
        """Whether something greets an AMQP client here, as the node does once it is wholly up."""
        with (
            contextlib.suppress(OSError),
            socket.create_connection((_LOOPBACK, self._ports["amqp"]), timeout=5) as client,
        ):
            client.sendall(b"AMQP\0\0\x09\x01")
            return client.recv(1) == b"\x01"
        return False


class PortMapper:
    """What the nodes of a cluster find each other by: it runs from its making until `close`.

    Attributes:
        port: Where it listens.
        cookie: The secret that the nodes share.
    """

    def __init__(self) -> None:
        self.port = _free_ports()["epmd"]
        self.cookie = secrets.token_hex(16)
        self._process = subprocess.Popen(_dying_with_us(_mapper_command(self.port)))

    def close(self) -> None:
        """End it, after the nodes."""
        self._process.kill()
        self._process.wait()


def _mapper_command(port: int) -> list[str]:
    return [str(shutil.which("epmd")), "-address", _LOOPBACK, "-port", str(port)]


def _dying_with_us(command: list[str]) -> list[str]:
    """The same command, to be killed by the kernel when this process is gone."""
    setpriv = shutil.which("setpriv")
    # The kernel ties the death signal to the thread that starts the process.
    if setpriv and threading.current_thread() is threading.main_thread():
        return [setpriv, "--pdeathsig", "KILL", *command]
    return command


def _free_ports() -> dict[str, int]:
    """A port for each listener; all are held until the last one is found, so that they differ."""
    ports: dict[str, int] = {}
    with contextlib.ExitStack() as held:
        for listener in ("amqp", "distribution", "management", "epmd"):
            while listener not in ports:
                # Not `random`: tests seed it, and two runs would then want the same ports.
                port = secrets.choice(_PORTS)
                candidate = held.enter_context(socket.socket())
                with contextlib.suppress(OSError):
                    candidate.bind((_LOOPBACK, port))
                    ports[listener] = port
    return ports


def is_alive(pid: int) -> bool:
    """Whether a process runs (one that ended and waits to be reaped does not)."""
    with contextlib.suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z"
    return False


def _await_end(pid: int, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
