"""The testing kit inside a `TestCase`: jobs wait until the test runs them, in its transaction."""

import os
from unittest import mock

from django.db import connection, transaction
from django.test import SimpleTestCase, TestCase, TransactionTestCase, override_settings
from django.test.utils import CaptureQueriesContext

from queuey_sync.testing import use_memory
from things.jobs import Find, Misbehave, Query, Store
from things.models import Thing
from things.queues import app
from things.tests.doubles import marks


class Kit(TestCase):
    """Nothing that the test has open is closed under it."""

    def test_jobs_run_in_the_transaction_of_the_test(self) -> None:
        """They see its rows and it sees theirs, on the very connection that it began with."""
        session = connection.connection
        Thing.objects.create(name="seen")
        marks()
        with use_memory(app) as jobs:
            app.enqueue(Find("seen"))
            app.enqueue(Store("by a job"))
            jobs.run()
        assert marks() == ["seen found attempt 1"]
        assert Thing.objects.filter(name="by a job").exists()
        assert connection.connection is session

    def test_what_a_job_wrote_before_it_failed_stays(self) -> None:
        """As with a worker, where each statement is committed by itself."""
        with use_memory(app) as jobs:
            app.enqueue(Misbehave("write, then fail"))
            jobs.run()
            assert len(jobs.dead()) == 1
        assert Thing.objects.filter(name="misbehaved").exists()

    def test_a_job_that_breaks_the_transaction_harms_nobody(self) -> None:
        """Neither the test nor the jobs after it."""
        Thing.objects.create(name="kept")
        with use_memory(app) as jobs:
            app.enqueue(Misbehave("set_rollback"))
            app.enqueue(Misbehave("bad statement"))
            app.enqueue(Store("after it"))
            jobs.run()
            assert [one.envelope.job_type for one in jobs.dead()] == ["misbehave"]
        assert {thing.name for thing in Thing.objects.all()} == {"kept", "after it"}

    def test_a_job_that_fails_leaves_the_transaction_usable(self) -> None:
        """Its own block is rolled back, its retries run without a wait, and then it is dead."""
        Thing.objects.create(name="kept")
        with use_memory(app) as jobs:
            app.enqueue(Query(fail=True))
            jobs.run()
            assert len(jobs.dead()) == 1
        assert [thing.name for thing in Thing.objects.all()] == ["kept"]


@override_settings(QUEUEY={"APP": "things.queues:app", "URL": "inline:"})
class Inline(TransactionTestCase):
    """Jobs that run in the thread of a request leave its connection and its transaction alone."""

    def test_the_connection_stays_open(self) -> None:
        """Also with the default CONN_MAX_AGE of 0, by which a worker closes its own."""
        session = connection.connection
        with CaptureQueriesContext(connection) as queries:
            app.enqueue(Store("by a job"))
        assert connection.connection is session
        assert any("INSERT" in query["sql"] for query in queries)

    def test_a_view_without_autocommit_keeps_its_row(self) -> None:
        """Its transaction goes on."""
        transaction.set_autocommit(False)
        try:
            Thing.objects.create(name="mine")
            app.enqueue(Store("by a job"))
            transaction.commit()
        finally:
            transaction.set_autocommit(True)
        assert {thing.name for thing in Thing.objects.all()} == {"mine", "by a job"}

    def test_a_job_that_the_database_refuses_does_not_end_the_view(self) -> None:
        """The transaction goes back to where it was before the job."""
        with transaction.atomic():
            Thing.objects.create(name="mine")
            app.enqueue(Misbehave("bad statement"))
            assert Thing.objects.count() == 1
        assert Thing.objects.filter(name="mine").exists()


class Settings(SimpleTestCase):
    """What `override_settings` changes goes back with it."""

    def test_a_url_of_the_environment_comes_back(self) -> None:
        """Where the settings have none."""
        without = override_settings(QUEUEY={"APP": "things.queues:app"})
        inline = override_settings(QUEUEY={"APP": "things.queues:app", "URL": "inline:"})
        with without, mock.patch.dict(os.environ, {"QUEUEY_URL": "memory:"}):
            with inline:
                assert type(app.backend()).__name__ == "InlineBackend"
            assert type(app.backend()).__name__ == "MemoryBackend"
