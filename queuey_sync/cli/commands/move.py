"""``queuey-sync move``: carry what waits in a store over to a broker.

What makes it safe to interrupt is in `backends/sqlite/moving.py`.
"""

import json
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from queuey_sync.app import Queuey
from queuey_sync.cli.exits import Exit
from queuey_sync.cli.options import help_option, option, takes_loaded_app
from queuey_sync.cli.progress import progress_bar
from queuey_sync.cli.reporting import show
from queuey_sync.cli.signals import Signals
from queuey_sync.errors import ConfigurationError
from queuey_sync.queues import QueueSet

if TYPE_CHECKING:
    from queuey_sync.backends.sqlite.moving import Contents, Move


@click.command(add_help_option=False)
@takes_loaded_app
@option("source", "--from", metavar="URL", required=True, help="The store: sqlite:///path.")
@option("target", "--to", metavar="URL", required=True, help="The broker: amqp://…")
@option("as_json", "--json", is_flag=True, help="Print the summary as one JSON document.")
@help_option
@click.pass_obj
def move(signals: Signals, *, app: Queuey[Any], source: str, target: str, as_json: bool) -> Exit:
    """Carry the waiting, held and dead jobs of an app over from a store to a broker.

    A job is deleted from the store when the broker has confirmed it. It can be interrupted at any
    moment, and run again. Jobs that a worker has in hand stay, so stop the workers of the store
    first. Exits with 6 if any job is left in the store.
    """
    moving = _prepare(app, source, target)
    stopped: list[bool] = []  # appended to by a signal handler, on the thread that reads it
    signals.stop_with(lambda: stopped.append(True))
    with closing(app), closing(moving):
        total = sum(map(sum, moving.contents().values()))

        def progress() -> tuple[int, int]:
            moved = sum(moving.moved.values())
            return moved, max(moved, total)

        with progress_bar("moving", progress):
            while not stopped and moving.step():
                pass
        left = {name: queue for name, queue in moving.contents().items() if sum(queue)}
    show(_document(moving, left) if as_json else "\n".join(_lines(moving, left, app.queues)))
    return Exit.WORK_LEFT if left else Exit.SUCCESS


def _prepare(app: Queuey[Any], source: str, target: str) -> "Move":
    """Open both sides, and declare the queues on the other one."""
    if not target.startswith(("amqp:", "amqps:")):
        raise click.UsageError("--to: expected amqp://user:password@host:port/vhost")
    if not source.startswith("sqlite:"):
        raise click.UsageError(
            "--from: expected sqlite:///path, as nobody can list what a broker holds for later"
        )
    from queuey_sync.backends.rabbitmq.backend import RabbitMQBackend  # noqa: PLC0415 - on demand
    from queuey_sync.backends.sqlite.moving import Move  # noqa: PLC0415 - as above

    queues: type[QueueSet] = app.queues
    flag = "--to"
    try:
        app.connect_to(target)
        backend = app.backend()
        assert isinstance(backend, RabbitMQBackend)  # noqa: S101 - by its scheme
        flag = "--from"
        moving = Move(source, [member.full_name for member in queues], backend)
    except ConfigurationError as error:
        raise click.UsageError(f"{flag}: {str(error).removeprefix('url: ')}") from None
    app.producer()  # declares the queues
    return moving


def _lines(moving: "Move", left: "Mapping[str, Contents]", queues: type[QueueSet]) -> list[str]:
    moved = ", ".join(f"{count} {state}" for state, count in moving.moved.items())
    lines = [f"moved {sum(moving.moved.values())} jobs: {moved}"]
    for name, queue in left.items():
        counts = queue._asdict()
        found = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        stranger = "" if queues.by_name(name) else ", and the app has no such queue"
        lines.append(f"left on {name}: {found}{stranger}")
    return lines


def _document(moving: "Move", left: "Mapping[str, Contents]") -> str:
    counts = {name: queue._asdict() for name, queue in left.items()}
    return json.dumps({"moved": moving.moved, "left": counts})
