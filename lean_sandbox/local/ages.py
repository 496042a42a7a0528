"""Durations as `kubectl get` shows them."""

from __future__ import annotations

from datetime import UTC, datetime


def human_duration(seconds: float) -> str:
    """Return a duration with at most two units, as ages are shown."""
    total = int(seconds)
    if total < -1:
        return "<invalid>"
    if total < 0:
        return "0s"
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if total < 120:
        return f"{total}s"
    if minutes < 10:
        return f"{minutes}m" + (f"{total % 60}s" if total % 60 else "")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h" + (f"{minutes % 60}m" if minutes % 60 else "")
    if hours < 48:
        return f"{hours}h"
    if hours < 24 * 8:
        return f"{days}d" + (f"{hours % 24}h" if hours % 24 else "")
    if hours < 24 * 365 * 2:
        return f"{days}d"
    years = hours // 24 // 365
    if years < 8:
        rest = days % 365
        return f"{years}y" + (f"{rest}d" if rest else "")
    return f"{years}y"


def since(text: str | None, now: datetime) -> str:
    """Return the time since a timestamp, `<unknown>` without one, `<invalid>` if it is none."""
    if not text:
        return "<unknown>"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return "<invalid>"
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return human_duration((now - moment).total_seconds())
