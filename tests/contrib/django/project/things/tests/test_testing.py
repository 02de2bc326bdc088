"""The testing kit inside a `TestCase`: jobs wait until the test runs them, in its transaction."""

from django.db import connection
from django.test import TestCase

from queuey_sync.testing import use_memory
from things.jobs import Find, Query, Store
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

    def test_a_job_that_fails_leaves_the_transaction_usable(self) -> None:
        """Its own block is rolled back, its retries run without a wait, and then it is dead."""
        Thing.objects.create(name="kept")
        with use_memory(app) as jobs:
            app.enqueue(Query(fail=True))
            jobs.run()
            assert len(jobs.dead()) == 1
        assert [thing.name for thing in Thing.objects.all()] == ["kept"]
