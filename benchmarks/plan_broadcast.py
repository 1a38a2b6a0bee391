"""What a step costs beside computing: its plan to all workers, and the last worker's result back.

    python benchmarks/plan_broadcast.py [--workers 1 2 8] [--rows 256] [--steps 2000] [--transport ring socket]

Workers decode each plan as ranks do and compute nothing. A step ends when the last worker's result has been read, and
all workers have taken its plan before the next. More workers than cores wait for each other: what a step takes then is
mostly their turns on the cores.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

import msgspec

from quire.core.plan import StepPlan, TableDelta
from quire.core.result import StepResult
from quire.executor.plan_ring import PlanReader, PlanRing, has_rings
from quire.executor.rank_child import commands
from quire.executor.rank_messages import FRAME_HEAD, RunStep, frame, receive

_WARM_STEPS = 200
_RESULTS = msgspec.msgpack.Decoder(StepResult)


def worker(number: int, workers: int, answers: bool, connection: socket.socket, ring: PlanReader | None) -> None:
    """What a rank does with a step, less the step."""
    for command in commands(connection, ring):
        assert isinstance(command, RunStep)
        if answers:
            rows = command.plan.rows
            result = StepResult(step=command.plan.step, tokens=rows)
            connection.sendall(frame(result))


def plan_of(step: int, rows: int) -> StepPlan:
    """A step of decodes; one row in sixteen needs a block."""
    deltas = [TableDelta(row, step // 16, [[row + 7]]) for row in range(step % 16, rows, 16)]
    return StepPlan(step=step, table_deltas=deltas, rows=list(range(rows)), counts=[1] * rows, num_sampling=rows)


def measure(workers: int, rows: int, steps: int, with_ring: bool) -> dict[str, float]:
    ring = PlanRing(workers) if with_ring else None
    connections, processes = [], []
    for number in range(workers):
        ours, theirs = socket.socketpair()
        descriptors = [theirs.fileno(), *([ring.descriptor] if ring is not None else [])]
        words = [str(each) for each in (number, workers, *descriptors)]
        with theirs:
            processes.append(subprocess.Popen([sys.executable, __file__, "--worker", *words], pass_fds=descriptors))
        connections.append(ours)
    whole, sending = [], []
    for step in range(_WARM_STEPS + steps):
        plan = plan_of(step, rows)
        begin = time.perf_counter()
        data = frame(RunStep(plan))
        if ring is not None:
            ring.write(data[FRAME_HEAD:], lambda: True)
        else:
            for connection in connections:
                connection.sendall(data)
        sent = time.perf_counter()
        answer = receive(connections[-1])
        assert answer is not None
        assert _RESULTS.decode(answer).step == step
        if step >= _WARM_STEPS:
            whole.append(time.perf_counter() - begin)
            sending.append(sent - begin)
    if ring is not None:
        ring.close()
    for connection in connections:
        connection.close()
    for process in processes:
        process.wait()
    cuts = statistics.quantiles(whole, n=100)
    return {
        "workers": workers,
        "ring": with_ring,
        "rows": rows,
        "send_us_median": round(1e6 * statistics.median(sending), 1),
        "step_us_best_1pct": round(1e6 * cuts[0], 1),
        "step_us_median": round(1e6 * cuts[49], 1),
        "step_us_p99": round(1e6 * cuts[98], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 8])
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--transport", nargs="+", choices=["ring", "socket"], default=["socket", "ring"])
    asked = parser.parse_args()
    print(json.dumps({"cores": os.cpu_count(), "load": os.getloadavg()[0]}))
    for workers in asked.workers:
        for transport in asked.transport:
            if transport == "socket" or has_rings():
                print(json.dumps(measure(workers, asked.rows, asked.steps, transport == "ring")), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        number, workers, *descriptors = map(int, sys.argv[2:])
        reader = PlanReader(descriptors[1], workers, number) if len(descriptors) > 1 else None
        with socket.socket(fileno=descriptors[0]) as connection:
            worker(number, workers, number == workers - 1, connection, reader)
        os._exit(0)
    main()
