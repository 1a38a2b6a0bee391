"""What vLLM calls the metrics that both have, for dashboards, alerts and autoscalers that were made for vLLM."""

from quire.observe import catalog

_ALIKE = (
    *(catalog.RUNNING, catalog.WAITING, catalog.KV_USAGE, catalog.CACHE_CONFIG, catalog.PREFIX_QUERIES),
    *(catalog.PREFIX_HITS, catalog.PREEMPTIONS, catalog.PROMPT_TOKENS, catalog.PROMPT_CACHED, catalog.OUTPUT_TOKENS),
    *(catalog.FINISHED, catalog.TTFT, catalog.ITL, catalog.TPOT, catalog.E2E, catalog.QUEUE, catalog.PREFILL),
    *(catalog.DECODE, catalog.INFERENCE, catalog.REQUEST_PROMPT, catalog.REQUEST_OUTPUT, catalog.PARAMS_N),
    *(catalog.PARAMS_MAX_TOKENS, catalog.DRAFTS, catalog.DRAFT_TOKENS, catalog.ACCEPTED_TOKENS),
)
"""Those whose names differ in the prefix alone."""
VLLM_NAMES = {
    **{metric.name: "vllm:" + metric.name.removeprefix("quire_") for metric in _ALIKE},
    catalog.STEP_TOKENS.name: "vllm:iteration_tokens_total",
}
"""By the catalog's names. vLLM's histogram has `_total` in its name, which Prometheus keeps for counters."""
