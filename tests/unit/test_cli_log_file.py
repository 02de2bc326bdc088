"""The handler for a log file, at its hard moments: a full disk, kills, interrupts, forks."""

import ctypes
import errno
import gzip
import logging
import os
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from pathlib import Path
from typing import Any

import pytest

from queuey_sync.cli.log_file import LogFile
from queuey_sync.cli.logs import LineStream
from queuey_sync.errors import SoftTimeout
from tests.support.waiting import eventually


class Killed(BaseException):
    """Ends a rotation wherever it is."""


@pytest.fixture
def open_log(tmp_path: Path) -> Iterator[Callable[..., LogFile]]:
    """Opens log files of this test's folder, as several processes would."""
    opened = []

    def open_file(**settings: Any) -> LogFile:
        given = {"max_size": 1_000_000, "keep": 3, "compress": False} | settings
        opened.append(LogFile(str(tmp_path / "a.log"), **given))
        return opened[-1]

    yield open_file
    for handler in opened:
        handler.close()


@pytest.fixture
def shared_stream(tmp_path: Path) -> Iterator[LineStream]:
    """Standard error, shared with a lock; for a test of both handlers, the one of the file."""
    handler, lock = LineStream(), tmp_path / ".__a.lock"
    lock.touch()
    handler.share(str(lock))
    yield handler
    handler.close()


def _log(handler: logging.Handler, text: str) -> None:
    handler.handle(logging.LogRecord("a", logging.INFO, "a.py", 1, text, None, None))


def _pieces(folder: Path) -> dict[str, list[str]]:
    """The lines of each piece, by what its name adds to that of the log."""
    pieces = {}
    for file in folder.glob("a.log*"):
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        pieces[file.name.removeprefix("a.log")] = content.decode().splitlines()
    return pieces


def test_pieces_move_on_and_the_oldest_go(open_log: Callable[..., LogFile], tmp_path: Path) -> None:
    """The newest piece has the number 1, and there are no more than are kept."""
    log = open_log(max_size=1, keep=2)
    for text in "abcd":
        _log(log, text)
    assert {"": ["d"], ".1": ["c"], ".2": ["b"]} == _pieces(tmp_path)


def test_compressing_can_be_begun_and_ended(
    open_log: Callable[..., LogFile], tmp_path: Path
) -> None:
    """A worker with other options than the last one's goes on with its pieces."""
    compress = [False, True, True, False, False, True, True, True, True, False, False, False, False]
    for number, wanted in enumerate(compress):
        log = open_log(max_size=1, keep=3, compress=wanted)
        _log(log, str(number))
        log.close()
        pieces = _pieces(tmp_path)
        newest_first = [line for name in sorted(pieces) for line in pieces[name]]
        assert [str(one) for one in range(number, -1, -1)][:4] == newest_first
        assert ".1" in pieces or ".1.gz" in pieces or number == 0


def test_a_file_that_another_process_rotated_is_left(
    open_log: Callable[..., LogFile], tmp_path: Path
) -> None:
    """Both write to the new file, and it is rotated once."""
    one, other = open_log(max_size=1), open_log(max_size=1)
    for text, log in zip("abcd", [one, other, other, one], strict=True):
        _log(log, text)
    assert {"": ["d"], ".1": ["c"], ".2": ["b"], ".3": ["a"]} == _pieces(tmp_path)


def _break_after(monkeypatch: pytest.MonkeyPatch, steps: int) -> list[str]:
    """Have the n-th change to the names of files be the last one; returns those that were made."""
    made: list[str] = []

    def counted(name: str) -> None:
        method = getattr(Path, name)

        def change(self: Path, *arguments: Any, **settings: Any) -> Any:
            if len(made) == steps:
                raise Killed
            made.append(name)
            return method(self, *arguments, **settings)

        monkeypatch.setattr(Path, name, change)

    counted("replace")
    counted("unlink")
    return made


@pytest.mark.parametrize("compress", [False, True], ids=["plain", "compressed"])
@pytest.mark.parametrize("steps", range(12))
def test_a_rotation_that_was_cut_off_is_finished_by_the_next(
    open_log: Callable[..., LogFile],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    steps: int,
    compress: bool,
) -> None:
    """Wherever a kill came, no line is lost or twice, and none is out of order."""
    log = open_log(max_size=1, keep=5, compress=compress)
    for text in "abc":
        _log(log, text)
    with monkeypatch.context() as patch, suppress(Killed):
        _break_after(patch, steps)
        _log(log, "d")
    other = open_log(max_size=1, keep=5, compress=compress)
    for text in "ef":
        _log(other, text)
    pieces = _pieces(tmp_path)
    in_order = [pieces[name] for name in sorted(pieces, reverse=True)]
    lines = [line for piece in in_order for line in piece]
    assert [text for text in "abcdef" if text != "d" or "d" in lines] == lines


@pytest.mark.parametrize("compress", [False, True], ids=["plain", "compressed"])
def test_a_piece_whose_compressing_was_cut_off_is_kept_as_it_was(
    open_log: Callable[..., LogFile], tmp_path: Path, compress: bool
) -> None:
    """What a killed process had compressed of it so far is thrown away."""
    (tmp_path / "a.log.1").write_text("a\n")
    (tmp_path / "a.log.1.gz").write_bytes(gzip.compress(b"a\n")[:5])
    log = open_log(max_size=1, compress=compress)
    for text in "bc":
        _log(log, text)
    assert {"": ["c"], ".1.gz" if compress else ".1": ["b"], ".2": ["a"]} == _pieces(tmp_path)


def test_half_a_line_is_ended_before_the_next(
    open_log: Callable[..., LogFile], tmp_path: Path
) -> None:
    """What a killed process wrote last does not spoil the line of another."""
    log = open_log()
    _log(log, "a")
    with (tmp_path / "a.log").open("a") as file:
        file.write("hal")
    _log(log, "b")
    assert {"": ["a", "hal", "b"]} == _pieces(tmp_path)


@contextmanager
def _no_file_larger_than(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk(
    open_log: Callable[..., LogFile], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records are dropped whole; that is said at once on standard error, and later in the log."""
    log = open_log()
    _log(log, "a")
    with _no_file_larger_than(6):
        for text in ("b" * 100, "c" * 100):
            _log(log, text)
        assert {"": ["a"]} == _pieces(tmp_path)
    _log(log, "d")
    _log(log, "e")
    missing = "records are missing here, which could not be written: 2 (File too large)"
    assert {"": ["a", missing, "d", "e"]} == _pieces(tmp_path)
    said = f"queuey-sync: records are dropped: {tmp_path}/a.log cannot be written: File too large\n"
    assert said == capsys.readouterr().err


@pytest.mark.parametrize(
    ("fault", "refused"), [(errno.ENOSPC, False), (errno.EDQUOT, False), (errno.EACCES, True)]
)
def test_a_full_disk_is_no_reason_not_to_begin(
    open_log: Callable[..., LogFile], monkeypatch: pytest.MonkeyPatch, fault: int, refused: bool
) -> None:
    """A file that will take lines again is good enough; one that never will is refused."""
    log = open_log()

    def fail() -> None:
        raise OSError(fault, os.strerror(fault))

    monkeypatch.setattr(log, "do_open", fail)
    with pytest.raises(OSError, match="denied") if refused else nullcontext():
        log.check()


def test_a_record_with_wrong_arguments_is_shown(
    open_log: Callable[..., LogFile], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistake in the code of a job is told as Python does, and the log goes on."""
    log = open_log()
    log.handle(logging.LogRecord("a", logging.INFO, "a.py", 1, "%d", ("one",), None))
    _log(log, "b")
    assert {"": ["b"]} == _pieces(tmp_path)
    assert "--- Logging error ---" in capsys.readouterr().err


def test_what_no_file_can_hold_is_escaped(open_log: Callable[..., LogFile], tmp_path: Path) -> None:
    """The name of a file that is no text does not lose its line."""
    _log(open_log(), "no \udcff")
    assert {"": ["no \\udcff"]} == _pieces(tmp_path)


def _interrupted(thread: threading.Thread) -> None:
    error = ctypes.py_object(SoftTimeout)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), error)


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_a_time_limit_while_a_thread_waits_for_the_handler(
    open_log: Callable[..., LogFile], kind: str
) -> None:
    """The thread that was interrupted does not keep the lock for ever."""
    handler: logging.Handler = open_log() if kind == "file" else LineStream()
    assert handler.lock is not None
    running, ended, gone = (threading.Event() for _ in range(3))

    def job() -> None:
        running.set()
        with suppress(SoftTimeout):
            _log(handler, "a")
        ended.set()
        gone.wait()  # a lock that it kept would be let go if it ended

    thread = threading.Thread(target=job)
    with handler.lock:
        thread.start()
        running.wait()
        eventually(lambda: _waits(thread), 5)
        _interrupted(thread)
    assert ended.wait(5)
    free = handler.lock.acquire(timeout=5)
    gone.set()
    thread.join()
    handler.createLock()  # or a failure would become a deadlock at the end
    assert free


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_a_time_limit_while_a_process_waits_for_its_turn(
    open_log: Callable[..., LogFile], shared_stream: LineStream, tmp_path: Path, kind: str
) -> None:
    """Its turn is over with the interrupted call, so that other processes can write."""
    handler = open_log() if kind == "file" else shared_stream

    def job() -> None:
        with suppress(SoftTimeout):
            _log(handler, "a")

    thread = threading.Thread(target=job)
    with (tmp_path / ".__a.lock").open() as other:
        flock(other, LOCK_EX)
        thread.start()
        eventually(lambda: _waits(thread), 5)
        _interrupted(thread)
        flock(other, LOCK_UN)
        thread.join()
        flock(other, LOCK_EX | LOCK_NB)


def _waits(thread: threading.Thread) -> bool:
    """Whether the thread sleeps in the system."""
    state = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(")")[2].split()
    return state[0] == "S"


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_a_copy_of_the_process_waits_for_its_own_turn(
    open_log: Callable[..., LogFile], shared_stream: LineStream, kind: str
) -> None:
    """A handler that forks while another thread logs gives its copy no share in that turn."""
    log = open_log()
    if kind == "file":
        log._do_lock()
    else:
        assert shared_stream._turn is not None
        flock(shared_stream._turn, LOCK_EX)
    pid = os.fork()
    if pid == 0:
        log._open_lockfile()
        try:
            flock(log.stream_lock if kind == "file" else shared_stream._turn, LOCK_EX | LOCK_NB)  # type: ignore[arg-type]
        except BlockingIOError:
            os._exit(7)
        os._exit(0)
    assert 7 == os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    log._do_unlock()
