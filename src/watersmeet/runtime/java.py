"""The Java that Spark needs: java before Spark is started, because what Spark says without one helps nobody."""

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
    """Refuses, with what to do, where there is no Java that Spark could start."""
    problem = find_java_problem()
    if problem is not None:
        raise InputError(
            problem,
            hint="install a headless runtime (on Debian and Ubuntu: apt-get install openjdk-17-jre-headless), "
            "or set JAVA_HOME to one; --engine embedded needs no Java",
        )


def find_java_problem() -> str | None:
    """Say in one sentence what is problem with the Java that Spark would start; None if nothing is."""
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
    """Say why a Java cannot run Spark. One that does not tell its version is refused: PySpark waits forever for some
    that do not start.
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
        return f'"{java} -version" did not process within {_TIMEOUT_S} s'
    version = _VERSION.search(process.stderr)
    if version is None:
        output = " ".join(process.stderr.split())
        return f'"{java} -version" exited with code {process.returncode} and printed {abbreviate(output, 200) or "nothing"}'
    return None if int(version[1]) >= MIN_JAVA_VERSION else f'"{java}" is Java {version[1]}'
