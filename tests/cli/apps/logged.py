"""Sets up its own logging when it is imported, as frameworks do."""

import logging

from shop import app  # type: ignore[import-not-found]

__all__ = ["app"]

logging.basicConfig(format="OWN %(levelname)s %(message)s", level=logging.WARNING)
