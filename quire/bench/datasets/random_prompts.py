"""Random prompts of wanted lengths, with shared prefixes where they are asked for."""

from collections.abc import Sequence
from random import Random

from quire.bench.datasets.dataset_config import USUAL_OUTPUT, USUAL_REQUESTS, DatasetConfig, PromptForm
from quire.bench.planned import PlannedRequest
from quire.bench.vocabulary import Vocabulary


def random_requests(
    config: DatasetConfig, vocabulary: Vocabulary, form: PromptForm, seed: int, salt: str
) -> list[PlannedRequest]:
    """Lengths by the seed alone, tokens by seed and salt. No two prompts share more than their group's prefix."""
    draw = Random(f"{seed} prompts {salt}")
    lengths = Random(f"{seed} lengths")
    prefixes = [_piece(vocabulary, form, config.prefix_len, draw) for _ in range(config.prefix_groups)]
    made = []
    for number in range(config.num_requests or USUAL_REQUESTS):
        prefix = prefixes[number % len(prefixes)]
        own = _piece(vocabulary, form, _length(config.input_len, config.range_ratio, lengths), draw)
        output = _length(config.output_len or USUAL_OUTPUT, config.range_ratio, lengths)
        made.append(planned(number, [prefix, own] if config.prefix_len else [own], output))
    return made


def planned(
    number: int, pieces: Sequence[list[int] | str], output: int | None, arrival: float | None = None
) -> PlannedRequest:
    """A request of ids or text, from pieces that are all of one form."""
    texts = [piece for piece in pieces if isinstance(piece, str)]
    if texts:
        return PlannedRequest(number, text=" ".join(texts), output_tokens=output, arrival=arrival)
    ids = tuple(token for piece in pieces if not isinstance(piece, str) for token in piece)
    return PlannedRequest(number, ids=ids, output_tokens=output, arrival=arrival)


def _piece(vocabulary: Vocabulary, form: PromptForm, count: int, draw: Random) -> list[int] | str:
    return vocabulary.ids(count, draw) if form == "ids" else vocabulary.text(count, draw)


def _length(mean: int, ratio: float, draw: Random) -> int:
    low, high = int(mean * (1 - ratio)), int(mean * (1 + ratio))
    return max(1, low if low == high else draw.randint(low, high))
