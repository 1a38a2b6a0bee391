"""Offloaded layers: which copies come before which computing, on any device, and that answers stay on a GPU."""

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from quire import LLM, SamplingParams
from quire.layers.copy_lane import CopyLane
from quire.models.offload import offload_layers
from tests.tiny_model import make_text_model

CPU = torch.device("cpu")


class Recording(CopyLane):
    """Notes what is asked of it. Copies come as late as they may: until they are awaited, a room holds no numbers."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self._under_way: dict[int, list[tuple[Tensor, Tensor]]] = {0: [], 1: []}

    def follow_computing(self) -> None:
        self.log.append("follow")

    def copy(self, room: int, targets: Iterable[Tensor], sources: Iterable[Tensor]) -> None:
        pairs = list(zip(targets, sources, strict=True))
        for target, _ in pairs:
            target.fill_(float("nan"))
        self._under_way[room] += pairs
        self.log.append(f"copy to {room}")

    def await_copies(self, room: int) -> None:
        for target, source in self._under_way.pop(room):
            target.copy_(source)
        self._under_way[room] = []
        self.log.append(f"await {room}")


class Layer(nn.Module):
    """Multiplies, and says so."""

    def __init__(self, number: int, size: int, log: list[str]) -> None:
        super().__init__()
        self._number = number
        self._log = log
        self.register_buffer("weight", torch.arange(1.0, size + 1) * (number + 1))
        self.register_buffer("bias", torch.full((1,), float(number)))

    def forward(self, x: Tensor) -> Tensor:
        self._log.append(f"compute {self._number}")
        return x * self.weight.sum() + self.bias


def model_of(sizes: list[int], offloaded: set[int]) -> tuple[nn.ModuleList, list[str]]:
    lane = Recording()
    layers = nn.ModuleList([Layer(number, size, lane.log) for number, size in enumerate(sizes)])
    offload_layers(SimpleNamespace(layers=layers), offloaded, CPU, lane)
    return layers, lane.log


@torch.inference_mode()
def run(layers: nn.ModuleList) -> float:
    x = torch.ones(1, dtype=torch.float64)
    for layer in layers:
        x = layer(x)
    return x.item()


SETS = [{3}, {2, 3}, {0, 1, 2, 3}, {0}, {0, 3}, {1, 3}, {1, 2, 3, 4, 5}]


@pytest.mark.parametrize("offloaded", SETS, ids=str)
@pytest.mark.parametrize("sizes", [[4] * 6, [1, 200, 3, 500, 70, 900]], ids=["alike", "unlike"])
def test_any_layers_compute_the_same_step_after_step(sizes: list[int], offloaded: set[int]) -> None:
    layers, _ = model_of(sizes, offloaded)
    expected = run(model_of(sizes, set())[0])
    assert [run(layers) for _ in range(3)] == [expected] * 3


@pytest.mark.parametrize("offloaded", SETS, ids=str)
def test_copies_wait_for_their_room_and_layers_for_their_copies(offloaded: set[int]) -> None:
    layers, log = model_of([4] * 6, offloaded)
    for _ in range(3):
        run(layers)
    room_of = {place: turn % 2 for turn, place in enumerate(sorted(offloaded))}
    for at, entry in enumerate(log):
        if entry.startswith("copy"):
            assert log[at - 1] == "follow"
        elif entry.startswith("compute") and int(entry[-1]) in offloaded:
            assert log[at - 1] == f"await {room_of[int(entry[-1])]}"
    assert sum(entry.startswith("copy") for entry in log) == 3 * len(offloaded)


def test_the_next_layers_weights_are_on_their_way_while_one_computes() -> None:
    layers, log = model_of([4] * 5, {1, 2, 3})
    run(layers)
    log.clear()
    run(layers)
    assert [entry for entry in log if entry != "follow"] == [
        *("copy to 0", "copy to 1"),  # as soon as the step begins
        *("compute 0", "await 0", "compute 1", "copy to 0", "await 1", "compute 2", "await 0", "compute 3"),
        "compute 4",
    ]


def test_weights_are_not_fetched_ahead_before_they_are_loaded() -> None:
    layers, log = model_of([4] * 3, {0, 1, 2})
    run(layers)
    assert [entry for entry in log if entry != "follow" and "await" not in entry] == [
        *("copy to 0", "compute 0", "copy to 1", "compute 1", "copy to 0", "compute 2")
    ]


def test_a_step_that_threw_leaves_nothing_to_the_next() -> None:
    sizes, offloaded = [4] * 5, {1, 2, 3}
    layers, _ = model_of(sizes, offloaded)
    expected = run(layers)
    hook = layers[2].register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(layers)
    hook.remove()
    assert run(layers) == expected


@torch.inference_mode()
def test_two_rooms_do_for_all_layers_and_steps() -> None:
    layers = nn.ModuleList([Layer(number, 4, []) for number in range(5)])
    seen: list[int] = []
    for layer in layers:
        layer.register_forward_pre_hook(lambda layer, _: seen.append(layer.weight.data_ptr()))
    offload_layers(SimpleNamespace(layers=layers), range(5), CPU)
    run(layers)
    run(layers)
    first, second = seen[:2]
    assert first != second
    assert seen == [first, second, first, second, first] * 2


@pytest.mark.gpu
@pytest.mark.parametrize("num_layers", [1, 3, 4])
def test_answers_stay_on_a_gpu(num_layers: int, tmp_path: Path) -> None:
    """Prompts at once, and decodes of sizes that come again, so that their steps are graphs with copies in them."""
    make_text_model(tmp_path, "llama")
    params = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
    groups = [["hello there you"], ["abc", "x" * 40, "pq"], ["y" * 90, "hello"], ["abc", "x" * 40, "pq"]]

    def answers(**settings: object) -> list[list[list[int]]]:
        llm = LLM(str(tmp_path), dtype="float32", num_gpu_blocks_override=512, max_num_seqs=4, **settings)
        try:
            return [[each.outputs[0].token_ids for each in llm.generate(g, params, use_tqdm=False)] for g in groups]
        finally:
            llm.close()

    layer = sum(weight.nbytes for weight in _layer_weights(tmp_path))
    assert answers(offload_gb=(num_layers - 0.5) * layer / 2**30) == answers()


def _layer_weights(folder: Path) -> list[Tensor]:
    from safetensors.torch import load_file

    tensors = load_file(next(folder.glob("*.safetensors")))
    return [tensor.float() for name, tensor in tensors.items() if ".layers.0." in name]
