"""Background jobs for plain synchronous Python, on RabbitMQ.

Declare queues (`QueueSet`) and typed jobs (`Job`), register handlers on a `Queuey` app, enqueue
jobs, and run ``queuey-sync worker``. To read the code, follow the way of a job: `producer`,
`envelope`, `backends.base`, `worker.worker`, `worker.run`, `worker.slots`, `pools.invoke`,
`worker.outcome`, `worker.settle`.

Each name is imported when it is first asked for. The command line depends on that: it has to listen
for signals within milliseconds, and importing all of this takes ten times as long.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from queuey_sync.app import Queuey
    from queuey_sync.backends.base import (
        Backend,
        Consumption,
        Delivery,
        Depth,
        Inbox,
        Listener,
        Survey,
    )
    from queuey_sync.backends.memory.backend import MemoryBackend
    from queuey_sync.backends.urls import connect
    from queuey_sync.context import JobContext, correlated, current_job
    from queuey_sync.durations import Duration
    from queuey_sync.envelope import Envelope
    from queuey_sync.errors import (
        BackendError,
        BrokerUnavailable,
        ConfigurationError,
        ConsumerStopped,
        Deferred,
        DuplicateHandler,
        Fatal,
        JobError,
        JobTimedOut,
        MalformedEnvelope,
        PublishError,
        PublishRefused,
        PublishUnconfirmed,
        PublishUnroutable,
        QueueyError,
        Retryable,
        SerializationError,
        SettleError,
        ShutDown,
        SoftTimeout,
        StartError,
        Stopping,
        StopTimedOut,
        UnknownQueue,
        WorkerStuck,
    )
    from queuey_sync.handlers import Handlers
    from queuey_sync.jobs import Job
    from queuey_sync.observe.logs import JobLogFilter
    from queuey_sync.pools.processes import ProcessPool
    from queuey_sync.producer import Producer
    from queuey_sync.queues import QueueConfig, QueueSet, queue
    from queuey_sync.retry import RetryPolicy
    from queuey_sync.shutdown import Backoff, Shutdown, Watcher
    from queuey_sync.worker.dead_letters import DeadLetter, DeadLetterCause
    from queuey_sync.worker.drain import DrainSummary, QueueSummary
    from queuey_sync.worker.events import WorkerHandle
    from queuey_sync.worker.tally import Counts, Progress
    from queuey_sync.worker.worker import Worker

__all__ = [
    "Backend",
    "BackendError",
    "Backoff",
    "BrokerUnavailable",
    "ConfigurationError",
    "ConsumerStopped",
    "Consumption",
    "Counts",
    "DeadLetter",
    "DeadLetterCause",
    "Deferred",
    "Delivery",
    "Depth",
    "DrainSummary",
    "DuplicateHandler",
    "Duration",
    "Envelope",
    "Fatal",
    "Handlers",
    "Inbox",
    "Job",
    "JobContext",
    "JobError",
    "JobLogFilter",
    "JobTimedOut",
    "Listener",
    "MalformedEnvelope",
    "MemoryBackend",
    "ProcessPool",
    "Producer",
    "Progress",
    "PublishError",
    "PublishRefused",
    "PublishUnconfirmed",
    "PublishUnroutable",
    "QueueConfig",
    "QueueSet",
    "QueueSummary",
    "Queuey",
    "QueueyError",
    "RetryPolicy",
    "Retryable",
    "SerializationError",
    "SettleError",
    "ShutDown",
    "Shutdown",
    "SoftTimeout",
    "StartError",
    "StopTimedOut",
    "Stopping",
    "Survey",
    "UnknownQueue",
    "Watcher",
    "Worker",
    "WorkerHandle",
    "WorkerStuck",
    "connect",
    "correlated",
    "current_job",
    "queue",
]

_HOMES = {
    "app": ("Queuey",),
    "backends.base": ("Backend", "Consumption", "Delivery", "Depth", "Inbox", "Listener", "Survey"),
    "backends.memory.backend": ("MemoryBackend",),
    "backends.urls": ("connect",),
    "context": ("JobContext", "correlated", "current_job"),
    "durations": ("Duration",),
    "envelope": ("Envelope",),
    "errors": (
        "BackendError",
        "BrokerUnavailable",
        "ConfigurationError",
        "ConsumerStopped",
        "Deferred",
        "DuplicateHandler",
        "Fatal",
        "JobError",
        "JobTimedOut",
        "MalformedEnvelope",
        "PublishError",
        "PublishRefused",
        "PublishUnconfirmed",
        "PublishUnroutable",
        "QueueyError",
        "Retryable",
        "SerializationError",
        "SettleError",
        "ShutDown",
        "SoftTimeout",
        "StartError",
        "StopTimedOut",
        "Stopping",
        "UnknownQueue",
        "WorkerStuck",
    ),
    "handlers": ("Handlers",),
    "jobs": ("Job",),
    "observe.logs": ("JobLogFilter",),
    "pools.processes": ("ProcessPool",),
    "producer": ("Producer",),
    "queues": ("QueueConfig", "QueueSet", "queue"),
    "retry": ("RetryPolicy",),
    "shutdown": ("Backoff", "Shutdown", "Watcher"),
    "worker.dead_letters": ("DeadLetter", "DeadLetterCause"),
    "worker.drain": ("DrainSummary", "QueueSummary"),
    "worker.events": ("WorkerHandle",),
    "worker.tally": ("Counts", "Progress"),
    "worker.worker": ("Worker",),
}
"""Which module holds which of these names."""


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
