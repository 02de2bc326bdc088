"""`FlaskQueuey` itself: the app that it works for, its configuration, and what is around a job."""

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("flask")

from flask import Flask, appcontext_tearing_down, current_app, g, has_app_context

from queuey_sync import Deferred, Job, QueueSet, queue
from queuey_sync.contrib.flask import FlaskQueuey
from queuey_sync.errors import ConfigurationError, JobTimedOut, StartError
from queuey_sync.testing import MemoryJobs, use_memory


class Queues(QueueSet, prefix="site"):
    """One queue."""

    ROWS = queue()


class Write(Job[Queues], queue=Queues.ROWS, name="site.write"):
    """The job of these tests."""


def _site(**config: object) -> tuple[Flask, FlaskQueuey[Queues]]:
    app = Flask("site")
    app.config.update(config)
    return app, FlaskQueuey(Queues, app)


def _run(queuey: FlaskQueuey[Queues], handler: Callable[[], object]) -> MemoryJobs:
    """Enqueue a job, and run it with this handler."""

    @queuey.handler
    def write(_job: Write) -> None:
        handler()

    with use_memory(queuey) as jobs:
        queuey.enqueue(Write())
        jobs.run()
    return jobs


def test_the_configuration_says_where_jobs_wait(tmp_path: Path) -> None:
    """The URL and the options of the back end are those of the app, when it has them."""
    _, queuey = _site(
        QUEUEY_URL=f"sqlite:///{tmp_path}/jobs.db", QUEUEY_OPTIONS={"busy_timeout": "1s"}
    )
    queuey.enqueue(Write())
    queuey.close()
    assert (tmp_path / "jobs.db").exists()


@pytest.mark.parametrize("config", [{}, {"QUEUEY_URL": None}, {"QUEUEY_URL": ""}])
def test_without_a_url_that_of_the_environment_is_used(
    monkeypatch: pytest.MonkeyPatch, config: dict[str, object]
) -> None:
    """Also if the configuration has the key and nothing in it."""
    _, queuey = _site(**config)
    with pytest.raises(ConfigurationError, match="nothing says where jobs wait"):
        queuey.backend()
    monkeypatch.setenv("QUEUEY_URL", "memory:")
    assert not queuey.backend().is_closed()
    queuey.close()


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"QUEUEY_URL": "ampq://localhost"}, "^QUEUEY_URL: unknown scheme 'ampq'"),
        ({"QUEUEY_URL": 5672}, "^QUEUEY_URL: it cannot be read as a URL"),
        (
            {"QUEUEY_URL": "memory:", "QUEUEY_OPTIONS": {"nope": 1}},
            "^QUEUEY_URL or QUEUEY_OPTIONS: options of memory: .*nope",
        ),
        ({"QUEUEY_OPTIONS": "a=1s"}, "^QUEUEY_OPTIONS: expected a dictionary, got 'a=1s'"),
    ],
    ids=["scheme", "no text", "no such option", "no options"],
)
def test_a_wrong_configuration_is_refused_when_the_app_is_made(
    config: dict[str, object], text: str
) -> None:
    """Not by the first request that enqueues."""
    with pytest.raises(ConfigurationError, match=text):
        _site(**config)


def test_another_app_takes_the_place_of_the_first() -> None:
    """As in tests, which make an app each; the back end of the first is closed."""
    first, queuey = _site(QUEUEY_URL="memory:")
    backend = queuey.backend()
    second = Flask("second")
    queuey.init_app(second)
    assert backend.is_closed()
    found = []
    _run(queuey, lambda: found.append(current_app.name))
    assert (["second"], "site") == (found, first.name)


def test_an_app_has_one_queuey() -> None:
    """A second one is refused; the same one again is not, and reads the configuration anew."""
    app, queuey = _site(QUEUEY_URL="memory:")
    with pytest.raises(ConfigurationError, match="`site` has a FlaskQueuey already"):
        FlaskQueuey(Queues, app)
    app.config["QUEUEY_URL"] = "inline:"
    queuey.init_app(app)
    assert "InlineBackend" == type(queuey.backend()).__name__
    queuey.close()


def test_without_an_app_there_is_no_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to call, whatever the environment has."""
    monkeypatch.setenv("QUEUEY_URL", "memory:")
    with pytest.raises(ConfigurationError, match=r"no Flask app yet: call init_app\(app\) first"):
        FlaskQueuey(Queues).enqueue(Write())


def test_on_start_has_a_context_of_its_own() -> None:
    """It is left by the time of the first job, and a failure names the function."""
    _, queuey = _site()
    seen = []

    @queuey.on_start
    def warm_up() -> None:
        seen.append(current_app.name)

    _run(queuey, lambda: seen.append("job"))
    assert (["site", "job"], False) == (seen, has_app_context())

    @queuey.on_start
    def fail() -> None:
        raise OSError("no model")

    with use_memory(queuey) as jobs, pytest.raises(StartError, match=r"fail: OSError: no model"):
        jobs.run()


def test_what_cannot_be_called_is_no_on_start() -> None:
    """As for any `Queuey`."""
    _, queuey = _site()
    nothing: object = None
    with pytest.raises(ConfigurationError, match="on_start"):
        queuey.on_start(nothing)  # type: ignore[type-var]


def test_signals_and_functions_are_told_of_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """Teardown functions in reverse order, each once, then the signal; a failure stops none."""
    app, queuey = _site()
    told: list[object] = []

    @app.teardown_appcontext
    def last(error: BaseException | None) -> None:
        told.append(("last", type(error)))

    @app.teardown_appcontext
    def first(_error: BaseException | None) -> None:
        told.append("first")
        raise OSError("no way to end")

    def signalled(_app: Flask, exc: BaseException | None) -> None:
        told.append(type(exc))

    def defer_once() -> None:
        if not told:
            raise Deferred("1s")

    with appcontext_tearing_down.connected_to(signalled, app):
        jobs = _run(queuey, defer_once)
    ends = [["first", ("last", kind), kind] for kind in (Deferred, type(None))]
    assert (ends[0] + ends[1], []) == (told, jobs.dead())
    assert 2 == caplog.text.count("first failed, and its job stands: OSError: no way to end")


def test_a_time_limit_that_comes_at_the_end_cuts_nothing_short() -> None:
    """The function that it strikes is called again, since the exception comes once."""
    app, queuey = _site()
    calls = []

    @app.teardown_appcontext
    def end(_error: BaseException | None) -> None:
        calls.append("end")
        if len(calls) == 1:
            raise JobTimedOut

    jobs = _run(queuey, lambda: None)
    assert (["end", "end"], []) == (calls, jobs.dead())


def test_a_job_that_runs_inside_a_request_has_a_context_of_its_own() -> None:
    """With ``inline:``, so that what works there works in a worker, too."""
    app, queuey = _site(QUEUEY_URL="inline:")
    seen = []

    @queuey.handler
    def write(_job: Write) -> None:
        seen.append("user" in g)

    with app.app_context():
        g.user = "ada"
        queuey.enqueue(Write())
        assert ([False], "ada") == (seen, g.user)
    queuey.close()
