"""The demo: enqueues a job for each file of a folder, has a worker do them, and adds it all up.

Ctrl-C stops it in good order. The next run finishes the rest: the store or the broker keeps the
jobs, and `enqueued.jsonl` in the output folder knows which files have one.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pika.exceptions import AMQPError

from compress.arguments import POISON, Unusable, given_url, out_folder, parse, sources
from compress.broker import BrokerFailed, Look, private_broker
from compress.jobs import Compress, Queues, app
from compress.records import Totals, append, lines_of
from compress.speeds import Speed, Speeds
from compress.store import SCHEME, StoreLook, store_url
from queuey_sync.errors import ConfigurationError, QueueyError

EXAMPLES = Path(__file__).resolve().parents[1]
TOGETHER = 200  # jobs that one enqueue_many publishes
STOPPED = (0, 128 + signal.SIGTERM, -signal.SIGTERM)  # in good order, at once, before it had begun
SLOTS = min(os.cpu_count() or 1, 8)  # each lzma compressor takes about 100 MB
SLOTS_OF = {"thread": "threads", "process": "processes"}


class InTheWay(Exception):
    """What another run did, or does, stands in the way; says what to do."""


FORESEEN = (Unusable, InTheWay, BrokerFailed, QueueyError, AMQPError, OSError)


def main() -> int:
    # Names of files may hold what this terminal cannot show.
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    options = parse()
    stop = None
    try:
        url, out, todo = given_url(options), out_folder(options), sources(options)
        stop = Stop()
        with _alone(out), _place(url, out, own_broker=options.broker) as place:
            os.environ["QUEUEY_URL"] = place  # for the app here and in the worker
            app.producer()  # dials the broker or opens the store, or says what is wrong with it
            app.close()
            with _look(place) as look:
                if options.fresh:
                    _forget(out, look)
                return Demo(out, look, stop, options.pool).run(todo)
    except FORESEEN as error:
        # Ctrl-C at a terminal also ends the start of a private broker.
        if stop and stop.requests and isinstance(error, BrokerFailed):
            print("demo: stopped; the same command again goes on", file=sys.stderr)
            return 130
        code, text = _told(error)
        print(f"demo: {text}", file=sys.stderr)
        return code


def _told(error: Exception) -> tuple[int, str]:
    """The exit code for an error, and one line that says what happened and what to do."""
    match error:
        case Unusable():
            return 2, str(error)
        case InTheWay():
            return 1, str(error)
        case BrokerFailed():
            return 4, f"{error}; without --broker, none is needed"
        case ConfigurationError():
            return 2, f"--url (or QUEUEY_URL): {str(error).removeprefix('url: ')}"
        case QueueyError():
            return 4, f"{error}; once that is mended, the same command again finishes the rest"
        case AMQPError():
            return 4, "the broker was lost; the same command again finishes the rest"
    place = getattr(error, "filename", None) or "the output folder"
    return 1, (
        f"cannot use {place}: {getattr(error, 'strerror', error)}; once that is mended, the same"
        " command again finishes the rest"
    )


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Keep a second demo out of the folder; the kernel forgets the lock when this process ends."""
    with (out / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InTheWay(
                f"another demo is at work in {out}; wait for its end, or give another --out"
            ) from None
        yield


def _forget(out: Path, look: Look | StoreLook) -> None:
    look.delete()
    if (out / "enqueued.jsonl").exists():
        shutil.rmtree(out / "files", ignore_errors=True)
    for name in ("enqueued.jsonl", "events.jsonl", "worker.log"):
        (out / name).unlink(missing_ok=True)


@contextmanager
def _place(url: str | None, out: Path, *, own_broker: bool) -> Iterator[str]:
    """Where jobs wait, as a URL."""
    if not own_broker:
        yield url or store_url(out)
        return
    print("starting a private RabbitMQ", flush=True)
    with private_broker(out / "broker") as url_of_it:
        yield url_of_it
        print("stopping RabbitMQ; its queues stay in", out / "broker", flush=True)


def _look(url: str) -> Look | StoreLook:
    queue = Queues.FILES.config
    return StoreLook(url, queue) if url.startswith(SCHEME) else Look(url, queue.full_name)


class Stop:
    """Counts the requests to stop, and passes each one on to the worker."""

    def __init__(self) -> None:
        self.requests = 0
        self._passed_on = 0
        self._worker: subprocess.Popen[bytes] | None = None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda _number, _frame: self.request())

    def request(self) -> None:
        """The first one stops the worker in good order, a second one ends it now."""
        self.requests += 1
        self._pass_on()

    def watch(self, worker: "subprocess.Popen[bytes]") -> None:
        self._worker = worker
        self._pass_on()

    def _pass_on(self) -> None:
        if self._worker is not None and self._passed_on < self.requests:
            self._passed_on = self.requests
            self._worker.terminate()


class Demo:
    def __init__(self, out: Path, look: Look | StoreLook, stop: Stop, pool: str) -> None:
        self.out = out
        self.look = look
        self.stop = stop
        self.pool = pool
        self.speeds = Speeds(out)
        self.enqueued = lines_of(out / "enqueued.jsonl")
        self.totals = Totals.of(out)
        self._started = time.monotonic()

    def run(self, sources: list[Path]) -> int:
        if not self.enqueued and self.look.waiting() + self.look.dead():
            raise InTheWay(
                "this place holds jobs of a demo with another --out; use that one,"
                " or let --fresh delete them"
            )
        self._enqueue(sources)
        if self._balance() < 0:
            raise InTheWay(
                "jobs of an earlier run are not here, or a worker of it still runs;"
                " --fresh starts over"
            )
        work_left = self._unfinished() > 0
        code = self._work() if work_left else 0
        self._report()
        if code not in STOPPED:
            log = self.out / "worker.log"
            print("\n".join(log.read_text(errors="replace").splitlines()[-10:]), file=sys.stderr)
            print(
                f"demo: the worker ended with code {code}; above is the end of {log}."
                " The same command again finishes the rest",
                file=sys.stderr,
            )
            return 4 if code == 4 else 1
        if self._unfinished() or len(self.enqueued) < len(sources):
            print("stopped: the same command again finishes the rest")
            return 130
        if not work_left:
            print("all of it was done by an earlier run; --fresh starts over")
        if failed := self.look.dead() - self._poisoned():
            print(
                f"demo: not compressed: {failed} of the files; the lines `dead` say why,"
                " and --fresh tries all again",
                file=sys.stderr,
            )
            return 1
        return 0

    def _poisoned(self) -> int:
        """How many jobs are for a file that never was."""
        return sum(Path(line["source"]).name == POISON for line in self.enqueued)

    def _enqueue(self, sources: list[Path]) -> None:
        """One job for each file that has none yet, noted when the broker has confirmed it."""
        known = {line["source"] for line in self.enqueued}
        new = [str(source) for source in sources if str(source) not in known]
        for start in range(0, len(new), TOGETHER):
            if self.stop.requests:
                break
            batch = new[start : start + TOGETHER]
            ids = app.enqueue_many(Compress(source, str(self.out)) for source in batch)
            lines = [
                {"source": source, "job": str(job_id)}
                for source, job_id in zip(batch, ids, strict=True)
            ]
            append(self.out / "enqueued.jsonl", lines)
            self.enqueued += lines
        app.close()
        earlier = f", {len(known)} by earlier runs" if known else ""
        print(f"enqueued {len(self.enqueued) - len(known)} jobs{earlier}", flush=True)

    def _work(self) -> int:
        """Run a worker until every job is done or dead, or until a stop; return its exit code."""
        command = [sys.executable, "-m", "queuey_sync", "worker", "compress.jobs:app"]
        with (self.out / "worker.log").open("ab") as log:
            worker = subprocess.Popen(
                [*command, "--pool", self.pool, "--concurrency", str(SLOTS)],
                cwd=EXAMPLES,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C goes to the terminal's whole group; the worker is to be asked once, by us.
                start_new_session=True,
            )
        self.stop.watch(worker)
        progress = Progress(len(self.enqueued))
        earlier, began = self.totals.read().runs, None
        while worker.poll() is None:
            unfinished = self._unfinished()
            began = began or (time.monotonic() if self.totals.runs > earlier else None)
            progress.show(len(self.enqueued) - unfinished, self.totals.runs)
            if not unfinished and not self.stop.requests:
                if began and not earlier:
                    self._keep_speed(time.monotonic() - began)
                self.stop.request()
            elif unfinished and self.stop.requests:
                progress.say("stopping: what runs is finished first")
            time.sleep(0.1)
        progress.end()
        return worker.returncode

    def _keep_speed(self, seconds: float) -> None:
        speed = Speed(len(self.totals.done), self.totals.before, seconds)
        self.speeds.keep(self.pool, speed)

    def _unfinished(self) -> int:
        """How many jobs are neither done nor dead."""
        return len(self.enqueued) - len(self.totals.read().done) - self.look.dead()

    def _balance(self) -> int:
        """What is too much on the right side of: enqueued = done + dead + waiting."""
        deadline = time.monotonic() + 5
        # A held job that returns to its queue in between the two counts may be missed for once.
        while (balance := self.look.waiting() - self._unfinished()) and time.monotonic() < deadline:
            time.sleep(0.2)
        return balance

    def _report(self) -> None:
        balance = self._balance()
        totals, dead, waiting = self.totals, self.look.dead(), self.look.waiting()
        saved = _megabytes(totals.before - totals.after)
        files = f"{len(self.enqueued) - self._poisoned()} with a job each"
        if self._poisoned():
            files += "; one job more is for a file that is not there, to show a dead letter"
        print(
            f"""
files     {files}
jobs      {len(self.enqueued)} enqueued = {len(totals.done)} done + {dead} dead + {waiting} waiting
runs      {totals.runs}, of which {totals.retries} were retries after a made-up fault
saved     {saved}: {_megabytes(totals.before)} became {_megabytes(totals.after)}
alike     {totals.alike()} files have nearly the words of another one
time      {time.monotonic() - self._started:.1f} s in this run, with {SLOTS} {SLOTS_OF[self.pool]}
results   {self.out / "files"}"""
        )
        if not self._unfinished():
            print("speed     " + self.speeds.compared(self.pool))
        for reason in self.look.reasons()[:5]:
            print("dead      " + reason)
        if twice := totals.done.total() - len(totals.done):
            print(f"twice     {twice} jobs, whose worker ended without acknowledging them")
        if balance > 0:
            print(f"again     {balance} done jobs, whose worker ended without acknowledging them")
        if balance < 0:
            print(f"missing   {-balance} jobs")
        print(flush=True)


class Progress:
    """One line that is written over on a terminal; elsewhere a line every two seconds."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._terminal = sys.stdout.isatty()
        self._next = time.monotonic()
        self._said = ""

    def show(self, finished: int, runs: int) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + (0.1 if self._terminal else 2)
        bar = "#" * (30 * finished // max(self._jobs, 1))
        text = f"[{bar:.<30}] {finished} of {self._jobs} jobs, {runs} runs"
        print(
            f"\r{text}" if self._terminal else text, end="" if self._terminal else "\n", flush=True
        )

    def say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            print(("\n" if self._terminal else "") + text, flush=True)

    def end(self) -> None:
        if self._terminal:
            print()


def _megabytes(count: int) -> str:
    return f"{count / 1_000_000:.1f} MB"


if __name__ == "__main__":
    sys.exit(main())
