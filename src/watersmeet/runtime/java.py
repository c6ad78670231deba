"""Check of the Java runtime that Spark needs.

It runs before Spark starts, because Spark's own errors about a missing Java do not help the user.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from watersmeet.errors import InputError, abbreviate

MIN_JAVA_VERSION = 17
_TIMEOUT_S = 120

_VERSION = re.compile(r'version "(\d+)')


def check_java() -> None:
    """Raise an `InputError` with a hint if there is no Java that can run Spark."""
    problem = find_java_problem()
    if problem is not None:
        raise InputError(
            problem,
            hint="install a headless runtime (on Debian and Ubuntu: apt-get install openjdk-17-jre-headless), "
            "or set JAVA_HOME to one; --engine embedded needs no Java",
        )


def find_java_problem() -> str | None:
    """Return one sentence about the problem with the Java that Spark would start; None if there is no problem."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home) / "bin" / "java")) if home else shutil.which("java")
    if java is None:
        reason = (
            f'JAVA_HOME is "{home}", and there is no bin/java in it'
            if home
            else "there is none on the PATH and JAVA_HOME is not set"
        )
        return f"Spark needs Java {MIN_JAVA_VERSION} or newer: {reason}"
    problem = _check_java_version(java)
    return None if problem is None else f"Spark needs Java {MIN_JAVA_VERSION} or newer: {problem}"


@cache
def _check_java_version(java: str) -> str | None:
    """Return the reason why a Java cannot run Spark, or None.

    A Java that does not print its version is refused: PySpark waits forever for some that do not start.
    """
    try:
        process = subprocess.run(
            [java, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_TIMEOUT_S,
            errors="replace",
        )
    except OSError as error:
        return f'"{java}" cannot be started: {error.strerror or error}'
    except subprocess.TimeoutExpired:
        return f'"{java} -version" did not end within {_TIMEOUT_S} s'
    version = _VERSION.search(process.stderr)
    if version is None:
        output = " ".join(process.stderr.split())
        shown = abbreviate(output, 200) or "nothing"
        return f'"{java} -version" exited with code {process.returncode} and printed {shown}'
    return None if int(version[1]) >= MIN_JAVA_VERSION else f'"{java}" is Java {version[1]}'
