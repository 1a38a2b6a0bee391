"""A process that simulates replicas: jobs come in on standard input, answers go out on standard output."""

import gc
import sys

import msgspec

from quire.core.errors import QuireError
from quire.simulation.frames import Done, Failed, Job, Progress, read_frame, write_frame
from quire.simulation.replica import Replica


def main() -> None:
    """Answer jobs until the pipe closes."""
    # what a running replica drops is freed at once; looking for cycles among millions of tokens finds none
    gc.disable()
    jobs, answers = sys.stdin.buffer, sys.stdout.buffer
    decoder = msgspec.msgpack.Decoder(Job)
    while (body := read_frame(jobs)) is not None:
        job = decoder.decode(body)
        try:
            metrics = Replica(job.setup).run(job.requests, lambda count: write_frame(answers, Progress(count)))
            write_frame(answers, Done(metrics))
        except QuireError as error:
            write_frame(answers, Failed(str(error)))
        # only the replica as a whole is a cycle: free it before the next one grows
        del job
        gc.collect()


if __name__ == "__main__":
    try:
        main()
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(130)
