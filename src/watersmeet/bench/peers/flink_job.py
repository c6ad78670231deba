"""Runs one SQL job in Flink's own environment: `python flink_job.py job.json` prints `{"seconds": …, "peak_bytes": …}`.

This file is executed by another Python than ours, so it imports nothing of Watersmeet.
"""

# mypy: ignore-errors
# pyflink is not among our packages, so there is nothing to check its calls against.

import json
import os
import sys
import time
from pathlib import Path


def main(job):
    from pyflink.table import EnvironmentSettings, TableEnvironment

    flink = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    flink.get_config().set("parallelism.default", str(job["parallelism"]))
    flink.get_config().set("table.local-time-zone", "UTC")
    for table in job["tables"]:
        flink.execute_sql(source(table))
    flink.execute_sql(sink(job["sink"]))
    start = time.perf_counter()
    flink.execute_sql(f"INSERT INTO sink {job['select']}").wait()
    print(json.dumps({"seconds": time.perf_counter() - start, "peak_bytes": peak_bytes()}))


def source(table):
    columns = ", ".join(f"`{name}` {kind}" for name, kind in table["columns"])
    time_ms = f"TO_TIMESTAMP_LTZ(`{table['time']}` / 1000, 3)"
    return (
        f"CREATE TABLE `{table['name']}` ({columns}, et AS {time_ms}, WATERMARK FOR et AS et) "
        f"WITH ('connector' = 'filesystem', 'path' = '{table['path']}', 'format' = 'csv')"
    )


def sink(about):
    if about is None:
        return "CREATE TABLE sink (x BIGINT) WITH ('connector' = 'blackhole')"
    columns = ", ".join(f"`{name}` {kind}" for name, kind in about["columns"])
    return f"CREATE TABLE sink ({columns}) WITH ('connector' = 'filesystem', 'path' = '{about['path']}', 'format' = 'csv')"


def peak_bytes():
    """The most that any child of this process held: the Java process with Flink's cluster in it."""
    peaks = [0]
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        except OSError:  # it ended while we looked
            continue
        if int(fields["PPid"]) == os.getpid() and "VmHWM" in fields:
            peaks.append(int(fields["VmHWM"].split()[0]) * 1024)
    return max(peaks)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
