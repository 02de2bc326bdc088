"""Tests of the error tree: the texts that users read, and what catches what."""

import copy
import pickle
from datetime import timedelta
from typing import Any

import pytest

from queuey_sync import errors


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (errors.SerializationError("x"), "serialization error: x"),
        (errors.BackendError("x"), "backend error: x"),
        (errors.UnknownQueue("shop.a"), "unknown queue `shop.a`"),
        (errors.DuplicateHandler("J"), "handler for job type `J` registered twice"),
        (errors.ShutDown(), "worker is shut down"),
        (errors.ConsumerStopped("q"), "consumer for queue `q` stopped unexpectedly"),
        (errors.Retryable("flaky"), "job failed (retryable): flaky"),
        (errors.Retryable(OSError("gone")), "job failed (retryable): gone"),
        (errors.Fatal("bad input"), "job failed (fatal): bad input"),
        (errors.Fatal(ValueError("boom")), "job failed (fatal): boom"),
        (errors.Deferred("90s"), "job deferred for 90s: deferred"),
        (errors.Deferred(0.5, "busy"), "job deferred for 500ms: busy"),
    ],
)
def test_texts(error: Exception, text: str) -> None:
    """Each error has the text that the contract gives it."""
    assert text == str(error)


def test_every_error_has_the_one_root() -> None:
    """All are QueueyErrors, but for the interrupts, which no ``except Exception`` catches."""
    found = [one for one in vars(errors).values() if isinstance(one, type)]
    trees = [one for one in found if issubclass(one, BaseException)]
    interrupts = [one for one in trees if issubclass(one, errors.Interrupt)]
    assert len(trees) > 20
    assert {errors.Interrupt, errors.JobTimedOut, errors.SoftTimeout, errors.Stopping} == set(
        interrupts
    )
    assert not any(issubclass(one, Exception) for one in interrupts)
    assert all(issubclass(one, errors.QueueyError) for one in trees if one not in interrupts)


def test_a_wrong_declaration_is_a_value_error() -> None:
    """Configuration errors can be caught as what Python calls a wrong value."""
    assert issubclass(errors.DuplicateHandler, errors.ConfigurationError)
    assert issubclass(errors.ConfigurationError, ValueError)


def test_the_tree_in_the_docstring_is_complete() -> None:
    """The drawing at the top of the module names every error."""
    drawn = errors.__doc__ or ""
    names = [name for name, one in vars(errors).items() if isinstance(one, type)]
    assert [] == [name for name in names if name.endswith("Error") and name not in drawn]


def test_a_deferral_keeps_its_delay_and_reason() -> None:
    """The delay is parsed when the error is made, where the mistake is."""
    error = errors.Deferred("2 m", "rate limited")
    assert (timedelta(minutes=2), "rate limited") == (error.delay, error.reason)
    wrong: Any
    for wrong in ("soon", -1, None):
        with pytest.raises(errors.ConfigurationError, match=r"^delay: "):
            errors.Deferred(wrong)


def test_failures_of_many_are_kept_by_index() -> None:
    """One error for many jobs says which of them failed, and a single one says nothing."""
    refused = errors.PublishRefused("full")
    assert {3: refused} == errors.PublishError("1 of 4", {3: refused}).failures
    assert {} == refused.failures


@pytest.mark.parametrize(
    "error",
    [
        errors.UnknownQueue("q"),
        errors.BackendError("gone"),
        errors.Deferred("30s", "later"),
        errors.Retryable("x"),
        errors.PublishUnconfirmed("q", maybe_published=True),
        errors.PublishError("2 of 3", {1: errors.BackendError("no")}),
        errors.WorkerStuck(3),
        errors.Interrupt("x"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_are_copied_and_pickled_whole(error: BaseException) -> None:
    """Crossing to another process changes neither the text nor the attributes."""
    for made in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(error) is type(made)
        assert str(error) == str(made)
        assert repr(vars(error)) == repr(vars(made))
