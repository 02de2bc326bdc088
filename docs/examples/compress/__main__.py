"""The demo: enqueues a job for each file of a folder, has a worker do them, and adds it all up.

Ctrl-C stops it in good order. The next run finishes the rest: the broker keeps the jobs, and
`enqueued.jsonl` in the output folder knows which files have one.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from compress.broker import BrokerFailed, Look, private_broker
from compress.jobs import Compress, Queues, app
from compress.records import Totals, append, lines_of

EXAMPLES = Path(__file__).resolve().parents[1]
LIBRARY = Path(sysconfig.get_paths()["stdlib"])
NO_SOURCE = {"__pycache__", "site-packages", "dist-packages"}
TOGETHER = 200  # jobs that one enqueue_many publishes
STOPPED = (0, 128 + signal.SIGTERM, -signal.SIGTERM)  # in good order, at once, before it had begun
THREADS = min(os.cpu_count() or 1, 8)  # each lzma compressor takes about 100 MB


def main() -> int:
    options = _parse()
    out: Path = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    (out / ".gitignore").write_text("*\n")
    stop = Stop()
    url = options.url or os.environ.get("QUEUEY_URL")
    broker = nullcontext(url) if url else _started(out / "broker")
    try:
        with broker as url:
            os.environ["QUEUEY_URL"] = url  # for the app here and in the worker
            with Look(url, Queues.FILES.full_name) as look:
                if options.fresh:
                    _forget(out, look)
                return Demo(out, look, stop).run(_sources(options))
    except BrokerFailed as error:
        if stop.requests:
            return 130
        print(f"demo: {error}; --url amqp://… uses another one", file=sys.stderr)
        return error.code


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/demo",
        description="Compresses a folder of files, one job a file, through RabbitMQ. Stop it with"
        " Ctrl-C and start it again: it goes on where it was.",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="the files to compress (default: the sources of Python's standard library)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("demo-output"),
        help="where the compressed files, the records and the private broker's data go"
        " (default: %(default)s)",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="take the first N files only")
    parser.add_argument(
        "--url", help="the broker to use (default: $QUEUEY_URL, else a private one is started)"
    )
    parser.add_argument("--fresh", action="store_true", help="forget earlier runs first")
    return parser.parse_args()


def _sources(options: argparse.Namespace) -> list[Path]:
    """The files to compress, and one more that does not exist: its job will be a dead letter."""
    folder: Path = (options.folder or LIBRARY).resolve()
    pattern = "*" if options.folder else "*.py"
    files = [
        file
        for file in sorted(folder.rglob(pattern))
        if file.is_file() and NO_SOURCE.isdisjoint(file.parts)
    ]
    return [*files[: options.limit], folder / "no-such-file"]


def _forget(out: Path, look: Look) -> None:
    look.delete()
    if (out / "enqueued.jsonl").exists():
        shutil.rmtree(out / "files", ignore_errors=True)
    for name in ("enqueued.jsonl", "events.jsonl", "worker.log"):
        (out / name).unlink(missing_ok=True)


@contextmanager
def _started(folder: Path) -> Iterator[str]:
    print("starting a private RabbitMQ", flush=True)
    with private_broker(folder) as url:
        yield url
        print("stopping RabbitMQ; its queues stay in", folder, flush=True)


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
    def __init__(self, out: Path, look: Look, stop: Stop) -> None:
        self.out = out
        self.look = look
        self.stop = stop
        self.enqueued = lines_of(out / "enqueued.jsonl")
        self.totals = Totals.of(out)
        self._started = time.monotonic()

    def run(self, sources: list[Path]) -> int:
        self._enqueue(sources)
        if self._balance() < 0:
            print(
                "demo: jobs of an earlier run are not on this broker, or a worker of it still runs;"
            )
            print("      --fresh starts over")
            return 1
        work_left = self._unfinished() > 0
        code = self._work() if work_left else 0
        self._report()
        if code not in STOPPED:
            print(f"the worker ended with code {code}; the end of {self.out / 'worker.log'}:")
            print("\n".join((self.out / "worker.log").read_text().splitlines()[-10:]))
            return 1
        if self._unfinished() or len(self.enqueued) < len(sources):
            print("stopped: the same command again finishes the rest")
            return 130
        if not work_left:
            print("all of it was done by an earlier run; --fresh starts over")
        return 0

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
                [*command, "--concurrency", str(THREADS)],
                cwd=EXAMPLES,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C goes to the terminal's whole group; the worker is to be asked once, by us.
                start_new_session=True,
            )
        self.stop.watch(worker)
        progress = Progress(len(self.enqueued))
        while worker.poll() is None:
            unfinished = self._unfinished()
            progress.show(len(self.enqueued) - unfinished, self.totals.runs)
            if not unfinished and not self.stop.requests:
                self.stop.request()
            elif unfinished and self.stop.requests:
                progress.say("stopping: what runs is finished first")
            time.sleep(0.1)
        progress.end()
        return worker.returncode

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
        print(
            f"""
jobs      {len(self.enqueued)} enqueued = {len(totals.done)} done + {dead} dead + {waiting} waiting
runs      {totals.runs}, of which {totals.retries} were retries after a made-up fault
saved     {saved}: {_megabytes(totals.before)} became {_megabytes(totals.after)}
time      {time.monotonic() - self._started:.1f} s in this run, with {THREADS} threads
results   {self.out / "files"}"""
        )
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
