"""A RabbitMQ cluster of three nodes on this machine, each of which can be killed by itself."""

from types import TracebackType
from typing import Any, Self

from tests.support.broker import Broker, PortMapper
from tests.support.waiting import eventually

_NODES = 3
_FORMATION = "cluster_formation"


class Cluster:
    """Three nodes; to be used as a context manager. Ports and data stay over a kill and a start."""

    def __init__(self) -> None:
        self._mapper = PortMapper()
        self.nodes: list[Broker] = []
        for number in range(_NODES):
            conf = {}
            if number:  # the first one begins alone, and the others join it
                conf = {
                    f"{_FORMATION}.peer_discovery_backend": "classic_config",
                    f"{_FORMATION}.classic_config.nodes.1": self.nodes[0].name,
                }
            self.nodes.append(Broker(conf=conf, mapper=self._mapper))

    def __enter__(self) -> Self:
        try:
            for node in self.nodes:
                node.start()
            eventually(lambda: len(self.running()) == _NODES, 60, "all nodes have joined")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill what runs, and delete its files."""
        for node in self.nodes:
            node.close()
        self._mapper.close()

    @property
    def urls(self) -> list[str]:
        """Those of the nodes, in order."""
        return [node.url for node in self.nodes]

    @property
    def version(self) -> tuple[int, ...]:
        """That of RabbitMQ."""
        found: str = next(node.api("overview") for node in self.nodes)["rabbitmq_version"]
        return tuple(int(part) for part in found.split(".")[:2])

    def running(self) -> set[str]:
        """The names of the nodes that run, as the first of them sees it."""
        for node in self.nodes:
            if node.is_running():
                return {one["name"] for one in node.api("nodes") if one["running"]}
        return set()

    def await_members(self, queue: str) -> None:
        """Wait until every node takes part in a quorum queue."""

        def all_online() -> bool:
            online = self._look(queue).get("online", [])
            assert sorted(online) == sorted(node.name for node in self.nodes)
            return True

        eventually(all_online, 60)

    def leader(self, queue: str) -> Broker:
        """The node that leads a quorum queue."""
        name = self._look(queue)["leader"]
        return next(node for node in self.nodes if node.name == name)

    def _look(self, queue: str) -> dict[str, Any]:
        node = next(node for node in self.nodes if node.is_running())
        found: dict[str, Any] = node.api(f"queues/%2F/{queue}")
        return found
