#!/usr/bin/env bash
# Fetch a Kafka broker and Spark's connector for it into build/kafka, for the tests. Tests that need them are skipped if
# Maven or its registry is missing. Versions are in scripts/kafka/*/pom.xml.
set -euo pipefail
cd "$(dirname "$0")/.."

for part in broker connector; do
    target=$PWD/build/kafka/$part
    [ -e "$target/.complete" ] && continue
    if ! command -v mvn >/dev/null 2>&1; then
        echo "watersmeet: Maven not found; the tests against a Kafka broker are skipped" >&2
        exit 0
    fi
    mkdir -p "$target"
    if ! mvn -q -B -f "scripts/kafka/$part/pom.xml" dependency:copy-dependencies \
        -DoutputDirectory="$target" -DincludeScope=runtime >"$target/maven.log" 2>&1; then
        echo "watersmeet: cannot fetch the Kafka $part (see $target/maven.log); the tests against a broker are skipped" >&2
        exit 0
    fi
    touch "$target/.complete"
done
