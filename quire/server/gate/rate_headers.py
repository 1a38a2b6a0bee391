"""What an account has left, as the x-ratelimit-* headers that OpenAI's clients read."""

from quire.server.gate.account import Account


def rate_headers(account: Account) -> list[tuple[bytes, bytes]]:
    """Three headers for each limit; none for an account without limits."""
    headers: list[tuple[bytes, bytes]] = []
    for name, quota in account.quotas().items():
        shown = {"limit": str(quota.limit), "remaining": str(quota.remaining), "reset": _duration(quota.reset)}
        headers += [(f"x-ratelimit-{what}-{name}".encode(), value.encode()) for what, value in shown.items()]
    return headers


def _duration(seconds: float) -> str:
    """As in 1m30s, 12.5s, 40ms."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    minutes, rest = divmod(seconds, 60)
    return f"{minutes:.0f}m{rest:.0f}s" if minutes else f"{rest:.3g}s"
