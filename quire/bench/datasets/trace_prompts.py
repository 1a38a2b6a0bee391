"""Traces of real traffic: lengths, moments and shared pieces are the trace's, the tokens are random."""

from random import Random

from quire.bench.datasets.dataset_config import DatasetConfig, PromptForm
from quire.bench.datasets.random_prompts import planned
from quire.bench.planned import PlannedRequest
from quire.bench.vocabulary import Vocabulary
from quire.simulation.trace import TraceReader
from quire.simulation.workload import SimulatedRequest


def trace_requests(
    config: DatasetConfig, vocabulary: Vocabulary, form: PromptForm, seed: int, salt: str
) -> list[PlannedRequest]:
    """In the order of arrival. Prompts with equal hash ids at the start begin with the same tokens."""
    assert config.dataset_path is not None
    path = config.dataset_path.expanduser()
    lines = TraceReader(path, config.trace_time, config.trace_block, config.num_requests).read()
    return [
        planned(
            number,
            _pieces(line, vocabulary, form, f"{seed} {salt}"),
            config.output_len or line.output_tokens,
            line.arrival,
        )
        for number, line in enumerate(lines)
    ]


def _pieces(line: SimulatedRequest, vocabulary: Vocabulary, form: PromptForm, source: str) -> list[list[int] | str]:
    """One for each hash id, drawn from the id alone, and one of its own."""
    left = line.input_tokens
    pieces: list[list[int] | str] = []
    for hash_id in line.hash_ids:
        pieces.append(_piece(vocabulary, form, min(line.hash_block, left), f"{source} shared {hash_id}"))
        left -= min(line.hash_block, left)
    if left:
        pieces.append(_piece(vocabulary, form, left, f"{source} own {line.number}"))
    return pieces


def _piece(vocabulary: Vocabulary, form: PromptForm, count: int, source: str) -> list[int] | str:
    draw = Random(source)
    return vocabulary.ids(count, draw) if form == "ids" else vocabulary.text(count, draw)
