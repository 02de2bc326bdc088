"""The settings of the shop; QUEUEY is what this example is about."""

import os
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("SHOP_DATA", BASE_DIR))

# A real site gets these from its environment, and nowhere else.
SECRET_KEY = os.environ.get("SHOP_SECRET_KEY", "only for this example: " + "0123456789" * 5)
DEBUG = bool(os.environ.get("SHOP_DEBUG"))
ALLOWED_HOSTS = os.environ.get("SHOP_HOSTS", "localhost,127.0.0.1").split(",")

INSTALLED_APPS = ["queuey_sync.contrib.django", "orders"]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "config.middleware.RequestId",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "config.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": DATA / "shop.sqlite3",
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
        "CONN_MAX_AGE": 600,
    }
}

QUEUEY = {
    "APP": "orders.queues:app",
    "URL": os.environ.get("SHOP_QUEUEY_URL", f"sqlite:///{DATA}/queuey.sqlite3"),
    "DEFAULTS": {"concurrency": 4, "job_timeout": "1m"},
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"job": {"()": "queuey_sync.JobLogFilter"}},
    "formatters": {
        "line": {
            "()": "logging.Formatter",
            "fmt": "{levelname} {name}: {message} [{correlation_id}]",
            "style": "{",
            "defaults": {"correlation_id": "-"},
        }
    },
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "filters": ["job"], "formatter": "line"}
    },
    "root": {"handlers": ["stderr"], "level": "INFO"},
}

# What `check --deploy` asks for; a site behind a proxy needs SECURE_PROXY_SSL_HEADER as well.
SECURE_SSL_REDIRECT = not DEBUG
SECURE_HSTS_SECONDS = 3600
SECURE_HSTS_INCLUDE_SUBDOMAINS = True
SECURE_HSTS_PRELOAD = True
SESSION_COOKIE_SECURE = True
CSRF_COOKIE_SECURE = True
