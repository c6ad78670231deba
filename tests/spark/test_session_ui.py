"""`wm.session(ui=True)` opens Spark's UI on the loopback interface and says where it is."""

from __future__ import annotations

import subprocess
import sys

from .sessions import quick_environment

PROGRAM = """
import os, urllib.request
import watersmeet as wm

spark = wm.session(ui=True, spark_master="local[1]")
address = spark.sparkContext.uiWebUrl
port = int(address.rpartition(":")[2])
assert urllib.request.urlopen(address).status == 200
listening = [line.split()[1] for name in ("tcp", "tcp6") for line in open(f"/proc/net/{name}").readlines()[1:]]
hosts = {host for host, _, at in (each.partition(":") for each in listening) if int(at, 16) == port}
print(address, sorted(hosts), os.environ.get("SPARK_LOCAL_IP"))
"""


def test_the_ui_listens_on_loopback_only_and_its_address_is_printed() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, env=quick_environment()
    )
    assert ran.returncode == 0, ran.stderr
    address, hosts = ran.stdout.split(maxsplit=1)
    assert address.startswith("http://127.0.0.1:")
    assert f"Spark's UI: {address}\n" in ran.stderr
    loopback = {"0100007F", "0000000000000000FFFF00000100007F"}  # 127.0.0.1 as Linux writes it
    shown, environment = hosts.rsplit(maxsplit=1)
    assert {host.strip("'[],") for host in shown.split()} <= loopback
    assert environment == "None"
