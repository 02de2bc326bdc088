"""What is refused when a worker is built, and what its options come to. Pure."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Literal, NamedTuple, TypeVar

from queuey_sync.durations import format_duration
from queuey_sync.errors import ConfigurationError
from queuey_sync.handlers import Handlers
from queuey_sync.pools.base import PoolFactory
from queuey_sync.pools.processes import ProcessPool
from queuey_sync.pools.threads import ThreadPool
from queuey_sync.queues import QueueConfig, QueueSet
from queuey_sync.retry import RetryPolicy, check_integer
from queuey_sync.shutdown import Backoff

Q = TypeVar("Q", bound=QueueSet)


class Limits(NamedTuple):
    """How long an attempt may run."""

    hard: timedelta | None
    soft: timedelta | None


def choose_pool(pool: Literal["thread", "process"] | ProcessPool) -> PoolFactory:
    """What makes the pool that was asked for."""
    if isinstance(pool, ProcessPool):
        return pool
    match pool:
        case "thread":
            return ThreadPool
        case "process":
            return ProcessPool()
    raise ConfigurationError(f"pool: expected thread, process or a ProcessPool, got {pool!r}")


def resolve_limits(handlers: Handlers[Any], default: Limits) -> dict[str, Limits]:
    """The time limits of each handled job type, its own before the worker's, by name."""
    limits = {}
    for job_type in (handler.job_type for handler in handlers):
        hard = job_type.timeout or default.hard
        soft = job_type.soft_timeout or default.soft
        if soft is not None and hard is not None and soft >= hard:
            soft = None  # one of the two is the worker's, and comes too late for this job
        limits[job_type.name] = Limits(hard, soft)
    return limits


def check_delays(policies: Mapping[str, RetryPolicy], longest: timedelta | None) -> None:
    """Refuse a policy that waits longer than the backend can hold a job."""
    for job_type, policy in policies.items():
        if longest is not None and policy.max_attempts > 1 and policy.max > longest:
            wait, limit = format_duration(policy.max), format_duration(longest)
            raise ConfigurationError(
                f"job `{job_type}`: its retry policy waits up to {wait}, longer than the {limit}"
                " that the backend can hold"
            )


def select_queues(queue_set: type[Q], queues: Iterable[Q] | None) -> list[QueueConfig]:
    """The queues to consume, each once, in the order given."""
    given: object = queues
    if isinstance(given, str) or not isinstance(given, Iterable | None):
        raise ConfigurationError(
            f"queues: expected a list of members of {queue_set.__name__}, got {queues!r}"
        )
    members = list(queue_set if queues is None else queues)
    for member in members:
        if not isinstance(member, queue_set):
            raise ConfigurationError(f"queues: {member!r} is no member of {queue_set.__name__}")
    return [member.config for member in dict.fromkeys(members)]


def check_concurrency(wanted: int | None, default: int) -> int:
    """How many jobs run at once: at least one, whatever was asked for."""
    if wanted is None:
        return max(1, default)
    check_integer(wanted, "concurrency", 0, 10_000)
    return max(1, wanted)


def check_backoff(wanted: Backoff | None) -> Backoff | None:
    """Refuse what is no backoff."""
    if wanted is not None and not isinstance(wanted, Backoff):
        raise ConfigurationError(f"reconnect: expected a Backoff, got {wanted!r}")
    return wanted
