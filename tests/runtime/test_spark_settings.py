"""Settings of Spark sessions: those of every session, and those of local sessions only."""

from __future__ import annotations

from typing import Any

import pytest

from watersmeet.runtime.spark import session
from watersmeet.runtime.spark.session import LOCAL_SETTINGS, choose_settings


@pytest.fixture(autouse=True)
def _no_java_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "check_java", lambda: None)


@pytest.mark.parametrize("master", ["local[2,4]", "spark://host:7077", "yarn"])
def test_arrow_checks_its_memory_unless_the_caller_turns_it_off(master: str) -> None:
    options = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")
    assert not any("arrow" in value for value in choose_settings({"spark.master": master}).values())
    unsafe = choose_settings({"spark.master": master, options[0]: "-Xss4m"}, unsafe_arrow=True)
    assert all("-Darrow.enable_unsafe_memory_access=true" in unsafe[name] for name in options)
    assert unsafe[options[0]].startswith("-Xss4m ")


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host", "local-cluster[2,1,1024]"])
def test_a_cluster_keeps_checksums_and_lets_executors_reach_the_driver(master: str) -> None:
    chosen = choose_settings({"spark.master": master})
    assert not {*chosen} & {*LOCAL_SETTINGS}
    assert not any("checksum" in name or name.startswith(("spark.driver.host", "spark.driver.bind")) for name in chosen)


def test_a_local_session_listens_on_this_machine_only() -> None:
    chosen = choose_settings({})
    assert chosen["spark.driver.bindAddress"] == chosen["spark.driver.host"] == "127.0.0.1"
    assert {*LOCAL_SETTINGS} <= {*chosen}


@pytest.mark.parametrize("settings", [{"spark_sql_shuffle_partitions": 7}, {"spark.sql.shuffle.partitions": "7"}])
def test_settings_of_the_caller_override_ours(settings: dict[str, Any]) -> None:
    assert choose_settings(settings)["spark.sql.shuffle.partitions"] == "7"
