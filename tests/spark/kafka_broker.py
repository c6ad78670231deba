"""A Kafka broker of one node in a process of its own, on free ports of this machine. `make kafka` fetches it."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

BUILD = Path(__file__).parents[2] / "build" / "kafka"
_JAVA = ("java", "-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_POLL_S = 0.1
_CLUSTER_ID = "d2F0ZXJzbWVldC10ZXN0cw"
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={folder}/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=false
"""


def is_fetched() -> bool:
    """Return whether the broker and the connector are there."""
    return all((BUILD / part / ".complete").exists() for part in ("broker", "connector"))


def list_connector_jars() -> str:
    """Return the jars of Spark's connector, as the setting `spark.jars` takes them."""
    return ",".join(map(str, sorted((BUILD / "connector").glob("*.jar"))))


@dataclass
class Broker:
    """A broker that can be stopped and started again. `address` is host and port."""

    folder: Path
    port: int
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the broker and wait until it listens."""
        with (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", "server.properties"), cwd=self.folder, stdout=log, stderr=log
            )
        while self._process.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(_POLL_S)
        raise AssertionError((self.folder / "broker.log").read_text(errors="replace")[-4000:])

    def stop(self) -> None:
        """Stop the broker; its messages stay."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def format_storage(self) -> None:
        subprocess.run(
            self._command("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", "server.properties"),
            cwd=self.folder,
            check=True,
            capture_output=True,
        )

    @staticmethod
    def _command(main: str, *arguments: str) -> list[str]:
        options = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{BUILD}/broker/*")
        return [*_JAVA, *options, main, *arguments]


@contextmanager
def run_broker(folder: Path) -> Iterator[Broker]:
    """Run a new broker within the context; its files are in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    port, controller = _find_free_ports(2)
    properties = _PROPERTIES.format(port=port, controller=controller, folder=folder)
    (folder / "server.properties").write_text(properties)
    broker = Broker(folder, port)
    broker.format_storage()
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


def _find_free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
