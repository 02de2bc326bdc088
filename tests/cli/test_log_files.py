"""Where a command's log goes, and in which form: real workers, real children, real files."""

import json
import re
import resource
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Commands, Running
from tests.support.waiting import eventually

WORKERS = 3
JOBS = 8
LINES = 410
"""A worker's jobs, and the lines of a job: 10,000 lines in all."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the log is to go."""
    return tmp_path / "logs" / "worker.log"


def _work(commands: Commands, *options: str, jobs: int = 1, **settings: Any) -> Running:
    environment = {"JOBS": str(jobs), "LINES": "2", **settings}
    return commands.start("worker", "scribe:app", *options, **environment)


def _stop(worker: Running) -> None:
    worker.send(signal.SIGTERM)
    assert 0 == worker.wait(20), worker.err


def _lines_of(file: Path) -> list[str]:
    """The lines of a log and its older pieces; each ends with a line break."""
    texts = [piece.read_text() for piece in file.parent.glob(f"{file.name}*")]
    assert all(text.endswith("\n") for text in texts)
    return [line for text in texts for line in text.splitlines()]


def test_several_workers_with_children_log_to_one_file(commands: Commands, file: Path) -> None:
    """While it is rotated under load, every line is whole and there, with its job and process."""
    file.parent.mkdir()
    options = ("--log-file", str(file), "--log-max-size", "100kB", "--log-keep", "1000")
    pool = ("-P", "process", "-c", "2", "--log-format", "json")
    workers = [
        _work(commands, *options, *pool, jobs=JOBS, LINES=str(LINES)) for _ in range(WORKERS)
    ]
    commands.marked(*(str(number) for number in range(JOBS) for _ in workers), seconds=60)
    for worker in workers:
        _stop(worker)
    assert 10 < len(list(file.parent.glob(f"{file.name}.*")))

    records = [json.loads(line) for line in _lines_of(file)]
    written = [record for record in records if record["message"].startswith("line ")]
    names = [record["worker"].rpartition(":")[2] for record in written]
    assert {str(worker.pid) for worker in workers} == set(names)
    lines = [(name, record["message"]) for name, record in zip(names, written, strict=True)]
    assert WORKERS * JOBS * LINES == len(lines) == len(set(lines))
    for record in written:
        assert "scribe.Write scribe.work 1" == "{job_type} {queue} {attempt}".format(**record)
        assert str(record["pid"]) not in record["worker"]
    assert "hidden" not in str(records)


def test_what_is_in_the_file_is_not_on_standard_error(commands: Commands, file: Path) -> None:
    """Only the command itself speaks there."""
    file.parent.mkdir()
    worker = _work(commands, "--log-file", str(file))
    commands.marked("0")
    _stop(worker)
    assert ["received SIGTERM"] == re.findall("queuey-sync: (received SIGTERM).*\n", worker.err)
    assert 1 == len(worker.err_lines)
    lines = file.read_text().splitlines()
    assert re.fullmatch(
        rf"\S+ \S+ \S+:{worker.pid} INFO scribe: line 0 of 0  \[job_id=\S+"
        r" job_type=scribe\.Write queue=scribe\.work attempt=1\]",
        next(line for line in lines if "line 0" in line),
    )
    assert "stopped; settle failures: 0" in lines[-1]


def test_older_pieces_are_compressed_and_limited(commands: Commands, file: Path) -> None:
    """With `--log-compress` and `--log-keep` there are so many compressed files, and no more."""
    file.parent.mkdir()
    options = ("--log-max-size", "1kB", "--log-keep", "2", "--log-compress")
    worker = _work(commands, "--log-file", str(file), *options, LINES="100")
    commands.marked("0")
    _stop(worker)
    names = sorted(path.name for path in file.parent.iterdir())
    assert [".__worker.lock", "worker.log", "worker.log.1.gz", "worker.log.2.gz"] == names


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_json_on_standard_error(commands: Commands, pool: str) -> None:
    """`--log-format json` alone gives one object a line, from children too."""
    worker = _work(commands, "--log-format", "json", "-P", pool)
    commands.marked("0")
    eventually(lambda: "line 1" in worker.err, 5)
    _stop(worker)
    *lines, last = [line for line in worker.err_lines if not line.startswith("queuey-sync: ")]
    records = [json.loads(line) for line in lines]
    assert "stopped; settle failures: 0" == json.loads(last)["message"]
    (record,) = (one for one in records if one["message"].startswith("line 1"))
    assert {"time", "level", "logger", "message", "worker", "pid"} < set(record)
    assert {"job_id", "job_type", "queue", "attempt"} < set(record)
    assert record["worker"].endswith(f":{worker.pid}")
    assert (record["pid"] == worker.pid) is (pool == "thread")


def test_a_log_that_an_app_set_up_gets_a_file_beside_it(commands: Commands, file: Path) -> None:
    """Records go to both, each in its form."""
    file.parent.mkdir()
    options = ("--log-file", str(file), "--log-format", "json")
    worker = commands.start("worker", "logged:app", "--url", "memory:", *options)
    worker.says("OWN INFO working on")
    _stop(worker)
    messages = [json.loads(line)["message"] for line in file.read_text().splitlines()]
    assert messages[0].startswith("working on")
    assert "queuey-sync: --log-format" not in worker.err


def test_the_format_of_a_log_that_an_app_set_up_stays(commands: Commands) -> None:
    """A format alone changes nothing there, and that is said."""
    ended = commands.run("declare", "logged:app", "--url", "memory:", "--log-format", "json")
    assert 0 == ended.wait()
    text = "queuey-sync: --log-format: the app has set up the log itself, so its format stays"
    assert [text] == ended.err_lines


def test_a_variable_may_say_that_nothing_is_compressed(commands: Commands) -> None:
    """It needs no file, for it asks for nothing."""
    arguments = ("declare", "shop:app", "--url", "memory:")
    assert 0 == commands.run(*arguments, QUEUEY_LOG_COMPRESS="0").wait()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--log-file", "{}/none/worker.log"], "--log-file {}/none/worker.log: No such file"),
        (["--log-file", "{}"], "--log-file {}: Is a directory"),
        (["--log-file", "/dev/null"], "--log-file /dev/null: it is no regular file"),
        (["--log-file", "{}/a", "--log-max-size", "big"], "expected a size such as 512MB"),
        (["--log-file", "{}/a", "--log-keep", "0"], "0 is not in the range"),
        (["--log-max-size", "1MB"], "--log-max-size: it needs --log-file"),
        (["--log-keep", "1"], "--log-keep: it needs --log-file"),
        (["--log-compress"], "--log-compress: it needs --log-file"),
        (["--log-format", "xml"], "'xml' is not one of 'text', 'json'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_log_that_cannot_be(
    commands: Commands, tmp_path: Path, options: list[str], text: str
) -> None:
    """It is a usage error, before the app is imported."""
    here = str(tmp_path)
    ended = commands.run("declare", "broken:app", *(one.format(here) for one in options))
    assert 2 == ended.wait(), ended.err
    (line,) = ended.err_lines
    assert text.format(here) in line
    assert not list(tmp_path.parent.glob(".__*")), "a lock was left"


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_a_full_disk_harms_no_job(commands: Commands, file: Path, pool: str) -> None:
    """Records are dropped while there is no room, which is said, and the jobs run."""
    file.parent.mkdir()
    options = ("--log-file", str(file), "-P", pool, "-c", "2")
    no_room = ("sh", "-c", 'ulimit -S -f 8; exec "$@"', "sh")
    worker = _work(commands, *options, under=no_room, jobs=10, LINES="100")
    commands.marked(*map(str, range(10)))
    said = f"queuey-sync: records are dropped: {file} cannot be written: File too large"
    assert said in worker.err_lines
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (hard, hard))
    _stop(worker)
    lines = file.read_text().splitlines()
    assert all(
        re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} \S+ [A-Z]+ \w", line) for line in lines
    )
    assert "stopped; settle failures: 0" in lines[-1]
    missing = [line for line in lines if "records are missing here" in line]
    assert missing or pool == "process"  # there it is the children that had something to say
