"""`enqueue_on_commit` (bug report 28)."""

from typing import Any

from django.db import transaction
from django.test import TestCase, TransactionTestCase

from queuey_sync import ConfigurationError, PublishRefused, SerializationError, correlated
from queuey_sync.contrib.django import enqueue_on_commit, publish_failed
from things.jobs import Find
from things.models import Thing
from things.tests.doubles import in_memory, inline, marks, published, refused


@in_memory
class OnCommit(TransactionTestCase):
    """With transactions that are really committed."""

    databases = frozenset({"default", "other"})

    def test_a_job_is_published_after_the_commit_under_the_id_that_was_returned(self) -> None:
        """Nothing leaves before the end of the outermost block."""
        with published() as taken:
            with transaction.atomic():
                with transaction.atomic():
                    job_id = enqueue_on_commit(Find("inner"))
                assert taken == []
            assert [envelope.job_id for envelope, _ in taken] == [job_id]

    def test_nothing_is_published_after_a_rollback(self) -> None:
        """An error rolls back, and takes the job with it."""
        with published() as taken:
            with self.assertRaises(KeyError), transaction.atomic():
                enqueue_on_commit(Find("lost"))
                raise KeyError
            assert taken == []

    def test_of_nested_blocks_only_what_survives_is_published(self) -> None:
        """A savepoint that is rolled back takes only its own jobs with it."""
        with published() as taken:
            with transaction.atomic():
                kept = enqueue_on_commit(Find("outer"))
                with self.assertRaises(KeyError), transaction.atomic():
                    enqueue_on_commit(Find("inner"))
                    raise KeyError
            assert [envelope.job_id for envelope, _ in taken] == [kept]

    def test_outside_a_transaction_a_job_is_published_at_once(self) -> None:
        """There is no commit to wait for, and what is wrong is raised."""
        with published() as taken:
            job_id = enqueue_on_commit(Find("at once"))
            assert [envelope.job_id for envelope, _ in taken] == [job_id]
        with refused(), self.assertRaises(PublishRefused):
            enqueue_on_commit(Find("refused"))

    def test_it_is_the_commit_of_the_database_that_is_named(self) -> None:
        """The transaction of another database does not hold it back."""
        with published() as taken, transaction.atomic():
            enqueue_on_commit(Find("of the other"), using="other")
            assert len(taken) == 1

    def test_a_job_that_cannot_travel_is_refused_before_the_commit(self) -> None:
        """What is wrong with a job is an error where it is enqueued."""
        for job, error in (
            (Find(name=7), SerializationError),  # type: ignore[arg-type]
            ("no job", ConfigurationError),
        ):
            with self.subTest(job), transaction.atomic(), self.assertRaises(error):
                enqueue_on_commit(job)  # type: ignore[arg-type]

    def test_a_refusal_after_the_commit_is_logged_and_sent_and_loses_no_other_job(self) -> None:
        """The row is there, the request goes on, and each lost job is named."""
        sent: list[dict[str, Any]] = []

        def receive(**values: Any) -> None:
            sent.append(values)

        publish_failed.connect(receive)
        self.addCleanup(publish_failed.disconnect, receive)
        with refused(), self.assertLogs("queuey_sync", "ERROR") as logged:
            with transaction.atomic():
                Thing.objects.create(name="kept")
                ids = [enqueue_on_commit(Find("a")), enqueue_on_commit(Find("b"))]
        assert Thing.objects.filter(name="kept").exists()
        assert [values["job_id"] for values in sent] == ids
        assert [values["job"] for values in sent] == [Find("a"), Find("b")]
        assert all(isinstance(values["error"], PublishRefused) for values in sent)
        for job_id, line in zip(ids, logged.output, strict=True):
            assert str(job_id) in line
            assert "full" in line

    def test_a_request_that_asks_for_it_gets_the_error(self) -> None:
        """Without ``robust`` the typed error leaves the block, whose row is committed."""
        with refused(), self.assertLogs("queuey_sync", "ERROR"):
            with self.assertRaises(PublishRefused), transaction.atomic():
                Thing.objects.create(name="kept")
                enqueue_on_commit(Find("a"), robust=False)
        assert Thing.objects.filter(name="kept").exists()

    def test_a_job_carries_the_correlation_id_of_where_it_was_enqueued(self) -> None:
        """A middleware sets it for all jobs of a request, and a job may have one of its own."""
        with published() as taken:
            with correlated("request-7"), transaction.atomic():
                enqueue_on_commit(Find("a"))
                enqueue_on_commit(Find("b"), correlation_id="own")
            marks = [envelope.correlation_id for envelope, _ in taken]
            assert marks == ["request-7", "own"]


@inline
class InTestCase(TestCase):
    """Handlers run in the thread of a `TestCase`, whose transaction is never committed."""

    def test_a_job_leaves_the_connection_of_the_test_alone(self) -> None:
        """It sees what the test has made, and the test can go on afterwards."""
        Thing.objects.create(name="seen")
        marks()
        with self.captureOnCommitCallbacks(execute=True):
            enqueue_on_commit(Find("seen"))
        assert marks() == ["seen found attempt 1"]
        assert Thing.objects.count() == 1

    def test_the_next_test_finds_an_empty_table(self) -> None:
        """What came before it was rolled back, so nothing was committed by a job."""
        assert Thing.objects.count() == 0
