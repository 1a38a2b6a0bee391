"""Which model to run and in which numbers."""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from quire.config.bounds import check, flag
from quire.core.plugins import check_known, check_permission
from quire.spec.quantization import Online

Dtype = Literal["auto", "float32", "float16", "bfloat16"]
PackedWeights = Literal["auto", "keep", "expand"]
CpuCompute = Literal["fast", "exact"]
LoadFormat = Literal["auto", "dummy"]
ModelImpl = Literal["auto", "quire", "transformers"]

DEFAULT_MODEL = "smollm2"
"""What every command without a model uses."""
NO_MMPROJ = "none"
"""Of the mmproj files that lie beside a GGUF model."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Which model to run and in which numbers."""

    model: str = DEFAULT_MODEL
    """A folder with config.json and *.safetensors, a .gguf file, or a hub id such as meta-llama/Meta-Llama-3-8B.
    smollm2 is SmolLM2-135M-Instruct, downloaded when it is first used."""
    _: KW_ONLY
    revision: str | None = None
    """Branch, tag or commit of a hub id. Unset: its main branch."""
    mmproj: str | None = None
    """The mmproj file of a GGUF model, with its vision encoder and projector (docs/multimodal.md). Unset: the one that
    lies beside the model, if there is just one and it fits. none: the model reads texts alone."""
    dtype: Dtype = "auto"
    """What the model computes in. auto: the checkpoint's own where the device is fast at it."""
    max_model_len: int | None = None
    """Longest prompt plus answer, in tokens. Unset: the checkpoint's, or less where the KV cache holds less."""
    packed_weights: PackedWeights = "auto"
    """Weights that are stored packed, as in GGUF files and quantized folders: keep them so, or expand them once when
    they are loaded, which takes more memory. auto: keep them on a CPU with the native core, which multiplies packed
    weights, and a quantized folder's on a GPU; elsewhere expand where that takes at most half of what quire may use."""
    quantization: Online | None = None
    """Quantize 16-bit weights as they are loaded, one matrix at a time: fp8 (E4M3) or int8, a scale for each row and,
    for activations, each token. The embedding and the output head stay as they are. A checkpoint that is quantized
    already needs no flag. Unset: weights stay as they are stored."""
    cpu_compute: CpuCompute = "fast"
    """How a CPU computes. fast: the native core, on weights as they are stored and activations in 8 bits where the
    weights are packed, those of prompts in bfloat16 where the CPU has AMX; a token's numbers do not depend on what is
    computed with it, bit for bit. exact: torch, in float32 on expanded weights."""
    batch_invariant: bool = False
    """Have a GPU compute each token's numbers in the same order of sums whatever else is in the batch, however prompts
    are cut, cached or not: results are equal bit for bit. Costs some speed. The native core of a CPU always does."""
    cpu_threads: int | None = None
    """Threads that compute. Unset: torch's own choice where torch computes; for the native core one for each physical
    core that quire may use, divided between replicas, and no more than OMP_NUM_THREADS where that is set."""
    compile: bool = False
    """Have torch.compile fuse what stands around attention. Starts take minutes longer, and much less once its cache is
    filled. Not with the native core of a CPU, which is faster, nor with offload_gb, nor with quantized
    weights."""
    offload_gb: float = 0.0
    """GiB of a GPU model's weights to keep in host memory. Of a model with experts these are experts, which come when
    tokens choose them and leave when others were chosen since; of others they are whole layers, which come for every
    step. Of a CPU they are experts that stay in their file until they are chosen. 0: none."""
    load_format: LoadFormat = "auto"
    """auto: the weights in the model's files. dummy: random weights of the shapes in its config.json, to measure speed
    without them."""
    model_impl: ModelImpl = "auto"
    """Whose code the model is. quire: its own families, and others are refused. transformers: that library's modules
    with quire's cache, scheduler and sampling, which is slower (`pip install quire[transformers]`). auto: quire's where
    there is one."""
    skip_tokenizer: bool = False
    """Load no tokenizer: prompts are token ids and answers have no text. For measurements with LLM."""
    device_plugin: str | None = None
    """The plugin (docs/plugins.md) whose device computes, eagerly and without kernels of quire's own. Unset: a GPU
    where there is one, else the CPU."""
    logits_processors: str = ""
    """Plugins of logits processors (docs/plugins.md), with commas between their names: they are loaded now, and
    requests may name them in logits_processor_args."""
    plugins: str | None = None
    """Which plugins of installed packages may be used. named: those that a setting names, none because a model's files
    ask for it. all: these too. none. Or names of packages or plugins with commas between them: only those. Unset:
    named. `quire plugins` lists what is there."""
    lazy_loading: bool = True
    """Take requests while layers are still being loaded: one waits only for the layer it has come to, or, on the native
    core of a CPU, until all are there."""

    def __post_init__(self) -> None:
        check(bool(self.model.strip()), "model", self.model, "a path or a hub id", "name one")
        if self.max_model_len is not None:
            fix = "give a length in tokens or leave it out to have it decided"
            check(self.max_model_len >= 2, "max_model_len", self.max_model_len, "2 or more", fix)
        if self.cpu_threads is not None:
            fix = "leave it out for one on each physical core"
            check(1 <= self.cpu_threads <= 1024, "cpu_threads", self.cpu_threads, "1 to 1024", fix)
        ok = math.isfinite(self.offload_gb) and self.offload_gb >= 0
        check(ok, "offload_gb", self.offload_gb, "0 or more GiB", "0 keeps every layer on the device")
        if self.device_plugin is not None:
            check_known("quire.devices", flag("device_plugin"), self.device_plugin, ())
        for name in self.processor_names:
            check_known("quire.logits_processors", flag("logits_processors"), name, ())
        if self.plugins is not None:
            check_permission(self.plugins)
        if self.mmproj is not None:
            check(bool(self.mmproj.strip()), "mmproj", self.mmproj, "a path or none", "or leave it out")
        if self.revision is not None:
            check(bool(self.revision.strip()), "revision", self.revision, "a branch, tag or commit", "or leave it out")

    @property
    def processor_names(self) -> tuple[str, ...]:
        """What `logits_processors` names."""
        return tuple(dict.fromkeys(name.strip() for name in self.logits_processors.split(",") if name.strip()))
