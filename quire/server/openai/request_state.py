"""What the gate and the application leave with a request, typed."""

from starlette.requests import Request

from quire.server.batches.desk import BatchDesk
from quire.server.caller import Caller


def batches_of(request: Request) -> BatchDesk:
    found: BatchDesk = request.app.state.batches
    return found


def caller_of(request: Request) -> Caller:
    found: Caller = request.state.caller
    return found
