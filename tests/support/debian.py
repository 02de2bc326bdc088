"""Installing Debian's packages, without starting the services that are in them.

Standard library only.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path


class InstallFailed(Exception):
    """The package cannot be installed here; holds the end of what was printed."""


def can_install() -> bool:
    """Whether this is root on a Debian."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(*packages: str) -> None:
    """Install packages.

    Raises:
        InstallFailed: They could not be installed.
    """
    with _services_not_started():
        _apt_get("update")
        _apt_get("install", "--yes", "--no-install-recommends", *packages)


@contextlib.contextmanager
def _services_not_started() -> Iterator[None]:
    """Debian asks this file before a package starts its service; one that exists is left alone."""
    policy = Path("/usr/sbin/policy-rc.d")
    ours = not policy.exists()
    if ours:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        yield
    finally:
        if ours:
            policy.unlink(missing_ok=True)


def _apt_get(*arguments: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    command = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", *arguments]
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        end = "\n".join(done.stdout.splitlines()[-40:])
        raise InstallFailed(f"{' '.join(command)} failed:\n{end}")
