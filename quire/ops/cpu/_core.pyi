"""The native core as Python sees it; csrc/module.cpp defines it. Tensors cross as addresses."""

from collections.abc import Sequence

Place = Sequence[int]  # offset and bytes of a row in the arena, and bytes into the row; offset -1 - i is input i

float_scale: float

def compiled_variants() -> list[str]: ...
def variants() -> list[str]: ...
def matrix_bytes(layout: int, rows: int, columns: int) -> int: ...
def most_row_bytes(columns: int) -> int: ...
def rope_angles(
    positions: int, count: int, frequencies: int, stride: int, half: int, factor: float, cos: int, sin: int
) -> None: ...

class RowStates:
    def __init__(
        self,
        num_rows: int,
        tokens: int,
        row_tokens: int,
        num_computed: int,
        lengths_for_angles: int,
        tables: Sequence[int],
        row_blocks: int,
    ) -> None: ...
    def step_inputs(
        self,
        rows: Sequence[int],
        counts: Sequence[int],
        block_size: int,
        num_tokens: int,
        numbers: int,
        tables: int,
        max_blocks: int,
    ) -> None: ...
    def finish_step(self, rows: int, lengths: int, num_sequences: int, tokens: int, num_sampled: int) -> None: ...

class Machine:
    def __init__(self, threads: int, cpus: Sequence[int], variant: str) -> None: ...
    @property
    def variant(self) -> str: ...
    @property
    def threads(self) -> int: ...
    def pack_rows(
        self, source: int, from_: int, rows: int, columns: int, layout: int, first_row: int, data: int
    ) -> None: ...
    def matrix_rows(self, matrix: Matrix, ids: int, count: int, out: int) -> None: ...
    def sample(
        self,
        logits: int,
        rows: int,
        columns: int,
        temperature: int,
        seed: int,
        stream: int,
        position: int,
        top_k: int,
        top_p: int,
        min_p: int,
        tokens: int,
    ) -> None: ...
    def argmax(self, logits: int, rows: int, columns: int, tokens: int, invalid: int) -> None: ...
    def token_logprobs(
        self, logits: int, rows: int, columns: int, count: int, places: int, tokens: int, most: int, packed: int
    ) -> None: ...
    def penalize(
        self,
        logits: int,
        rows: int,
        columns: int,
        history: int,
        num_rows: int,
        row_tokens: int,
        count: int,
        places: int,
        row_ids: int,
        prompts: int,
        positions: int,
        penalties: int,
    ) -> None: ...

class Matrix:
    def __init__(self, layout: int, data: int, rows: int, columns: int, factor: float, bias: int) -> None: ...

class PagedCache:
    def __init__(self, type: int, keys: int, values: int, block_size: int, kv_heads: int, head_dim: int) -> None: ...

class Program:
    def __init__(self, bytes_per_row: int) -> None: ...
    def add(self, a: Place, b: Place, to: Place, columns: int) -> None: ...
    def scale(self, from_: Place, to: Place, columns: int, factor: float) -> None: ...
    def scale_row(self, from_: Place, factor: Place, to: Place, columns: int) -> None: ...
    def sigmoid(self, from_: Place, to: Place, columns: int) -> None: ...
    def rms_norm(
        self,
        from_: Place,
        to: Place,
        weight: int,
        columns: int,
        count: int,
        weight_stride: int,
        eps: float,
        offset: float,
    ) -> None: ...
    def layer_norm(
        self,
        from_: Place,
        to: Place,
        weight: int,
        bias: int,
        columns: int,
        count: int,
        weight_stride: int,
        eps: float,
    ) -> None: ...
    def gate(self, from_: Place, to: Place, columns: int, activation: int, gated: bool) -> None: ...
    def rotate(self, heads: Place, num_heads: int, head_dim: int, cos: int, sin: int, half: int) -> None: ...
    def write_kv(self, key: Place, value: Place, cache: PagedCache, slots: int) -> None: ...
    def write_latent(self, latent: Place, cache: PagedCache, slots: int) -> None: ...
    def copy_heads(
        self, from_: Place, from_stride: int, to: Place, to_stride: int, num_heads: int, columns: int
    ) -> None: ...
    def pack(self, from_: Place, to: Place, columns: int, layout: int) -> None: ...
    def linear(self, matrix: Matrix, from_: Place, to: Place) -> None: ...
    def multiply_heads(
        self, matrix: Matrix, from_: Place, from_stride: int, to: Place, to_stride: int, num_heads: int, size: int
    ) -> None: ...
    def route(
        self,
        logits: Place,
        ids: Place,
        factors: Place,
        correction: int,
        num_experts: int,
        top_k: int,
        scores: int,
        renormalize: bool,
        scale: float,
        nearness: float,
        groups: int,
        top_groups: int,
        counted: int,
    ) -> None: ...
    def experts(
        self,
        up: Sequence[Matrix],
        down: Sequence[Matrix],
        x: Place,
        ids: Place,
        factors: Place,
        hidden: int,
        size: int,
        top_k: int,
        activation: int,
        weighs_input: bool,
    ) -> None: ...
    def sum_experts(self, factors: Place, to: Place, top_k: int, columns: int, weighs_input: bool) -> None: ...
    def expert_load(self) -> list[list[int]]: ...
    def attention(
        self,
        query: Place,
        to: Place,
        cache: PagedCache,
        heads: int,
        value_dim: int,
        scale: float,
        window: int,
        chunk: int,
        softcap: float,
        sinks: int,
        tables: int,
        starts: int,
        lengths: int,
        count: int,
    ) -> None: ...
    def run(
        self, machine: Machine, rows: int, first_prompt: int, last_prompt: int, inputs: Sequence[tuple[int, int]]
    ) -> None: ...
