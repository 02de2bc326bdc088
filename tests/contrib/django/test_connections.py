"""Database connections around jobs, counted on a real PostgreSQL (bug report 14).

Another thread may take the jobs in another order, so only totals are compared.
"""

import pytest

from tests.contrib.django.conftest import Site
from tests.support.postgres import Postgres
from tests.support.waiting import eventually

THREADS = 8


@pytest.fixture
def pg_site(site: Site, postgres: Postgres) -> Site:
    """The site on PostgreSQL, with a worker in memory."""
    site.environment |= postgres.environment | {"THINGS_URL": "memory:"}
    site.manage("migrate", "-v", "0")
    return site


@pytest.mark.parametrize("checks", [{}, {"THINGS_HEALTH_CHECKS": "1"}], ids=["default", "health"])
def test_lost_sessions_cost_no_job_an_attempt(pg_site: Site, checks: dict[str, str]) -> None:
    """After a night in which the server has ended all sessions, each job works at once."""
    seen = pg_site.scenario("lost_sessions", THINGS_MAX_AGE="600", **checks)
    assert seen == {"ended": 4, "retried": 0}


# A session that was closed is on the server's list for a moment, beside the next of its thread.
@pytest.mark.parametrize(("max_age", "most"), [("0", 2 * THREADS), ("600", THREADS)])
def test_sessions_do_not_pile_up(pg_site: Site, max_age: str, most: int) -> None:
    """A thousand jobs have one session for each thread, CONN_MAX_AGE is obeyed, none is left."""
    seen = pg_site.scenario("thousand_jobs", THINGS_MAX_AGE=max_age)
    assert 0 < seen["most"] <= most


def test_what_one_job_leaves_behind_is_not_met_by_the_next(pg_site: Site) -> None:
    """A row is committed after a job that left a transaction aborted, and one that left it open."""
    assert pg_site.scenario("failed_transactions", THINGS_MAX_AGE="600") == {"kept": 1}


def test_a_transaction_that_django_does_not_know_of_ends_with_its_job(pg_site: Site) -> None:
    """What other jobs of the slot write is committed, and a closed connection is made anew."""
    seen = pg_site.scenario("raw_transactions", THINGS_MAX_AGE="600")
    assert seen == {"kept": ["kept 0", "kept 1", "kept 2"]}


def test_the_same_on_sqlite(site: Site) -> None:
    """Where nobody else could write meanwhile, either."""
    site.environment |= {"THINGS_URL": "memory:"}
    site.manage("migrate", "-v", "0")
    seen = site.scenario("raw_transactions", THINGS_MAX_AGE="600")
    assert seen == {"kept": ["kept 0", "kept 1", "kept 2"]}


def test_b28_a_job_starts_after_the_commit(pg_site: Site) -> None:
    """Report 28: a worker that is waiting for it finds the row at the first attempt."""
    assert pg_site.scenario("after_the_commit") == {"early": 0}
    pg_site.marked("new found attempt 1")


def test_each_child_has_a_session_of_its_own(pg_site: Site) -> None:
    """Children share nothing with their parent, and a thousand jobs leave nothing behind."""
    seen = pg_site.scenario("children", THINGS_MAX_AGE="600")
    assert seen == {"most": 3}


def test_work_goes_on_when_the_database_is_back(site: Site, private_postgres: Postgres) -> None:
    """A worker whose database was killed under it needs no restart, and no job is lost."""
    site.environment |= private_postgres.environment | {"THINGS_MAX_AGE": "600"}
    site.manage("migrate", "-v", "0")
    worker = site.start("manage.py", "queuey", "worker", "--log-level", "DEBUG")
    enqueue = ("queuey", "enqueue", "query", "{}")
    site.manage(*enqueue)
    worker.says("succeeded")
    private_postgres.kill()
    site.manage(*enqueue)
    worker.says("OperationalError")
    private_postgres.start()

    def all_done() -> bool:
        assert worker.err.count("succeeded") == 2
        return True

    eventually(all_done, 20, "the second job succeeds")
    assert worker.stop() == 0
