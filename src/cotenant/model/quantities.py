"""The one place where sizes, shares and durations are read and printed.

Sizes are bytes and print as MiB or GiB; compute shares are thousandths of one
device (milli); durations are seconds. SI (``GB``) and IEC (``GiB``) suffixes both
work and mean what they say; a bare number is refused where the unit is not in the
field's name, because 80 GB is not 80 GiB.
"""

from __future__ import annotations

import math
import re

from cotenant.errors import QuantityError

__all__ = [
    "GIB",
    "MIB",
    "MIN_SHARE_MILLI",
    "format_bytes",
    "format_duration",
    "format_milli",
    "parse_bytes",
    "parse_duration",
    "parse_milli",
]

MIB = 1 << 20
GIB = 1 << 30
MIN_SHARE_MILLI = 1
"""The smallest share that can be asked for: one thousandth of a device."""

_BYTES = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
    # Slurm and Kubernetes write single letters; both read them as powers of 1024.
    "k": 1 << 10,
    "m": 1 << 20,
    "g": 1 << 30,
    "t": 1 << 40,
    "ki": 1 << 10,
    "mi": 1 << 20,
    "gi": 1 << 30,
    "ti": 1 << 40,
}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_NUMBER = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z%]*)\s*$")
_SLURM_TIME = re.compile(r"^(?:(\d+)-)?(\d+):(\d{2})(?::(\d{2}(?:\.\d+)?))?$")


def _split(text: str, what: str) -> tuple[float, str]:
    found = _NUMBER.match(text)
    if not found:
        raise QuantityError(f"cannot read {text!r} as {what}; write for example 6GiB, 40% or 90min")
    value = float(found.group(1))
    if not math.isfinite(value):
        raise QuantityError(f"{text!r} is not a finite {what}")
    return value, found.group(2)


def _finite(value: float, text: object, what: str) -> float:
    if not math.isfinite(value):
        raise QuantityError(f"{text!r} is too large for a {what}")
    return value


def parse_bytes(text: str | int, *, unit: str | None = None) -> int:
    """Read a size.

    Parameters
    ----------
    text : str or int
        ``"6GiB"``, ``"80GB"``, ``"512 MiB"``; single letters (``80g``) are powers of
        1024, as in Slurm and Kubernetes.
    unit : str, optional
        Unit of a bare number, given only where the field's name carries it.

    Returns
    -------
    int
        Bytes, rounded up to a whole byte.

    Raises
    ------
    QuantityError
        For anything else, a bare number without ``unit`` included.

    Examples
    --------
    >>> parse_bytes("1GiB"), parse_bytes("1GB"), parse_bytes(3, unit="MiB")
    (1073741824, 1000000000, 3145728)
    """
    if isinstance(text, bool):
        raise QuantityError(f"{text!r} is not a size")
    value, suffix = _split(str(text), "a size")
    suffix = suffix or (unit or "")
    if not suffix:
        raise QuantityError(f"size {text!r} has no unit; write {text}MiB, {text}GiB or {text}GB")
    factor = _BYTES.get(suffix.lower())
    if factor is None:
        raise QuantityError(f"size {text!r} has an unknown unit {suffix!r}; use MiB, GiB, MB or GB")
    return math.ceil(_finite(value * factor, text, "size"))


def format_bytes(size: int) -> str:
    """Print a size in MiB with thousands separators, rounded up: the one echo used everywhere.

    >>> format_bytes(80 * GIB), format_bytes(parse_bytes("79.6GiB"))
    ('81,920 MiB', '81,511 MiB')
    """
    return f"{-(-size // MIB):,} MiB" if size >= MIB or size <= 0 else f"{size:,} B"


def parse_milli(text: str | float, *, what: str = "share") -> int:
    """Read a compute share as thousandths of one device.

    ``"40%"``, ``"400m"``, ``"0.4"`` and ``0.4`` all mean 400. Rounded to the nearest
    thousandth (so ten times 0.1 is exactly one device); below one thousandth is an
    error that names the minimum.

    Examples
    --------
    >>> parse_milli("40%"), parse_milli(0.3333), parse_milli("250m")
    (400, 333, 250)
    """
    if isinstance(text, bool):
        raise QuantityError(f"{text!r} is not a {what}")
    value, suffix = _split(str(text), f"a {what}")
    factors = {"": 1000.0, "%": 10.0, "m": 1.0}
    if suffix.lower() not in factors:
        raise QuantityError(f"{what} {text!r} has an unknown unit; write 40%, 0.4 or 400m")
    milli = round(_finite(value * factors[suffix.lower()], text, what))
    if milli < MIN_SHARE_MILLI:
        raise QuantityError(f"{what} {text!r} is below the smallest share, 0.001 of a device (1m)")
    return milli


def format_milli(milli: int) -> str:
    """Print a share with its meaning.

    >>> format_milli(400)
    '40% of a device'
    """
    return f"{milli / 10:g}% of a device"


def parse_duration(text: str | float, *, unit: str | None = None) -> float:
    """Read a duration in seconds: ``90s``, ``15min``, ``2h``, ``1-02:00:00`` (Slurm).

    Examples
    --------
    >>> parse_duration("15min"), parse_duration("1-02:00:00")
    (900.0, 93600.0)
    """
    if isinstance(text, bool):
        raise QuantityError(f"{text!r} is not a duration")
    slurm = _SLURM_TIME.match(str(text).strip())
    if slurm:
        days, first, second, third = slurm.groups()
        # Slurm reads D-HH:MM[:SS], HH:MM:SS and MM:SS.
        if days is None and third is None:
            return int(first) * 60 + float(second)
        return int(days or 0) * 86400 + int(first) * 3600 + int(second) * 60 + float(third or 0)
    value, suffix = _split(str(text), "a duration")
    suffix = suffix or (unit or "")
    factor = _SECONDS.get(suffix.lower())
    if factor is None:
        raise QuantityError(f"duration {text!r} has no known unit; write 90s, 15min, 2h or 1d")
    return _finite(value * factor, text, "duration")


def format_duration(seconds: float) -> str:
    """Print a duration in the largest two units: ``1d 2h``, ``15m 3s``, ``0.5s``.

    >>> format_duration(93600), format_duration(903), format_duration(0.5)
    ('1d 2h', '15m 3s', '0.5s')
    """
    if not math.isfinite(seconds):
        return "n/a"
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    if seconds < 60:
        return f"{sign}{seconds:.3g}s"
    whole = round(seconds)
    for size, big, part, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // part
            return f"{sign}{whole // size}{big}" + (f" {rest}{small}" if rest else "")
    return f"{sign}{whole}s"
