"""The texts of rows by the rules of docs/FORMATS.md, and nothing of ours."""

import json
import random
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from support.schemas.json import ORDER, framed, random_order, shape_of
from support.schemas.values import rows_of

from lakestream.schemas.codecs import install

install()


def double(number: float, form: list[Any]) -> str:
    if len(form) == 1:
        return f"{Decimal(repr(number)):.{form[0]}f}"
    lowest, highest, whole, mark, digits, single = form
    sign, found, power = Decimal(repr(number)).normalize().as_tuple()
    text = "".join(map(str, found))
    assert isinstance(power, int)
    point = len(text) + power if number else 1
    if lowest < point <= highest:
        plain = f"{Decimal(repr(abs(number))).normalize():f}"
        return "-" * sign + (plain if "." in plain else plain + whole)
    exponent = point - 1
    shown = mark if exponent >= 0 else f"{mark[0]}-"
    return "-" * sign + text[0] + (f".{text[1:]}" if text[1:] else single) + f"{shown}{abs(exponent):0{digits}}"


def time(found: datetime, form: list[Any]) -> str:
    separator, fraction, zone = form
    minutes = 0
    if zone and zone not in "Zz":
        minutes = (int(zone[1:3]) * 60 + int(zone[-2:] if len(zone) > 3 else 0)) * (-1 if zone[0] == "-" else 1)
    local = found.astimezone(timezone(timedelta(minutes=minutes)))
    digits = f"{local.microsecond:06}"
    if isinstance(fraction, int):
        digits = digits.ljust(9, "0")[:fraction]
    elif local.microsecond == 0:
        digits = ""
    elif fraction == "trimmed":
        digits = digits.rstrip("0")
    elif fraction == "thousands" and digits.endswith("000"):
        digits = digits[:3]
    return f'"{local.date()}{separator}{local:%H:%M:%S}{"." if digits else ""}{digits}{zone}"'


LETTERS = {'"': '"', "\\": "\\", "/": "/", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}


def string(text: str, template: dict[str, Any]) -> str:
    short, code = template.get("short", '"\\\b\f\n\r\t'), template.get("code", "")
    parts = []
    for each in text:
        if each in short:
            parts.append("\\" + LETTERS[each])
        elif each in code or each < " " or each in '"\\' or (each > "\x7f" and template.get("ascii")):
            units = each.encode("utf-16-be").hex()
            units = units.upper() if template.get("upper") else units
            parts += [f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)]
        else:
            parts.append(each)
    return f'"{"".join(parts)}"'


def node(found: Any, value: Any, template: dict[str, Any]) -> str:
    if value is None:
        return "null"
    if isinstance(found, str):
        match found[0]:
            case "s":
                return string(value, template)
            case "b":
                return "true" if value else "false"
            case "d":
                return f'"{value}"'
            case "n":
                return double(value, template["numbers"][int(found[1:])])
            case "t":
                return time(value, template["times"][int(found[1:])])
            case _:
                return str(value)
    first, between, last, empty = found["space"]
    if "items" in found:
        items = [node(found["items"], each, template) for each in value]
        return f"[{first}{between.join(items)}{last}]" if items else f"[{empty}]"
    if "values" in found:
        pairs = [
            f"{string(key, template)}{found['colon']}{node(found['values'], each, template)}" for key, each in value
        ]
        return f"{{{first}{between.join(pairs)}{last}}}" if pairs else f"{{{empty}}}"
    text = ""
    for key, below, is_left_out, *own in found["members"]:
        held = value.get(json.loads(key[: key.rindex('"') + 1]))
        if held is not None or not is_left_out:
            text += ((own[0] if own else between) if text else first) + key + node(below, held, template)
    return f"{{{text}{last}}}" if text else f"{{{empty}}}"


@pytest.mark.parametrize("dump", [json.dumps, lambda value: json.dumps(value, indent=1, ensure_ascii=False)])
def test_a_stranger_makes_the_text_of_each_row(dump: Any) -> None:
    source = random.Random(7)
    texts = [dump(random_order(source, 0.5, 0.5)) for _ in range(100)]
    texts += [
        '{"price":12.50,"at":"2024-05-01T01:11:12.120+02:30"}',
        '{"rate":1.0E-9,"at":"0999-05-01 01:11:12"}',
        "{ }",
    ]
    for row, text in zip(rows_of([*map(framed, texts)], shape_of(ORDER)).to_pylist(), texts, strict=True):
        assert row["_kind"] == 2
        template = json.loads(row["_format"])
        assert template["v"] == 1
        row["at"] = row["at"] and row["at"].astimezone(UTC)
        made = template.get("before", "") + node(template["value"], row, template) + template.get("after", "")
        assert made == text
