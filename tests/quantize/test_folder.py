"""Folders that quire writes are read back by quire, and by transformers with compressed-tensors, as the same model."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from quire.core.errors import CheckpointError, ConfigError
from quire.layers.weights import dense
from quire.models.loading.checkpoint import open_checkpoint
from quire.quantize.options import read_options
from quire.quantize.run import quantize
from tests.quantize.reading import IDS, distance, expand_with_their_library, quire_logits
from tests.quantize.tiny import LAYERS, write_tiny
from tests.text.corpus import PLAIN

SCHEMES: dict[str, dict[str, Any]] = {
    "fp8": {"method": "rtn"},
    "fp8 gptq": {},
    "int8": {"method": "rtn"},
    "int8 gptq": {},
    "int4": {"method": "rtn"},
    "int4 gptq": {},
    "int4 gptq in order": {"act_order": False},
    "int4 gptq asymmetric": {"symmetric": False, "group_size": 32},
    "int4 awq": {"method": "awq"},
    "int4 whole rows": {"method": "rtn", "group_size": -1},
    "int8 with head": {"method": "rtn", "ignore": ()},
    "int4 gptq with head": {"ignore": ()},
    "int4 awq with head": {"method": "awq", "ignore": ()},
}
LIMITS = {"fp8": 0.1, "int8": 0.05, "int4": 0.3}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_tiny(tmp_path_factory.mktemp("tiny") / "model")
    (folder / "calibration.txt").write_text(" ".join(PLAIN)[:3000])  # short: every run of every test reads it
    return folder


def scheme_of(name: str) -> str:
    return name.partition(" ")[0]


def write(source: Path, out: Path, name: str, **changes: Any) -> Path:
    given = {**SCHEMES.get(name, {}), **changes}
    if given.get("method") != "rtn" and scheme_of(name) in LIMITS:
        given.setdefault("calibration", source / "calibration.txt")
    quantize(str(source), out, read_options(scheme_of(name), **given), measure=False)
    return out


@pytest.mark.parametrize("name", SCHEMES)
def test_a_written_folder_is_near_the_model_it_was_made_of(tiny: Path, tmp_path: Path, name: str) -> None:
    out = write(tiny, tmp_path / "out", name)
    assert len(open_checkpoint(out).schemes) == 7 * LAYERS + ("head" in name)
    expected = quire_logits(tiny)
    assert 0 < distance(quire_logits(out), expected) < LIMITS[scheme_of(name)]
    assert {"config.json", "tokenizer.json", "model.safetensors.index.json"} <= {file.name for file in out.iterdir()}
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize("name", SCHEMES)
def test_compressed_tensors_expands_the_same_weights(tiny: Path, tmp_path: Path, name: str) -> None:
    pytest.importorskip("compressed_tensors", reason="pip install compressed-tensors")
    from transformers import AutoConfig, LlamaForCausalLM

    out = write(tiny, tmp_path / "out", name)
    theirs = LlamaForCausalLM(AutoConfig.from_pretrained(out))
    theirs.load_state_dict(expand_with_their_library(out))
    with torch.no_grad():
        expected = theirs(torch.tensor([IDS])).logits[0]
    assert distance(expected, quire_logits(out, expand=True)) < 1e-4


@pytest.mark.parametrize("name", ["fp8", "int8", "int4 gptq", "int4 whole rows"])
def test_transformers_reads_the_folder(tiny: Path, tmp_path: Path, name: str) -> None:
    """Not with zero points: since 5.23 transformers lays out modules without data first, and compressed-tensors
    0.20 forgets there that zero points are packed, so that their shapes seem wrong in every folder that has them."""
    pytest.importorskip("compressed_tensors", reason="pip install compressed-tensors")
    from transformers import AutoModelForCausalLM

    out = write(tiny, tmp_path / "out", name)
    read = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    with torch.no_grad():
        theirs = read(torch.tensor([IDS])).logits[0]  # it rounds activations on the way, as the scheme says
    assert distance(theirs, quire_logits(out, expand=True)) < LIMITS[scheme_of(name)]


def test_expanding_to_sixteen_bits_changes_nothing_that_has_them(tiny: Path, tmp_path: Path) -> None:
    out = write(tiny, tmp_path / "out", "bfloat16")
    assert torch.equal(quire_logits(out), quire_logits(tiny))
    assert "quantization_config" not in json.loads((out / "config.json").read_text())


def test_calibration_pays(tiny: Path, tmp_path: Path) -> None:
    """On the inputs that it was calibrated for, GPTQ's outputs are nearer than rounding's."""
    expected = quire_logits(tiny)
    rounded = write(tiny, tmp_path / "rtn", "int4", method="rtn", group_size=-1)
    calibrated = write(tiny, tmp_path / "gptq", "int4", method="gptq", group_size=-1)
    assert distance(quire_logits(calibrated), expected) < distance(quire_logits(rounded), expected)


def test_ignored_modules_stay_plain(tiny: Path, tmp_path: Path) -> None:
    out = write(tiny, tmp_path / "out", "int4", method="rtn", ignore=("lm_head", "re:.*down_proj"))
    schemes = open_checkpoint(out).schemes
    assert len(schemes) == 6 * LAYERS
    assert not any("down_proj" in name for name in schemes)


def test_a_head_of_its_own_is_quantized_where_it_is_not_ignored(tmp_path: Path) -> None:
    source = write_tiny(tmp_path / "model", tie_word_embeddings=False)
    plain = write(source, tmp_path / "plain", "int8", method="rtn")
    out = write(source, tmp_path / "out", "int8", method="rtn", ignore=())
    assert "lm_head" not in open_checkpoint(plain).schemes
    assert "lm_head" in open_checkpoint(out).schemes
    assert 0 < distance(quire_logits(out), quire_logits(source)) < LIMITS["int8"]


def test_a_tied_head_that_is_quantized_leaves_the_embedding_as_it_is(tiny: Path, tmp_path: Path) -> None:
    out = write(tiny, tmp_path / "out", "int8", method="rtn", ignore=())
    config = json.loads((out / "config.json").read_text())
    assert config["tie_word_embeddings"] is False
    assert config["quantization_config"]["ignore"] == []
    assert open_checkpoint(out).schemes.keys() >= {"lm_head"}
    words = "model.embed_tokens.weight"
    assert torch.equal(dense_of(out, words), dense_of(tiny, words))


def dense_of(folder: Path, name: str) -> torch.Tensor:
    return dense(open_checkpoint(folder).stored(name), torch.float32)


def test_a_run_that_was_killed_goes_on(tiny: Path, tmp_path: Path) -> None:
    whole = write(tiny, tmp_path / "whole", "int4 gptq")
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from quire.quantize.options import read_options\n"
        "from quire.quantize.run import quantize\n"
        "stop = lambda what, done, total: os.kill(os.getpid(), signal.SIGKILL) if done == 3 else None\n"
        "options = read_options('int4', calibration=Path(sys.argv[1]) / 'calibration.txt')\n"
        "quantize(sys.argv[1], Path(sys.argv[2]), options, measure=False, report=stop)\n"
    )
    out = tmp_path / "out"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    killed = subprocess.run([sys.executable, "-c", program, str(tiny), str(out)], check=False, env=env)
    assert killed.returncode == -signal.SIGKILL
    assert not out.exists()
    there = {file: file.stat().st_mtime_ns for file in (tmp_path / "out.partial").glob("*.safetensors")}
    assert len(there) == 3
    with pytest.raises(ConfigError, match="of a run that was stopped, with method 'gptq' and not 'rtn'"):
        write(tiny, out, "int4")
    write(tiny, out, "int4 gptq")
    assert all((out / file.name).stat().st_mtime_ns == time for file, time in there.items())
    for file in whole.glob("*.safetensors"):
        assert (out / file.name).read_bytes() == file.read_bytes()


def test_what_is_wrong_is_refused_in_one_line(tiny: Path, tmp_path: Path) -> None:
    out = write(tiny, tmp_path / "out", "fp8")
    with pytest.raises(ConfigError, match="is there already"):
        write(tiny, out, "fp8")
    with pytest.raises(CheckpointError, match=r"is quantized already \(fp8\)"):
        write(out, tmp_path / "again", "int8")
    with pytest.raises(ConfigError, match=r"--group-size 48 does not divide the 64 columns of .*; give 64, 32 or -1"):
        write(tiny, tmp_path / "no", "int4", group_size=48)
    with pytest.raises(ConfigError, match="leaves nothing to quantize"):
        write(tiny, tmp_path / "no", "int4", ignore=("re:.*",))
    with pytest.raises(ConfigError, match=r"writes a folder, without \.gguf"):
        write(tiny, tmp_path / "no.gguf", "int4")
    with pytest.raises(ConfigError, match="cannot be read"):
        write(tiny, tmp_path / "no", "int4", method="gptq", calibration=tmp_path / "missing.txt")
    assert not (tmp_path / "no").exists()


def test_a_disk_without_room(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("quire.quantize.room.shutil.disk_usage", lambda _: usage)
    with pytest.raises(ConfigError, match=r"needs .* kB, but the disk of .* has 1.00 kB left"):
        write(tiny, tmp_path / "out", "int8")


def test_what_it_costs_is_measured(tiny: Path, tmp_path: Path) -> None:
    done = quantize(str(tiny), tmp_path / "out", read_options("int8", method="rtn"))
    assert done.before is not None
    assert done.after is not None
    assert "held-out tokens" in done.after.beside(done.before)
    assert done.after.perplexity == pytest.approx(done.before.perplexity, rel=0.02)
