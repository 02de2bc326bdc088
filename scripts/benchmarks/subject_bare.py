"""Bare processes that share the jobs out beforehand: no broker and nothing between two jobs."""

import multiprocessing
from multiprocessing.synchronize import Barrier

from scripts.benchmarks import recording


def _run(start: Barrier, jobs: int) -> None:
    start.wait()
    for _ in range(jobs):
        recording.record(0)


def work() -> None:
    """Do all jobs, the processes beginning together."""
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(recording.CHILDREN)
    share = recording.JOBS // recording.CHILDREN
    processes = [
        context.Process(target=_run, args=(start, share)) for _ in range(recording.CHILDREN)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    recording.play({"work": work})
