"""The largest step there can be, taken once before the first request: it checks the formula that plans memory."""

import logging
from collections.abc import Callable

import torch

from quire.config.resolved import Resolved
from quire.config.sizes import decimal_size
from quire.core.errors import ConfigError, OutOfDeviceMemory
from quire.core.plan import StepPlan
from quire.worker.dummy import dummy_sequence
from quire.worker.out_of_memory import free_cached_memory, telling_out_of_memory
from quire.worker.stage_worker import StageWorker
from quire.worker.worker import Worker

_log = logging.getLogger(__name__)


def check_memory(worker: Worker | StageWorker, resolved: Resolved, device: torch.device) -> None:
    """Of a GPU: says what to change where the largest step takes more than was planned, or does not fit at all."""
    torch.cuda.reset_peak_memory_stats(device)
    take_largest_step(worker, resolved, lambda: torch.cuda.max_memory_allocated(device))
    free_cached_memory(device)  # the next steps are smaller, and cut it otherwise


def take_largest_step(worker: Worker | StageWorker, resolved: Resolved, peak_bytes: Callable[[], int]) -> None:
    """As many prompts as there may be sequences, all tokens of a step among them, each with a token to draw, and with
    an adapter where there may be adapters: kernels for many rows of them are compiled here.
    """
    limits = resolved.limits
    rows = min(limits.max_num_seqs, limits.max_num_batched_tokens)
    count = min(limits.max_num_batched_tokens // rows, limits.max_model_len - 1)
    adapter = -1 if resolved.lora is None else 0
    sequences = [dummy_sequence(row, count, resolved.kv, adapter=adapter) for row in range(rows)]
    numbers = list(range(rows))
    largest = StepPlan(step=0, admitted=sequences, rows=numbers, counts=[count] * rows, num_sampling=rows)
    told = f"a step of {rows * count:,} tokens of {rows} sequences, the largest there can be,"
    advice = "lower --max-num-batched-tokens, --max-num-seqs or --gpu-memory-utilization"
    try:
        telling_out_of_memory(lambda: worker.start(largest).result())
    except OutOfDeviceMemory as error:
        raise ConfigError(f"{told} does not fit into the device's memory ({error}); {advice}.") from None
    worker.start(StepPlan(step=0, released=numbers))
    peak = peak_bytes()
    if peak > resolved.tensor_share:
        over, share = decimal_size(peak - resolved.tensor_share), decimal_size(resolved.tensor_share)
        _log.warning("%s took %s more than the %s planned; %s.", told, over, share, advice)
    else:
        share = decimal_size(resolved.tensor_share)
        _log.info("%s takes the memory to %s of the %s planned", told, decimal_size(peak), share)
