"""``queuey-sync worker``: run an app's jobs until a signal stops it."""

from typing import Any

import click

from queuey_sync.cli.options import help_option
from queuey_sync.cli.signals import Signals
from queuey_sync.cli.working import takes_worker
from queuey_sync.worker.worker import Worker


@click.command(add_help_option=False)
@takes_worker
@help_option
@click.pass_obj
def worker(signals: Signals, /, *, worker: Worker[Any]) -> None:
    """Run the jobs of an app until SIGTERM, SIGINT or SIGHUP.

    Jobs that run are then finished and settled. A second signal ends the process at once, and the
    broker gives the unfinished jobs to another worker. SIGUSR1 logs what all threads do.
    """
    signals.stop_with(worker.handle().shutdown)
    signals.dump_with(worker.handle().dump)
    worker.run()
