"""How numbers of gradients read: four significant digits, bars, shares."""

from __future__ import annotations

BAR = 20
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def number(value: float | None) -> str:
    """Four significant digits, `-` for none.

    >>> number(5.0), number(0.000123456), number(float("nan")), number(None)
    ('5', '0.0001235', 'nan', '-')
    """
    return "-" if value is None else f"{value:.4g}"


def share(part: float | None) -> str:
    """A share in percent; `-` for none, and never 0 % or 100 % for what is only near.

    >>> share(0.0), share(0.25), share(0.00001), share(0.99999), share(None)
    ('0 %', '25 %', '<0.1 %', '>99.9 %', '-')
    """
    if part is None:
        return "-"
    percent = 100 * part
    if 0 < percent < 0.1:
        return "<0.1 %"
    if 99.9 < percent < 100:
        return ">99.9 %"
    return f"{percent:.3g} %"


def bar(part: float | None, width: int = BAR) -> str:
    """A bar from `▏` (0) to `width` full cells (1); nothing for None.

    >>> bar(1.0, 3), bar(0.5, 3), bar(0.0, 3), bar(None, 3)
    ('███', '█▌', '▏', '')
    """
    if part is None:
        return ""
    eighths = max(1, round(part * width * 8))
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
