"""Importing the package does nothing but import: all the rest waits until somebody asks for it."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.source import PACKAGE, ROOT, modules

EXTRAS = {"django", "django_tasks", "flask", "prometheus_client", "pytest"}
"""Packages that a module may need and that need not be installed."""

_ACTING = ("__main__", "pools.preload")
"""Modules that are run, not imported: commands, and what the forkserver is given."""

WATCH = """
import importlib, json, os, sys, threading

package, *names = sys.argv[1:]
effects = []

def guilty():
    # The nearest caller outside of Python's own code, if it belongs to the package.
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        top = name.partition(".")[0]
        if top in ("importlib", "_frozen_importlib_external"):
            return None
        if top not in sys.stdlib_module_names:
            return name if top == package else None
        frame = frame.f_back

def on_audit(event, arguments):
    if event.startswith(("open", "os.mkdir", "socket.", "subprocess.Popen", "sqlite3.connect")):
        if module := guilty():
            effects.append(f"{module}: {event}")

class Environment(type(os.environ)):
    def __getitem__(self, key):
        if module := guilty():
            effects.append(f"{module}: read the variable {key}")
        return super().__getitem__(key)

start = threading.Thread.start

def start_thread(thread):
    effects.append("a thread was started")
    start(thread)

os.environ.__class__ = Environment
threading.Thread.start = start_thread
sys.addaudithook(on_audit)
for name in names:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        effects.append(f"missing {error.name.partition('.')[0]}")
json.dump({"effects": effects, "modules": sorted(sys.modules)}, sys.stdout)
"""


def _import(package: str, *names: str, path: Path = ROOT) -> tuple[set[str], set[str]]:
    """Import modules in a fresh interpreter; what happened, and the packages that were loaded."""
    done = subprocess.run(
        [sys.executable, "-c", WATCH, package, *names],
        env={**os.environ, "PYTHONPATH": str(path)},
        stdout=subprocess.PIPE,
        check=True,
    )
    seen = json.loads(done.stdout)
    return set(seen["effects"]), {name.partition(".")[0] for name in seen["modules"]}


def test_importing_every_module_has_no_effect() -> None:
    """No module starts a thread, reads the environment, or touches a file or a socket."""
    effects, _ = _import(PACKAGE, *(name for name in modules() if not name.endswith(_ACTING)))
    assert effects - {f"missing {extra}" for extra in EXTRAS} == set()


def test_importing_the_package_loads_no_broker_client_and_no_framework() -> None:
    """A program that only declares jobs pays for none of what it does not use."""
    _, packages = _import(PACKAGE, PACKAGE)
    heavy = {"click", "concurrent_log_handler", "multiprocessing", "pika", "sqlite3", *EXTRAS}
    assert packages & heavy == set()


def test_an_effect_would_be_seen(tmp_path: Path) -> None:
    """The watch itself sees what a module does that it must not."""
    (tmp_path / "guilty.py").write_text(
        "import os, threading\n"
        "os.environ.get('HOME')\n"
        "open(os.devnull).close()\n"
        "threading.Thread(target=id, args=[1]).start()\n"
    )
    effects, _ = _import("guilty", "guilty", path=tmp_path)
    assert effects == {
        "a thread was started",
        "guilty: open",
        "guilty: read the variable HOME",
    }
