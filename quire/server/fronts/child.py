"""A front's process: takes its seat, serves until the hub tells it to stop, and ends at once when the hub is gone."""

import asyncio
import faulthandler
import os
import signal
import sys

from quire.core.errors import QuireError
from quire.observe.logs import configure_logging
from quire.server.front import Front
from quire.server.fronts.seat import FrontSettings, Seat
from quire.serving.settings_frame import read_settings


def main() -> int:
    """Serve as the settings on standard input say; returns the exit code."""
    import uvloop

    settings = read_settings(FrontSettings)
    # the hub passes on what signals ask for: service managers and terminals send them to all processes
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    configure_logging(settings.config.observe)
    return uvloop.run(_serve(settings))


async def _serve(settings: FrontSettings) -> int:
    seat = Seat(settings)
    await seat.connect()
    following = asyncio.create_task(_follow(seat))
    try:
        return await Front(settings.config, seat).serve()
    except QuireError as error:
        seat.hub.tell("failed", str(error))  # the hub says it once for all fronts
        await asyncio.sleep(1.0)  # and ends this process when it has heard
        return 2
    finally:
        following.cancel()


async def _follow(seat: Seat) -> None:
    await seat.hub.run()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
