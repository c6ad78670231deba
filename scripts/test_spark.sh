#!/usr/bin/env bash
# Run tests on another version of PySpark, in an environment of its own in build/spark-versions:
# `test_spark.sh 4.1` runs the Spark suite, `test_spark.sh 4.0 tests/spark/test_versions.py` only that file.
# WATERSMEET_SKIP_MISSING=1 skips the tests with a notice if the environment cannot be created.
set -euo pipefail
cd "$(dirname "$0")/.."

main() {
    local version=${1:?the version of PySpark, for example 4.1}
    shift
    environment=build/spark-versions/$version
    if ! [ -e "$environment/.ready" ] && ! install_version "$version"; then
        echo "watersmeet: cannot create an environment with PySpark $version" >&2
        [ "${WATERSMEET_SKIP_MISSING:-}" = 1 ] && echo "skipping the tests on PySpark $version" >&2 && exit 0
        exit 1
    fi
    [ $# -gt 0 ] || set -- tests/spark
    # PySpark before 4.2 leaves sockets to the garbage collector, and the suite turns that warning into an error.
    case $version in 4.0* | 4.1*) set -- -W "ignore:unclosed <socket.socket:ResourceWarning" "$@" ;; esac
    # Tests start processes elsewhere, so paths are absolute.
    PATH="$PWD/$environment/bin:$PATH" PYTHONPATH="$PWD/src:$PWD/lab" \
        "$environment/bin/python" -m pytest -p no:cacheprovider --junit-xml "build/spark-versions/$version.xml" "$@" </dev/null
}

install_version() { # version
    echo "Installing PySpark $1; this takes a minute the first time"
    rm -rf "$environment"
    "$(bash scripts/python.sh)" -m venv "$environment" || return 1
    # All other packages have the versions that the project pins.
    grep -hE '^[A-Za-z]' requirements.txt requirements-dev.txt |
        grep -vE '^(pyspark|py4j|protobuf|ruff|mypy|codespell|import-linter|grimp|playwright|matplotlib.*)==' >"$environment/pins.txt"
    "$environment/bin/python" -m pip install -q --no-compile "pyspark==$1.*" "protobuf>=6.33.5,<7" -r "$environment/pins.txt" || return 1
    touch "$environment/.ready"
}

main "$@"
