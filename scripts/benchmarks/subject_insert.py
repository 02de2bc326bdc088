"""No library: a loop that inserts a row and commits it, on the schema of a list of bodies.

A body has the fields of an envelope, so that as many bytes go to the disk, but no id is made.
"""

import json
import sqlite3
from urllib.parse import parse_qs, urlsplit

from scripts.benchmarks import recording

_ENVELOPE = {
    "job_id": "00000000-0000-0000-0000-000000000000",
    "job_type": "bench.note",
    "queue": "bench.queuey",
    "attempt": 1,
    "enqueued_at_ms": 1_767_225_600_000,
    "deferrals": 0,
    "priority": 0,
}


def publish() -> None:
    """Insert one by one."""
    url = urlsplit(recording.URL)
    database = sqlite3.connect(url.path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    [synchronous] = parse_qs(url.query)["synchronous"]
    database.execute(f"PRAGMA synchronous = {synchronous}")
    database.execute("CREATE TABLE bodies (id INTEGER PRIMARY KEY, body BLOB NOT NULL)")

    def insert(sent_ns: int) -> None:
        fields = {"payload": {"text": recording.TEXT, "sent_ns": sent_ns}, **_ENVELOPE}
        body = json.dumps(fields, separators=(",", ":")).encode()
        database.execute("INSERT INTO bodies (body) VALUES (?)", (body,))

    recording.time_publishing(insert)
    database.close()


if __name__ == "__main__":
    recording.play({"publish": publish})
