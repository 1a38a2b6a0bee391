"""Requests with an image each: images and tokens a second, the encoder's share, and how near it is to the limit.

python -m benchmarks.vision_workload qwen2.5-vl-7b
python -m benchmarks.vision_workload qwen2.5-vl-7b --requests 64 --side 1024 --answer 128 --rounds 3 --json vision.json
python -m benchmarks.vision_workload tiny --requests 4 --side 128 --answer 8 --rounds 1

Random weights, and images of noise that differ, so that nothing is found in any cache. Images are read first, in as
many processes as a server has, and timed by themselves; then all requests come at once. The limit is what the device's
operations and bytes allow (quire/config/devices.py) if every image, every prompt and every answer costs nothing more.
"""

import argparse
import io
import json
import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

_VISION_7B: dict[str, Any] = {
    "depth": 32,
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "num_heads": 16,
    "out_hidden_size": 3584,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "window_size": 112,
    "fullatt_block_indexes": [7, 15, 23, 31],
    "tokens_per_second": 2,
}
_ROPE = {"rope_type": "default", "rope_theta": 1_000_000.0}
SHAPES: dict[str, dict[str, Any]] = {
    "qwen2.5-vl-7b": {
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "rope_scaling": {**_ROPE, "mrope_section": [16, 24, 24]},
        "vision_config": _VISION_7B,
    },
    "tiny": {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 512,
        "rope_scaling": {**_ROPE, "mrope_section": [2, 3, 3]},
        "vision_config": {
            **_VISION_7B,
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_heads": 2,
            "out_hidden_size": 64,
            "fullatt_block_indexes": [1],
        },
    },
}
_IMAGE, _VIDEO = 5, 6
"""Tokens that mark media."""
_TEXT = 32
"""Tokens of text around an image."""


@dataclass(frozen=True, slots=True)
class Found:
    """One round."""

    seconds: float
    """From the first step to the last token."""
    encoder_seconds: float
    images: int
    prompt_tokens: int
    output_tokens: int
    limit_seconds: float


def main() -> None:
    asked = _arguments()
    from quire import LLM

    with TemporaryDirectory() as folder:
        path = Path(folder) / asked.shape
        _write(asked.shape, path)
        llm = LLM(
            str(path),
            load_format="dummy",
            max_model_len=asked.max_model_len,
            max_num_seqs=max(asked.requests, 2),
            **({} if asked.memory is None else {"gpu_memory_utilization": asked.memory}),
        )
        try:
            found = run(llm, asked)
        finally:
            llm.close()
    if asked.json is not None:
        asked.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


def run(llm: Any, asked: argparse.Namespace) -> list[dict[str, float]]:
    llm.warm_up()
    rounds: list[Found] = []
    for number in range(asked.rounds + 1):
        images = [_noise(asked.side, number * asked.requests + place) for place in range(asked.requests)]
        began = time.perf_counter()
        prompts = _read(llm, images)
        reading = time.perf_counter() - began
        if not number:
            print(f"{asked.requests} images read in {reading:.2f} s: {asked.requests / reading:.1f} a second")
        one = _round(llm, prompts, asked)
        if number or not asked.rounds:  # the first compiles what has not run yet
            rounds.append(one)
            _tell(one)
    middle = sorted(rounds, key=lambda each: each.seconds)[len(rounds) // 2]
    share = median(each.limit_seconds / each.seconds for each in rounds)
    print(
        f"{asked.shape}, median of {len(rounds)}: {middle.images / middle.seconds:.2f} images/s, "
        f"{middle.output_tokens / middle.seconds:.0f} output tokens/s, "
        f"{middle.prompt_tokens / middle.seconds:.0f} prompt tokens/s; encoder "
        f"{100 * middle.encoder_seconds / middle.seconds:.1f} % of the time; {100 * share:.0f} % of the limit"
    )
    return [asdict(each) for each in rounds]


def _read(llm: Any, images: Sequence[bytes]) -> list[tuple[list[int], Any]]:
    """Prompts with what was made of the images, by two threads: so many processes decode."""
    from quire.multimodal.decoder_pool import SIZE

    tokens = [*range(10, 10 + _TEXT // 2), _IMAGE, *range(10, 10 + _TEXT // 2)]
    reader = llm._engine.media()
    with ThreadPoolExecutor(SIZE) as threads:
        return list(threads.map(lambda data: reader.read(tokens, [("image", data, "the image")]), images))


def _round(llm: Any, prompts: Sequence[tuple[list[int], Any]], asked: argparse.Namespace) -> Found:
    from quire import SamplingParams
    from quire.engine.progress import Progress

    params = SamplingParams(temperature=0, max_tokens=asked.answer, ignore_eos=True)
    before = llm._engine.loop.encoding.seconds
    for tokens, media in prompts:
        llm._engine.add(tokens, params, media=media)
    began = time.perf_counter()
    outputs = llm._run(Progress(0, enabled=False))
    seconds = time.perf_counter() - began
    made = sum(len(output.outputs[0].token_ids) for output in outputs.values())
    return Found(
        seconds=seconds,
        encoder_seconds=llm._engine.loop.encoding.seconds - before,
        images=len(prompts),
        prompt_tokens=sum(len(tokens) for tokens, _ in prompts),
        output_tokens=made,
        limit_seconds=_limit(llm, prompts, asked.answer),
    )


def _limit(llm: Any, prompts: Sequence[tuple[list[int], Any]], answer: int) -> float:
    """Seconds that operations and bytes take at the device's speeds."""
    from quire.models.loading.header import read_model_facts
    from quire.worker.device import device_facts, this_device

    device, spec = device_facts(this_device()), read_model_facts(str(llm._path)).spec
    tower = spec.vision
    tower_weights = sum(tensor.num_elements for tensor in tower.tensors())
    text_weights = spec.num_parameters - tower_weights - spec.vocab_size * spec.hidden_size
    window = (tower.windows.size // tower.patch_size) ** 2
    operations = 0.0
    for tokens, media in prompts:
        patches = sum(math.prod(item.pixels.shape[1:3]) // tower.patch_size**2 for item in media)
        size = tower.patches.rows
        whole = len(tower.windows.whole)
        seen = whole * patches + (len(tower.layers) - whole) * min(window, patches)
        operations += 2 * tower_weights * patches + 4 * size * patches * seen
        width = spec.num_heads * spec.head_dim
        operations += 2 * text_weights * len(tokens) + 2 * width * len(tokens) ** 2 * spec.num_layers
    item = 2
    kept = sum(len(tokens) + answer / 2 for tokens, _ in prompts)
    cache = 2 * spec.num_kv_heads * spec.head_dim * spec.num_layers * item * kept
    return float(operations / device.flops + answer * (text_weights * item + cache) / device.bandwidth)


def _tell(found: Found) -> None:
    print(
        f"{found.seconds:.2f} s: {found.images / found.seconds:.2f} images/s, "
        f"{found.output_tokens / found.seconds:.0f} output tokens/s, encoder {found.encoder_seconds:.2f} s, "
        f"limit {found.limit_seconds:.2f} s",
        flush=True,
    )


def _noise(side: int, seed: int) -> bytes:
    """A JPEG of colored blocks with noise on them."""
    import numpy as np
    from PIL import Image

    generator = np.random.default_rng(seed)
    blocks = generator.integers(0, 256, (side // 32 + 1, side // 32 + 1, 3)).repeat(32, 0).repeat(32, 1)[:side, :side]
    pixels = np.clip(blocks + generator.normal(0, 8, blocks.shape), 0, 255).astype(np.uint8)
    stored = io.BytesIO()
    Image.fromarray(pixels).save(stored, "JPEG", quality=90)
    return stored.getvalue()


def _write(shape: str, folder: Path) -> None:
    """A folder with everything but weights."""
    folder.mkdir()
    shared = {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": "qwen2_5_vl",
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "image_token_id": _IMAGE,
        "video_token_id": _VIDEO,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    (folder / "config.json").write_text(json.dumps({**shared, **SHAPES[shape]}), encoding="utf-8")
    settings = {"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings), encoding="utf-8")
    vocabulary = {f" word{number}": number for number in range(512)}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": " word0"},
        "decoder": {"type": "Fuse"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text("{}", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--side", type=int, default=1024, help="pixels of an image's height and width")
    parser.add_argument("--answer", type=int, default=128, help="tokens of each answer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-model-len", type=int, default=4096)
    parser.add_argument("--memory", type=float, help="as --gpu-memory-utilization of quire serve")
    parser.add_argument("--json", type=Path, help="keep what was found in this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
