"""Every route that vLLM has and OpenAI has not."""

from quire.server.operation import Operation
from quire.server.vllm import about, batch_chat, generate, generative_scoring, invocations, lora, render, sleep

OPERATIONS: tuple[Operation, ...] = (
    *batch_chat.OPERATIONS,
    *generate.OPERATIONS,
    *render.OPERATIONS,
    *generative_scoring.OPERATIONS,
    *invocations.OPERATIONS,
    *about.OPERATIONS,
    *lora.OPERATIONS,
    *sleep.OPERATIONS,
)
