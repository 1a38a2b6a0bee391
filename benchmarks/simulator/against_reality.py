"""The simulator against a small real run of the default model on this machine.

    python -m benchmarks.simulator.against_reality --requests 60 --rate 1.5 --json found.json

Steps are first measured alone (benchmarks/simulator/calibrate.py), which gives the simulator its device. Then requests
arrive at random moments at a real engine, and the very same ones at a simulated one: once step by step with the real
scheduler, once by the leaps of whole days. Compared are the means of TTFT, ITL and the time to the end, and the rate.
On a machine with other work the figures mean nothing: others' load during each part is told.
"""

import argparse
import asyncio
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from statistics import mean, median
from typing import Any

from benchmarks.simulator.calibrate import Calibration, calibrate
from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts
from quire.config.resolve import resolve
from quire.core.sampling_params import SamplingParams
from quire.executor.inline import local_device_facts
from quire.models.loading.header import read_model_facts
from quire.serving.async_llm import AsyncLLM
from quire.simulation.cost import ModelWork
from quire.simulation.day.cluster import Cluster
from quire.simulation.day.config import ScenarioConfig
from quire.simulation.day.instance import Instance
from quire.simulation.day.placing import ByRouter
from quire.simulation.day.record import Record
from quire.simulation.day.run import Day, make_engine
from quire.simulation.day.traffic import traced_conversations
from quire.simulation.replica import Replica, ReplicaSetup
from quire.simulation.workload import SimulatedRequest
from quire.simulation.workload_config import WorkloadConfig

SETTINGS: dict[str, Any] = {"max_model_len": 4096, "num_gpu_blocks_override": 2048}


@dataclass(frozen=True, slots=True)
class Found:
    """Seconds, and output tokens a second."""

    ttft: float
    itl: float
    total: float
    throughput: float
    ttft_p50: float = 0.0
    itl_p50: float = 0.0


def requests(count: int, rate: float, seed: int) -> list[SimulatedRequest]:
    """At random moments: prompts of 32 to 384 tokens, answers of 16 to 96."""
    noise, now, made = Random(seed), 0.0, []
    for number in range(count):
        made.append(SimulatedRequest(number, now, noise.randint(32, 384), noise.randint(16, 96)))
        now += noise.expovariate(rate)
    return made


async def really(llm: AsyncLLM, asked: list[SimulatedRequest], vocabulary: int) -> Found:
    """The requests at a real engine."""
    noise, begun = Random(5), time.perf_counter()
    prompts = [[noise.randrange(10, vocabulary) for _ in range(request.input_tokens)] for request in asked]
    firsts, gaps, totals = [], list[float](), []

    async def one(request: SimulatedRequest) -> None:
        await asyncio.sleep(max(0.0, begun + request.arrival - time.perf_counter()))
        params = SamplingParams(temperature=0, max_tokens=request.output_tokens, ignore_eos=True)
        sent = last = time.perf_counter()
        known = 0
        async for output in llm.generate(prompts[request.number], params):
            now, tokens = time.perf_counter(), len(output.outputs[0].token_ids)
            if not known:
                firsts.append(now - sent)
            else:
                # tokens that came together share their gap
                gaps.extend([(now - last) / (tokens - known)] * (tokens - known))
            last, known = now, tokens
        totals.append(last - sent)

    await asyncio.gather(*map(one, asked))
    seconds = time.perf_counter() - begun
    rate = sum(request.output_tokens for request in asked) / seconds
    return Found(mean(firsts), mean(gaps), mean(totals), rate, median(firsts), median(gaps))


def simulated(asked: EngineConfig, device: DeviceFacts, made: list[SimulatedRequest]) -> dict[str, Found]:
    """The same requests step by step, and by leaps."""
    model = read_model_facts(asked.model.model, None)
    resolved, work = resolve(asked, model, device), ModelWork.of(model)
    plans_ahead = device.kind != "cpu"  # a CPU's engine reads each step before it plans the next
    steps = Replica(ReplicaSetup(resolved, work, device, async_steps=plans_ahead)).run(made)
    [tenant] = steps.tenants.values()
    record = Record()
    day = Day(asked, ScenarioConfig(scenario="fastchat-day"), WorkloadConfig(), device, 1, async_steps=plans_ahead)
    engine = make_engine(day, resolved, work)
    instances = [Instance(0, engine, record)]
    Cluster(engine, instances, ByRouter("prefix", instances), record).run(traced_conversations(made))
    found = {}
    for name, ttft, itl, total, rate in (
        ("steps", tenant.ttft, steps.itl, tenant.total, steps.output_tokens / steps.end),
        ("leaps", record.ttft, record.itl, record.total, record.output_tokens / record.end),
    ):
        means = (each.total / each.count for each in (ttft, itl, total))
        found[name] = Found(*means, rate, ttft.percentile(0.5), itl.percentile(0.5))
    return found


def others_load(before: tuple[float, float]) -> float:
    """Cores that were busy with something else since `before`, about."""
    seconds, own = time.perf_counter() - before[0], _own_seconds() - before[1]
    return max(0.0, os.getloadavg()[0] - own / max(seconds, 1e-9))


def _own_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


async def compare(asked: argparse.Namespace) -> dict[str, Any]:
    settings = {"model": asked.model, **SETTINGS}
    config = EngineConfig.from_flat(**settings)
    made = requests(asked.requests, asked.rate, asked.seed)
    async with await AsyncLLM.create(**settings, log_level="warning") as llm:
        await llm.ready()
        model = read_model_facts(asked.model, None)
        vocabulary = model.spec.vocab_size
        before = (time.perf_counter(), _own_seconds())
        calibration = await calibrate(llm, vocabulary)
        real = await really(llm, made, vocabulary)
        load = others_load(before)
    device = _device(calibration, config)
    predicted = simulated(config, device, made)
    return {
        "requests": asked.requests,
        "rate": asked.rate,
        "others_load": load,
        "calibration": asdict(calibration),
        "measured": asdict(real),
        "simulated": {name: asdict(found) for name, found in predicted.items()},
        "off_by": {
            name: {key: value / asdict(real)[key] - 1 for key, value in asdict(found).items()}
            for name, found in predicted.items()
        },
    }


def _device(calibration: Calibration, config: EngineConfig) -> DeviceFacts:
    device, model = local_device_facts(), read_model_facts(config.model.model, None)
    kv = resolve(config, model, device).kv
    return calibration.device(device, kv.bytes_per_token, 4 * ModelWork.of(model).attended)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--rate", type=float, default=1.5, help="requests a second")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    found = asyncio.run(compare(asked))
    text = json.dumps(found, indent=2)
    if asked.json is not None:
        asked.json.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
