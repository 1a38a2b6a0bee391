"""Train an EAGLE-3 head for the default model, or any other of Llama's kind, on text that the model writes itself.

python -m benchmarks.train_eagle_head --out head --minutes 20
quire serve smollm2 --speculative-config '{"method": "eagle3", "model": "head", "num_speculative_tokens": 4}'

First the model answers prompts of many subjects, then the head learns to go on from its hidden states, alone for
several places as it does when it drafts (training-time test). The minutes are shared between both; the folder gets the
texts, the progress and, now and then and at the end, the head in the published layout: config.json and
model.safetensors. Called again with the same folder it goes on where it stopped. On a GPU a good head takes minutes, on
a CPU hours.
"""

import argparse
import time
from pathlib import Path

import torch

from benchmarks.eagle_head.large import Large
from benchmarks.eagle_head.texts import write_texts
from benchmarks.eagle_head.training import Training

_SHARE_OF_TEXTS = 0.35
"""Of the minutes: what the model writes in, unless there are enough texts before."""


def main() -> None:
    asked = _arguments()
    from quire.models.loading.locate import locate

    begun = time.monotonic()
    until = begun + 60 * asked.minutes
    asked.out.mkdir(parents=True, exist_ok=True)
    texts = write_texts(asked, asked.out, begun + 60 * asked.minutes * _SHARE_OF_TEXTS)
    device = torch.device(asked.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    large = Large(locate(asked.model), device, torch.bfloat16 if device.type == "cuda" else torch.float32)
    training = Training(asked, asked.out, large, texts)
    training.run(time.monotonic(), until)
    right = " ".join(f"{share:.2f}" for share in training.right())
    size = (asked.out / "model.safetensors").stat().st_size / 1e6
    print(
        f"{training.steps} steps; drafts right by place, each if those before are: {right}; "
        f"{size:.1f} MB in {asked.out}"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the folder that the head goes to")
    parser.add_argument("--minutes", type=float, default=20.0, help="for texts and training together")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--device", help="cuda or cpu; the GPU if there is one")
    parser.add_argument("--draft-vocabulary", type=int, default=8192, help="tokens that the head can say")
    parser.add_argument("--places", type=int, default=4, help="places that it learns to go on alone for")
    parser.add_argument("--batch", type=int, default=16, help="texts of a step")
    parser.add_argument("--length", type=int, default=512, help="tokens of a text, at most")
    parser.add_argument("--answer-tokens", type=int, default=256)
    parser.add_argument("--streams", type=int, default=64, help="texts that are written at once")
    parser.add_argument("--most-texts", type=int, default=20_000)
    parser.add_argument("--rate", type=float, default=1e-3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
