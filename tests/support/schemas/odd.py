"""An Avro schema of three hundred fields with all that is unusual, values of it, and the rows that they are."""

import random
import string
import uuid
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

DAY = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_PLAIN: dict[str, Any] = {
    "b": "boolean",
    "i": "int",
    "l": "long",
    "f": "float",
    "d": "double",
    "s": "string",
    "y": "bytes",
}
_POINT = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int"}]}
_CIRCLE = {
    "type": "record",
    "name": "Circle",
    "fields": [{"name": "centre", "type": "Point"}, {"name": "radius", "type": ["null", "double"], "default": None}],
}
_SPECIAL: list[dict[str, Any]] = [
    {"name": "_offset", "type": "long", "doc": "a name of the log's"},
    {"name": "Case", "type": "string"},
    {"name": "case", "type": ["null", "int"], "default": None},
    {"name": "shape", "type": ["null", _POINT, _CIRCLE, "string"], "default": None},
    {"name": "lists", "type": {"type": "map", "values": {"type": "array", "items": ["null", "long"]}}, "default": {}},
    {"name": "nested", "type": ["null", {"type": "array", "items": "Circle"}], "default": None},
    {"name": "nothing", "type": "null", "default": None},
    {"name": "fixed", "type": {"type": "fixed", "name": "F7", "size": 7}},
    {"name": "amount", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 4}]},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "clock", "type": {"type": "long", "logicalType": "time-micros"}},
    {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
    {"name": "millis", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "who", "type": {"type": "string", "logicalType": "uuid"}},
]


def schema(step: int = 0, plain: int = 285) -> dict[str, Any]:
    """Each step is another version that gets along with those before: a field and a symbol more, fields wider."""
    kinds = [*_PLAIN.items()]
    fields: list[dict[str, Any]] = []
    for number in range(plain):
        letter, kind = kinds[number % len(kinds)]
        if step and letter == "i" and number < 20:
            kind = "long"
        name = f"{letter}{number}"
        fields.append(
            {"name": name, "type": ["null", kind], "default": None} if number % 2 else {"name": name, "type": kind}
        )
    symbols = ["NEW", "PAID", "SENT", "LOST", "BACK"][: 3 + step]
    state = {"type": "enum", "name": "State", "symbols": symbols, "default": "NEW"}
    more = [{"name": f"more{n}", "type": "string", "default": f"m{n}"} for n in range(step)]
    return {
        "type": "record",
        "name": "Odd",
        "namespace": "a.b",
        "fields": [*_SPECIAL, {"name": "state", "type": state}, *fields, *more],
    }


def value(dice: random.Random, step: int = 0, plain: int = 285) -> dict[str, Any]:
    """As fastavro takes it."""

    def point() -> dict[str, int]:
        return {"x": dice.randrange(-5, 5), "y": dice.choice([-(1 << 31), (1 << 31) - 1, 0])}

    def circle() -> dict[str, Any]:
        return {"centre": point(), "radius": dice.choice([None, 0.5, -0.0])}

    def text() -> str:
        return "".join(dice.choices(string.printable + "äß€😀\x00", k=dice.randrange(12)))

    plain_values: dict[str, Any] = {
        "b": lambda wide: dice.random() < 0.5,
        "i": lambda wide: dice.randrange(1 << (40 if wide else 31)),
        "l": lambda wide: dice.choice([-(1 << 63), (1 << 63) - 1, dice.randrange(100)]),
        "f": lambda wide: dice.choice([0.5, -0.0, 2.0**100]),
        "d": lambda wide: dice.choice([dice.random(), float("inf"), -1e-300]),
        "s": lambda wide: text(),
        "y": lambda wide: dice.randbytes(dice.randrange(9)),
    }
    made: dict[str, Any] = {
        "_offset": dice.randrange(1 << 40),
        "Case": text(),
        "case": dice.choice([None, 7]),
        "shape": dice.choice([None, ("a.b.Point", point()), ("a.b.Circle", circle()), "a string"]),
        "lists": {f"k{n}": [dice.choice([None, n]) for _ in range(n)] for n in range(dice.randrange(4))},
        "nested": dice.choice([None, [], [circle(), circle()]]),
        "nothing": None,
        "fixed": dice.randbytes(7),
        "amount": dice.choice([None, Decimal(dice.randrange(-(10**17), 10**17)).scaleb(-4)]),
        "day": date(2000, 1, 1) + timedelta(days=dice.randrange(20_000)),
        "clock": time(dice.randrange(24), 5, 6, dice.randrange(1_000_000)),
        "at": dice.choice([None, DAY + timedelta(microseconds=dice.randrange(10**12))]),
        "millis": DAY + timedelta(milliseconds=dice.randrange(10**9)),
        "who": str(uuid.UUID(int=dice.getrandbits(128))),
        "state": dice.choice(["NEW", "PAID", "SENT", "LOST", "BACK"][: 3 + step]),
    }
    kinds = [*_PLAIN]
    for number in range(plain):
        letter = kinds[number % len(kinds)]
        wide = step > 0 and number < 20
        is_null = number % 2 and dice.random() < 0.3
        made[f"{letter}{number}"] = None if is_null else plain_values[letter](wide)
    return made | {f"more{n}": text() for n in range(step)}


def row(made: dict[str, Any]) -> dict[str, Any]:
    """What the columns hold of it."""
    clock = made["clock"]
    union = made["shape"]
    branches: dict[str, Any] = {"Point": None, "Circle": None, "string": None}
    if isinstance(union, tuple):
        branches[union[0].removeprefix("a.b.")] = union[1]
    elif union is not None:
        branches["string"] = union
    found = {name: made[name] for name in made if name not in ("_offset", "case", "shape", "lists", "clock")}
    return found | {
        "value_offset": made["_offset"],
        "case_2": made["case"],
        "shape": None if union is None else branches,
        "lists": made["lists"],
        "clock": ((clock.hour * 60 + clock.minute) * 60 + clock.second) * 1_000_000 + clock.microsecond,
    }
