"""Beam search on the engine: beams are sequences that share blocks; each step drops some and forks others."""

import time
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from quire.core.checks import MAX_LOGPROBS
from quire.core.errors import InvalidRequest
from quire.core.prompt import Prompt
from quire.core.request import Request
from quire.core.sampling_params import SamplingParams
from quire.core.sequence import Sequence
from quire.core.status import Status
from quire.engine.loop import EngineLoop
from quire.sampling.beam import Beam, BeamSearch, EarlyStopping, Finished, Offer


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamSearchParams:
    """What a beam search is asked for. Names follow vLLM's, `early_stopping` transformers'."""

    beam_width: int
    """Beams that are kept at every step, and returned."""
    max_tokens: int
    """Longest output of a beam."""
    ignore_eos: bool = False
    """Go on after the model's end token."""
    length_penalty: float = 1.0
    """Scores are divided by the length to this power: larger values favour longer beams."""
    early_stopping: EarlyStopping = False
    """True: over with `beam_width` finished beams. False: when no beam would beat them if it ended now. "never": when
    none could at any length."""

    def __post_init__(self) -> None:
        for name in ("beam_width", "max_tokens"):
            if getattr(self, name) < 1:
                raise InvalidRequest(f"{name} is {getattr(self, name)}; it must be 1 or more", field=name)


@dataclass(slots=True)
class _Search:
    """One prompt's search and the sequences of its beams, in the order of the beams."""

    beams: BeamSearch
    sequences: list[Sequence]
    offers: dict[int, Offer] = field(default_factory=dict)


def beam_search(
    loop: EngineLoop, prompts: Seq[tuple[int, ...]], params: BeamSearchParams, stop_ids: Seq[int]
) -> list[list[Finished]]:
    """The finished beams of every prompt, best first. The engine must have no other work."""
    stops = () if params.ignore_eos else tuple(stop_ids)
    searches = [_start(loop, number, prompt, params, stops) for number, prompt in enumerate(prompts)]
    by_request = {search.sequences[0].request.id: search for search in searches}
    with loop.one_at_a_time():  # what is chosen after a step decides what the next one computes
        while any(not search.beams.is_done for search in searches):
            update, _ = loop.step()
            for seq in update.sequences:
                [found] = update.logprobs[seq.id]
                by_request[seq.request.id].offers[seq.id] = found.top
            for search in searches:
                if search.sequences and all(seq.id in search.offers for seq in search.sequences):
                    _advance(loop, search)
        while loop.has_work:
            loop.step()
    return [search.beams.finished for search in searches]


def _start(
    loop: EngineLoop, number: int, prompt: tuple[int, ...], params: BeamSearchParams, stops: tuple[int, ...]
) -> _Search:
    beams = BeamSearch(params.beam_width, params.max_tokens, stops, params.length_penalty, params.early_stopping)
    rows = loop.scheduler.limits.max_num_seqs
    most = min(rows, MAX_LOGPROBS // max(2, 1 + len(stops)))
    if params.beam_width > most:
        raise InvalidRequest(f"beam_width is {params.beam_width}; it must be at most {most} here", field="beam_width")
    # the search decides what ends: the engine must neither stop a beam nor run out of length before it does
    asked = SamplingParams(
        temperature=0.0,
        logprobs=beams.num_candidates,
        max_tokens=params.max_tokens + 1,
        ignore_eos=True,
        detokenize=False,
    )
    request = Request(
        id=f"beam-{number}-{time.monotonic()}", prompt=Prompt(prompt), params=asked, arrival=time.monotonic()
    )
    return _Search(beams, loop.add(request))


def _advance(loop: EngineLoop, search: _Search) -> None:
    """Choose the next beams and make the sequences follow: one goes on per beam, the others are forked or dropped."""
    offers = [search.offers[seq.id] for seq in search.sequences]
    search.offers = {}
    parents, search.sequences = search.sequences, []
    chosen = search.beams.advance(offers)
    children: dict[int, list[Beam]] = {place: [] for place in range(len(parents))}
    for beam in chosen:
        children[beam.parent].append(beam)
    placed: dict[int, Sequence] = {}
    for place, parent in enumerate(parents):
        if not children[place]:
            loop.end(parent, Status.ABORTED)
            continue
        first, *others = children[place]
        # forked before the parent's own last token changes
        for beam in others:
            placed[id(beam)] = loop.fork(parent, beam.tokens[-1])
        loop.scheduler.rewrite(parent, first.tokens[-1])
        placed[id(first)] = parent
    search.sequences = [placed[id(beam)] for beam in chosen]
