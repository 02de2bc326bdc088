"""Has a URL of its own that is wrong."""

from shop import Queues  # type: ignore[import-not-found]

from queuey_sync import Queuey

app = Queuey(Queues, url="ftp://ada:S3cretWord@mq")
