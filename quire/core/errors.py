"""Every error quire raises on purpose, as one tree.

A message says what was given, what is allowed and how to fix it. Callers catch `QuireError`;
the command line turns it into one line and exit code 2, the server into an HTTP status.
"""


class QuireError(Exception):
    """Base of everything quire raises on purpose."""


class ConfigError(QuireError, ValueError):
    """The settings are wrong or contradict each other, the model or the device."""


class PluginError(ConfigError):
    """A plugin that the settings ask for cannot be used."""


class DoesNotFit(ConfigError):
    """The device has too little memory for the model with these settings."""


class CheckpointError(QuireError):
    """A checkpoint is missing, unreadable, or says something that cannot be true."""


class InvalidRequest(QuireError, ValueError):
    """A request asks for something that is not allowed; `field` names the offending field."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class RequestTooLarge(InvalidRequest):
    """A request could never fit the model's context or the KV cache, however long it waited."""


class RequestFailed(QuireError):
    """A request was accepted and could not be completed, through no fault of its client."""


class OutOfDeviceMemory(QuireError):
    """A step, or an embedding, needs more memory than the device has left; the message is the device's own."""


class DeadlineExceeded(QuireError):
    """A request's time was over before it had anything to show."""


class Overloaded(QuireError):
    """There is more work than can be done in time; `retry_after` is in seconds."""

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StillBusy(QuireError):
    """Something cannot be done while requests are live."""


class Unavailable(QuireError):
    """Nothing can be taken in now: the engine is starting, or the server is on its way out."""

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after
