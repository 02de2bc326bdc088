"""The settings of the site of these tests; the tests say by variables what they need."""

import os

import django

SECRET_KEY = "for tests alone"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["queuey_sync.contrib.django", "things"]
if django.VERSION < (6, 0):
    INSTALLED_APPS.append("django_tasks")

DATA = os.environ.get("THINGS_DATA", ".")
if "PGPORT" in os.environ:
    DATABASE = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ["PGDATABASE"],
        "OPTIONS": {"application_name": "things"},
    }
else:
    DATABASE = {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{DATA}/site.sqlite3"}
DATABASES = {
    "default": DATABASE
    | {
        "CONN_MAX_AGE": int(os.environ.get("THINGS_MAX_AGE", "0")),
        "CONN_HEALTH_CHECKS": "THINGS_HEALTH_CHECKS" in os.environ,
    },
    "other": {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{DATA}/other.sqlite3"},
}

QUEUEY = {
    "APP": os.environ.get("THINGS_APP", "things.queues:app"),
    "URL": os.environ.get("THINGS_URL", f"sqlite:///{DATA}/queuey.sqlite3"),
    "DEFAULTS": {"concurrency": 2},
}
TASKS = {
    "default": {
        "BACKEND": "queuey_sync.contrib.django.tasks.QueueyBackend",
        "QUEUES": ["default", "flat"],
    },
    "on_commit": {
        "BACKEND": "queuey_sync.contrib.django.tasks.QueueyBackend",
        "QUEUES": ["default"],
        "OPTIONS": {"ENQUEUE_ON_COMMIT": True},
    },
}
