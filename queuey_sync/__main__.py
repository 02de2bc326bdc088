"""The command ``queuey-sync``, which ``python -m queuey_sync`` is too.

It listens for signals before it imports anything that takes time: the kernel drops a signal for
which process 1 of a container has no handler yet. The commands are in `cli/`; next: `commands.py`.
"""

import sys
from typing import NoReturn

from queuey_sync.cli.signals import Signals


def main() -> NoReturn:
    """Run the command line of this process, and end it with one of the codes of `cli/exits.py`."""
    signals = Signals(stop_is_success=sys.argv[1:2] == ["worker"])
    signals.listen()
    if sys.argv[1:2] in (["health"], ["jobs"]):
        from queuey_sync.cli.commands.health import probe  # noqa: PLC0415

        sys.exit(probe(sys.argv[1:]))
    # Only now: these imports take ten times as long as all that came before them.
    from queuey_sync.cli.exits import leave  # noqa: PLC0415
    from queuey_sync.cli.main import run  # noqa: PLC0415
    from queuey_sync.cli.reporting import never_fail_on_stderr  # noqa: PLC0415

    never_fail_on_stderr()
    leave(run(signals))


if __name__ == "__main__":
    main()
