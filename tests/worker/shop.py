"""The bench of the acceptance cases: the shop of `jobs.py` on one backend, in one kind of pool."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Literal

from queuey_sync import Envelope, Handlers, ProcessPool, Producer, Worker
from tests.contract.adapters import Adapter, MemoryAdapter
from tests.support.waiting import eventually
from tests.worker.jobs import shop_jobs
from tests.worker.script import Script

__all__ = ["Bench", "Gate", "Script", "gone", "shop_jobs"]


class Gate:
    """A handler that waits for its test, and counts the runs of each customer."""

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()
        """Guarded by `_lock`."""
        self._lock = Lock()
        self.open = Event()

    def handle(self, job: Any, _ctx: Any) -> None:
        with self._lock:
            self.runs[job.customer] += 1
        assert self.open.wait(30)

    def total(self) -> int:
        with self._lock:
            return sum(self.runs.values())


class Bench:
    """A shop on one backend, with a worker and all that a test wants to see of it."""

    def __init__(
        self,
        adapter: Adapter,
        prefix: str,
        pool: Literal["thread", "process"] | ProcessPool = "thread",
    ) -> None:
        self.adapter = adapter
        self.backend = adapter.backend
        self.pool = pool
        self.shop = shop_jobs(prefix)
        self.orders: str = self.shop.Queues.ORDERS.full_name
        self.mail: str = self.shop.Queues.MAIL.full_name
        self.audit: str = self.shop.Queues.AUDIT.full_name
        self.producer = Producer(self.backend, self.shop.Queues)

    def handlers(self, handlers: dict[Any, Any]) -> Handlers[Any]:
        """What runs the jobs; `handlers` maps job classes to handlers."""
        registered = Handlers(self.shop.Queues)
        for job, handler in handlers.items():
            registered.register(job, handler)
        return registered

    def worker(self, handlers: dict[Any, Any] | Handlers[Any], **options: Any) -> Worker[Any]:
        """A worker with these handlers, in this bench's pool if no other is given."""
        if isinstance(handlers, dict):
            handlers = self.handlers(handlers)
        options = {"pool": self.pool} | options
        return Worker(self.backend, self.shop.Queues, handlers=handlers, **options)

    @contextmanager
    def working(
        self, handlers: dict[Any, Any] | Handlers[Any], **options: Any
    ) -> Iterator[Worker[Any]]:
        """Run a worker in a thread until the block ends; its error, if any, is raised here."""
        worker = self.worker(handlers, **options)
        errors: list[BaseException] = []

        def run() -> None:
            try:
                worker.run()
            except BaseException as error:
                errors.append(error)

        thread = Thread(target=run, name="test-run")
        thread.start()
        try:
            yield worker
        finally:
            worker.handle().shutdown()
            self.until(lambda: not thread.is_alive(), "run() returned")
        for error in errors:
            raise error

    def until(self, condition: Any, what: str = "", timeout: float = 20) -> Any:
        """Wait for a condition; on the memory backend, its clock goes on meanwhile."""

        def pass_time() -> Any:
            if isinstance(self.adapter, MemoryAdapter):
                self.adapter.pass_time()
            return condition()

        return eventually(pass_time, timeout, what)

    def pass_time(self, seconds: float) -> None:
        """Move the clock of the memory backend on."""
        assert isinstance(self.adapter, MemoryAdapter)
        end = self.adapter.now() + seconds
        while self.adapter.now() < end:
            self.adapter.pass_time()

    def settled(self, queue: str) -> list[tuple[int, str]] | None:
        """Attempts and kinds of what was acked, where the backend remembers that."""
        if isinstance(self.adapter, MemoryAdapter):
            return [(each.attempt, kind) for each, kind in self.adapter.memory.settled(queue)]
        return None

    def dead(self, queue: str) -> list[tuple[int, str]]:
        """Attempts and reasons on the dead-letter queue; on RabbitMQ it is empty afterwards."""
        return [(Envelope.decode(body).attempt, why) for body, why in self.adapter.dead(queue)]


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody reaped yet has."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"
