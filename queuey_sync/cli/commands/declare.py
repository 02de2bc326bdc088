"""``queuey-sync declare``: make an app's queues exist, for a deployment that does so up front."""

from typing import Any

import click

from queuey_sync.app import Queuey
from queuey_sync.cli.options import help_option, takes_app
from queuey_sync.cli.reporting import OutputLost, show
from queuey_sync.queues import QueueSet


@click.command(add_help_option=False)
@takes_app
@help_option
def declare(*, app: Queuey[Any]) -> None:
    """Declare the queues of an app, and print their names.

    What exists already is left as it is. A queue that exists with other properties is an error.
    """
    queue_set: type[QueueSet] = app.queues
    members = list(queue_set)
    app.backend().declare([member.config for member in members])
    try:
        show("\n".join(member.full_name for member in members))
    except OutputLost as error:
        raise OutputLost(error.why, "the queues are declared") from None
    app.close()
