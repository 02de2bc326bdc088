"""Jobs on a queue of their own, a worker process for them, and a look at what the broker has.

The jobs know the outcome of each of their runs, and the runs leave marks (`worker_program.py`).
`rounds.py` compares the two.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import pika
from pika.exceptions import ChannelClosedByBroker

from queuey_sync.backends.rabbitmq.backend import RabbitMQBackend
from queuey_sync.durations import ceil_ms, parse_duration
from queuey_sync.envelope import Envelope
from queuey_sync.queues import QueueConfig
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
PREFETCH = 16
"""Of the queue in `worker_program.py`."""


class Plan(NamedTuple):
    """A job: the outcome of each of its runs, and how long each takes."""

    outcomes: Sequence[str]
    seconds: float = 0.0


class Copy(NamedTuple):
    """A message that was found on the broker."""

    number: int
    turn: int
    """Which run of its job it is for: 0 for the first."""
    place: str
    """`queue`, `hold` or `dead`."""
    redelivered: bool = False


class Run(NamedTuple):
    """One run of one job."""

    number: int
    turn: int


class Load:
    """The jobs of one round; their queues are deleted at the end of the `with` block."""

    def __init__(self, url: str, plans: Sequence[Plan], delay: str = "1s") -> None:
        """Declare the queue and publish the jobs, numbered in order."""
        self.url = url
        self.plans = plans
        self.delay = delay
        self.prefix = f"test-{uuid.uuid4().hex[:12]}"
        self.queue = f"{self.prefix}.work"
        self.queues = {
            "queue": self.queue,
            "hold": f"{self.queue}.deferred.{ceil_ms(parse_duration(delay))}",
            "dead": f"{self.queue}.dead",
        }
        self._folder = tempfile.TemporaryDirectory(prefix="queuey-marks-")
        self._marks_file = Path(self._folder.name) / "marks"
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._publish()

    def __enter__(self) -> Self:
        """Nothing to do: the jobs are there from the making on."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Delete the queues and the marks."""
        channel = self._connection.channel()
        for name in self.queues.values():
            channel.queue_delete(name)
        self._connection.close()
        self._folder.cleanup()

    def _publish(self) -> None:
        payloads = [
            json.dumps({"number": number, **plan._asdict()}).encode()
            for number, plan in enumerate(self.plans)
        ]
        backend = RabbitMQBackend(self.url)
        backend.declare([QueueConfig(self.queue, prefetch=PREFETCH)])
        failures = backend.publish_many(
            [Envelope.new("test.Planned", self.queue, payload) for payload in payloads]
        )
        backend.close()
        assert {} == failures

    def marks(self) -> list[tuple[str, Run]]:
        """What the runs have marked so far, in order: `start`, then `end` or `cut`."""
        if not self._marks_file.exists():
            return []
        lines = [json.loads(line) for line in self._marks_file.read_text().splitlines()]
        return [(event, Run(number, turn)) for event, number, turn in lines]

    def marked(self, event: str) -> list[Run]:
        """The runs that have this mark."""
        return [run for each, run in self.marks() if each == event]

    @contextmanager
    def worker(
        self, concurrency: int = 8, options: Sequence[str] = (), url: str | None = None
    ) -> Iterator["WorkerProcess"]:
        """Run a worker process on these jobs; it is killed at the end, if it still runs."""
        environment = {
            **os.environ,
            "QUEUEY_URL": url or self.url,
            "MARKS_FILE": str(self._marks_file),
            "PREFIX": self.prefix,
            "DELAY": self.delay,
        }
        log = Path(self._folder.name) / "log"
        app = "tests.process.worker_program:app"
        command = [
            sys.executable,
            "-m",
            "queuey_sync",
            "worker",
            app,
            "-c",
            str(concurrency),
            *options,
        ]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, env=environment, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=output
            )
        try:
            yield WorkerProcess(process, log)
        finally:
            process.kill()
            process.wait()

    def await_let_go(self) -> None:
        """Wait until the broker knows that no worker is left: then nothing is unacked any more."""

        def no_consumer() -> bool:
            channel = self._connection.channel()
            found = channel.queue_declare(self.queue, passive=True)
            channel.close()
            return found.method.consumer_count == 0

        eventually(no_consumer, message="the broker knows that the worker is gone")

    def take_all(self) -> list[Copy]:
        """Take everything off the broker."""
        return [copy for place in self.queues for copy in self._take(place)]

    def take_until(self, expected: int, timeout: float = 8) -> list[Copy]:
        """Take everything off the broker, and wait for what is on its way; then look once more."""
        copies: list[Copy] = []

        def enough() -> bool:
            copies.extend(self.take_all())
            return len(copies) >= expected

        with suppress(AssertionError):  # the accounting tells which are missing
            eventually(enough, timeout)
        return copies + self.take_all()

    def _take(self, place: str) -> Iterator[Copy]:
        channel = self._connection.channel()
        with suppress(ChannelClosedByBroker):  # there need not be a hold queue
            while True:
                method, _, body = channel.basic_get(self.queues[place], auto_ack=True)
                if method is None or body is None:
                    break
                envelope = Envelope.decode(body)
                number = json.loads(bytes(envelope.payload))["number"]
                turn = envelope.attempt - 1 + envelope.deferrals
                yield Copy(number, turn, place, bool(method.redelivered))
            channel.close()


class WorkerProcess:
    """A worker that runs as a process of its own, with its log in a file."""

    def __init__(self, process: subprocess.Popen[bytes], log_file: Path) -> None:
        self._process = process
        self._log_file = log_file

    def await_signals(self) -> None:
        """Wait until it has its signal handlers: before that, any program would just die."""

        def listening() -> bool:
            status = Path(f"/proc/{self._process.pid}/status").read_text()
            caught = int(re.findall(r"^SigCgt:\s*(\w+)", status, re.MULTILINE)[0], 16)
            return bool(caught >> (signal.SIGTERM - 1) & 1)

        eventually(listening, message="the worker listens for signals")

    def stop(self, signum: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """Ask it to stop; gives its exit code, and how many seconds it took."""
        began = time.monotonic()
        self._process.send_signal(signum)
        code = self._process.wait(30)
        return code, time.monotonic() - began

    def kill(self) -> None:
        """End it as a power cut would."""
        self._process.kill()
        self._process.wait()

    def log(self) -> str:
        """What it has logged."""
        return self._log_file.read_text(errors="replace")

    def settle_failures(self) -> int:
        """How many it told of at its end; 0 if it never came so far as to work."""
        told = re.findall(r"settle failures: (\d+)", self.log())
        return int(told[-1]) if told else 0


def one_each(*outcomes: str, seconds: float = 0.0) -> list[Plan]:
    """Plans of one run."""
    return [Plan([outcome], seconds) for outcome in outcomes]
