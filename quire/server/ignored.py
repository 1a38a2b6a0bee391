"""How clients hear of fields that change no answer."""

from quire.protocol.ignored import HEADER, Ignored


def ignored_header(ignored: Ignored) -> dict[str, str]:
    """For an answer; empty where nothing was ignored."""
    names = ignored.header()
    return {HEADER: names} if names else {}
