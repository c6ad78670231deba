"""Play a newcomer: clone, install into an empty environment, make mistakes, and read what Watersmeet says.

Every step prints its command and its output, so that the run is a transcript. The script fails if a step does not print
what a newcomer should see. `make test-long` runs it; it installs packages, so it needs a package index.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
QUERY = (
    "SELECT o.item, o.price, p.paid FROM orders [RANGE 10 SECONDS] AS o, payments [RANGE 10 SECONDS] AS p "
    "WHERE o.item = p.item"
)
#: First event time of the newcomer's files, in Unix seconds.
START_S = 1_790_000_000


class StumbleError(Exception):
    """A step that a newcomer would stumble over."""


@dataclass(frozen=True)
class Newcomer:
    """A user with a folder of their own and an empty environment."""

    folder: Path

    @property
    def bin(self) -> Path:
        return self.folder / "env" / "bin"

    def run(self, *command: str, expects: str, code: int = 0) -> str:
        """Run a command in the user's folder; check its exit code and that its output contains a text."""
        print(f"\n$ {' '.join(_quote(part) for part in command)}", flush=True)
        done = subprocess.run(
            self.resolve(command), cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        said = done.stdout + done.stderr
        print(textwrap.shorten(said, 20_000, placeholder=" …") if len(said) > 20_000 else said, end="", flush=True)
        if done.returncode != code:
            raise StumbleError(f"exit code {done.returncode}, expected {code}")
        if not re.search(expects, said):
            raise StumbleError(f"the output does not contain {expects!r}")
        return said

    def resolve(self, command: tuple[str, ...]) -> list[str]:
        program = self.bin / command[0]
        return [str(program) if program.exists() else command[0], *command[1:]]

    @property
    def environment(self) -> dict[str, str]:
        """Only what a fresh login has, and the settings of the package index."""
        kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "JAVA"))}
        return {**kept, "PATH": f"{self.bin}:{os.environ['PATH']}", "HOME": str(self.folder), "COLUMNS": "100"}


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        user = Newcomer(Path(directory))
        install(user)
        write_files(user.folder)
        read_mistakes(user)
        plan_and_run(user)
        follow_directory(user)
        open_notebook(user)
        use_own_spark_session(user)
    print("\nThe newcomer saw what they should.")


def install(user: Newcomer) -> None:
    user.run("git", "clone", "-q", str(ROOT), "clone", expects="")
    user.run(sys.executable, "-m", "venv", "env", expects="")
    user.run("pip", "install", "-q", "./clone", expects="")
    user.run("watersmeet", "--version", expects=r"\d+\.\d+")


def write_files(folder: Path) -> None:
    orders = [(START_S + second, second % 5, 10 + second) for second in range(60)]
    payments = [(START_S + second, second % 5, 9 + second) for second in range(0, 60, 2)]
    _write_csv(folder / "orders.csv", "at,item,price", orders)
    _write_csv(folder / "payments.csv", "at,item,paid", payments)


def read_mistakes(user: Newcomer) -> None:
    streams = _stream_options("orders.csv", "payments.csv", "time=at")
    user.run("watersmeet", "explain", QUERY, *streams, expects=r'unit="s" for seconds', code=1)
    streams = _stream_options("orders.csv", "payments.csv", "time=at,unit=s")
    misspelt = QUERY.replace("o.price", "o.prize")
    user.run("watersmeet", "explain", misspelt, *streams, expects="existing columns: .*price", code=1)
    user.run("watersmeet", "run", "missing.sql", *streams, expects=r"missing\.sql", code=1)
    user.run("watersmeet", "run", QUERY, *streams, "--engine", "spark", expects=r"watersmeet\[spark\]", code=1)


def plan_and_run(user: Newcomer) -> None:
    streams = _stream_options("orders.csv", "payments.csv", "time=at,unit=s")
    user.run("watersmeet", "explain", QUERY, *streams, expects="keeps up")
    user.run("watersmeet", "run", QUERY, *streams, expects=r"rows")


def follow_directory(user: Newcomer) -> None:
    """Follow two directories: it says at once what it waits for, and writes rows once files arrive."""
    for name in ("orders", "payments"):
        (user.folder / "incoming" / name).mkdir(parents=True)
    streams = _stream_options("incoming/orders", "incoming/payments", "time=at,unit=s")
    command = ("watersmeet", "run", QUERY, *streams, "--follow", "--out", "pairs")
    print(f"\n$ {' '.join(_quote(part) for part in command)} &", flush=True)
    process = subprocess.Popen(
        user.resolve(command),
        cwd=user.folder,
        env=user.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        _read_until(process, r"[Ww]ait")
        for name in ("orders", "payments"):
            source, target = user.folder / f"{name}.csv", user.folder / "incoming" / name
            (target / ".part").write_bytes(source.read_bytes())
            (target / ".part").rename(target / "0.csv")  # a file appears complete
        _read_until(process, r"rows")
    finally:
        process.send_signal(signal.SIGINT)
        print(process.communicate()[0], end="", flush=True)
    if process.returncode not in (0, 130):
        raise StumbleError(f"Ctrl-C ended the run with exit code {process.returncode}")
    if not list((user.folder / "pairs").rglob("*.parquet")):
        raise StumbleError("no rows were written")


def open_notebook(user: Newcomer) -> None:
    user.run("pip", "install", "-q", "nbclient", "ipykernel", expects="")
    code = f"""
        import nbformat, nbclient
        cell = '''
        import pyarrow.csv as csv, watersmeet as wm
        tables = {{name: csv.read_csv(name + ".csv") for name in ("orders", "payments")}}
        streams = {{name: wm.stream(table, time="at", unit="s") for name, table in tables.items()}}
        rows = wm.collect({QUERY!r}, streams)
        wm.explain({QUERY!r}, streams)
        '''
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
        nbclient.NotebookClient(notebook).execute()
        views = [output.data for output in notebook.cells[0].outputs if output.output_type == "execute_result"]
        print("an HTML view of", len(views[-1]["text/html"]), "characters")
    """
    (user.folder / "notebook.py").write_text(_dedent(code))
    user.run("python", "notebook.py", expects="an HTML view of")


def use_own_spark_session(user: Newcomer) -> None:
    user.run("pip", "install", "-q", "./clone[spark]", expects="")
    code = f"""
        from pyspark.sql import SparkSession
        import watersmeet as wm
        spark = SparkSession.builder.getOrCreate()
        streams = {{
            name: wm.stream(spark.read.csv(name + ".csv", header=True, inferSchema=True), time="at", unit="s")
            for name in ("orders", "payments")
        }}
        print(wm.on_spark({QUERY!r}, streams).count(), "rows on a session with default settings")
    """
    (user.folder / "own_session.py").write_text(_dedent(code))
    user.run("python", "own_session.py", expects="rows on a session with default settings")


def _stream_options(orders: str, payments: str, options: str) -> tuple[str, ...]:
    return ("--stream", f"orders={orders},{options}", "--stream", f"payments={payments},{options}")


def _write_csv(path: Path, header: str, rows: list[tuple[int, int, int]]) -> None:
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")


def _read_until(process: subprocess.Popen[str], pattern: str) -> None:
    """Print lines of a process until one matches."""
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)
        if re.search(pattern, line):
            return
    raise StumbleError(f"the run ended before it printed {pattern!r}")


def _quote(part: str) -> str:
    return f'"{part}"' if " " in part else part


def _dedent(code: str) -> str:
    return "\n".join(line.removeprefix("        ") for line in code.strip("\n").splitlines()) + "\n"


if __name__ == "__main__":
    main()
