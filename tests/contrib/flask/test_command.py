"""``flask queuey …``: the commands of queuey-sync, for an app that ``flask`` finds."""

import json
import signal
from pathlib import Path

import pytest

from tests.contrib.flask.conftest import POOLS, FlaskCommands
from tests.support.waiting import eventually


def test_it_has_the_commands_of_queuey_sync(flask: FlaskCommands) -> None:
    """The help names them, without an argument for the app, and needs no app."""
    shown = flask.succeed("nowhere", "queuey", "--help").out
    assert all(name in shown for name in ("worker", "drain", "enqueue", "queues", "declare"))
    assert "MODULE:APP" not in shown
    worker = flask.succeed("nowhere", "queuey", "worker", "--help").out
    assert "flask queuey worker [OPTIONS]\n" in worker
    assert "--pool" in worker


@pytest.mark.parametrize(
    ("app", "arguments", "code", "text"),
    [
        ("ledger", ["worker", "--nope"], 2, "No such option '--nope'; see "),
        ("ledger", ["worker", "stray"], 2, "Got unexpected extra argument (stray)"),
        ("ledger", ["enqueue", "nope", "{}"], 2, "the app has no job 'nope'"),
        ("ledger", ["nope"], 2, "No such command 'nope'"),
        ("ledger", ["worker", "--url", "nope:"], 2, "--url: unknown scheme 'nope'"),
        ("ledger", ["queues"], 4, "there is no store at"),
        ("nowhere", ["worker"], 3, "Could not import 'nowhere'."),
        ("ledger:nope", ["worker"], 3, "Failed to find attribute 'nope' in 'ledger'."),
        (
            "without",
            ["worker"],
            3,
            "the Flask app `without` has no FlaskQueuey: call init_app(app)",
        ),
        ("wrong", ["worker"], 3, "QUEUEY_URL: unknown scheme 'ampq'"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    flask: FlaskCommands, app: str, arguments: list[str], code: int, text: str
) -> None:
    """And the command ends with the code that queuey-sync has for it."""
    done = flask.run_flask(app, "queuey", *arguments, PYTHONPATH=_with_broken_apps(flask))
    (line,) = done.err_lines
    assert (code, True) == (done.wait(), text in line), line
    assert line.startswith("queuey-sync: ")
    assert "S3cretWord" not in line


@pytest.mark.parametrize(
    ("app", "text"),
    [
        ("torn", "While importing 'torn', an ImportError was raised:"),
        ("fails", "cannot load the app: LookupError: no"),
    ],
)
def test_what_the_app_raises_has_a_traceback(flask: FlaskCommands, app: str, text: str) -> None:
    """Before the line, which is the last."""
    done = flask.run_flask(app, "queuey", "worker", PYTHONPATH=_with_broken_apps(flask))
    assert (3, f"queuey-sync: {text}") == (done.wait(), done.err_lines[-1])
    assert f'{app}.py", line' in done.err


def _with_broken_apps(flask: FlaskCommands) -> str:
    """A path with apps that cannot be used."""
    files = {
        "without": "from flask import Flask\napp = Flask(__name__)",
        "torn": "import nothing_of_this_name",
        "fails": "def create_app():\n    raise LookupError('no')",
        "wrong": "from ledger import Flask, queuey\n"
        "app = Flask('wrong')\n"
        "app.config['QUEUEY_URL'] = 'ampq://ada:S3cretWord@localhost'\n"
        "queuey.init_app(app)",
    }
    folder = flask.marks.parent
    for name, code in files.items():
        (folder / f"{name}.py").write_text(code)
    return f"{flask.environment['PYTHONPATH']}:{folder}"


@POOLS
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT], ids=lambda signum: signum.name)
def test_a_signal_stops_a_worker_in_good_order(
    flask: FlaskCommands, pool: tuple[str, ...], signum: int
) -> None:
    """It finishes what runs and exits with 0, as queuey-sync does."""
    worker = flask.flask("ledger", "queuey", "worker", "-c", "2", *pool)
    flask.enqueue("address")
    eventually(lambda: flask.marked_so_far()["address"], 20)
    worker.send(signum)
    assert 0 == worker.wait()
    assert "stopping; a second signal ends the process now" in worker.err


def test_the_options_come_after_the_command_as_they_are(flask: FlaskCommands) -> None:
    """Short ones, long ones and what follows a double dash reach the command."""
    flask.enqueue("nothing", "nothing")
    flask.succeed("ledger", "queuey", "drain", "-c1", "--max-time=1m", "-lDEBUG")
    assert 2 == flask.marked_so_far()["nothing"]
    done = flask.run_flask("ledger", "queuey", "enqueue", "--", "-job", "{}")
    assert "the app has no job '-job'" in done.err


@POOLS
def test_a_record_is_logged_once(flask: FlaskCommands, pool: tuple[str, ...]) -> None:
    """Also by an app that logged when it was made, and so has a handler of Flask's own."""
    flask.environment["FLASK_WARN"] = "1"
    flask.enqueue("log", "log")
    done = flask.succeed("ledger", "queuey", "drain", "-c", "1", *pool)
    lines = [line for line in done.err_lines if "logged once" in line]
    assert 2 == len(lines)
    assert all(" WARNING ledger: logged once [job_id=" in line for line in lines)


@POOLS
def test_urls_are_those_of_the_configured_server(
    flask: FlaskCommands, pool: tuple[str, ...]
) -> None:
    """`url_for` works in a job where SERVER_NAME says what there is no request to say."""
    flask.environment["FLASK_SERVER_NAME"] = "shop.example.org"
    flask.enqueue("address")
    flask.succeed("ledger", "queuey", "drain", "-c", "1", *pool)
    assert 1 == flask.marked_so_far()["http://shop.example.org/static/a.css"]


@POOLS
@pytest.mark.parametrize("factory", ["ledger", "ledger:create_app()", "ledger.py:create_app"])
def test_children_make_the_app_as_flask_does(
    flask: FlaskCommands, pool: tuple[str, ...], factory: str
) -> None:
    """Whatever names the app on the command line, on_start and jobs have it."""
    flask.enqueue("nothing")
    flask.succeed(factory, "queuey", "drain", "-c", "1", *pool)
    marks = flask.marked_so_far()
    assert (1, 1) == (marks["start ledger"], marks["nothing"])


def test_queues_are_declared_and_shown(flask: FlaskCommands) -> None:
    """Under the names that they have with queuey-sync."""
    assert "ledger.rows\n" == flask.succeed("ledger", "queuey", "declare").out
    flask.enqueue("nothing", "nothing")
    shown = json.loads(flask.succeed("ledger", "queuey", "queues", "--json").out)
    assert 2 == shown["queues"]["ledger.rows"]["ready"]


def test_the_debugger_and_the_variable_for_the_app_change_nothing(flask: FlaskCommands) -> None:
    """FLASK_APP in place of --app, and --debug, which reaches the children."""
    flask.enqueue("nothing")
    drain = ("queuey", "drain", "--pool", "process", "-c", "1")
    done = flask.start("--debug", *drain, python=("-m", "flask"), FLASK_APP="ledger")
    assert 0 == done.wait(), done.err
    assert 1 == flask.marked_so_far()["nothing"]


@POOLS
def test_an_app_without_a_factory_works_with_queuey_sync_too(
    flask: FlaskCommands, pool: tuple[str, ...]
) -> None:
    """A child imports the app first, so a circle of imports is entered where the worker did."""
    for command in (["enqueue", "early:queuey", "early.write", "{}"], ["drain", "early:queuey"]):
        options = () if "enqueue" in command else ("-c", "1", *pool)
        done = flask.run(*command, *options)
        assert 0 == done.wait(), done.err
    assert any("connections of" in mark for mark in flask.marked_so_far())


def test_a_child_that_cannot_find_the_app_is_not_started(
    flask: FlaskCommands, tmp_path: Path
) -> None:
    """A script that calls the factory itself is told what does it for children, too."""
    script = tmp_path / "script.py"
    script.write_text(
        "from ledger import create_app, queuey\n"
        "app = create_app()\n"
        "if __name__ == '__main__':\n"
        "    queuey.worker(pool='process')\n"
    )
    done = flask.run(python=(str(script),))
    assert 1 == done.wait()
    assert "module `ledger` has the Flask app in no variable" in done.err
    assert "start the worker with `flask --app … queuey worker`" in done.err


def test_without_its_app_a_queuey_is_refused(flask: FlaskCommands) -> None:
    """`queuey-sync` imports a module, and calls no factory."""
    done = flask.run("worker", "ledger:queuey")
    assert 3 == done.wait()
    assert "queuey-sync: no Flask app yet: call init_app(app) first" in done.err
