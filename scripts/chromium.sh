#!/usr/bin/env bash
# Find Chromium for the dashboard tests; nothing else needs it.
# If it is missing, install the system's package if that is allowed, or print what to do.
set -euo pipefail

find_chromium() {
    local candidate
    for candidate in "${CHROMIUM:-}" chromium chromium-browser google-chrome; do
        if [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

install_chromium() {
    local root
    command -v apt-get >/dev/null 2>&1 || return 1
    if [ "$(id -u)" -eq 0 ]; then
        root=env
    elif command -v sudo >/dev/null 2>&1 && sudo -n true >/dev/null 2>&1; then
        root="sudo -n"
    else
        return 1
    fi
    echo "Chromium not found; installing the system's package." >&2
    $root apt-get update -qq >&2 || return 1
    $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >&2
}

if found=$(find_chromium); then
    echo "Chromium: $found"
elif install_chromium && found=$(find_chromium); then
    echo "Chromium: $found"
else
    echo "watersmeet: the dashboard tests need Chromium, which was not found and could not be installed. Install it with your" \
        "system's package manager (on Debian: apt-get install chromium), or set CHROMIUM to its path, then run this again." >&2
    exit 1
fi
