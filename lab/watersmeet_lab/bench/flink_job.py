"""Run one SQL query in Flink's own environment: `python flink_job.py job.json`.

Prints `{"seconds": …, "scan_seconds": …, "peak_bytes": …}`. The query runs twice in one Java process: first into files,
so that its rows can be checked; then, when everything is warm, into a sink that discards the rows. The second run is
timed.

Another Python executes this file, so it imports nothing from Watersmeet.
"""

# mypy: ignore-errors
# pyflink is not installed here, so mypy cannot check its calls.

import json
import os
import sys
import time
from pathlib import Path


def main(job):
    from pyflink.table import EnvironmentSettings, TableEnvironment

    flink = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in job["settings"].items():
        flink.get_config().set(name, value)
    for table in job["tables"]:
        flink.execute_sql(source(table))
    files = f"'connector' = 'filesystem', 'path' = '{job['path']}', 'format' = 'csv'"
    run(flink, "checked", files, job["columns"], job["select"])
    seconds = run(flink, "timed", "'connector' = 'blackhole'", job["columns"], job["select"])
    scan = " UNION ALL ".join(f"SELECT `{table['time']}` FROM `{table['name']}`" for table in job["tables"])
    scan_seconds = run(flink, "scanned", "'connector' = 'blackhole'", [("x", "BIGINT")], scan)
    print(json.dumps({"seconds": seconds, "scan_seconds": scan_seconds, "peak_bytes": peak_bytes()}))


def source(table):
    columns = ", ".join(f"`{name}` {kind}" for name, kind in table["columns"])
    time_ms = f"TO_TIMESTAMP_LTZ(`{table['time']}` / 1000, 3)"
    return (  # more rows of the same millisecond may follow
        f"CREATE TABLE `{table['name']}` ({columns}, et AS {time_ms}, WATERMARK FOR et AS et - INTERVAL '0.001' "
        f"SECOND) WITH ('connector' = 'filesystem', 'path' = '{table['path']}', 'format' = 'csv')"
    )


def run(flink, sink, connector, columns, select):
    typed = ", ".join(f"`{name}` {kind}" for name, kind in columns)
    flink.execute_sql(f"CREATE TABLE `{sink}` ({typed}) WITH ({connector})")
    start = time.perf_counter()
    flink.execute_sql(f"INSERT INTO `{sink}` {select}").wait()
    return time.perf_counter() - start


def peak_bytes():
    """Return the peak memory of the largest child process: the Java process with Flink's cluster."""
    peaks = [0]
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        except OSError:  # the process ended meanwhile
            continue
        if int(fields["PPid"]) == os.getpid() and "VmHWM" in fields:
            peaks.append(int(fields["VmHWM"].split()[0]) * 1024)
    return max(peaks)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
