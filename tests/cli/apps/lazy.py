"""Holds an object that fails when it is looked at, as lazy ones of frameworks do."""

from shop import app  # type: ignore[import-not-found]

__all__ = ["app", "thing"]


class Lazy:
    """Needs a set-up that is not there."""

    def __getattribute__(self, name: str) -> object:
        """Fail, for the class, too, that isinstance() asks for."""
        raise RuntimeError("not set up")


thing = Lazy()
