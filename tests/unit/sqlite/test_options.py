"""What the URL and the keywords of a store may say."""

from datetime import timedelta
from pathlib import Path

import pytest

from queuey_sync import QueueSet, Queuey, connect, queue
from queuey_sync.backends.sqlite.backend import SQLiteBackend
from queuey_sync.backends.sqlite.options import Options, read_url
from queuey_sync.errors import ConfigurationError


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:////var/jobs.db", "/var/jobs.db"),
        ("sqlite:////var/a%20b%3Fc%23d%25.db", "/var/a b?c#d%.db"),
        ("sqlite:////var/x/../jobs", "/var/jobs"),
        ("sqlite:////var/~/jobs", "/var/~/jobs"),
        ("sqlite:////var/j%C3%B6bs", "/var/jöbs"),
    ],
)
def test_the_path_of_a_url(url: str, path: str) -> None:
    """What follows the third slash is the path, percent-decoded; nothing else is replaced."""
    assert path == read_url(url, {})[0]


def test_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path counts from the folder in which the backend was made."""
    monkeypatch.chdir(tmp_path)
    backend = connect("sqlite:///sub/jobs.db")
    monkeypatch.chdir("/")
    assert isinstance(backend, SQLiteBackend)
    assert str(tmp_path / "sub/jobs.db") == backend.path


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("sqlite:", "names no file"),
        ("sqlite:jobs.db", "names no file"),
        ("sqlite://jobs.db", "names no file"),
        ("sqlite://host/jobs.db", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite:///folder/", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite:///a%00b", "names no file"),
        ("sqlite:///jobs.db#1", "# written as %23"),
        ("sqlite:///~/jobs.db", "~ is not expanded"),
        ("sqlite:///a?nonsense=1", "unknown option 'nonsense'"),
        ("sqlite:///a?busy_timeout=1s&busy_timeout=2s", "busy_timeout: given twice"),
        ("sqlite:///a?synchronous=off", "synchronous: expected 'normal' or 'full'"),
        ("sqlite:///a?synchronous=", "synchronous: expected 'normal' or 'full'"),
        ("sqlite:///a?busy_timeout=soon", "busy_timeout: 'soon' is no duration"),
        ("sqlite:///a?busy_timeout=0", "busy_timeout: '0' must be longer than zero"),
        ("sqlite:///a?lease=999ms", "lease: '999ms' is shorter than 1s"),
        ("sqlite:///a?keep_dead_letters=0", "keep_dead_letters: '0' must be longer"),
    ],
)
def test_what_is_refused(url: str, complaint: str) -> None:
    """A URL that names no file, and a wrong option in it, are refused at once, by name."""
    with pytest.raises(ConfigurationError) as caught:
        connect(url)
    assert complaint in str(caught.value)


def test_options_of_url_and_keywords() -> None:
    """An option may stand in either, but not in both."""
    expected = Options(synchronous="full", busy_timeout="3s", lease=5)
    _, options = read_url("sqlite:///a?synchronous=full&busy_timeout=3s", {"lease": 5})
    assert expected == options
    with pytest.raises(ConfigurationError, match="lease: given twice"):
        connect("sqlite:///a?lease=5s", lease="5s")
    with pytest.raises(ConfigurationError, match="unknown option 'colour'"):
        connect("sqlite:///a", colour="red")


def test_options_are_parsed() -> None:
    """The options as the code counts with them."""
    options = Options(busy_timeout="1500ms", lease="1m", keep_dead_letters="7d")
    assert timedelta(seconds=1.5) == options.busy_limit
    assert (60_000, 604_800_000) == (options.lease_ms, options.keep_dead_ms)
    assert Options().keep_dead_ms is None


def test_making_an_app_touches_no_file(tmp_path: Path) -> None:
    """Nothing is opened or made before the first use."""

    class Queues(QueueSet):
        MAIL = queue()

    app = Queuey(Queues, url=f"sqlite:///{tmp_path}/jobs.db")
    app.backend()
    assert [] == list(tmp_path.iterdir())
    app.producer()
    assert (tmp_path / "jobs.db").exists()
    app.close()
