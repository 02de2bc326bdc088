"""Importing this fails in code of its own, with a password in sight."""


def settings() -> str:
    """What a settings module may do wrong."""
    raise LookupError("no settings for amqp://ada:S3cretWord@mq/")


settings()
