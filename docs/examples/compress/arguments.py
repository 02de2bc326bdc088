"""What the demo is asked to do: its command line, checked, and the files it is to compress."""

import argparse
import contextlib
import os
import sys
import sysconfig
from pathlib import Path

LIBRARY = Path(sysconfig.get_paths()["stdlib"])
NO_SOURCE = {"__pycache__", "site-packages", "dist-packages"}
POISON = "no-such-file-on-purpose"
"""There is no such file, so its job becomes a dead letter."""


class Unusable(Exception):
    """Something that the demo was given does not work; says what, and what would."""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/demo",
        description="Compresses a folder of files, one job a file, through a store in the output"
        " folder or RabbitMQ. Stop it with Ctrl-C and start it again: it goes on where it was.",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="the files to compress (default: the sources of Python's standard library)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("demo-output"),
        help="where the compressed files, the records and the waiting jobs go"
        " (default: %(default)s)",
    )
    parser.add_argument("--limit", type=_number, metavar="N", help="take the first N files only")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--url", help="where jobs wait (default: $QUEUEY_URL, else a store in the output folder)"
    )
    where.add_argument(
        "--broker", action="store_true", help="start a private RabbitMQ, and have jobs wait there"
    )
    parser.add_argument(
        "--pool",
        choices=("thread", "process"),
        default="thread",
        help="where jobs run (default: %(default)s); run it once with each, and it compares them",
    )
    parser.add_argument("--fresh", action="store_true", help="forget earlier runs first")
    return parser.parse_args()


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of files, 1 or more")
    return int(text)


def given_url(options: argparse.Namespace) -> str | None:
    """Where jobs are to wait; None for a private broker or a store of the demo's own."""
    url: str | None = options.url
    if url is None and not options.broker:
        url = os.environ.get("QUEUEY_URL") or None
    if url is not None and not url.startswith(("amqp://", "amqps://", "sqlite:///")):
        # Whatever it is, it may hold a password.
        raise Unusable(
            "--url (or QUEUEY_URL): expected sqlite:///path or amqp://user:password@host:port/vhost"
        )
    return url


def sources(options: argparse.Namespace) -> list[Path]:
    """The files to compress, and one more that does not exist: its job will be a dead letter."""
    folder: Path = (options.folder or LIBRARY).absolute()
    try:
        next(folder.iterdir(), None)
    except OSError as error:
        raise Unusable(f"--folder {folder}: {error.strerror}; give a folder of files") from None
    out = options.out.resolve()
    files = [
        file
        for file in sorted(folder.resolve().rglob("*" if options.folder else "*.py"))
        if _is_source(file, folder.resolve()) and not file.is_relative_to(out)
    ]
    named = [file for file in files if _is_text(file)]
    if left_out := [file for file in files if not _is_text(file)]:
        print(
            f"demo: files whose names are not UTF-8 are left out, as a job is text: "
            f"{len(left_out)}; the first is {left_out[0]}",
            file=sys.stderr,
        )
    if not named:
        raise Unusable(f"--folder {folder}: no files in it that can be taken; give another one")
    return [*named[: options.limit], folder.resolve() / POISON]


def out_folder(options: argparse.Namespace) -> Path:
    """The folder for the results, made if need be."""
    out: Path = options.out.resolve()
    if not _is_text(out):
        raise Unusable(f"--out {out}: its name is not UTF-8; give another folder")
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / ".gitignore").write_text("*\n")
    except OSError as error:
        raise Unusable(f"--out {out}: {error.strerror}; give another folder") from None
    return out


def _is_source(file: Path, folder: Path) -> bool:
    with contextlib.suppress(OSError):  # a folder that may be listed but not entered
        return file.is_file() and NO_SOURCE.isdisjoint(file.relative_to(folder).parts)
    return False


def _is_text(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True
