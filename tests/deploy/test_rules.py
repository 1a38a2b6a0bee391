"""The alerts, as Prometheus reads and evaluates them. `rules/` says of every alert when it fires and when not."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.chart import ROOT
from tests.observe.promtool import promtool

FOLDER = ROOT / "deploy" / "prometheus"
CASES = sorted((Path(__file__).parent / "rules").glob("*.yml"))


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def test_rules_and_configuration_are_valid() -> None:
    assert "SUCCESS" in promtool("check", "rules", "quire.rules.yml", folder=FOLDER)
    assert "SUCCESS" in promtool("check", "config", "prometheus.yml", folder=FOLDER)


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_alerts_fire_when_they_should(case: Path, tmp_path: Path) -> None:
    for path in (case, FOLDER / "quire.rules.yml"):
        shutil.copyfile(path, tmp_path / path.name)
    assert "SUCCESS" in promtool("test", "rules", case.name, folder=tmp_path)


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_not() -> None:
    rules = [rule for group in read(FOLDER / "quire.rules.yml")["groups"] for rule in group["rules"]]
    alerts = {rule["alert"] for rule in rules if "alert" in rule}
    asked = [each for case in CASES for test in read(case)["tests"] for each in test["alert_rule_test"]]
    assert {each["alertname"] for each in asked if each["exp_alerts"]} == alerts
    silent = {each["alertname"] for each in asked if not each["exp_alerts"]}
    at_once = {
        "QuireSlowFirstToken",
        "QuireErrors",
        "QuireEngineGivenUp",
    }  # cases tell them by label or by another alert
    assert silent == alerts - at_once
