"""Jobs of a Django site: an app for ``INSTALLED_APPS``, and the command ``manage.py queuey``.

`apps.py` is where it begins, `conf.py` reads the settings, `database.py` looks after connections,
`on_commit.py` waits for transactions, and `tasks.py` is the back-end of Django's own tasks.
"""

from queuey_sync.contrib.django.conf import current_app
from queuey_sync.contrib.django.on_commit import enqueue_on_commit, publish_failed

__all__ = ["current_app", "enqueue_on_commit", "publish_failed"]
