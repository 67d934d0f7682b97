"""Breaks graph files: small changes at random places, by what a hostile or a damaged file may hold."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

ODD_TEXTS = (
    "",
    "\x00",
    "\x1b[31m",
    "\u202e",
    "\ud800",
    "</script>",
    "a" * 5000,
    "\n",
    '"',
    "\\",
    "🜁",
    "%s{}",
    "-1",
    "nan",
)
ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**63,
    -(2**64),
    10**4000,
    0.5,
    float("inf"),
    [],
    {},
    [[]],
    {"int": "0x" + "f" * 5000},
    {"int": "zz"},
    {"float": "nan"},
    {"bytes": "0"},
    {"dict": [[1]]},
    {"dict": [[[1], 2]]},
    {"list": 5},
    {"complex": [1]},
    *ODD_TEXTS,
)


_DEEP = "@deep@"


def mutated(base: dict[str, Any], random: Random) -> str:
    """The text of a graph file with up to four changes, now and then also in its bytes."""
    data: Any = copy.deepcopy(base)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        _change(data, random)
    depth = random.choice((1, 50, 400, 5000))
    text = json.dumps(data).replace(f'"{_DEEP}"', "[" * depth + "]" * depth)
    if random.random() < 0.15:
        text = _broken_text(text, random)
    return text


def _places(data: Any) -> list[tuple[Any, Any]]:
    """Every container in the data with each of its keys."""
    found: list[tuple[Any, Any]] = []
    waiting = [data]
    while waiting:
        inside = waiting.pop()
        keys = inside if isinstance(inside, dict) else range(len(inside))
        for key in keys:
            found.append((inside, key))
            if isinstance(inside[key], (dict, list)):
                waiting.append(inside[key])
    return found


def _change(data: Any, random: Random) -> None:
    places = _places(data)
    if not places:
        return
    inside, key = random.choice(places)
    kind = random.randrange(10)
    if kind >= 7:
        _exchange(places, random)
        return
    if kind == 0:
        inside[key] = random.choice(ODD_VALUES)
    elif kind == 1:
        del inside[key]
    elif kind == 2:
        inside[key] = copy.deepcopy(_value(random.choice(places)))
    elif kind == 3 and isinstance(inside[key], int):
        inside[key] += random.choice((-1, 1, 7, 10**6))
    elif kind == 4 and isinstance(inside[key], list) and len(inside[key]) < 500:
        inside[key] = inside[key] * random.choice((2, 3, 40))
    elif kind == 5 and isinstance(inside[key], list):
        random.shuffle(inside[key])
    else:
        inside[key] = _DEEP


def _exchange(places: list[tuple[Any, Any]], random: Random) -> None:
    """Put a value in the place of another of its type, which many a reader takes."""
    inside, key = random.choice(places)
    alike = [_value(place) for place in places if type(_value(place)) is type(inside[key])]
    inside[key] = copy.deepcopy(random.choice(alike))


def _value(place: tuple[Any, Any]) -> Any:
    inside, key = place
    try:
        return inside[key]
    except (KeyError, IndexError):  # deleted by a change before
        return None


def _broken_text(text: str, random: Random) -> str:
    at = random.randrange(len(text))
    end = min(len(text), at + random.choice((1, 5, 200)))
    return text[:at] + random.choice(("", "\x00", "}", "]", '"', "1e999", "NaN", "\\ud800", "0" * 50)) + text[end:]
