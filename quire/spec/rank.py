"""From a model's spec to that of one rank's part of it: a smaller model, whose tensors say what they take of the whole.

Attention is cut by heads, an MLP and every expert inside itself, unless experts stay whole and are spread; words and
head are cut by vocabulary. What is neither is whole
on every rank: norms of the stream, routers, positions. Where ranks attend each to sequences of their own, experts alone
are spread and all else is whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from quire.spec.draft_head import DraftHeadSpec
from quire.spec.expert_copies import HeldExperts, first_copies
from quire.spec.experts import ExpertsSpec
from quire.spec.latent import LatentAttentionSpec
from quire.spec.layer import AttentionSpec, HeadNormsSpec, LayerSpec
from quire.spec.layout import HeadParts
from quire.spec.matrix import MatrixSpec
from quire.spec.mlp import MlpSpec
from quire.spec.model import ModelSpec
from quire.spec.norm import NormSpec
from quire.spec.share import AxisShare, Share, cut_parts, even_share
from quire.spec.tensor import TensorSpec


@dataclass(frozen=True, slots=True)
class Place:
    """Which of a model's ranks, and the columns of stored matrices that cannot be taken apart (`grain`)."""

    rank: int
    ranks: int
    grain: int = 1
    whole_experts: bool = False
    """Whether experts are spread over the ranks, each whole on one of them, instead of being cut (expert parallel)."""
    spare_experts: int = 0
    """Places of each rank, in every layer with experts, for copies of experts that are whole on another."""
    experts_alone: bool = False
    """Whether experts are all that is spread, since each rank attends to sequences of its own (data parallel
    attention)."""

    def share(self, whole: int) -> range:
        return even_share(whole, self.rank, self.ranks, self.grain)


def rank_spec(spec: ModelSpec, place: Place) -> ModelSpec:
    """One rank's part; all of it where there is but one. `vocab_size` stays that of all ranks together."""
    if place.ranks == 1:
        return spec
    if place.experts_alone:
        return replace(spec, layers=tuple(rank_layer(layer, place) for layer in spec.layers))
    return replace(
        spec,
        layers=tuple(rank_layer(layer, place) for layer in spec.layers),
        embedding=replace(spec.embedding, words=_cut_tokens(spec.embedding.words, place)),
        head=None if spec.head is None else _cut_tokens(spec.head, place),
        draft_head=None if spec.draft_head is None else _draft_head(spec.draft_head, place),
    )


def _cut_tokens(matrix: MatrixSpec, place: Place) -> MatrixSpec:
    """Of a matrix with a row for each token, those of a rank; a head that drafts may have rows for some tokens."""
    return _cut_rows(matrix, [even_share(matrix.rows, place.rank, place.ranks)])


def _draft_head(spec: DraftHeadSpec, place: Place) -> DraftHeadSpec:
    """What joins words and features is whole everywhere; Medusa's matrices of logits are cut."""
    chains = tuple((*blocks, _cut_tokens(last, place)) for *blocks, last in spec.chains)
    return replace(spec, chains=chains)


def rank_layer(layer: LayerSpec, place: Place) -> LayerSpec:
    """One rank's part of a layer."""
    if place.ranks == 1:
        return layer
    if place.experts_alone:
        return replace(layer, mlp=_spread_experts(layer.mlp, place)) if isinstance(layer.mlp, ExpertsSpec) else layer
    spec = layer.attention
    attention = _latent(spec, place) if isinstance(spec, LatentAttentionSpec) else _attention(spec, place)
    mlp = _experts(layer.mlp, place) if isinstance(layer.mlp, ExpertsSpec) else _mlp(layer.mlp, place)
    return replace(layer, attention=attention, mlp=mlp)


def heads_of(num_heads: int, place: Place) -> range:
    """Heads of a rank; where there are more ranks than heads, several ranks have the same one."""
    if num_heads < place.ranks:
        head = place.rank * num_heads // place.ranks
        return range(head, head + 1)
    each = num_heads // place.ranks
    return range(place.rank * each, (place.rank + 1) * each)


def _attention(spec: AttentionSpec, place: Place) -> AttentionSpec:
    heads, kv_heads = heads_of(spec.num_heads, place), heads_of(spec.num_kv_heads, place)
    size = spec.head_dim
    queries, keys = _times(heads, size), _times(kv_heads, size)
    first_key = spec.num_heads * size
    first_value = first_key + spec.num_kv_heads * size
    rows = [queries, _moved(keys, first_key), _moved(keys, first_value)]
    norms = spec.head_norms
    return replace(
        spec,
        qkv=_cut_rows(spec.qkv, rows),
        out=_cut_columns(spec.out, queries, place),
        num_heads=len(heads),
        num_kv_heads=len(kv_heads),
        head_norms=None if norms is None else _head_norms(norms, heads, kv_heads, size),
        sinks=None if spec.sinks is None else _cut_vector(spec.sinks, heads),
    )


def _latent(spec: LatentAttentionSpec, place: Place) -> LatentAttentionSpec:
    """All heads read the same latent, which every rank makes and caches; what is made of it is each head's own."""
    heads = heads_of(spec.num_heads, place)
    queries, values = _times(heads, spec.head_dim), _times(heads, spec.value_dim)
    rows = [_times(heads, spec.nope_dim), _moved(values, spec.num_heads * spec.nope_dim)]
    down, query = spec.down, spec.query
    if query is None:
        down = _cut_rows(down, [queries, range(spec.num_heads * spec.head_dim, down.rows)])
    else:
        query = _cut_rows(query, [queries])
    up = replace(_cut_rows(spec.up, rows), heads=HeadParts(len(heads), spec.nope_dim, spec.value_dim))
    out = _cut_columns(spec.out, values, place)
    return replace(spec, down=down, query=query, up=up, out=out, num_heads=len(heads))


def _head_norms(spec: HeadNormsSpec, heads: range, kv_heads: range, size: int) -> HeadNormsSpec:
    """One weight for all heads is whole everywhere; where each has its own, it goes with its head."""
    if spec.span == "all":
        query, key = _cut_norm(spec.query, _times(heads, size)), _cut_norm(spec.key, _times(kv_heads, size))
        return replace(spec, query=query, key=key)
    cut = [
        _cut_norm(norm, taken) if len(norm.shape) == 2 else norm
        for norm, taken in ((spec.query, heads), (spec.key, kv_heads))
    ]
    return replace(spec, query=cut[0], key=cut[1])


def _mlp(spec: MlpSpec, place: Place) -> MlpSpec:
    size = spec.down.columns
    taken = place.share(size)
    above = [_moved(taken, first) for first in range(0, spec.up.rows, size)]
    return replace(spec, up=_cut_rows(spec.up, above), down=_cut_columns(spec.down, taken, place))


def _experts(spec: ExpertsSpec, place: Place) -> ExpertsSpec:
    """Every rank has some of every expert, so that all have equally much to do, whatever tokens choose; or, where
    experts stay whole, some experts.
    """
    if place.whole_experts:
        return _spread_experts(spec, place)
    taken = place.share(spec.size)
    above = [_moved(taken, first) for first in range(0, spec.up.rows, spec.size)]
    return replace(
        spec,
        up=_cut_rows(spec.up, above),
        down=_cut_columns(spec.down, taken, place),
        shared=None if spec.shared is None else _mlp(spec.shared, place),
    )


def _spread_experts(spec: ExpertsSpec, place: Place) -> ExpertsSpec:
    """Some experts and their biases; all tokens' sums over ranks are those over all experts."""
    copies = first_copies(spec.num_experts, place.ranks, place.spare_experts)
    held = HeldExperts(place.rank, spec.num_experts, copies)
    is_cut = spec.shared is not None and not place.experts_alone
    shared = _mlp(spec.shared, place) if is_cut and spec.shared is not None else spec.shared
    return replace(some_experts(spec, held.experts), held=held, shared=shared)


def some_experts(spec: ExpertsSpec, experts: Sequence[int]) -> ExpertsSpec:
    """A layer's matrices of these experts alone, which are in order and of which none comes twice."""
    count, size, hidden = spec.num_experts, spec.size, spec.down.rows // spec.num_experts
    runs = _runs(experts)
    up = [_moved(_times(run, size), first) for first in range(0, spec.up.rows, count * size) for run in runs]
    return replace(
        spec,
        up=replace(_cut_rows(spec.up, up), experts=len(experts)),
        down=replace(_cut_rows(spec.down, [_times(run, hidden) for run in runs]), experts=len(experts)),
    )


def _runs(numbers: Sequence[int]) -> list[range]:
    """Numbers in order as ranges without gaps."""
    runs: list[range] = []
    for number in numbers:
        if runs and runs[-1].stop == number:
            runs[-1] = range(runs[-1].start, number + 1)
        else:
            runs.append(range(number, number + 1))
    return runs


def _cut_rows(matrix: MatrixSpec, rows: Sequence[range]) -> MatrixSpec:
    """These rows of all parts together; a bias goes with its rows. Parts that nothing is taken of are left out."""
    shares = cut_parts([part.rows for part in matrix.parts], rows)
    parts = [
        replace(part, rows=share.size, share=share)
        for part, share in zip(matrix.parts, shares, strict=True)
        if share.size
    ]
    return replace(matrix, parts=tuple(parts))


def _cut_columns(matrix: MatrixSpec, columns: range, place: Place) -> MatrixSpec:
    """Outputs are sums over ranks, so that the bias is the first rank's alone."""
    share = AxisShare(matrix.columns, (columns,))
    return replace(matrix, columns=len(columns), column_share=share, bias=matrix.bias and place.rank == 0)


def _cut_norm(norm: NormSpec, taken: range) -> NormSpec:
    share = AxisShare(norm.shape[0], (taken,))
    return replace(norm, shape=(len(taken), *norm.shape[1:]), share=share)


def _cut_vector(tensor: TensorSpec, taken: range) -> TensorSpec:
    share = Share(AxisShare(tensor.shape[0], (taken,)))
    return replace(tensor, shape=(len(taken), *tensor.shape[1:]), share=share)


def _times(places: range, size: int) -> range:
    return range(places.start * size, places.stop * size)


def _moved(places: range, by: int) -> range:
    return range(places.start + by, places.stop + by)
