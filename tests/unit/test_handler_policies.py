"""Tests of which retry policy judges a job, of all that are declared and overridden."""

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from queuey_sync.errors import ConfigurationError
from queuey_sync.handlers import Handlers, resolve_policies
from queuey_sync.jobs import Job
from queuey_sync.retry import RetryPolicy
from tests.support.shop import Charge, Chase, Other, Refund, Shop


@pytest.fixture
def handlers() -> Handlers[Shop]:
    """None yet."""
    return Handlers(Shop)


def both(job: Charge) -> object:
    """A handler whose job has no policy of its own."""
    return job


NO_RETRY, TWICE = RetryPolicy.none(), RetryPolicy.fixed(2, "9s")


@pytest.mark.parametrize(
    ("by_queue", "by_job", "charge", "chase"),
    [
        ({}, {}, Shop.ORDERS.config.retry, RetryPolicy.fixed(2, "5s")),
        ({Shop.ORDERS: NO_RETRY}, {}, NO_RETRY, RetryPolicy.fixed(2, "5s")),
        ({Shop.MAIL: NO_RETRY}, {}, Shop.ORDERS.config.retry, NO_RETRY),
        ({Shop.ORDERS: NO_RETRY}, {Charge: TWICE}, TWICE, RetryPolicy.fixed(2, "5s")),
        ({}, {Chase: TWICE}, Shop.ORDERS.config.retry, TWICE),
    ],
)
def test_k1_precedence(
    handlers: Handlers[Shop],
    by_queue: Mapping[Shop, RetryPolicy],
    by_job: Mapping[type[Job[Shop]], RetryPolicy],
    charge: RetryPolicy,
    chase: RetryPolicy,
) -> None:
    """K1: the override for the job, that for the queue, the job's own policy, the queue's."""
    handlers.register(both)
    handlers.register(Chase, lambda job: None)
    expected = {"shop.Charge": charge, "shop.Chase": chase}
    assert expected == resolve_policies(handlers, by_queue, by_job)


def test_without_any_policy_a_job_runs_once(handlers: Handlers[Shop]) -> None:
    """The last word is the queue's, whose default is one attempt."""
    handlers.register(Refund, lambda job: None)
    assert {"shop.Refund": RetryPolicy.none()} == resolve_policies(handlers, {}, {})


def test_overrides_without_a_handler_are_inert(
    handlers: Handlers[Shop], caplog: pytest.LogCaptureFixture
) -> None:
    """An override that matches no handler changes nothing, and says so at DEBUG."""
    handlers.register(both)
    with caplog.at_level(logging.DEBUG, "queuey_sync"):
        policies = resolve_policies(handlers, {Shop.MAIL: TWICE}, {Chase: TWICE})
    assert {"shop.Charge": Shop.ORDERS.config.retry} == policies
    assert [
        ("DEBUG", "retry override for queue `shop.mail` matches no handler"),
        ("DEBUG", "retry override for job `shop.Chase` matches no handler"),
    ] == [(record.levelname, record.getMessage()) for record in caplog.records]


@pytest.mark.parametrize(
    ("by_queue", "by_job", "text"),
    [
        ({Shop.ORDERS: 3}, {}, r"retry_overrides: Shop\.ORDERS: expected RetryPolicy"),
        ({"shop.orders": TWICE}, {}, "retry_overrides: 'shop.orders' is no queue of Shop"),
        ({Other.ELSEWHERE: TWICE}, {}, "is no queue of Shop"),
        ({}, {Charge: 3}, "job_retry_overrides: shop.Charge: expected RetryPolicy"),
        ({}, {"shop.Charge": TWICE}, "'shop.Charge' is no job"),
    ],
)
def test_wrong_overrides_are_refused(
    handlers: Handlers[Shop], by_queue: Any, by_job: Any, text: str
) -> None:
    """What is no policy, no queue of the set or no job class is refused by name."""
    with pytest.raises(ConfigurationError, match=text):
        resolve_policies(handlers, by_queue, by_job)
