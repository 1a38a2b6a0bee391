"""Flags, variables and the file: generated from the sections, in order of precedence."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from cyclopts import App

from quire.cli.main import main
from quire.cli.options import (
    CACHE,
    MODEL,
    SCHEDULER,
    CacheOptions,
    ConfigFile,
    ModelOptions,
    SchedulerOptions,
    apply_sources,
    check_environment,
    drop_service_variables,
)
from quire.config.bounds import flag
from quire.config.engine import EngineConfig
from quire.config.fields import field_sections, section_types
from quire.core.errors import ConfigError

Parse = Callable[..., EngineConfig]


@pytest.fixture
def parse() -> Parse:
    """A command with three sections, run in this process; returns what it was given."""
    app = App(name="quire", config=(apply_sources,))

    @app.command
    def plan(
        model: ModelOptions = MODEL,
        *,
        cache: CacheOptions = CACHE,
        scheduler: SchedulerOptions = SCHEDULER,
        config: ConfigFile = None,
    ) -> EngineConfig:
        return EngineConfig(model, cache, scheduler)

    def run(*arguments: str) -> EngineConfig:
        result = app(
            ["plan", *arguments], exit_on_error=False, print_error=False, verbose=False, result_action="return_value"
        )
        assert isinstance(result, EngineConfig)
        return result

    return run


def config_file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "quire.yaml"
    path.write_text(text)
    return str(path)


def test_every_field_is_a_flag_of_serve_with_its_docstring(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help-all"]) == 0
    page = capsys.readouterr().out
    for section in section_types(EngineConfig).values():
        for field in fields(section):
            assert flag(field.name) in page
    assert "Tokens in one block of the KV cache" in page
    assert "127.0.0.1" in page


def test_defaults_are_the_sections_own(parse: Parse) -> None:
    assert parse("m") == EngineConfig.from_flat(model="m")


def test_flags_reach_their_sections(parse: Parse) -> None:
    config = parse("--model", "m", "--max-num-seqs", "8", "--block-size=32", "--no-enable-prefix-caching")
    assert config == EngineConfig.from_flat(model="m", max_num_seqs=8, block_size=32, enable_prefix_caching=False)
    assert parse("m", "--max_num_seqs", "8").scheduler.max_num_seqs == 8


def test_flag_wins_over_variable_over_file_over_default(
    parse: Parse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = config_file(tmp_path, "max_num_seqs: 1\nblock_size: 2\nswap_space: 3\n")
    monkeypatch.setenv("QUIRE_MAX_NUM_SEQS", "4")
    monkeypatch.setenv("QUIRE_BLOCK_SIZE", "4")
    config = parse("m", "--config", path, "--max-num-seqs", "8")
    assert (config.scheduler.max_num_seqs, config.cache.block_size, config.cache.swap_space) == (8, 4, 3)
    assert config.scheduler.speculative_config is None


@pytest.mark.parametrize(
    "text",
    [
        "max_num_seqs: 8\nblock_size: 32\nenable_prefix_caching: no\ndtype: float16\n",
        "max-num-seqs: 8\nblock-size: 32\nenable-prefix-caching: false\ndtype: float16\n",
        "scheduler: {max-num-seqs: 8}\ncache: {block_size: 32, enable_prefix_caching: no}\nmodel: {dtype: float16}\n",
        "scheduler:\n  max_num_seqs: 8\nblock_size: 32\nenable_prefix_caching: off\ndtype: float16\nserver:\n",
    ],
)
def test_file_is_flat_or_by_section(parse: Parse, tmp_path: Path, text: str) -> None:
    expected = EngineConfig.from_flat(
        model="m", max_num_seqs=8, block_size=32, enable_prefix_caching=False, dtype="float16"
    )
    assert parse("m", "--config", config_file(tmp_path, text)) == expected


def test_model_may_come_from_file_or_variable(parse: Parse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse("--config", config_file(tmp_path, "model: a\n")).model.model == "a"
    assert parse("--config", config_file(tmp_path, "model: {model: b}\n")).model.model == "b"
    monkeypatch.setenv("QUIRE_MODEL", "c")
    assert parse().model.model == "c"


def test_file_may_be_named_by_a_variable(parse: Parse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIRE_CONFIG", config_file(tmp_path, "max_num_seqs: 8\n"))
    assert parse("m").scheduler.max_num_seqs == 8


def test_null_leaves_it_undecided(parse: Parse, tmp_path: Path) -> None:
    assert parse("m", "--config", config_file(tmp_path, "max_num_seqs: null\n")).scheduler.max_num_seqs is None
    assert parse("m", "--max-num-seqs", "none").scheduler.max_num_seqs is None


def test_settings_of_other_commands_are_fine(parse: Parse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = config_file(tmp_path, "port: 80\nobserve: {log_level: debug}\nparallel: {tensor_parallel_size: 2}\n")
    monkeypatch.setenv("QUIRE_HOST", "::1")
    assert parse("m", "--config", path) == EngineConfig.from_flat(model="m")


@pytest.mark.parametrize("value", ["16.5", "16.0", "1e3", "sixteen", "0x10", "", "1_0"])
def test_whole_numbers_are_whole(parse: Parse, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    with pytest.raises(Exception, match="--block-size") as caught:
        parse("m", f"--block-size={value}")
    assert "whole number" in str(caught.value) or value == ""
    monkeypatch.setenv("QUIRE_BLOCK_SIZE", value)
    with pytest.raises(Exception, match="QUIRE_BLOCK_SIZE"):
        parse("m")


def test_unknown_variable_suggests_the_nearest() -> None:
    known = field_sections(EngineConfig)
    with pytest.raises(ConfigError, match=r"QUIRE_BLOKSIZE is no setting.* Did you mean 'QUIRE_BLOCK_SIZE'\?"):
        check_environment(["HOME", "QUIRE_BLOKSIZE"], known)
    check_environment(["HOME", "QUIRE_BLOCK_SIZE", "QUIRE_CONFIG"], known)


def test_what_kubernetes_says_of_a_service_called_quire_is_no_setting() -> None:
    environment = {
        "QUIRE_SERVICE_HOST": "10.0.0.1",
        "QUIRE_SERVICE_PORT": "8000",
        "QUIRE_SERVICE_PORT_HTTP": "8000",
        "QUIRE_PORT": "tcp://10.0.0.1:8000",
        "QUIRE_PORT_8000_TCP": "tcp://10.0.0.1:8000",
        "QUIRE_PORT_8000_TCP_PROTO": "tcp",
        "QUIRE_PORT_8000_TCP_PORT": "8000",
        "QUIRE_PORT_8000_TCP_ADDR": "10.0.0.1",
        "QUIRE_BIG_MODEL_SERVICE_HOST": "10.0.0.2",
        "QUIRE_BIG_MODEL_PORT": "udp://10.0.0.2:1",
        "QUIRE_MODEL": "smollm2",
        "QUIRE_MAX_NUM_SEQS": "3",
    }
    drop_service_variables(environment)
    assert environment == {"QUIRE_MODEL": "smollm2", "QUIRE_MAX_NUM_SEQS": "3"}
    drop_service_variables(own := {"QUIRE_PORT": "8000"})
    assert own == {"QUIRE_PORT": "8000"}
