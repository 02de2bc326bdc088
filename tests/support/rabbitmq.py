"""Finding RabbitMQ on this machine, and installing it from Debian's packages when it is missing.

Standard library only; the nodes themselves are in `broker.py`.
"""

import itertools
import os
import re
import shutil
from pathlib import Path

from tests.support import debian

_LOG_PREFIX = re.compile(r"^\d{4}-\S+ \S+ \[\w+\] <\S+> ")
_DEBIAN_SBIN = Path("/usr/lib/rabbitmq/bin")
# Read here because the tests themselves run without any QUEUEY_ variable.
_GIVEN_SBIN = os.environ.get("QUEUEY_TEST_RABBITMQ")
"""The start scripts of a RabbitMQ to use in place of the installed one."""


class BrokerMissing(Exception):
    """There is no RabbitMQ on this machine, and it cannot be installed; says what to do."""


class BrokerFailed(Exception):
    """A node did not start or a command failed; holds the end of what it printed."""


def rabbitmq_sbin() -> Path:
    """The folder of RabbitMQ's own start scripts.

    Debian's commands on the PATH are wrappers which change the user to `rabbitmq`; the scripts
    under them run as whoever calls them, and keep to the folders that they are told.

    Raises:
        BrokerMissing: It is not installed.
    """
    if _GIVEN_SBIN:
        return Path(_GIVEN_SBIN)
    if (_DEBIAN_SBIN / "rabbitmq-server").exists():
        return _DEBIAN_SBIN
    found = shutil.which("rabbitmq-server")
    if found is None or shutil.which("epmd") is None:
        raise BrokerMissing(
            "no RabbitMQ is installed: install Debian's rabbitmq-server, or name a broker you may"
            " use, such as amqp://guest:guest@localhost/, by QUEUEY_TEST_URL (for the demo: --url)"
        )
    return Path(found).resolve().parent


def install_rabbitmq() -> None:
    """Install Debian's package when it is missing, without starting its service.

    Raises:
        BrokerMissing: It is missing, and this is not root on a Debian.
        BrokerFailed: The package could not be installed.
    """
    try:
        rabbitmq_sbin()
    except BrokerMissing:
        if not debian.can_install():
            raise
        try:
            debian.install("rabbitmq-server")
        except debian.InstallFailed as error:
            raise BrokerFailed(str(error)) from None


def complaint(output: str) -> str:
    """The few lines in which a node that did not start says why; the reports around them go."""
    before, failed, after = output.partition("BOOT FAILED")
    if not failed:
        # The Erlang virtual machine itself; what it prints after its complaint is its manual.
        return _lines(output.partition("\nUsage:")[0].splitlines())
    # Before it, errors are in the log, beside a banner; after it, the cause comes without a time,
    # until the virtual machine takes its leave.
    logged = [line for line in before.splitlines() if "[error]" in line]
    told = after.partition('{"Kernel pid terminated"')[0]
    return _lines([*logged, *(line for line in told.splitlines() if not _LOG_PREFIX.match(line))])


def _lines(lines: list[str]) -> str:
    plain = (_LOG_PREFIX.sub("", line).rstrip()[:200] for line in lines)
    told = dict.fromkeys(line for line in plain if line.strip("=") and line != "BOOT FAILED")
    return "\n".join(itertools.islice(told, 15))


def tail(text: str, lines: int = 40) -> str:
    """The last lines of what a program printed."""
    return "\n".join(text.splitlines()[-lines:])
