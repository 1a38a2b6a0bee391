"""Every flag of `vllm serve` has an answer here: the same, another name, so anyway, or what there is instead."""

import re
from pathlib import Path

import pytest

from quire.cli.main import main
from quire.config.bounds import flag
from quire.config.engine import EngineConfig
from quire.config.fields import field_sections
from quire.config.vllm_flags import ALWAYS, MISSING, RENAMED, answer_of, translate
from quire.core.errors import ConfigError

ROOT = Path(__file__).parents[2]
THEIRS = Path(__file__).with_name("vllm_flags.txt").read_text(encoding="utf-8").split()
"""The names of all flags of `vllm serve`, at revision a014e35f38c."""
SHORT = {
    *("-tp", "-pp", "-dp", "-q", "-ep", "-n", "-r", "-sc", "-O", "-cc", "-ac", "-dcp", "-pcp"),
    *("-dpn", "-dpr", "-dpl", "-dpa", "-dpp", "-dpb", "-dph", "-dpe"),
}
"""Their short names."""
OWN = {flag(name) for name in field_sections(EngineConfig)} | {"--config"}
PAGE = (ROOT / "docs" / "from_vllm.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*THEIRS, *sorted(SHORT)])
def test_every_flag_has_an_answer(name: str) -> None:
    assert name in OWN or name in RENAMED or name in ALWAYS or name in MISSING
    assert f"`{name}`" in PAGE


def test_the_table_names_nothing_else() -> None:
    theirs = {*THEIRS, *SHORT}
    assert {*RENAMED, *ALWAYS, *MISSING} <= theirs - OWN
    for name in RENAMED.values():
        assert {name, "--" + name.removeprefix("--no-")} & OWN
    assert not (RENAMED.keys() & ALWAYS.keys()) | (RENAMED.keys() & MISSING.keys()) | (ALWAYS.keys() & MISSING.keys())


def test_answers_name_flags_that_there_are() -> None:
    for answer in (*ALWAYS.values(), *MISSING.values()):
        assert set(re.findall(r"--[a-z-]+", answer)) <= OWN, answer


def test_names_are_translated() -> None:
    given = [
        "serve",
        "m",
        "-tp",
        "2",
        "--tool-call-parser=hermes",
        "--shutdown_timeout",
        "3",
        "--disable-fastapi-docs",
    ]
    expected = ["serve", "m", "--tensor-parallel-size", "2", "--tool-parser=hermes", "--drain-timeout", "3"]
    assert translate(given, OWN).tokens == [*expected, "--no-enable-docs"]


def test_what_is_so_anyway_is_remarked() -> None:
    found = translate(["serve", "--enable-chunked-prefill", "--max-num-seqs", "4"], OWN)
    assert found.tokens == ["serve", "--max-num-seqs", "4"]
    assert found.remarks == [f"--enable-chunked-prefill needs no word: {ALWAYS['--enable-chunked-prefill']}."]
    with pytest.raises(ConfigError, match="always cut into chunks"):
        translate(["serve", "--no-enable-chunked-prefill"], OWN)


def test_a_flag_of_its_own_goes_first() -> None:
    assert translate(["serve", "--enforce-eager"], {"--enforce-eager"}).tokens == ["serve", "--enforce-eager"]


def test_what_is_behind_two_dashes_stays() -> None:
    assert translate(["serve", "--", "--enforce-eager"], OWN).tokens == ["serve", "--", "--enforce-eager"]


@pytest.mark.parametrize(
    "name",
    [
        *("--enforce-eager", "--no-enforce-eager", "--structured-outputs-config.backend"),
        *("-O", "-O3", "-O.mode=3", "-cc.mode=3", "-dcp", "-dpl"),
    ],
)
def test_what_is_missing_is_told(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "smollm2", name]) == 2
    assert f"{name.partition('=')[0]} is a flag of vLLM's that quire has not:" in capsys.readouterr().err


def test_settings_of_classes_are_told_as_well() -> None:
    with pytest.raises(ConfigError, match=r"'enforce_eager'\. It is vLLM's: graphs are captured"):
        EngineConfig.from_flat(enforce_eager=True)
    with pytest.raises(ConfigError, match="It is --drain-timeout of the command line"):
        EngineConfig.from_flat(shutdown_timeout=2)
    assert answer_of("nonsense") == ""
