"""Flags of `vllm serve` that quire calls otherwise, needs no word of, or has not: what each means here.

Flags of the same name and meaning are not listed; docs/from_vllm.md is the page for people.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from quire.core.errors import ConfigError

COMMANDS = ("serve", "engine")
RENAMED = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-q": "--quantization",
    "-ep": "--enable-expert-parallel",
    "-n": "--nnodes",
    "-r": "--node-rank",
    "-sc": "--speculative-config",
    "--cpu-offload-gb": "--offload-gb",
    "--disable-fastapi-docs": "--no-enable-docs",
    "--disable-uvicorn-access-log": "--no-log-requests",
    "--enable-log-requests": "--log-requests",
    "--shutdown-timeout": "--drain-timeout",
    "--skip-tokenizer-init": "--skip-tokenizer",
    "--tool-call-parser": "--tool-parser",
    "--uvicorn-log-level": "--log-level",
}
"""The same under another name; `quire serve` takes both."""
ALWAYS = {
    "--async-scheduling": "the next step is always planned while one runs",
    "--enable-auto-tool-choice": "calls are always read, by the parser of the model or by --tool-parser",
    "--enable-chunked-prefill": "prompts are always cut into chunks",
    "--enable-prompt-tokens-details": "usage always has them",
    "--enable-request-id-headers": "answers always have x-request-id",
    "--enable-server-load-tracking": "/load always tells it",
    "--enable-sleep-mode": "engines can always sleep; see --sleep-after and POST /sleep",
    "--enable-tokenizer-info-endpoint": "/tokenizer_info is always there",
}
"""What is so without being asked for. They are taken with a remark; to turn one off is refused."""
_GRAPHS = "graphs are captured when a batch size comes again, and need no settings"
_COMPILE = "--compile turns torch.compile on; there is nothing else to set"
_KERNELS = "there is one set of kernels, chosen by what was measured on a device"
_TOKENIZER = "a model has the tokenizer that lies beside it; put both into one folder"
_HEADER = "a checkpoint is read by its own header; correct its config.json"
_METRICS = "/metrics has what there is; see docs/server.md"
_CODE = "code that a flag names is not run in the server"
_SEVERAL_HOSTS = "copies on other hosts are `quire engine`, named by --engines, or instances behind `quire route`"
_EXPERTS = "--enable-expert-parallel spreads the experts evenly, and nothing else about that is to be set"
_COPIES = "--num-redundant-experts keeps copies of busy experts, and --eplb-step-interval says how often they change"
_CONTEXT = "a sequence is not cut over several devices"
_LOADING = "weights are mapped and read as they are needed; there is nothing to choose"
_MEDIA = (
    "media are decoded in two processes beside the server, with bounds of their own (--media-max-mb, "
    "--media-max-pixels)"
)
_ENCODER = "a model's encoder runs in the engine as the rest of the model does"
_MAMBA = "models with state-space layers are not built"
_LORA = "adapters of any ranks and kinds share a batch; see docs/lora.md"
_LOG = "--log-level, --log-format and --log-requests say what is logged"
_CORS = "--allowed-origins is all there is of CORS"
_TLS = "clients are known by keys; a proxy in front can ask for certificates"
_SPECULATION = "give the whole of it as --speculative-config '{...}'"
_OFFLOAD = "--offload-gb says how much of the weights stays in host memory, and layers are copied ahead by themselves"
_KV_FORMAT = "KV is held in one dtype, by --kv-cache-dtype"
_COHERE = "of Cohere's own API there are /v2/embed and /v2/rerank, which need no settings, and no chats"
_MULTI_LB = "--replicas share one address; `quire route` balances servers"
MISSING: dict[str, str] = {
    # the model
    "--runner": "what a model is for is told by its config",
    "--convert": "what a model is for is told by its config",
    "--tokenizer": _TOKENIZER,
    "--tokenizer-mode": _TOKENIZER,
    "--tokenizer-revision": _TOKENIZER,
    "--trust-remote-code": f"{_CODE}; other decoders run through transformers' own modules (--model-impl)",
    "--code-revision": _CODE,
    "--seed": "requests have seeds of their own; without one they differ",
    "--hf-config-path": _HEADER,
    "--hf-overrides": f"{_HEADER}, where classifier_from_token works too",
    "--model-class-overrides": _HEADER,
    "--config-format": _HEADER,
    "--pooler-config": _HEADER,
    "--hf-token": "set HF_TOKEN in the environment, where it stays out of the list of processes",
    "--download-dir": "set HF_HOME in the environment",
    "--quantization-config": "--quantization takes a name; other settings are the checkpoint's",
    "--allow-deprecated-quantization": "no format is deprecated",
    "--enforce-eager": _GRAPHS,
    "--cudagraph-capture-sizes": _GRAPHS,
    "--max-cudagraph-capture-size": _GRAPHS,
    "--cudagraph-metrics": _METRICS,
    "--compilation-config": _COMPILE,
    "--optimization-level": _COMPILE,
    "-cc": _COMPILE,
    "-O": _COMPILE,
    "--performance-mode": "set --max-num-batched-tokens and --target-itl-ms",
    "--enable-return-routed-experts": "routed experts are not told",
    "--return-sampling-mask": "which tokens could be drawn is not told; logprobs are",
    "--logprobs-mode": "logprobs are those of the model, before penalties and temperature",
    "--use-fp64-gumbel": "random numbers have one precision",
    "--enable-trace-replay": "POST /debug/profile records steps",
    "--disable-sliding-window": "a model's windows are kept",
    "--disable-cascade-attn": "a shared prefix is read once where that is faster, with the same result",
    "--enable-prompt-embeds": "prompts are texts, token ids and media",
    "--generation-config": "sampling parameters are the request's; of generation_config.json the end tokens are read",
    "--override-generation-config": "sampling parameters are the request's",
    "--enable-cumem-allocator": "memory is given back by --sleep-after and POST /sleep",
    "--io-processor-plugin": _CODE,
    "--renderer-num-workers": "templates are rendered four at a time; --api-server-count adds fronts",
    "--diffusion-config": "models that diffuse are not built",
    "--language-model-only": "--limit-mm-per-prompt image=0 serves texts alone",
    # loading
    "--safetensors-load-strategy": _LOADING,
    "--safetensors-prefetch-num-threads": _LOADING,
    "--safetensors-prefetch-block-size": _LOADING,
    "--model-loader-extra-config": _LOADING,
    "--ignore-patterns": "only files that are needed are downloaded",
    "--use-tqdm-on-load": "the log says how far loading is",
    "--pt-load-map-location": "pickled checkpoints are not read",
    "--weight-transfer-config": "POST /sleep?level=2 and /wake_up read the checkpoint again",
    # kernels
    "--attention-backend": _KERNELS,
    "--attention-config": _KERNELS,
    "-ac": _KERNELS,
    "--kernel-config": _KERNELS,
    "--moe-backend": _KERNELS,
    "--linear-backend": _KERNELS,
    "--gdn-prefill-backend": _KERNELS,
    "--kda-prefill-backend": _KERNELS,
    "--ir-op-priority": _KERNELS,
    "--enable-flashinfer-autotune": _KERNELS,
    "--enable-bf16x3-router-gemm": _KERNELS,
    "--mamba-backend": _MAMBA,
    "--mamba-ssu-algorithm": _MAMBA,
    "--enable-mamba-cache-stochastic-rounding": _MAMBA,
    "--mamba-cache-philox-rounds": _MAMBA,
    "--mamba-cache-dtype": _MAMBA,
    "--mamba-ssm-cache-dtype": _MAMBA,
    "--mamba-block-size": _MAMBA,
    "--mamba-cache-mode": _MAMBA,
    "--replayssm-buffer-len": _MAMBA,
    "--use-replayssm": _MAMBA,
    # devices and hosts
    "--device-ids": "set CUDA_VISIBLE_DEVICES",
    "--numa-bind": "threads keep to a NUMA node by themselves; --cpu-threads says how many there are",
    "--numa-bind-nodes": "threads keep to a NUMA node by themselves; taskset chooses cores",
    "--numa-bind-cpus": "threads keep to a NUMA node by themselves; taskset chooses cores",
    "--headless": "a host of --node-rank 1 or more runs workers alone by itself",
    "--distributed-timeout-seconds": "--step-timeout says when an engine counts as stuck",
    "--cpu-distributed-timeout-seconds": "--step-timeout says when an engine counts as stuck",
    "--decode-context-parallel-size": _CONTEXT,
    "-dcp": _CONTEXT,
    "--dcp-comm-backend": _CONTEXT,
    "--dcp-q-replicate": _CONTEXT,
    "--dcp-kv-cache-interleave-size": _CONTEXT,
    "--cp-kv-cache-interleave-size": _CONTEXT,
    "--prefill-context-parallel-size": _CONTEXT,
    "-pcp": _CONTEXT,
    "--data-parallel-rank": _SEVERAL_HOSTS,
    "-dpn": _SEVERAL_HOSTS,
    "--data-parallel-start-rank": _SEVERAL_HOSTS,
    "-dpr": _SEVERAL_HOSTS,
    "--data-parallel-size-local": _SEVERAL_HOSTS,
    "-dpl": _SEVERAL_HOSTS,
    "--data-parallel-address": _SEVERAL_HOSTS,
    "-dpa": _SEVERAL_HOSTS,
    "--data-parallel-rpc-port": _SEVERAL_HOSTS,
    "-dpp": _SEVERAL_HOSTS,
    "--data-parallel-backend": _SEVERAL_HOSTS,
    "-dpb": _SEVERAL_HOSTS,
    "--data-parallel-hybrid-lb": _MULTI_LB,
    "-dph": _MULTI_LB,
    "--data-parallel-external-lb": _MULTI_LB,
    "-dpe": _MULTI_LB,
    "--data-parallel-multi-port-external-lb": _MULTI_LB,
    "--data-parallel-supervisor-port": _MULTI_LB,
    "--dp-supervisor-probe-interval-s": _MULTI_LB,
    "--dp-supervisor-probe-timeout-s": _MULTI_LB,
    "--dp-supervisor-probe-failure-threshold": _MULTI_LB,
    "--enable-ep-weight-filter": _EXPERTS,
    "--all2all-backend": "ranks gather tokens or send them to their experts (all-to-all), by what a step has",
    "--enable-elastic-ep": _EXPERTS,
    "--enable-eplb": _COPIES,
    "--eplb-config": _COPIES,
    "--expert-placement-strategy": _EXPERTS,
    "--enable-dbo": "a step is one batch; it is not cut into two that overlap",
    "--ubatch-size": "a step is one batch; it is not cut into two that overlap",
    "--dbo-decode-token-threshold": "a step is one batch; it is not cut into two that overlap",
    "--dbo-prefill-token-threshold": "a step is one batch; it is not cut into two that overlap",
    "--disable-nccl-for-dp-synchronization": "replicas do not wait for each other",
    "--max-parallel-loading-workers": "engines load from one mapped file",
    "--ray-workers-use-nsight": "POST /debug/profile records steps",
    "--disable-custom-all-reduce": _KERNELS,
    "--worker-cls": _CODE,
    "--worker-extension-cls": _CODE,
    "--scheduler-cls": f"{_CODE}; --scheduling-policy chooses among five",
    "--enable-fault-tolerance": "a lost engine is always replaced, and loses no request",
    "--fault-tolerance-config": "a lost engine is always replaced, and loses no request",
    # KV
    "--kv-cache-memory-bytes": "--num-gpu-blocks-override says how many blocks there are, `quire plan` how large",
    "--prefix-caching-hash-algo": "prefixes are named by BLAKE2b",
    "--prefix-cache-retention-interval": "requests ask for it: prompt_cache_retention",
    "--prefix-match-unit": "prefixes are matched token by token",
    "--kv-cache-dtype-skip-layers": _KV_FORMAT,
    "--kv-sharing-fast-prefill": _KV_FORMAT,
    "--kv-offloading-size": "--swap-space gives KV GiB of host memory, --kv-disk-path a disk",
    "--kv-offloading-backend": "--swap-space gives KV GiB of host memory, --kv-disk-path a disk",
    "--offload-backend": _OFFLOAD,
    "--cpu-offload-params": _OFFLOAD,
    "--offload-group-size": _OFFLOAD,
    "--offload-num-in-group": _OFFLOAD,
    "--offload-prefetch-step": _OFFLOAD,
    "--offload-params": _OFFLOAD,
    "--kv-transfer-config": "--prefill-engines and --decode-engines, `quire engine --role` and --kv-transfer; in "
    "place of NixlConnector, --kv-carrier nixl",
    "--kv-events-config": "`quire route` follows prefixes by what it sent where",
    "--ec-transfer-config": _ENCODER,
    "--ec-manager-config": _ENCODER,
    "--disable-hybrid-kv-cache-manager": "windows always free their old blocks",
    # media
    "--enable-mm-embeds": _MEDIA,
    "--media-io-kwargs": _MEDIA,
    "--mm-processor-kwargs": _MEDIA,
    "--mm-processor-cache-gb": "--encoder-cache-tokens bounds what is kept of images",
    "--mm-processor-cache-type": "--encoder-cache-tokens bounds what is kept of images",
    "--mm-hasher-algorithm": _MEDIA,
    "--mm-shm-cache-max-object-size-mb": _MEDIA,
    "--mm-tensor-ipc": _MEDIA,
    "--mm-processor-device": _MEDIA,
    "--mm-ipc-gpu-memory-gb": _MEDIA,
    "--mm-device-do-normalize": _MEDIA,
    "--mm-encoder-only": _ENCODER,
    "--mm-encoder-tp-mode": _ENCODER,
    "--mm-encoder-attn-backend": _ENCODER,
    "--mm-encoder-attn-dtype": _ENCODER,
    "--mm-encoder-fp8-scale-path": _ENCODER,
    "--mm-encoder-fp8-scale-save-path": _ENCODER,
    "--mm-encoder-fp8-scale-save-margin": _ENCODER,
    "--interleave-mm-strings": "media stay where they stand in a message",
    "--skip-mm-profiling": "memory for media is worked out from the model's sizes",
    "--disable-chunked-mm-input": "an image's tokens may be cut over several steps",
    "--video-pruning-rate": "no part of a medium is left out",
    "--video-pruning-method": "no part of a medium is left out",
    # adapters
    "--lora-dtype": _LORA,
    "--enable-tower-connector-lora": _LORA,
    "--fully-sharded-loras": _LORA,
    "--lora-target-modules": "--lora-targets says which modules have room for adapters",
    "--default-mm-loras": _LORA,
    "--specialize-active-lora": _LORA,
    "--enable-mixed-moe-lora-format": _LORA,
    "--enable-moe-shared-loras": _LORA,
    # metrics and logs
    "--show-hidden-metrics-for-version": _METRICS,
    "--collect-detailed-traces": "--otlp-traces-endpoint sends every part of a request",
    "--per-request-spec-decode-metrics": _METRICS,
    "--enable-per-request-metrics": _METRICS,
    "--kv-cache-metrics": _METRICS,
    "--kv-cache-metrics-sample": _METRICS,
    "--enable-layerwise-nvtx-tracing": "POST /debug/profile records steps",
    "--enable-mfu-metrics": _METRICS,
    "--enable-logging-iteration-details": _LOG,
    "--jit-monitor-mode": _METRICS,
    "--jit-monitor-verbose": _METRICS,
    "--disable-log-stats": "nothing is logged at intervals",
    "--aggregate-engine-logging": _LOG,
    "--fail-on-environ-validation": "a QUIRE_ variable that is no setting is always an error",
    "--log-config-file": _LOG,
    "--max-log-len": _LOG,
    "--enable-log-outputs": "what people and models say is not logged",
    "--enable-log-deltas": "what people and models say is not logged",
    "--log-error-stack": "errors that are not expected are always logged with their stack",
    "--disable-access-log-for-endpoints": _LOG,
    "--profiler-config": "POST /debug/profile records steps",
    # scheduling
    "--max-num-scheduled-tokens": "--max-num-batched-tokens bounds a step",
    "--scheduler-reserve-full-isl": "requests that can never fit are refused; --max-waiting-tokens bounds the others",
    "--watermark": "blocks are given out until there are none; --preemption-mode says what happens then",
    "--prefill-schedule-interval": "--target-itl-ms sizes what prompts take of a step",
    "--stream-interval": "tokens that come while a client does not read are sent as one piece",
    "--spec-method": _SPECULATION,
    "--spec-model": _SPECULATION,
    "--spec-tokens": _SPECULATION,
    "--reasoning-config": "--reasoning-parser, and a budget with requests",
    "--reasoning-parser-plugin": _CODE,
    "--structured-outputs-config": "there is one grammar engine, which needs no settings",
    "--additional-config": "every setting has a flag of its own",
    # the server
    "--chat-template-content-format": "texts and lists of parts are told apart by the template itself",
    "--trust-request-chat-template": "templates from requests are not run; --chat-template FILE sets the server's",
    "--default-chat-template-kwargs": "requests give chat_template_kwargs",
    "--response-role": "answers are the assistant's",
    "--exclude-tools-when-tool-choice-none": "leave the tools out of the request",
    "--tool-parser-plugin": _CODE,
    "--tool-server": "tools are run by clients",
    "--cohere-is-reasoning-model": _COHERE,
    "--cohere-format": _COHERE,
    "--tokens-only": "/inference/v1/generate takes and gives tokens beside the other routes",
    "--fingerprint-mode": "system_fingerprint is the model's and the program's",
    "--fingerprint-value": "system_fingerprint is the model's and the program's",
    "--allow-credentials": _CORS,
    "--allowed-methods": _CORS,
    "--allowed-headers": _CORS,
    "--ssl-ca-certs": _TLS,
    "--ssl-cert-reqs": _TLS,
    "--ssl-ciphers": "Python's own choice of ciphers is used",
    "--enable-ssl-refresh": "start the server again for a new certificate, or let a proxy hold it",
    "--middleware": _CODE,
    "--h11-max-incomplete-event-size": "--max-header-kb bounds a request's headers",
    "--h11-max-header-count": "--max-header-kb bounds a request's headers",
    "--enable-offline-docs": "/docs never loads anything from elsewhere",
    "--enable-flash-late-interaction": _KERNELS,
    "--grpc": "HTTP and WebSocket are what is spoken",
}
"""What there is instead, or why there is nothing."""


@dataclass(frozen=True, slots=True)
class Translated:
    """A command line in quire's own words."""

    tokens: list[str]
    remarks: list[str]
    """About flags that ask for what is so anyway."""


def translate(tokens: Sequence[str], own: Collection[str]) -> Translated:
    """Raises a ConfigError for a flag of vLLM's that quire has not; `own` are quire's, which go first."""
    found: list[str] = []
    remarks: list[str] = []
    for place, token in enumerate(tokens):
        if token == "--":
            found += tokens[place:]
            break
        given, equals, value = token.partition("=")
        name = given.replace("_", "-") if given.startswith("--") else given
        if not name.startswith("-") or name in own:
            found.append(token)
        elif name in RENAMED:
            found.append(RENAMED[name] + equals + value)
        elif name in ALWAYS:
            remarks.append(f"{name} needs no word: {ALWAYS[name]}.")
        else:
            _check_missing(name)
            found.append(token)
    return Translated(found, remarks)


def answer_of(setting: str) -> str:
    """What to say of a setting of vLLM's classes that quire's do not have; empty where it is none."""
    name = "--" + setting.replace("_", "-")
    if name in RENAMED:
        return f" It is {RENAMED[name]} of the command line, whose names are the settings'."
    if name in ALWAYS:
        return f" It needs no word: {ALWAYS[name]}."
    return f" It is vLLM's: {MISSING[name]}." if name in MISSING else ""


def _check_missing(name: str) -> None:
    asked = "--" + name.removeprefix("--no-") if name.startswith("--no-") else name
    if asked.startswith("-O") and asked[2:].isdigit():  # -O3 is -O 3
        asked = "-O"
    if asked in ALWAYS:
        raise ConfigError(f"{name} cannot be done: {ALWAYS[asked]}.")
    if asked.partition(".")[0] in MISSING:
        raise ConfigError(f"{name} is a flag of vLLM's that quire has not: {MISSING[asked.partition('.')[0]]}.")
