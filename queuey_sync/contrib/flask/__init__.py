"""Jobs of a Flask app: `FlaskQueuey`, and the command ``flask queuey``.

`extension.py` is the object that the app shares with its jobs, `contexts.py` what is around each of
them, also in a child process, and `command.py` the command.
"""

from queuey_sync.contrib.flask.extension import FlaskQueuey

__all__ = ["FlaskQueuey"]
