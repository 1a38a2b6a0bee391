"""transformers on torch in float32: a padded batch through `generate`.

python -m benchmarks.peers.transformers_peer GGUF                  # as a child of the comparison
python -m benchmarks.peers.transformers_peer GGUF --save FOLDER    # the same weights, expanded, for peers without GGUF
"""

import argparse
import time
from pathlib import Path
from typing import Any

from benchmarks.peers.child import Generate, Timing, answer_lines

MODULE = "benchmarks.peers.transformers_peer"


def load(gguf: Path, dtype: str) -> Generate:
    import torch

    model = _model(gguf, dtype).eval()

    def generate(prompts: list[list[int]], output: int) -> Timing:
        ids = torch.tensor(prompts)  # [streams, prompt]: all of one length, so there is nothing to pad
        start = time.perf_counter()
        clock = _FirstToken()
        answers = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            min_new_tokens=output,
            max_new_tokens=output,
            pad_token_id=0,
            stopping_criteria=[clock],
        )
        total = time.perf_counter() - start
        assert answers.shape == (len(prompts), ids.shape[1] + output)
        assert clock.at is not None
        return Timing(clock.at - start, total)

    return generate


class _FirstToken:
    """A criterion that stops nothing: it is asked after every token, and notes when it was first."""

    def __init__(self) -> None:
        self.at: float | None = None

    def __call__(self, input_ids: Any, scores: Any, **others: Any) -> Any:
        import torch

        self.at = self.at or time.perf_counter()
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


def save_expanded(gguf: Path, folder: Path) -> None:
    """The file's weights as a safetensors folder, with its tokenizer."""
    from transformers import AutoTokenizer

    model = _model(gguf, "float32")
    # it is expanded already, and yet counts as quantized, which cannot be saved: its numbers go into a plain one
    config = type(model.config)(
        **{name: value for name, value in model.config.to_dict().items() if name != "quantization_config"}
    )
    plain = type(model)(config)
    plain.load_state_dict(model.state_dict())
    plain.save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)


def _model(gguf: Path, dtype: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=getattr(torch, dtype))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--save", type=Path, metavar="FOLDER")
    asked = parser.parse_args()
    if asked.save is not None:
        save_expanded(asked.gguf, asked.save)
    else:
        answer_lines(lambda: load(asked.gguf, asked.dtype))


if __name__ == "__main__":
    main()
