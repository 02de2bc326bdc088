"""A loop written by hand on pika, without threads, typed jobs or retries: what a library stands on.

The inline loop acks each message in its callback, as pika's own tutorial does. The batched one acks
every 32nd with ``multiple``, which it may because it runs one job after the other.
"""

import functools
import json
import signal
from collections.abc import Callable

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import Basic, BasicProperties

from scripts.benchmarks import recording

QUEUE = "bench.pika"
BATCH = 32


def _open() -> tuple[pika.BlockingConnection, BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(recording.URL))
    channel = connection.channel()
    arguments = {"x-max-priority": recording.LEVELS}
    channel.queue_declare(QUEUE, durable=True, arguments=arguments)
    return connection, channel


def _publish(channel: BlockingChannel, sent_ns: int) -> None:
    body = json.dumps({"text": recording.TEXT, "sent_ns": sent_ns}).encode()
    properties = BasicProperties(delivery_mode=2)
    channel.basic_publish("", QUEUE, body, properties, mandatory=True)


def load() -> None:
    """Fill the queue."""
    connection, channel = _open()
    for _ in range(recording.JOBS):
        _publish(channel, 0)
    connection.close()


def work(*, batch: int) -> None:
    """Drain it, with one ack for each `batch` messages."""
    connection, channel = _open()
    count = 0

    def on_message(
        channel: BlockingChannel, method: Basic.Deliver, _: BasicProperties, body: bytes
    ) -> None:
        nonlocal count
        recording.record(json.loads(body)["sent_ns"])
        count += 1
        if count % batch == 0:
            channel.basic_ack(method.delivery_tag or 0, multiple=batch > 1)

    def stop(_number: int, _frame: object) -> None:
        connection.add_callback_threadsafe(channel.stop_consuming)

    signal.signal(signal.SIGTERM, stop)
    channel.basic_qos(prefetch_count=recording.PREFETCH)
    channel.basic_consume(QUEUE, on_message)
    channel.start_consuming()
    if batch > 1:
        channel.basic_ack(0, multiple=True)
    connection.close()


def _publish_with(role: Callable[[Callable[[int], object]], None]) -> None:
    connection, channel = _open()
    channel.confirm_delivery()
    role(functools.partial(_publish, channel))
    connection.close()


if __name__ == "__main__":
    recording.play(
        {
            "load": load,
            "work": functools.partial(work, batch=1),
            "work-batched": functools.partial(work, batch=BATCH),
            "publish": functools.partial(_publish_with, recording.time_publishing),
            "trickle": functools.partial(_publish_with, recording.publish_now_and_then),
        }
    )
