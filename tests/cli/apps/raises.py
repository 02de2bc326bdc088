"""Raises what RAISES names when it is imported, as code that is no library may."""

import asyncio
import os
import sys


class Mute(Exception):
    """Has no text."""

    def __str__(self) -> str:
        """Fail."""
        raise SystemExit("no text")


match os.environ["RAISES"]:
    case "KeyboardInterrupt":
        raise KeyboardInterrupt
    case "SystemExit":
        sys.exit(0)
    case "CancelledError":
        raise asyncio.CancelledError
    case _:
        raise Mute
