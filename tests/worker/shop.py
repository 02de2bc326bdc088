"""The fixture of the acceptance cases: the queue set `Shop` and its five jobs."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, Thread
from types import SimpleNamespace
from typing import Any

from queuey_sync import (
    Envelope,
    Handlers,
    Job,
    JobContext,
    Producer,
    QueueSet,
    RetryPolicy,
    Worker,
    queue,
)
from tests.contract.adapters import Adapter, MemoryAdapter
from tests.support.waiting import eventually


def shop_jobs(prefix: str) -> SimpleNamespace:
    """The set and its jobs, with the broker names under `prefix`."""

    class Shop(QueueSet, prefix=prefix):
        ORDERS = queue(prefetch=4, retry=RetryPolicy.fixed(3, "1s"))
        MAIL = queue(prefetch=2)
        AUDIT = queue(prefetch=1, max_priority=0)

    class Charge(Job[Shop], queue=Shop.ORDERS, name="shop.Charge"):
        customer: str

    class Stray(Job[Shop], queue=Shop.ORDERS, name="shop.Stray"):
        n: int

    class Notify(Job[Shop], queue=Shop.MAIL, name="shop.Notify"):
        seq: int

    class Chase(Job[Shop], queue=Shop.MAIL, name="shop.Chase", retry=RetryPolicy.fixed(2, "5s")):
        ref: int

    class Trace(Job[Shop], queue=Shop.AUDIT, name="shop.Trace"):
        n: int

    return SimpleNamespace(
        Queues=Shop, Charge=Charge, Stray=Stray, Notify=Notify, Chase=Chase, Trace=Trace
    )


class Script:
    """A handler that does what it is told, run by run, and keeps the contexts that it saw.

    Each step is raised if it is an exception, called with the context if it can be called, and else
    returned; after the last one, every run succeeds. `always` is the step of every run.
    """

    def __init__(self, *steps: Any, always: Any = None) -> None:
        self._steps = list(steps)
        self._always = always
        self._lock = Lock()
        self.runs: list[JobContext] = []
        self.jobs: list[Any] = []

    def handle(self, job: Any, ctx: JobContext) -> object:
        with self._lock:
            self.runs.append(ctx)
            self.jobs.append(job)
            step = self._steps.pop(0) if self._steps else self._always
        if isinstance(step, BaseException):
            raise step
        return step(ctx) if callable(step) else step


class Bench:
    """A shop on one backend, with a worker and all that a test wants to see of it."""

    def __init__(self, adapter: Adapter, prefix: str) -> None:
        self.adapter = adapter
        self.backend = adapter.backend
        self.shop = shop_jobs(prefix)
        self.orders: str = self.shop.Queues.ORDERS.full_name
        self.mail: str = self.shop.Queues.MAIL.full_name
        self.audit: str = self.shop.Queues.AUDIT.full_name
        self.producer = Producer(self.backend, self.shop.Queues)

    def worker(self, handlers: dict[Any, Any], **options: Any) -> Worker[Any]:
        """A worker; `handlers` maps job classes to handlers."""
        registered = Handlers(self.shop.Queues)
        for job, handler in handlers.items():
            registered.register(job, handler)
        return Worker(self.backend, self.shop.Queues, handlers=registered, **options)

    @contextmanager
    def working(self, handlers: dict[Any, Any], **options: Any) -> Iterator[Worker[Any]]:
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

    def settled(self, queue: str) -> list[tuple[int, str]] | None:
        """Attempts and kinds of what was acked, where the backend remembers that."""
        if isinstance(self.adapter, MemoryAdapter):
            return [(each.attempt, kind) for each, kind in self.adapter.memory.settled(queue)]
        return None

    def dead(self, queue: str) -> list[tuple[int, str]]:
        """Attempts and reasons on the dead-letter queue; on RabbitMQ it is empty afterwards."""
        return [(Envelope.decode(body).attempt, why) for body, why in self.adapter.dead(queue)]
