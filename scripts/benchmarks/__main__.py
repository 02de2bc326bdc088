"""The benchmark of `scripts/bench`: this library beside its peers, in interleaved rounds.

Every subject gets the same broker, a durable queue with 10 levels, a prefetch of 64, 8 threads or 2
child processes, logs at WARNING and one small job of two fields. Nothing here passes or fails: the
promises of the project are printed beside what was measured. docs/explanation/performance.md says
what it means.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

from scripts.benchmarks import child_jobs, report, running, store
from scripts.benchmarks.running import (
    BARE,
    BARE_PROCESSES,
    CELERY,
    DRAMATIQ,
    MANY,
    PIKA,
    POOLS,
    PREFORK,
    QUEUEY,
    QUEUEY_MANY,
    SUBJECTS,
)

PARTS = ("drain", "publish", "idle", "pools", "store")
_BURNING_SECONDS = 0.02
_BURNING_JOBS = 300


def main() -> int:
    """Measure, and print."""
    options = _parse()
    if not options.url:
        print("scripts/bench: no broker: give --url", file=sys.stderr)
        return 2
    bench = running.Bench(options.url, options.settle)
    results: dict[str, Any] = {"machine": _machine()}
    print(", ".join(f"{key} {value}" for key, value in results["machine"].items()))
    try:
        _measure(bench, options, results)
    except running.BenchFailed as error:
        print(f"scripts/bench: {error}", file=sys.stderr)
        return 1
    finally:
        if options.json:
            options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


def _measure(bench: running.Bench, options: argparse.Namespace, results: dict[str, Any]) -> None:
    if "drain" in options.parts:
        results["drain"] = rounds = _interleaved(
            options, SUBJECTS, "drains", lambda subject: bench.drain(subject, options.jobs)
        )
        print(f"\nDraining {options.jobs:,} jobs\n" + report.table(rounds, PIKA))
        _print_promises(_drain_promises(rounds))
    if "publish" in options.parts:
        results["publish"] = rounds = _publish(bench, options)
        print("\nPublishing, confirmed\n" + report.table(rounds, DRAMATIQ))
        _print_promises(_publish_promises(rounds))
    if "idle" in options.parts:
        results["idle"] = idle = _idle(bench, options)
        print(f"\nOne job at a time, {options.samples} of them, then rest\n")
        print(report.idle_table(idle))
        _print_promises(_idle_promises(idle))
    if "pools" in options.parts:
        _measure_pools(bench, options, results)
    if "store" in options.parts:
        for synchronous in store.SYNCHRONOUS:
            _measure_store(synchronous, options, results)


def _measure_pools(
    bench: running.Bench, options: argparse.Namespace, results: dict[str, Any]
) -> None:
    results["pools_empty"] = empty = _interleaved(
        options,
        POOLS,
        "drains with processes",
        lambda subject: bench.drain_by_children(subject, options.jobs, loops=0),
    )
    loops = child_jobs.loops_for(_BURNING_SECONDS)
    results["pools_burning"] = burning = _interleaved(
        options,
        (*POOLS, BARE_PROCESSES),
        "burns",
        lambda subject: bench.drain_by_children(subject, _BURNING_JOBS, loops),
    )
    print(f"\n2 child processes, {options.jobs:,} empty jobs\n" + report.table(empty, PREFORK))
    print(f"\n2 child processes, {_BURNING_JOBS} jobs of 20 ms\n" + report.table(burning, BARE))
    _print_promises(_pools_promises(empty, burning))


def _measure_store(synchronous: str, options: argparse.Namespace, results: dict[str, Any]) -> None:
    with closing(store.StoreBench(synchronous)) as bench:
        drained = _interleaved(
            options, store.DRAINS, "drains a file", lambda one: bench.drain(one, options.jobs)
        )
        published = _interleaved(
            options, store.PUBLISHES, "enqueues", lambda one: bench.publish(one, options.jobs)
        )
    results[f"store_{synchronous}"] = {"drain": drained, "publish": published}
    print(f"\nA file, synchronous={synchronous}: draining {options.jobs:,} jobs")
    print(report.table(drained, store.HUEY))
    print(f"\nA file, synchronous={synchronous}: enqueuing\n" + report.table(published, store.HUEY))
    _print_promises([*store.drain_promises(drained), *store.publish_promises(published)])


def _interleaved(
    options: argparse.Namespace,
    subjects: Sequence[running.Subject],
    does: str,
    measure: Callable[[running.Subject], report.Numbers],
) -> list[dict[str, report.Numbers]]:
    """Another subject goes first in each round, so that none always follows the same one."""
    rounds = []
    for number in range(options.rounds):
        first = number % len(subjects)
        numbers = {}
        for subject in (*subjects[first:], *subjects[:first]):
            _progress(f"round {number + 1} of {options.rounds}: {subject.name} {does}")
            numbers[subject.name] = measure(subject)
        rounds.append({subject.name: numbers[subject.name] for subject in subjects})
    return rounds


def _publish(bench: running.Bench, options: argparse.Namespace) -> list[dict[str, report.Numbers]]:
    subjects = [(MANY, options.jobs // 2)]
    subjects += [(subject, options.jobs // 10) for subject in SUBJECTS if subject.publish]
    rounds = []
    for number in range(options.rounds):
        numbers = {}
        for subject, jobs in subjects:
            _progress(f"round {number + 1} of {options.rounds}: {subject.name} publishes")
            numbers[subject.name] = bench.publish(subject, jobs)
        rounds.append(numbers)
    return rounds


def _idle(bench: running.Bench, options: argparse.Namespace) -> dict[str, report.Numbers]:
    idle = {}
    for subject in SUBJECTS:
        if subject.idle:
            _progress(f"{subject.name} waits for single jobs")
            latencies_ms, cpu = bench.idle(subject, options.samples)
            idle[subject.name] = {**report.latency(latencies_ms), "idle_cpu_percent": cpu}
    return idle


def _drain_promises(rounds: report.Rounds) -> list[report.Promise]:
    def rate(peer: str) -> report.Spread:
        return report.ratio(rounds, "jobs_per_second", QUEUEY, peer)

    cpu = report.ratio(rounds, "cpu_us_per_job", QUEUEY, DRAMATIQ)
    return [
        report.Promise(f"jobs/s, as multiples of {DRAMATIQ}'s", rate(DRAMATIQ), at_least=2.5),
        report.Promise(f"jobs/s, as multiples of the {PIKA}'s", rate(PIKA), at_least=0.9),
        report.Promise(f"CPU a job, as a part of {DRAMATIQ}'s", cpu, at_most=0.4),
    ]


def _publish_promises(rounds: report.Rounds) -> list[report.Promise]:
    many = report.ratio(rounds, "jobs_per_second", QUEUEY_MANY, DRAMATIQ)
    return [report.Promise(f"enqueue_many, as multiples of {DRAMATIQ}'s send", many, at_least=5)]


def _idle_promises(idle: dict[str, report.Numbers]) -> list[report.Promise]:
    latency = report.Spread.of([idle[QUEUEY]["p50_ms"]])
    cpu = report.Spread.of([idle[QUEUEY]["idle_cpu_percent"]])
    return [
        report.Promise("enqueue to handler start, median, ms", latency, at_most=2),
        report.Promise("CPU of an idle worker, % of a core", cpu, at_most=1),
    ]


def _pools_promises(empty: report.Rounds, burning: report.Rounds) -> list[report.Promise]:
    beside_prefork = report.ratio(empty, "jobs_per_second", QUEUEY, PREFORK)
    beside_bare = report.ratio(burning, "jobs_per_second", QUEUEY, BARE)
    return [
        report.Promise(f"empty jobs/s, x {PREFORK}'s", beside_prefork, at_least=1),
        report.Promise(f"burning jobs/s, x two {BARE}'", beside_bare, at_least=0.95),
    ]


def _print_promises(promises: list[report.Promise]) -> None:
    print(f"\n{'Promised, and measured on this machine':<58} {'bound':>7}   median (min to max)")
    for promise in promises:
        print(promise.show())


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _machine() -> dict[str, str]:
    packages = ("pika", "msgspec", DRAMATIQ, CELERY, store.HUEY)
    return {
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
    }


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measures this library beside its peers, on a private broker or that of --url.",
    )
    url = os.environ.get("QUEUEY_TEST_URL")
    parser.add_argument("--url", default=url, help="this broker; loses its bench.* queues")
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs to drain (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (%(default)s)")
    parser.add_argument("--samples", type=int, default=200, help="single jobs (%(default)s)")
    parser.add_argument(
        "--settle", type=float, default=3.0, help="seconds from filling to draining (%(default)s)"
    )
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure; all by default"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers there too")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
