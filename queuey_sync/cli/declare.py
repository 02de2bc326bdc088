"""``queuey-sync declare``: make an app's queues exist, for a deployment that does so up front."""

from typing import Any

import click

from queuey_sync.app import Queuey
from queuey_sync.cli.options import takes_app
from queuey_sync.queues import QueueSet


@click.command()
@takes_app
def declare(*, app: Queuey[Any]) -> None:
    """Declare the queues of MODULE:APP, and print their names.

    What exists already is left as it is. A queue that exists with other properties is an error.
    """
    queue_set: type[QueueSet] = app.queues
    members = list(queue_set)
    app.backend().declare([member.config for member in members])
    for member in members:
        click.echo(member.full_name)
    app.close()
