"""``queuey-sync queues``: what waits on an app's queues, once or again and again.

It only looks: nothing is taken, declared or changed. What a backend can tell is `Depth`, in
`backends/base.py`; what is shown of it is decided here.
"""

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NoReturn

import click

from queuey_sync.app import Queuey
from queuey_sync.backends.base import Backend, Depth
from queuey_sync.backends.memory.backend import MemoryBackend
from queuey_sync.cli.options import help_option, option, takes_app
from queuey_sync.cli.reporting import rough, show, terminal_width
from queuey_sync.cli.signals import Signals
from queuey_sync.cli.working import select_queues
from queuey_sync.errors import ConfigurationError
from queuey_sync.queues import QueueConfig, QueueSet

Look = Callable[[], Mapping[str, Depth]]
"""Asks the backend; gives what each queue holds, by its full name."""

_INTERVAL_SECONDS = 2.0
_HEADINGS = ("queue", "ready", "held", "dead", "consumers", "next due")
_SHORTEST_NAME = 8
"""Characters of a name that are left however narrow a terminal is."""
_GAP = "  "
_SECOND = timedelta(seconds=1)


def _to_management_url(
    _context: click.Context, _parameter: click.Parameter, url: str | None
) -> str | None:
    """Before the app is imported, as for all mistakes of the command line."""
    from queuey_sync.backends.rabbitmq.management import Management  # noqa: PLC0415 - it needs pika

    try:
        if url is not None:
            Management(url)
    except ConfigurationError as error:
        raise click.BadParameter(str(error).partition(": ")[2]) from None
    return url


@click.command(add_help_option=False)
@takes_app
@option(
    "names",
    "-Q",
    "--queues",
    metavar="NAMES",
    help="The queues to show, separated by commas, with or without the prefix of their set; all of"
    " them by default.",
)
@option(
    "--management-url",
    callback=_to_management_url,
    metavar="URL",
    help="RabbitMQ's management API, as http://user:password@host:15672, which alone can count what"
    " is held there; its figures may be 5 s old.",
)
@option("--watch", is_flag=True, help="Look again every 2 seconds, until a signal ends it.")
@option("as_json", "--json", is_flag=True, help="Print one JSON document a look, each in one line.")
@help_option
@click.pass_obj
def queues(
    signals: Signals,
    *,
    app: Queuey[Any],
    names: str | None,
    management_url: str | None,
    watch: bool,
    as_json: bool,
) -> None:
    """Show what is on the queues of an app; nothing is taken or changed.

    ready is what waits for a worker, held are retries, delays and deferrals that are not due yet,
    dead are dead letters. What the broker cannot tell is shown as unknown.
    """
    queue_set: type[QueueSet] = app.queues
    members = list(queue_set) if names is None else select_queues(queue_set, names)
    look = _looking(app, {member.full_name: member.config for member in members}, management_url)
    if watch:
        signals.stop_is_success = True
        _watch(look, as_json=as_json)
    found = look()
    show(
        _document(found)
        if as_json
        else "\n".join(table(found, datetime.now(UTC), terminal_width()))
    )
    app.close()


def _looking(
    app: Queuey[Any], configs: Mapping[str, QueueConfig], management_url: str | None
) -> Look:
    backend = app.backend()
    if isinstance(backend, MemoryBackend):
        raise click.UsageError(
            "on memory: each process has queues of its own, which no other can see; if the app"
            " itself says memory:, name the broker of the workers with --url"
        )
    wanted = list(configs.values())
    held = None if management_url is None else partial(_held_by(backend), wanted, management_url)

    def look() -> Mapping[str, Depth]:
        depths = backend.depths(wanted)
        if held is not None:
            pairs = zip(depths, held(), strict=True)
            depths = [replace(depth, held=count) for depth, count in pairs]
        return dict(zip(configs, depths, strict=True))

    return look


def _held_by(backend: Backend) -> Callable[[Sequence[QueueConfig], str], list[int | None]]:
    from queuey_sync.backends.rabbitmq.backend import RabbitMQBackend  # noqa: PLC0415 - as above

    if not isinstance(backend, RabbitMQBackend):
        raise click.UsageError("--management-url: it is for RabbitMQ only")
    return backend.held


def _watch(look: Look, *, as_json: bool) -> NoReturn:
    """Show what is there again and again; on a terminal each table takes the place of the last."""
    in_place = not as_json and terminal_width() is not None
    erase = ""
    while True:
        found = look()
        if as_json:
            show(_document(found))
        else:
            now = datetime.now(UTC)
            shown_at = f"{now.astimezone():%Y-%m-%d %H:%M:%S}"
            lines = [shown_at, *table(found, now, terminal_width()), ""]
            if in_place:
                lines = _fitting(lines)
            show(erase + "\n".join(lines))
            erase = f"\x1b[{len(lines)}F\x1b[J" if in_place else ""
        time.sleep(_INTERVAL_SECONDS)  # a signal ends the process, so nothing has to wake it


def _fitting(lines: list[str]) -> list[str]:
    """The lines that a terminal can show at once: others could not be replaced."""
    size = shutil.get_terminal_size()
    room = max(2, size.lines - 1)
    if len(lines) > room:
        lines = [*lines[: room - 1], "..."]
    return [line[: size.columns] for line in lines]


def _document(found: Mapping[str, Depth]) -> str:
    return json.dumps({"queues": {name: _as_json(depth) for name, depth in found.items()}})


def _as_json(depth: Depth) -> dict[str, int | str | None]:
    due = depth.next_due
    return {
        "ready": depth.ready,
        "held": depth.held,
        "dead": depth.dead,
        "consumers": depth.consumers,
        "next_due": None if due is None else due.astimezone(UTC).isoformat(timespec="milliseconds"),
    }


def table(found: Mapping[str, Depth], now: datetime, width: int | None) -> list[str]:
    """The lines of a table: headings, a line for each queue, and one of totals if there are more.

    Args:
        found: What each queue holds, by its name.
        now: What "in 4m 20s" is counted from.
        width: How long a line may be; the end of long names is cut. None is without a limit.
    """
    rows = [_HEADINGS, *(_row(name, depth, now) for name, depth in found.items())]
    if len(found) > 1:
        total = _row("total", _sum(list(found.values())), now)
        # A worker is a consumer of each of its queues, so their sum would mean nothing.
        rows.append((*total[:4], "", total[5]))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if width is not None:
        figures = sum(len(_GAP) + figure for figure in widths[1:])
        widths[0] = min(widths[0], max(_SHORTEST_NAME, width - figures))
    return [_line(row, widths) for row in rows]


def _row(name: str, depth: Depth, now: datetime) -> tuple[str, ...]:
    held = "unknown" if depth.held is None else str(depth.held)
    return name, str(depth.ready), held, str(depth.dead), str(depth.consumers), _due(depth, now)


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    name, *figures = row
    if len(name) > widths[0]:
        name = name[: widths[0] - 3] + "..."
    right = [figure.rjust(width) for figure, width in zip(figures, widths[1:], strict=True)]
    return _GAP.join([name.ljust(widths[0]), *right])


def _sum(depths: list[Depth]) -> Depth:
    """All queues together: what is unknown of one is unknown of all."""
    held = [depth.held for depth in depths if depth.held is not None]
    due = [depth.next_due for depth in depths if depth.next_due is not None]
    due_known = all(depth.next_due is not None or depth.held == 0 for depth in depths)
    return Depth(
        ready=sum(depth.ready for depth in depths),
        held=sum(held) if len(held) == len(depths) else None,
        dead=sum(depth.dead for depth in depths),
        consumers=0,
        next_due=min(due) if due and due_known else None,
    )


def _due(depth: Depth, now: datetime) -> str:
    """When the first of the held ones is due, in the two largest units that matter."""
    if depth.next_due is None:
        return "-" if depth.held == 0 else "unknown"
    seconds = -((now - depth.next_due) // _SECOND)
    if seconds <= 0:
        return "now"
    return f"in {rough(seconds)}"
