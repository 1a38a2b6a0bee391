"""`quire plan`: the two figures everyone checks, JSON, and what it says when the model does not fit."""

import json
from pathlib import Path

import pytest

from quire.cli.main import main
from tests.config.examples import BERT_CONFIG
from tests.models.loading.files import GGUF_METADATA, LLAMA_3_8B, gguf_bytes, write_config

F32, Q4_K = 0, 12
GGUF = GGUF_METADATA | {"llama.feed_forward_length": 512}


def whole_gguf(path: Path, metadata: dict[str, object] = GGUF) -> Path:
    """A file with every tensor of the model: matrices in Q4_K, norms in float32."""
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (256, 3), "output_norm": (256,), "output": (256, 3)}
    for layer in range(2):
        widths = {"attn_q": 256, "attn_k": 128, "attn_v": 128, "attn_output": 256, "ffn_gate": 512, "ffn_up": 512}
        shapes |= {f"blk.{layer}.{name}": (256, rows) for name, rows in widths.items()}
        shapes |= {f"blk.{layer}.ffn_down": (512, 256)}
        shapes |= {f"blk.{layer}.{name}": (256,) for name in ("attn_norm", "ffn_norm")}
    tensors, offset = [], 0
    for name, shape in shapes.items():
        size = 256 * 4 if len(shape) == 1 else shape[0] // 256 * 144 * shape[1]
        tensors.append((f"{name}.weight", F32 if len(shape) == 1 else Q4_K, shape, offset, size))
        offset += -(-size // 32) * 32
    path.write_bytes(gguf_bytes(metadata, tensors))
    return path


def test_llama_3_8b(capsys: pytest.CaptureFixture[str], llama: str) -> None:
    assert main(["plan", llama]) == 0
    page = capsys.readouterr().out
    assert "Meta-Llama-3-8B: LlamaForCausalLM, 8.03 B parameters" in page
    assert "16.06 GB" in page
    assert "128 KiB" in page
    assert "blocks" in page
    assert "of 4,096 tokens at once" in page
    assert "the checkpoint's own" in page, "choices are printed with their reasons"


def test_json(capsys: pytest.CaptureFixture[str], llama: str) -> None:
    assert main(["plan", llama, "--json", "--device", "h200", "--seq-len", "1000"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["fits"] is True
    assert plan["budget"]["weights"] == 16_060_522_496
    assert plan["kv_bytes_per_token"] == 131_072
    assert plan["device"]["name"] == "h200"
    assert plan["num_tokens"] == plan["num_blocks"] * 16
    assert plan["sequences_in_memory"] == plan["num_blocks"] // 63
    assert plan["sequences_at_once"] == 256
    assert plan["resolved"]["limits"]["max_model_len"] == 8192
    assert plan["model"] == {
        "name": "Meta-Llama-3-8B",
        "architecture": "LlamaForCausalLM",
        "dtype": "bfloat16",
        "num_parameters": 8_030_261_248,
        "weight_bytes": {"bfloat16": 16_060_522_496},
        "num_layers": 32,
        "hidden_size": 4096,
        "num_heads": 32,
        "num_kv_heads": 8,
        "head_dim": 128,
        "vocab_size": 128_256,
        "max_position": 8192,
        "max_position_source": "the checkpoint",
        "windows": [None] * 32,
    }, "a summary, and no dump of every layer"
    [group] = plan["resolved"]["kv"]["groups"]
    assert group == {
        "layers": list(range(32)),
        "window": None,
        "planes": [[8, 128], [8, 128]],
    }


def test_an_encoder_is_told_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["plan", str(write_config(tmp_path / "bert", BERT_CONFIG)), "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    # 116,352 parameters of two bytes
    assert (
        "bert embeds texts and generates none, so it keeps no KV to plan for: its weights take 232.70 kB"
        in captured.err
    )
    assert captured.err.count("\n") == 1


def test_too_small_a_device_is_exit_code_1_with_remedies(capsys: pytest.CaptureFixture[str], llama: str) -> None:
    assert main(["plan", llama, "--device-memory", "12GB"]) == 1
    captured = capsys.readouterr()
    assert "The model does not fit: 16.06 GB of weights" in captured.out
    assert "--tensor-parallel-size 2" in captured.out
    assert "--device l4 (22 GiB) without --device-memory" in captured.out
    assert captured.err == ""
    assert main(["plan", llama, "--device-memory", "12GB", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["fits"] is False


def test_nothing_helps(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monstrous = LLAMA_3_8B | {"num_hidden_layers": 400, "hidden_size": 32_768, "intermediate_size": 131_072}
    assert main(["plan", str(write_config(tmp_path, monstrous))]) == 1
    assert "No single change makes it fit" in capsys.readouterr().out


def test_settings_come_from_all_places(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, llama: str
) -> None:
    path = tmp_path / "quire.yaml"
    path.write_text(f"model: {llama}\nscheduler: {{max_num_seqs: 7}}\nport: 80\n")
    monkeypatch.setenv("QUIRE_KV_CACHE_DTYPE", "fp8")
    assert main(["plan", "--config", str(path), "--tensor-parallel-size", "2", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["resolved"]["limits"]["max_num_seqs"] == 7
    assert plan["kv_bytes_per_token"] == 32 * 1024
    assert plan["num_devices"] == 2


def test_gguf(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = whole_gguf(tmp_path / "tiny.gguf")
    assert main(["plan", str(path), "--device", "cpu"]) == 0
    # two layers of 2,304 blocks of 144 bytes, and six more of embedding and head; five norms
    assert "664.42 kB Q4_K + 5.12 kB float32 as stored" in capsys.readouterr().out


def test_sliding_windows_are_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    metadata = GGUF | {"llama.attention.sliding_window": 16, "llama.attention.sliding_window_pattern": 2}
    path = whole_gguf(tmp_path / "tiny.gguf", metadata)
    assert main(["plan", str(path), "--swap-space", "1", "--device", "cpu"]) == 0
    page = capsys.readouterr().out
    assert "1 layers with a sliding window" in page
    assert "sliding windows leave room for more" in page
    assert "comes out of the same memory" in page


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--device", "h10"], "--device is 'h10', but it must be one of"),
        (["--device-memory", "24"], "--device-memory is '24', which is not a size"),
        (["--seq-len", "9000"], "--seq-len is 9000"),
        (["--tensor-parallel-size", "3"], "use one of 1, 2, 4, 8, 16, 32"),
        (["--revision", "main"], "leave --revision out"),
        (["--max-model-len", "8193"], "use at most 8192"),
    ],
)
def test_bad_input(capsys: pytest.CaptureFixture[str], llama: str, arguments: list[str], expected: str) -> None:
    assert main(["plan", llama, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert expected in captured.err


def test_find_proposes_a_layout_with_reasons(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quire.simulation.layouts._FEWEST", 30)
    monkeypatch.setattr("quire.simulation.layouts._MOST", 30)
    asked = ["plan", "llama-70b", "--max-model-len", "4096", "--find", "--gpus", "2xh200", "--tpot", "40"]
    asked += ["--input-tokens", "128", "--output-tokens", "32"]
    assert main(asked) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "llama-70b on 2 x h200: --tensor-parallel-size 2 --replicas 1 serves" in page
    assert "TP 1 x 2: the model does not fit" in page
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["proposed"] in found["layouts"]
    assert found["proposed"]["tensor_parallel_size"] == 2
    assert found["goals_ms"] == {"ttft": 500.0, "tpot": 40.0}
    assert main([*asked[:-6], "--tpot", "1"]) == 1
    assert "No layout of llama-70b on 2 x h200" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--find", "--gpus", "8"], "--gpus is '8', but it must be a number from 1 to 1024, an x and a device"),
        (["--find", "--gpus", "0xh100"], "--gpus is '0xh100'"),
        (["--find", "--gpus", "8xh1000"], "h1000"),
        (["--ttft", "20"], "--ttft has no effect without --find"),
        (["--find", "--tensor-parallel-size", "2"], "--tensor-parallel-size has no effect with --find"),
        (["--find", "--tpot", "0"], "--tpot is 0.0"),
    ],
)
def test_what_find_does_not_take(capsys: pytest.CaptureFixture[str], given: list[str], said: str) -> None:
    assert main(["plan", "llama-8b", *given]) != 0
    assert said in capsys.readouterr().err
