#!/usr/bin/env bash
# Find Java 17 or newer, which Spark needs. Planning, explain and the embedded engine work without Java.
# If it is missing, install a headless runtime from the system's packages if that is allowed, or print what to do.
set -euo pipefail

oldest=17

major_of() { # prints the major version of a java binary, or nothing if it does not run
    "$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

find_java() {
    local candidate major
    for candidate in "${JAVA_HOME:+$JAVA_HOME/bin/java}" "$(command -v java || true)" /usr/lib/jvm/*/bin/java; do
        [ -n "$candidate" ] && [ -x "$candidate" ] || continue
        major=$(major_of "$candidate" || true)
        if [ -n "$major" ] && [ "$major" -ge "$oldest" ]; then
            echo "$candidate"
            return 0
        fi
    done
    return 1
}

as_root() { # prints a command prefix that runs as root without a password prompt
    if [ "$(id -u)" -eq 0 ]; then
        echo env
    elif command -v sudo >/dev/null 2>&1 && sudo -n true >/dev/null 2>&1; then
        echo "sudo -n"
    else
        return 1
    fi
}

install_java() {
    local root package
    command -v apt-get >/dev/null 2>&1 && root=$(as_root) || return 1
    echo "Java $oldest or newer not found; installing the system's package." >&2
    $root apt-get update -qq >&2 || return 1
    for package in openjdk-21-jre-headless openjdk-17-jre-headless default-jre-headless; do
        if $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >&2; then
            return 0
        fi
    done
    return 1
}

if found=$(find_java); then
    echo "Java $(major_of "$found"): $found"
elif install_java && found=$(find_java); then
    echo "Java $(major_of "$found"): $found"
else
    echo "watersmeet: Spark needs Java $oldest or newer, which was not found and could not be installed. Install a headless Java" \
        "runtime with your system's package manager (on Debian and Ubuntu: apt-get install openjdk-17-jre-headless), or unpack one" \
        "anywhere and set JAVA_HOME to it, then run this again. Planning, explain and the embedded engine work without Java." >&2
    exit 1
fi
