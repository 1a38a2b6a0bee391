"""Embedding jobs between steps: one that the device has no memory for fails, and the next one runs."""

from types import SimpleNamespace

from quire.core.errors import InvalidRequest, OutOfDeviceMemory
from quire.engine.serving.embed_jobs import EmbedJobs
from quire.engine.serving.messages import Embed


class Embeddings:
    """Vectors of the prompt's length; some prompts do not fit, some are not allowed."""

    def embed(self, prompts, *, pooling, normalize):
        [prompt] = prompts
        if len(prompt) > 3:
            raise OutOfDeviceMemory("CUDA out of memory. Tried to allocate 20.00 GiB.")
        if not prompt:
            raise InvalidRequest("it is empty")
        return [SimpleNamespace(outputs=SimpleNamespace(embedding=[float(len(prompt))]))]


def test_who_is_to_blame_is_told_and_the_next_job_runs() -> None:
    jobs = EmbedJobs(Embeddings)
    for name, prompt in (("large", [1, 2, 3, 4]), ("empty", []), ("good", [1, 2])):
        jobs.add(Embed(name, [prompt], None, True))
    large, empty, good = (jobs.advance() for _ in range(3))
    assert (large.vectors, large.is_blameless) == ([], True)
    assert "--gpu-memory-utilization" in large.error
    assert (empty.error, empty.is_blameless) == ("it is empty", False)
    assert (good.vectors, good.error) == ([[2.0]], None)
    assert len(jobs) == 0
