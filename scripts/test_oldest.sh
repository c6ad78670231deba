#!/usr/bin/env bash
# Run the quick tests with exactly the lower bounds of pyproject.toml, in two environments of their own: `core` has
# everything but Spark, and `spark` has all extras, because Spark needs newer versions of some packages than the core.
# Neither needs Java or a browser. `test_oldest.sh core` runs one of them.
set -euo pipefail
cd "$(dirname "$0")/.."

long=(tests/docs tests/lab tests/packaging tests/properties tests/simulator tests/spark tests/dashboard/test_in_a_browser.py
    tests/dashboard/test_dashboard_of_a_run.py)

main() {
    if [ "${1:-core}" = core ]; then
        install_lower_bounds build/oldest/core demo ui
        mapfile -t ignored < <(printf -- '--ignore=%s\n' "${long[@]}" src/watersmeet/runtime/processes.py \
            $(files_about_spark))
        run_tests build/oldest/core src tests "${ignored[@]}"
    fi
    if [ "${1:-spark}" = spark ]; then
        install_lower_bounds build/oldest/spark all
        # A file that is named is not ignored, so the long tests are not named.
        mapfile -t quick < <(files_about_spark | grep -vE "^($(IFS='|' && echo "${long[*]}"))")
        run_tests build/oldest/spark "${quick[@]}"
    fi
}

files_about_spark() { # the public types include those of Spark
    printf '%s\n' src/watersmeet/runtime/spark tests/api/test_public_types.py
    grep -rlE 'runtime\.spark|spark_host|"spark"|JAVA_HOME' --include='*.py' --exclude=conftest.py src tests |
        grep -v '^src/watersmeet/runtime/spark/'
}

install_lower_bounds() { # environment, extras
    local environment=$1
    shift
    rm -rf "$environment"
    "$(bash scripts/python.sh)" -m venv "$environment"
    "$environment/bin/python" -m pip install -q packaging
    "$environment/bin/python" scripts/lower_bounds.py "$@" >"$environment/lower-bounds.txt"
    echo "$environment: $(tr '\n' ' ' <"$environment/lower-bounds.txt")"
    # The tools of the tests keep the versions that the project pins. Newer versions of click deprecate what the oldest
    # typer imports, and warnings are errors in tests.
    echo "click==8.2.1" >>"$environment/lower-bounds.txt"
    grep -hE '^(duckdb|hypothesis|packaging|playwright|polars|pytest|pytest-xdist)==' requirements.txt requirements-dev.txt |
        "$environment/bin/python" -m pip install -q -r "$environment/lower-bounds.txt" -r /dev/stdin
}

run_tests() { # environment, arguments of pytest
    local environment=$1
    shift
    # Kernels of another version of Numba must not replace those of the development environment. Tests start processes in
    # other directories, so paths are absolute.
    PYTHONPATH="$PWD/src:$PWD/lab" NUMBA_CACHE_DIR="$PWD/$environment-kernels" "$environment/bin/python" -m pytest \
        -p no:cacheprovider -n "${WORKERS:-2}" "$@" </dev/null
}

main "$@"
