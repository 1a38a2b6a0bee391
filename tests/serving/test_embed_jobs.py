"""Embedding jobs between steps: one that the device has no memory for fails, and the next one runs."""

from quire.core.errors import InvalidRequest, OutOfDeviceMemory
from quire.serving.embed_jobs import EmbedJobs
from quire.serving.messages import Embed


class Embeddings:
    """Vectors of the prompt's length; some prompts do not fit, some are not allowed."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def run(self, tokens, readout, *, types, pooling, normalize):
        [prompt] = tokens
        self.calls.append((readout, types, pooling, normalize))
        if len(prompt) > 3:
            raise OutOfDeviceMemory("CUDA out of memory. Tried to allocate 20.00 GiB.")
        if not prompt:
            raise InvalidRequest("it is empty")
        return [[[float(len(prompt))]]]


def test_who_is_to_blame_is_told_and_the_next_job_runs() -> None:
    jobs = EmbedJobs(Embeddings)
    for name, prompt in (("large", [1, 2, 3, 4]), ("empty", []), ("good", [1, 2])):
        jobs.add(Embed(name, [prompt], None, True))
    large, empty, good = (jobs.advance() for _ in range(3))
    assert (large.rows, large.is_blameless) == ([], True)
    assert "--gpu-memory-utilization" in large.error
    assert (empty.error, empty.is_blameless) == ("it is empty", False)
    assert (good.rows, good.error) == ([[[2.0]]], None)
    assert len(jobs) == 0


def test_every_prompt_has_its_own_types() -> None:
    embeddings = Embeddings()
    jobs = EmbedJobs(lambda: embeddings)  # type: ignore[arg-type, return-value]
    jobs.add(Embed("pairs", [[1, 2], [3]], readout="classify", types=[[0, 1], [1]]))
    assert jobs.advance() is None
    assert jobs.advance() is not None
    assert embeddings.calls == [("classify", [[0, 1]], None, True), ("classify", [[1]], None, True)]
