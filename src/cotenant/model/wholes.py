"""An index of whole free devices: which bay has how many.

What it answers depends on the books alone, never on the order of changes.
"""

from __future__ import annotations

from collections.abc import Iterator

from cotenant.model.layout import Layout

__all__ = ["WholeIndex", "low_bits"]


def low_bits(mask: int, count: int) -> int:
    """The ``count`` lowest set bits of ``mask``.

    >>> bin(low_bits(0b10110, 2))
    '0b110'
    """
    if count == 1:
        return mask & -mask
    if mask.bit_count() == count:
        return mask
    rest = mask
    for _ in range(count):
        rest &= rest - 1
    return mask ^ rest


class WholeIndex:
    """Bays by the number of their whole free devices; empty until told.

    Attributes
    ----------
    whole : list of int
        For each bay: mask of devices that are usable, empty, not reserved, not draining.
    free_count : list of int
        For each type: number of such devices.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.whole = [0] * len(layout.bay_node)
        widest = max(layout.bay_size, default=0)
        # For each type and each count of free devices: a bit set of bays with that count,
        # and for each type a bit set of the counts that occur. Both canonical: what they
        # answer depends on the books alone, never on the order of changes.
        self._bays_with = [[0] * (widest + 1) for _ in layout.types]
        self._counts = [0] * len(layout.types)
        self._first_of = layout.bay_first
        self._index_of = [
            (kind, bit, self._bays_with[kind])
            for kind, bit in zip(layout.bay_type, layout.bay_bit, strict=True)
        ]
        self.free_count = [0] * len(layout.types)

    def _set_whole(self, bay: int, mask: int) -> None:
        whole = self.whole
        before, after = whole[bay].bit_count(), mask.bit_count()
        whole[bay] = mask
        if before == after:
            return
        kind, bit, rows = self._index_of[bay]
        self.free_count[kind] += after - before
        if before:
            rows[before] = row = rows[before] ^ bit
            if not row:
                self._counts[kind] ^= 1 << before
        if after:
            row = rows[after]
            if not row:
                self._counts[kind] ^= 1 << after
            rows[after] = row | bit

    # -- questions -------------------------------------------------------------------

    def tightest_bay(self, kind: int, gpus: int) -> int:
        """The bay of this type with fewest free whole devices, but at least ``gpus``; -1 if none."""
        counts = self._counts[kind] >> gpus
        if not counts:
            return -1
        row = self._bays_with[kind][gpus + (counts & -counts).bit_length() - 1]
        return self.layout.type_bays[kind][(row & -row).bit_length() - 1]

    def tightest(self, kind: int, gpus: int) -> tuple[int, ...] | None:
        """Lowest whole free devices of ``tightest_bay``, or None."""
        counts = self._counts[kind] >> gpus
        if not counts:
            return None
        row = self._bays_with[kind][gpus + (counts & -counts).bit_length() - 1]
        bay = self.layout.type_bays[kind][(row & -row).bit_length() - 1]
        mask = self.whole[bay]
        if gpus == 1:
            return self.layout.alone[self._first_of[bay] + (mask & -mask).bit_length() - 1]
        return self.layout.devices(bay, low_bits(mask, gpus))

    def lowest_bay(self, kind: int, gpus: int) -> int:
        """The lowest-numbered bay of this type with at least ``gpus`` free whole devices; -1 if none."""
        counts, rows, found = self._counts[kind] >> gpus, self._bays_with[kind], 0
        count = gpus
        while counts:
            if counts & 1:
                bit = rows[count] & -rows[count]
                found = bit if not found else min(found, bit)
            counts >>= 1
            count += 1
        return self.layout.type_bays[kind][found.bit_length() - 1] if found else -1

    def bays_by_room(self, kind: int, gpus: int) -> Iterator[int]:
        """Bays with at least ``gpus`` free whole devices, tightest first, then by number."""
        counts, rows, bays = self._counts[kind] >> gpus, self._bays_with[kind], self.layout.type_bays[kind]
        count = gpus
        while counts:
            skip = (counts & -counts).bit_length() - 1
            count, counts = count + skip, counts >> (skip + 1)
            row = rows[count]
            while row:
                yield bays[(row & -row).bit_length() - 1]
                row &= row - 1
            count += 1

    def bays_by_most_room(self, kind: int) -> Iterator[int]:
        """Bays with free whole devices, roomiest first, then by number."""
        counts, rows, bays = self._counts[kind], self._bays_with[kind], self.layout.type_bays[kind]
        while counts:
            count = counts.bit_length() - 1
            counts ^= 1 << count
            row = rows[count]
            while row:
                yield bays[(row & -row).bit_length() - 1]
                row &= row - 1

    def largest_block(self, kind: int) -> int:
        """Most free whole devices of this type in one bay."""
        return max(self._counts[kind].bit_length() - 1, 0)
