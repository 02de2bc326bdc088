"""No library: a loop that inserts a row and commits it, on the schema of a list of bodies."""

import json
import sqlite3
from urllib.parse import parse_qs, urlsplit

from scripts.benchmarks import recording


def publish() -> None:
    """Insert one by one."""
    url = urlsplit(recording.URL)
    database = sqlite3.connect(url.path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    [synchronous] = parse_qs(url.query)["synchronous"]
    database.execute(f"PRAGMA synchronous = {synchronous}")
    database.execute("CREATE TABLE bodies (id INTEGER PRIMARY KEY, body BLOB NOT NULL)")

    def insert(sent_ns: int) -> None:
        body = json.dumps({"text": recording.TEXT, "sent_ns": sent_ns}).encode()
        database.execute("INSERT INTO bodies (body) VALUES (?)", (body,))

    recording.time_publishing(insert)
    database.close()


if __name__ == "__main__":
    recording.play({"publish": publish})
