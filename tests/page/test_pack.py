"""The container of the data, read back as the browser reads it."""

from __future__ import annotations

import base64
import json
import zlib

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from gradviz.page.pack import LARGEST, Pack


def unpacked(text: str) -> tuple[dict[str, list[int]], dict[str, object]]:
    body = zlib.decompress(base64.b64decode(text))
    size = int.from_bytes(body[:4], "little")
    head = json.loads(body[4 : 4 + size])
    columns: dict[str, list[int]] = {}
    at = 4 + size
    for name, count, length, _ in head.pop("columns"):
        values, before, end = [], 0, at + length
        while at < end:
            number, shift = 0, 0
            while True:
                byte = body[at]
                at += 1
                number |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    break
            before += (number >> 1) ^ -(number & 1)
            values.append(before)
        assert len(values) == count
        columns[name] = values
    return columns, head


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(-LARGEST, LARGEST)), st.text())
def test_a_round_trip(numbers: list[int], text: str) -> None:
    pack = Pack()
    pack.add(a=numbers, empty=[])
    pack.put(text=text)
    assert unpacked(pack.base64()) == ({"a": numbers, "empty": []}, {"text": text})


@pytest.mark.parametrize("number", [2**64, 2**63])
def test_what_no_browser_can_count_is_cut(number: int) -> None:
    pack = Pack()
    pack.add(a=[number, 1])
    assert unpacked(pack.base64())[0] == {"a": [LARGEST, 1]}
