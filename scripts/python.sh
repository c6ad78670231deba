#!/usr/bin/env bash
# Print the Python for the virtual environment: python3 if it is new enough, else the newest one that is.
set -euo pipefail

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
    if command -v "$candidate" >/dev/null 2>&1 && new_enough "$candidate"; then
        command -v "$candidate"
        exit 0
    fi
done

found=$(python3 --version 2>&1 || echo "no python3 at all")
echo "watersmeet: Watersmeet needs Python 3.11 or newer, but found ${found}." >&2
echo "Install Python 3.11 or newer with its venv module, or name one: make PYTHON=/path/to/python3.12" >&2
exit 1
