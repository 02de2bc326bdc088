"""Commands that need no broker: exit codes, errors in one line, settings, logs."""

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Commands

_MEMORY = ("--url", "memory:")
_NOWHERE = ("--url", "amqp://ada:S3cretWord@127.0.0.1:1/")
_MAIN = ("-c", "from queuey_sync.__main__ import main; main()")


@pytest.mark.parametrize(
    ("arguments", "code", "texts"),
    [
        (["worker"], 2, ["Missing argument 'MODULE:APP'"]),
        (["worker", "shop"], 2, ["expected MODULE:APP", "'shop'"]),
        (["worker", "shop/app.py:app"], 2, ["expected MODULE:APP"]),
        (["wrok", "shop:app"], 2, ["wrok"]),
        (["worker", "shop:app", "--nope"], 2, ["--nope"]),
        (["worker", "shop:app", "amqp://ada:S3cretWord@mq"], 2, ["unexpected extra argument"]),
        (["worker", "shop:app", "-c", "0"], 2, ["--concurrency"]),
        (["worker", "shop:app", "--job-timeout", "1x"], 2, ["--job-timeout", "'1x'", "500ms"]),
        (["worker", "shop:app", "--job-timeout", "0s", *_MEMORY], 2, ["--job-timeout", "zero"]),
        (["worker", "shop:app", "-l", "loud"], 2, ["--log-level", "loud"]),
        (["worker", "shop:app", "-Q", "x", *_MEMORY], 2, ["'x'", "shop.orders, shop.post"]),
        (["worker", "shop:app", "--url", "ftp://ada:S3cretWord@mq"], 2, ["--url", "'ftp'"]),
        (["worker", "shop:app", "--url", "amqp://a:S3cretWord@mq:x"], 2, ["--url", "amqp://"]),
        (["worker", "shop:app"], 2, ["--url", "QUEUEY_URL"]),
        (["worker", "lazy:absent"], 3, ["`absent`", "lazy:app"]),
        (["worker", "absent:app"], 3, ["no module `absent`"]),
        (["worker", "shop.absent:app"], 3, ["cannot import shop.absent"]),
        (["worker", "shop:absent"], 3, ["`absent`", "shop:app"]),
        (["worker", "shop:Queues"], 3, ["no Queuey app", "shop:app"]),
        (["worker", "shop:app.queues"], 3, ["no Queuey app"]),
        (["worker", "quits:app"], 3, ["quits", "SystemExit"]),
        (["enqueue", "shop:app", "shop.Nope", "{}", *_NOWHERE], 2, ["shop.Notify", "shop.Stray"]),
        (["enqueue", "shop:app", "shop.Notify", "{", *_NOWHERE], 2, ["JSON"]),
        (["enqueue", "shop:app", "shop.Notify", '{"to": 1}', *_NOWHERE], 2, ["JSON", "$.to"]),
        (["enqueue", "shop:app", "shop.Notify", "{}", *_NOWHERE], 2, ["JSON", "`to`"]),
        (["enqueue", "shop:app", "shop.Notify", "{}", "--after", "-1s"], 2, ["--after"]),
        (["enqueue", "shop:app", "shop.Notify", "{}", "--after", "soon"], 2, ["--after"]),
        (["enqueue", "shop:app", "shop.Notify", "{}", *_NOWHERE, "--after", "25d"], 2, ["--after"]),
        (["enqueue", "shop:app", "shop.Notify", '{"to":"a"}', *_MEMORY], 2, ["memory:", "--url"]),
        (["enqueue", "shop:app", "shop.Notify", *_NOWHERE], 2, ["standard input", "descriptor"]),
    ],
    ids=lambda value: " ".join(value[:4]) if isinstance(value, list) else None,
)
def test_what_is_wrong_with_a_command_is_said_in_one_line(
    commands: Commands, arguments: list[str], code: int, texts: list[str]
) -> None:
    """A mistake ends the command with its exit code and one line that names it, and no password."""
    with Path(os.devnull).open("wb") as unreadable:
        ended = commands.run(*arguments, stdin=unreadable)
    *traceback, line = ended.err_lines
    assert code == ended.wait(), ended.err
    assert line.startswith("queuey-sync: ")
    assert [text for text in texts if text not in line] == []
    assert "" == ended.out
    assert "S3cretWord" not in ended.err
    if "quits:app" not in arguments:
        assert [] == traceback


@pytest.mark.parametrize(
    ("module", "error"),
    [
        ("broken", "LookupError: no settings for amqp://ada:…@mq/"),
        ("half", "ModuleNotFoundError: No module named 'a_library_that_is_not_installed'"),
    ],
)
def test_an_app_whose_import_fails(commands: Commands, module: str, error: str) -> None:
    """The traceback shows the user's code alone, the last line says what failed; the code is 3."""
    ended = commands.run("worker", f"{module}:app")
    assert 3 == ended.wait()
    assert "Traceback (most recent call last):" == ended.err_lines[0]
    files = set(re.findall(r'File "(.*)"', ended.err))
    assert [f"{module}.py"] == [file.rpartition("/")[2] for file in files]
    assert f"queuey-sync: cannot import {module}: {error}" == ended.err_lines[-1]
    assert "S3cretWord" not in ended.err


@pytest.mark.parametrize(
    ("raised", "text"),
    [
        ("KeyboardInterrupt", "KeyboardInterrupt"),
        ("SystemExit", "SystemExit: 0"),
        ("CancelledError", "CancelledError"),
        ("Mute", "Mute (its text cannot be made: SystemExit)"),
    ],
)
def test_whatever_an_import_raises(commands: Commands, raised: str, text: str) -> None:
    """What is no error elsewhere is one in an import, and so is one that has no text; code 3."""
    ended = commands.run("declare", "raises:app", *_MEMORY, RAISES=raised)
    assert 3 == ended.wait(), ended.err
    assert f"queuey-sync: cannot import raises: {text}" == ended.err_lines[-1]


def test_an_object_that_fails_when_it_is_looked_at(commands: Commands) -> None:
    """In the place of an app it is an error of the app, not ours."""
    ended = commands.run("declare", "lazy:thing", *_MEMORY)
    assert 3 == ended.wait()
    assert "queuey-sync: cannot load lazy:thing: RuntimeError: not set up" == ended.err_lines[-1]


def test_a_folder_that_is_gone(commands: Commands, tmp_path: Path) -> None:
    """Without a current directory no module can be found in it, which is said."""
    gone = tmp_path / "gone"
    under = ("sh", "-c", f'mkdir {gone} && cd {gone} && rmdir {gone} && exec "$@"', "sh")
    ended = commands.run("declare", "shop:app", *_MEMORY, under=under)
    assert 3 == ended.wait()
    assert ["queuey-sync: the current directory is gone"] == ended.err_lines


@pytest.mark.parametrize(
    ("arguments", "url", "code", "start"),
    [
        (["--url", "ftp://ada:S3cretWord@mq"], "memory:", 2, "--url: "),
        ([], "ftp://ada:S3cretWord@mq", 2, "QUEUEY_URL: "),
        ([], "", 2, "nothing says where jobs wait: set QUEUEY_URL=sqlite:///"),
    ],
    ids=["flag", "variable", "none"],
)
def test_a_url_that_was_given_wrong(
    commands: Commands, arguments: list[str], url: str, code: int, start: str
) -> None:
    """What is given with the command is a mistake of the command, and named."""
    ended = commands.run("declare", "shop:app", *arguments, QUEUEY_URL=url)
    assert code == ended.wait()
    (line,) = ended.err_lines
    assert line.startswith(f"queuey-sync: {start}")
    assert "S3cretWord" not in line


def test_a_url_that_the_app_has_wrong(commands: Commands) -> None:
    """It is a mistake of the app, even when the command would replace it."""
    ended = commands.run("declare", "misled:app", *_MEMORY)
    assert 3 == ended.wait()
    assert "cannot import misled: ConfigurationError: url: " in ended.err_lines[-1]
    assert "S3cretWord" not in ended.err


_JOB = ("enqueue", "shop:app", "shop.Notify", "{}", *_NOWHERE)


@pytest.mark.parametrize(
    ("arguments", "environment", "name"),
    [
        ((*_JOB, "--correlation-id", "a\udcff"), {}, "argument"),
        (("enqueue", "shop:app", "shop.\udcff", "{}", *_NOWHERE), {}, "argument"),
        (("enqueue", "shop:app", "shop.Notify", '{"to": "\udcff"}', *_NOWHERE), {}, "argument"),
        (("worker", "sh\udcffop:app", *_NOWHERE), {}, "argument"),
        (("worker", "shop:app", "-Q", "\udcff", *_NOWHERE), {}, "argument"),
        (("worker", "shop:app", "--url", "amqp://a:S3cretWord@mq\udcff"), {}, "argument"),
        (("\udcff",), {}, "argument"),
        (_JOB, {"QUEUEY_CORRELATION_ID": "a\udcff"}, "QUEUEY_CORRELATION_ID"),
        (("worker", "shop:app"), {"QUEUEY_URL": "amqp://a:S3cretWord@m\udcff"}, "QUEUEY_URL"),
    ],
)
def test_bytes_that_are_no_text(
    commands: Commands, arguments: tuple[str, ...], environment: dict[str, str], name: str
) -> None:
    """Arguments and variables must be UTF-8; what is not is shown, but for passwords."""
    ended = commands.run(*arguments, **environment)
    assert 2 == ended.wait(), ended.err
    (line,) = ended.err_lines
    assert line.startswith(f"queuey-sync: {name}: no UTF-8: b'")
    assert r"\xff" in line
    assert "S3cretWord" not in line


def test_without_a_command_the_help_is_shown(commands: Commands) -> None:
    """No command at all is a mistake, answered with the help."""
    ended = commands.run()
    assert 2 == ended.wait()
    assert "worker" in ended.err
    assert "" == ended.out


@pytest.mark.parametrize("python", [("-m", "queuey_sync"), _MAIN], ids=["module", "script"])
def test_both_ways_to_start_it_are_the_same(commands: Commands, python: tuple[str, ...]) -> None:
    """The module and the installed script run one command, and find apps in the current folder."""
    ended = commands.run("declare", "shop:app", *_MEMORY, python=("-P", *python))
    assert 0 == ended.wait(), ended.err
    assert "shop.orders\nshop.post\n" == ended.out


def test_version(commands: Commands) -> None:
    """The version goes to standard output."""
    ended = commands.run("--version")
    assert 0 == ended.wait()
    assert ended.out.startswith("queuey-sync ")


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["-Q", "post,shop.orders,shop.post", "-c", "3", "--job-timeout", "90s", *_MEMORY], {}),
        (
            [],
            {
                "QUEUEY_QUEUES": "post, shop.orders",
                "QUEUEY_CONCURRENCY": "3",
                "QUEUEY_JOB_TIMEOUT": "90",
                "QUEUEY_URL": "memory:",
                "QUEUEY_LOG_LEVEL": "info",
            },
        ),
    ],
    ids=["flags", "environment"],
)
def test_settings_of_a_worker(
    commands: Commands, arguments: list[str], environment: dict[str, Any]
) -> None:
    """Flags and variables choose queues, concurrency, time limit, log level and broker."""
    worker = commands.start("worker", "shop:app", *arguments, **environment)
    worker.says("working on shop.post, shop.orders with 3 threads, 90s a job")
    worker.send(signal.SIGTERM)
    assert 0 == worker.wait()
    assert "" == worker.out


def test_a_flag_comes_before_its_variable(commands: Commands) -> None:
    """The command line wins over the environment."""
    worker = commands.start("worker", "shop:app", "-c", "5", *_MEMORY, QUEUEY_CONCURRENCY="3")
    worker.says("with 5 threads")


def test_a_variable_is_named_when_it_is_wrong(commands: Commands) -> None:
    """A mistake in the environment is told with the variable's name."""
    ended = commands.run("worker", "shop:app", *_MEMORY, QUEUEY_CONCURRENCY="many")
    assert 2 == ended.wait()
    assert "QUEUEY_CONCURRENCY" in ended.err


def test_records_of_a_job_carry_its_fields(commands: Commands) -> None:
    """The log says when, who, how grave, where and what; in a job also which one."""
    worker = commands.start("worker", "fed:app", QUEUEY_URL="memory:")
    worker.says("told ada")
    worker.says("working on")
    (line,) = [line for line in worker.err_lines if "told ada" in line]
    assert re.fullmatch(
        rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d,\d{{3}} \S+:{worker.pid} INFO shop: told ada"
        r" \[job_id=[-0-9a-f]{36} job_type=shop.Notify queue=shop.post attempt=1\]",
        line,
    )
    (outside,) = [line for line in worker.err_lines if "working on" in line]
    assert "job_id" not in outside


def test_an_app_keeps_the_logging_that_it_set_up(commands: Commands) -> None:
    """Its root logger stays as it was; the level asked for reaches this library's records."""
    worker = commands.start("worker", "logged:app", "-l", "INFO", *_MEMORY)
    worker.says("OWN INFO working on")


def test_an_unexpected_error_shows_its_traceback(commands: Commands) -> None:
    """What nobody foresaw is shown whole, with exit code 1 and one line at the end."""
    crash = (
        "import queuey_sync.app\n"
        "def fail(self): raise ZeroDivisionError('surprise')\n"
        "queuey_sync.app.Queuey.backend = fail\n"
        "from queuey_sync.__main__ import main; main()"
    )
    ended = commands.run("declare", "shop:app", python=("-c", crash))
    assert 1 == ended.wait()
    assert "Traceback (most recent call last):" == ended.err_lines[0]
    assert "queuey-sync: unexpected ZeroDivisionError: surprise" == ended.err_lines[-1]


def test_a_worker_with_every_slot_overdue_ends(commands: Commands) -> None:
    """Slots that no time limit can free end the process with 9, though their threads never end."""
    ended = commands.run(
        "worker", "hung:app", "-c2", "--job-timeout", "200ms", QUEUEY_URL="memory:", HANGING="2"
    )
    assert 9 == ended.wait()
    assert "2 slots" in ended.err_lines[-1]


def test_an_overdue_handler_does_not_hold_up_a_stop(commands: Commands) -> None:
    """With handlers left over their time limit a graceful stop still ends the process, with 0."""
    worker = commands.start(
        "worker", "hung:app", "-c2", "--job-timeout", "200ms", QUEUEY_URL="memory:", HANGING="1"
    )
    worker.says("timed out")
    worker.send(signal.SIGTERM)
    assert 0 == worker.wait(2)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_given_a_script(commands: Commands, shell: str) -> None:
    """It sets the variable that has the command answer."""
    ended = commands.run("completion", shell)
    assert 0 == ended.wait()
    assert f"_QUEUEY_SYNC_COMPLETE={shell}_complete" in ended.out


@pytest.mark.parametrize(
    ("words", "answers"),
    [("queuey-sync d", ["dead", "declare", "drain"]), ("queuey-sync dead re", ["requeue"])],
)
def test_a_shell_that_asks_is_answered(commands: Commands, words: str, answers: list[str]) -> None:
    """With the commands that begin so; nothing is imported and nobody is asked."""
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    ended = commands.run(_QUEUEY_SYNC_COMPLETE="bash_complete", **asked)
    assert 0 == ended.wait(), ended.err
    assert [f"plain,{answer}" for answer in answers] == ended.out.split()
