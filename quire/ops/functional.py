"""Every op by name, typed. Each call goes to the implementation for the device its tensors are on."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol

import torch
from torch import Tensor

from quire.core.pasts import Pasts
from quire.core.routing import Routing
from quire.ops.adjustments import Adjusted, Adjustments
from quire.ops.dispatch import implementation
from quire.ops.head_norms import HeadNorms
from quire.ops.lora_tensors import AdapterRows, ExpertLora, LoraMatrix
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.row_tensors import RowTensors
from quire.ops.speech_tensors import SpeechTensors
from quire.ops.step_tensors import PrefixTiles, RowStates, StepTensors

if TYPE_CHECKING:
    from quire.ops.cpu.packed_heads import PackedUp
    from quire.ops.cpu.packed_linear import PackedLinear

Activation = Literal["silu", "gelu", "gelu_tanh", "quick_gelu", "relu", "clamped_swiglu"]


def rms_norm(x: Tensor, weight: Tensor, eps: float, offset: float = 0.0) -> Tensor:
    """`x / rms(x) * (weight + offset)` over the last dimension, computed in float32."""
    result: Tensor = implementation("rms_norm", x.device.type)(x, weight, eps, offset)
    return result


def add_rms_norm(x: Tensor, added: Tensor, weight: Tensor, eps: float, offset: float = 0.0) -> tuple[Tensor, Tensor]:
    """`x + added`, and the `rms_norm` of that. All [tokens, size]; `x` may be overwritten."""
    result: tuple[Tensor, Tensor] = implementation("add_rms_norm", x.device.type)(x, added, weight, eps, offset)
    return result


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """`(x - mean) / deviation * weight + bias` over the last dimension; no bias is a bias of 0."""
    result: Tensor = implementation("layer_norm", x.device.type)(x, weight, bias, eps)
    return result


def add_layer_norm(x: Tensor, added: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """`x + added`, and the `layer_norm` of that. All [tokens, size]; `x` may be overwritten."""
    result: tuple[Tensor, Tensor] = implementation("add_layer_norm", x.device.type)(x, added, weight, bias, eps)
    return result


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x weightᵀ + bias`. x: [..., in], weight: [out, in], bias: [out]."""
    result: Tensor = implementation("linear", x.device.type)(x, weight, bias)
    return result


def quantized_linear(x: Tensor, matrix: QuantizedMatrix, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b for a matrix in 8 bits or fewer; x is quantized first where the matrix says so."""
    result: Tensor = implementation("quantized_linear", x.device.type)(x, matrix, bias)
    return result


def batch_invariant_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`linear` whose result for a row does not depend on the other rows, bit for bit."""
    result: Tensor = implementation("batch_invariant_linear", x.device.type)(x, weight, bias)
    return result


def expand_matrix(matrix: QuantizedMatrix, dtype: torch.dtype) -> Tensor:
    """The numbers that it stands for, [rows, columns] in the order of its columns, rounded once."""
    result: Tensor = implementation("expand_matrix", matrix.values.device.type)(matrix, dtype)
    return result


def route_tokens(
    logits: Tensor,
    correction: Tensor | None,
    routing: Routing,
    counts: Tensor | None = None,
    counted: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The experts of each token and their weights, the best first: int64 and float32 [tokens, top_k].

    logits: [tokens, experts]; `correction` float32 [experts] is added to scores when experts are chosen. `counts` int32
    [experts] grow by the tokens that chose each, of the first `counted` int64 [1] tokens or of all.
    """
    result: tuple[Tensor, Tensor] = implementation("route_tokens", logits.device.type)(
        logits, correction, routing, counts, counted
    )
    return result


def experts_mlp(
    x: Tensor,
    ids: Tensor,
    weights: Tensor,
    up: "Tensor | QuantizedMatrix | PackedLinear",
    down: "Tensor | QuantizedMatrix | PackedLinear",
    activation: Activation,
    *,
    up_bias: Tensor | None = None,
    down_bias: Tensor | None = None,
    weighs_input: bool = False,
    lora: ExpertLora | None = None,
    some_elsewhere: bool = False,
) -> Tensor:
    """The sum over each token's experts of weight * down(activation(gate(x)) * up(x)). x: [tokens, hidden].

    `ids` and `weights` are those of `route_tokens`. up: [2 * experts * size, hidden], the gates of all experts and then
    their ups; down: [experts * hidden, size]; biases are in the order of rows. With `weighs_input` an expert reads
    weight * x instead, and its output counts as it is. A token's sum has an order of its own, whatever else is in the
    batch. `lora` is what adapters add to the experts' matrices. With `some_elsewhere` an id may be -1: that expert is
    on another rank, and adds nothing here.
    """
    result: Tensor = implementation("experts_mlp", x.device.type)(
        x, ids, weights, up, down, activation, up_bias, down_bias, weighs_input, lora, some_elsewhere
    )
    return result


def group_adapters(slots: Tensor, num_slots: int, experts: Tensor | None = None, num_experts: int = 1) -> AdapterRows:
    """Rows by their LoRA adapter, int32 [rows], -1: none; and by their expert, int64 [rows], where they have one."""
    result: AdapterRows = implementation("group_adapters", slots.device.type)(slots, num_slots, experts, num_experts)
    return result


def add_lora(y: Tensor, x: Tensor, matrix: LoraMatrix, rows: AdapterRows, bias: Tensor | None = None) -> Tensor:
    """y + B A x for each row's adapter, part by part; rows without one stay. y: [rows, out], x: [rows, in].

    y is x Wᵀ + `bias`, and may be overwritten. An adapter with magnitudes (DoRA) multiplies all but the bias.
    """
    result: Tensor = implementation("add_lora", y.device.type)(y, x, matrix, rows, bias)
    return result


def embed_lora(x: Tensor, ids: Tensor, matrix: LoraMatrix, rows: AdapterRows) -> Tensor:
    """x + B A[token] for each row's adapter. x: [rows, hidden], ids: int64 [rows]; x may be overwritten."""
    result: Tensor = implementation("embed_lora", x.device.type)(x, ids, matrix, rows)
    return result


def packed_linear(x: Tensor, weight: "PackedLinear") -> Tensor:
    """x Wᵀ + b for weights in layouts of the native CPU core."""
    result: Tensor = implementation("packed_linear", x.device.type)(x, weight)
    return result


def activate(x: Tensor, activation: Activation) -> Tensor:
    """`activation(x)`."""
    result: Tensor = implementation("activate", x.device.type)(x, activation)
    return result


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the first `2 * cos.shape[-1]` of each head. x: [tokens, heads, head_dim], cos and sin: [tokens, half]."""
    result: Tensor = implementation("rotary", x.device.type)(x, cos, sin)
    return result


def gated_activation(gate_up: Tensor, activation: Activation) -> Tensor:
    """`activation(gate) * up` for gate and up side by side: [..., 2 * size] to [..., size]."""
    result: Tensor = implementation("gated_activation", gate_up.device.type)(gate_up, activation)
    return result


def write_kv(
    key: Tensor, value: Tensor, keys: Tensor, values: Tensor, slots: Tensor, scales: Tensor | None = None
) -> None:
    """Store [tokens, kv_heads, head_dim] at `slots` of a paged cache [blocks, block_size, kv_heads, head_dim].

    A cache may be of 8 bits, as `reference/kv_numbers.py` has it: `scales` float32 [2] are what keys and values in fp8
    are divided by (None: 1); one of int8 keeps its own, in 4 more bytes of each vector.
    """
    implementation("write_kv", key.device.type)(key, value, keys, values, slots, scales)


def prepare_heads(
    heads: Tensor,
    num_kv_heads: int,
    norms: HeadNorms | None,
    angles: tuple[Tensor, Tensor] | None,
    keys: Tensor,
    values: Tensor,
    slots: Tensor,
    scales: Tensor | None = None,
) -> Tensor:
    """The queries among `heads` [tokens, all heads, head_dim], normed and turned; keys and values go to `slots`.

    Heads are those of queries, then keys, then values. `angles` are cos and sin as `rotary` takes them, the cache and
    its scales are as `write_kv` takes them. What `heads` holds afterwards is undefined.
    """
    result: Tensor = implementation("prepare_heads", heads.device.type)(
        heads, num_kv_heads, norms, angles, keys, values, slots, scales
    )
    return result


def paged_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    tables: Tensor,
    query_starts: Tensor,
    lengths: Tensor,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    scales: Tensor | None = None,
    sinks: Tensor | None = None,
    chunk: int | None = None,
) -> Tensor:
    """Causal attention of each sequence's new tokens over its paged KV, the new tokens included.

    query: [tokens, heads, head_dim], sequence after sequence; `query_starts` [sequences + 1] says where each
    begins. keys and values: [blocks, block_size, kv_heads, head_dim]; `tables` [sequences, blocks] and `lengths`
    [sequences] say where a sequence's KV is and how much there is. The last query of a sequence stands at its
    last position. A window of w sees the w latest positions, itself included; with a chunk of c instead a token sees
    those of its own stretch of c positions, which begin at multiples of c. `scales` are those of `write_kv`. `sinks`
    float32 [heads] are scores of a key whose value is 0, which every token sees beside the others.
    """
    result: Tensor = implementation("paged_attention", query.device.type)(
        query, keys, values, tables, query_starts, lengths, scale, window, softcap, scales, sinks, chunk
    )
    return result


def batch_invariant_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    tables: Tensor,
    query_starts: Tensor,
    lengths: Tensor,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    scales: Tensor | None = None,
    sinks: Tensor | None = None,
    chunk: int | None = None,
) -> Tensor:
    """`paged_attention` whose result for a token depends on its own sequence alone, bit for bit.

    Not on the rest of the batch, nor on which of the sequence's tokens are new in this step. KV is not in 8 bits; sinks
    and chunks are for models with experts, which are never computed so.
    """
    result: Tensor = implementation("batch_invariant_attention", query.device.type)(
        query, keys, values, tables, query_starts, lengths, scale, window, softcap, scales, sinks, chunk
    )
    return result


class Attend(Protocol):
    """`paged_attention`, or what stands in for it in a step."""

    def __call__(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        tables: Tensor,
        query_starts: Tensor,
        lengths: Tensor,
        *,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
        scales: Tensor | None = None,
        sinks: Tensor | None = None,
        chunk: int | None = None,
    ) -> Tensor: ...


def shared_prefix_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    tables: Tensor,
    query_starts: Tensor,
    lengths: Tensor,
    *,
    tiles: PrefixTiles,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    scales: Tensor | None = None,
    sinks: Tensor | None = None,
    chunk: int | None = None,
) -> Tensor:
    """`paged_attention` in a step of decodes that reads the prefix of each tile of sequences once for all of them."""
    result: Tensor = implementation("shared_prefix_attention", query.device.type)(
        query, keys, values, tables, query_starts, lengths, tiles, scale, window, softcap, scales, sinks, chunk
    )
    return result


def prepare_latent(
    query: Tensor,
    compressed: Tensor,
    weight: Tensor,
    eps: float,
    angles: tuple[Tensor, Tensor],
    cache: Tensor,
    slots: Tensor,
    scales: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Queries whose last part is turned, and latents [tokens, latent_dim + rope_dim], which also go to `slots`.

    query: [tokens, heads, nope_dim + rope_dim]; compressed: [tokens, latent_dim + rope_dim], of which the latent is
    normed (`weight` [latent_dim]) and the rest is turned. cache: [blocks, block_size, latent_dim + rope_dim], of which
    one in fp8 is divided by the first of `scales`. What `query` and `compressed` hold afterwards is undefined.
    """
    result: tuple[Tensor, Tensor] = implementation("prepare_latent", query.device.type)(
        query, compressed, weight, eps, angles, cache, slots, scales
    )
    return result


def latent_attention(
    query: Tensor,
    latents: Tensor,
    up: "Tensor | PackedUp",
    cache: Tensor,
    tables: Tensor,
    query_starts: Tensor,
    lengths: Tensor,
    *,
    nope_dim: int,
    scale: float,
    scales: Tensor | None = None,
    pasts: Pasts | None = None,
) -> Tensor:
    """Causal attention of each sequence's new tokens over its latents: [tokens, heads, value_dim].

    query, `latents` of the new tokens and the cache are as `prepare_latent` leaves them; tables, starts and lengths as
    `paged_attention` takes them. A head's key is its rows of `up` [heads * nope_dim + heads * value_dim, latent_dim]
    times the latent, then the latent's rotary part; its value is its later rows of `up` times the latent. What
    `pasts` says changes no result, but how it is computed; None says nothing.
    """
    result: Tensor = implementation("latent_attention", query.device.type)(
        query, latents, up, cache, tables, query_starts, lengths, nope_dim, scale, scales, pasts
    )
    return result


def apply_speech_rules(
    logits: Tensor, rows: Tensor, positions: Tensor, history: Tensor, rules: SpeechTensors
) -> Tensor:
    """Logits in float32 of which only those are left that the rules of transcripts allow; rows without rules stay.

    Segments stand between pairs of timestamps that never go back, the first begins early, and where the timestamps
    together are likelier than every text, one of them comes. rows and positions: int64 [n], whose logits, and where the
    token will stand; history: int32 [rows, length], the tokens before it.
    """
    result: Tensor = implementation("apply_speech_rules", logits.device.type)(logits, rows, positions, history, rules)
    return result


def cross_attention(
    query: Tensor, keys: Tensor, values: Tensor, slots: Tensor, num_positions: int, *, scale: float
) -> Tensor:
    """Every token attends to all of the first `num_positions` positions of its slot.

    query: [tokens, heads, head_dim]; keys and values: [slots, positions, heads, head_dim], the positions a multiple of
    16; slots: int64 [tokens].
    """
    result: Tensor = implementation("cross_attention", query.device.type)(
        query, keys, values, slots, num_positions, scale
    )
    return result


def packed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    starts: Tensor,
    *,
    scale: float,
    window: int | None = None,
    bias: Tensor | None = None,
    lengths: tuple[int, ...] | None = None,
) -> Tensor:
    """Attention of every token to all tokens of its own sequence (encoders). All: [tokens, heads, head_dim].

    `starts` [sequences + 1] says where each sequence begins. With a window a token sees those up to `window // 2`
    positions away on either side, as ModernBERT's local attention does; so an even window of w sees w + 1, itself
    included. `bias` [heads, longest, longest] is added to scaled scores, by positions within a sequence. `lengths`
    are those of the sequences, where the host knows them and there is neither window nor bias.
    """
    if lengths is not None and window is None and bias is None:
        known: Tensor = implementation("attend_lengths", query.device.type)(query, key, value, lengths, scale)
        return known
    result: Tensor = implementation("packed_attention", query.device.type)(
        query, key, value, starts, scale, window, bias
    )
    return result


def rope_angles(positions: Tensor, frequencies: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    """cos and sin of `positions * frequencies`, times `factor`, in float32 [tokens, half].

    positions: int64 [tokens]; frequencies: float32 [half], or [tokens, half] where each token has its own.
    """
    result: tuple[Tensor, Tensor] = implementation("rope_angles", positions.device.type)(positions, frequencies, factor)
    return result


def step_inputs(
    rows: Sequence[int], counts: Sequence[int], states: RowStates, *, block_size: int, max_blocks: int
) -> StepTensors:
    """What a step reads that computes `counts` more tokens of `rows`.

    Tables are cut to `max_blocks`, which bounds the blocks of the longest sequence in the step.
    """
    result: StepTensors = implementation("step_inputs", states.tokens.device.type)(
        rows, counts, states, block_size, max_blocks
    )
    return result


def decode_inputs(rows: Tensor, states: RowStates, *, block_size: int, max_blocks: int, count: int = 1) -> StepTensors:
    """What a step reads that computes `count` more tokens of each of `rows`, int64 [sequences] on the device.

    As `step_inputs`, but with nothing that the host would have to know.
    """
    result: StepTensors = implementation("decode_inputs", rows.device.type)(rows, states, block_size, max_blocks, count)
    return result


def finish_step(states: RowStates, rows: Tensor, lengths: Tensor, tokens: Tensor | None) -> None:
    """`rows` are now computed up to `lengths`; behind them stand the `tokens` that the first of the rows sampled.

    All: int64 [sequences], but for the tokens, which may be fewer. No row comes twice.
    """
    implementation("finish_step", rows.device.type)(states, rows, lengths, tokens)


def accept_drafts(
    states: RowStates, rows: Tensor, lengths: Tensor, granted: Tensor, drawn: Tensor, ready: Tensor
) -> tuple[Tensor, Tensor]:
    """`rows` have computed their tokens up to `lengths`, of which the last `granted` were drafts: those that are right,
    and one token more, are theirs. Returns how many that is of each, at least 1, and how many drafts it was of.

    All int64 [sequences], but for `drawn` [sequences, most]: by place, from that behind the last known token on, what
    was drawn there. `ready` [all rows] is how many drafts a row has behind its last token: no more are looked at.
    """
    result: tuple[Tensor, Tensor] = implementation("accept_drafts", rows.device.type)(
        states, rows, lengths, granted, drawn, ready
    )
    return result


def lookup_drafts(
    states: RowStates,
    rows: Tensor,
    ready: Tensor,
    may_draft: Tensor,
    *,
    fewest: int,
    most: int,
    count: int,
    recent: Tensor | None = None,
) -> None:
    """Write `count` drafts behind the last token of each of `rows`, which stands where it is computed up to.

    They are what followed when the row's last tokens, `fewest` to `most` of them, stood there before. `ready` int64 and
    `may_draft` bool are of all rows: how many drafts were found is written to the former; rows that may not have
    drafts find none. No row comes twice. `recent` int32 [texts, length] are texts to look in besides, each up to its
    first -1.
    """
    implementation("lookup_drafts", rows.device.type)(states, rows, ready, may_draft, fewest, most, count, recent)


def adjust_logits(logits: Tensor, rows: Tensor, positions: Tensor, history: Tensor, asked: Adjustments) -> Adjusted:
    """`logits` [n, vocabulary] with what sequences ask to be changed about them; they stay what they are.

    `rows` and `positions` are int64 [n]: whose logits, and where in its sequence the token will stand; `history` int32
    [rows, length] has the tokens before. All of a row is changed that asks for anything.
    """
    result: Adjusted = implementation("adjust_logits", logits.device.type)(logits, rows, positions, history, asked)
    return result


def mask_logits(logits: Tensor, places: Tensor, masks: Tensor) -> None:
    """Of `logits` [n, vocabulary] the rows at `places` int64 [m], none of which comes twice: -inf in them is what
    `masks` int32 [m, words] leave out."""
    implementation("mask_logits", logits.device.type)(logits, places, masks)


def count_tokens(counts: RowTensors, rows: Tensor, tokens: Tensor) -> None:
    """Count the `tokens` just drawn for `rows`, both int64 [n], where these have counts (see `Adjustments`)."""
    implementation("count_tokens", rows.device.type)(counts, rows, tokens)


def argmax(logits: Tensor, adjusted: Adjusted | None = None) -> tuple[Tensor, Tensor]:
    """The lowest token with the largest logit of each row, and whether there is none: int64 and bool [rows].

    There is none in a row with NaN or +inf, or with nothing but -inf; the token is then 0. logits: [rows, vocabulary],
    in whose place stands what was `adjusted` of them.
    """
    function = implementation("argmax", logits.device.type)
    if adjusted is None or adjusted.which is None:
        result: tuple[Tensor, Tensor] = function(logits if adjusted is None else adjusted.values)
    else:
        result = function(logits, adjusted)
    return result


def sample_tokens(
    logits: Tensor,
    temperature: Tensor,
    seed: Tensor,
    stream: Tensor,
    position: Tensor,
    top_k: Tensor | None = None,
    top_p: Tensor | None = None,
    min_p: Tensor | None = None,
    *,
    adjusted: Adjusted | None = None,
    width: int | None = None,
) -> tuple[Tensor, Tensor]:
    """As `argmax`, but drawn by the Gumbel-max trick, filtered, where a row has a temperature; all but logits are [n].

    `width` bounds every top-k and promises that each row with a top-p below 1 has one.
    """
    function = implementation("sample_tokens", logits.device.type)
    settings = (temperature, seed, stream, position, top_k, top_p, min_p)
    if adjusted is None or adjusted.which is None:
        given = logits if adjusted is None else adjusted.values
        result: tuple[Tensor, Tensor] = function(given, *settings, width=width)
    else:
        result = function(logits, *settings, width=width, adjusted=adjusted)
    return result


def token_logprobs(logits: Tensor, tokens: Tensor, counts: Tensor, most: int) -> Tensor:
    """For `logits` [n, vocabulary] and `tokens` int64 [n], int32 [n, 1 + 2 * (1 + most)]: the rank of the given token;
    its id and those of the most likely ones; and the bits of their log probabilities, which are float32.

    Int32 `counts` [n] say of how many of the most likely a row needs to know, at most `most`; what stands behind these
    means nothing, and neither does anything of a row whose count is negative.
    """
    result: Tensor = implementation("token_logprobs", logits.device.type)(logits, tokens, counts, most)
    return result
