"""The import graph: no cycle, one direction, and other people's packages only in their places.

Every import counts: those under TYPE_CHECKING and those inside functions tie modules together, too.
To add a module of a new kind, or a dependency, put it into the tables here.
"""

import ast
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.support.source import PACKAGE, modules, tree_of

LAYERS = (
    (
        "durations",
        "errors",
        "observe.escaping",
        "observe.notify",
        "observe.stacks",
        "observe.status",
    ),
    ("shutdown", "retrying"),
    ("context", "handlers", "jobs", "queues", "retry"),
    ("envelope",),
    ("backends.base", "pools.base"),
    ("backends", "pools", "producer"),
    ("worker",),
    ("observe",),
    ("__main__", "app", "cli", "contrib", "testing"),
    ("",),
)
"""From the ground up. A name stands for a module and all below it; the longest that fits counts."""

OWN_KNOWLEDGE = {"shutdown": ("durations",), "durations": (), "errors": ("durations",)}
"""Modules that are usable alone, and all that they may import of ours."""

THIRD_PARTY = {
    "click": ("cli", "contrib"),
    "concurrent_log_handler": ("cli",),
    "django": ("contrib.django",),
    "django_tasks": ("contrib.django",),
    "flask": ("contrib.flask",),
    "msgspec": ("context", "envelope", "jobs", "pools.invoke"),
    "pika": ("backends.rabbitmq",),
    "portalocker": ("cli", "worker.drain"),
    "prometheus_client": ("observe.metrics",),
    "pytest": ("testing",),
    "pythonjsonlogger": ("cli",),
    "tenacity": ("backends.rabbitmq", "retrying"),
}
"""Every package that is not Python's, and where alone it may be imported."""


def _imported(module: str) -> Iterator[str]:
    """The full names of everything that a module imports: modules, or names inside them."""
    is_package = modules()[module].name == "__init__.py"
    for node in ast.walk(tree_of(modules()[module])):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                kept = len(parts) - node.level + is_package
                base = ".".join([*parts[:kept], *filter(None, [base])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _graph() -> dict[str, set[str]]:
    """For each module of ours, those of ours that it imports; names without the package's."""

    def module_of(name: str) -> str:
        while name not in modules():
            name = name.rpartition(".")[0]
        return name

    return {
        _short(module): {
            _short(module_of(name))
            for name in _imported(module)
            if name.partition(".")[0] == PACKAGE and module_of(name) != module
        }
        for module in modules()
    }


def _short(module: str) -> str:
    return module.removeprefix(PACKAGE).removeprefix(".")


def _is_under(module: str, name: str) -> bool:
    return not name or module == name or module.startswith(f"{name}.")


def _layer(module: str) -> int:
    fitting = [
        (len(name), number)
        for number, names in enumerate(LAYERS)
        for name in names
        if (_is_under(module, name) if name else not module)
    ]
    assert fitting, f"{module}: put it into a layer of LAYERS"
    return max(fitting)[1]


def test_no_module_imports_itself_in_a_circle() -> None:
    """The modules can be put in an order in which each one needs only those before it."""
    try:
        TopologicalSorter(_graph()).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


def test_imports_go_one_way() -> None:
    """A module imports from its own layer and from those below."""
    upward = [
        f"{module} -> {imported}"
        for module, targets in _graph().items()
        for imported in targets
        if _layer(imported) > _layer(module)
    ]
    assert upward == []


@pytest.mark.parametrize("module", OWN_KNOWLEDGE)
def test_what_is_usable_alone_knows_little(module: str) -> None:
    """These modules import no more of ours than the table says."""
    graph = _graph()
    if module in graph:
        assert graph[module] <= set(OWN_KNOWLEDGE[module])


def test_other_packages_stay_in_their_places() -> None:
    """Each package that is not Python's is imported only where the table allows it."""
    wrong = [
        f"{module} -> {package}"
        for module in modules()
        for package in {name.partition(".")[0] for name in _imported(module)}
        if package not in sys.stdlib_module_names
        and package != PACKAGE
        and not any(_is_under(_short(module), place) for place in THIRD_PARTY.get(package, ()))
    ]
    assert wrong == []


@pytest.mark.parametrize("place", ["contrib.django", "contrib.flask"])
def test_nobody_knows_a_framework_but_its_own_package(place: str) -> None:
    """Neither another framework's nor the rest of the library; either can be taken away."""
    graph = _graph()
    assert any(_is_under(module, place) for module in graph)
    users = [module for module, known in graph.items() if any(_is_under(k, place) for k in known)]
    assert [module for module in users if not _is_under(module, place)] == []
