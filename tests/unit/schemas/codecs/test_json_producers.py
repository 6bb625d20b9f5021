"""What real producers write needs no bytes beside its columns. The samples were written by the libraries themselves, of
records that no template was made for."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.schemas.json import ORDER, escaped, framed, random_order, shape_of
from support.schemas.values import rows_of, values_of

from lakestream.schemas.codecs import install
from lakestream.schemas.codecs.json.numbers import NUMBER_FORMS, written
from lakestream.table.shape import KIND_TYPED

install()
SAMPLES = Path(__file__).parents[3] / "support" / "schemas" / "samples"
JAVA_17 = {"jackson", "gson", "gson-nulls"}
"""Before 19 it did not write all doubles with the fewest digits."""


def typed_share(texts: list[str]) -> float:
    shape = shape_of(ORDER)
    values: list[bytes | None] = [*map(framed, texts)]
    rows = rows_of(values, shape)
    assert values_of(rows, shape) == values
    assert rows["_kind"].to_pylist().count(0) == 0
    return rows["_kind"].to_pylist().count(KIND_TYPED) / len(values)


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.jsonl")), ids=lambda path: path.stem)
def test_samples_of_real_producers_are_columns_alone(path: Path) -> None:
    samples = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(samples) >= 20
    assert typed_share([each["text"] for each in samples if each["of"] != "odd-numbers"]) == 1
    odd = typed_share([each["text"] for each in samples if each["of"] == "odd-numbers"])
    assert odd >= (0.5 if path.stem in JAVA_17 else 1)


def by_rules(codes: str, *, is_upper: bool, form: int, leaves_nulls_out: bool) -> Callable[[Any], str]:
    def dump(value: Any) -> str:
        if isinstance(value, dict):
            members = ((key, each) for key, each in value.items() if each is not None or not leaves_nulls_out)
            return "{" + ",".join(f"{dump(key)}:{dump(each)}" for key, each in members) + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(dump, value)) + "]"
        if isinstance(value, str):
            return escaped(value, codes, '"\\\b\f\n\r\t', is_ascii=False, is_upper=is_upper)
        return written(NUMBER_FORMS[form], value) if isinstance(value, float) else json.dumps(value)

    return dump


PRODUCERS: dict[str, Callable[[Any], str]] = {
    "Python": json.dumps,
    "Python, compact": lambda value: json.dumps(value, separators=(",", ":")),
    "Python, sorted, not ASCII": lambda value: json.dumps(value, sort_keys=True, ensure_ascii=False),
    "Python, lines": lambda value: json.dumps(value, indent=2),
    "msgspec": lambda value: msgspec.json.encode(value).decode(),
    "JavaScript": by_rules("", is_upper=False, form=1, leaves_nulls_out=False),
    "Go": by_rules("<>&\u2028\u2029", is_upper=False, form=1, leaves_nulls_out=True),
    "serde_json": by_rules("", is_upper=False, form=2, leaves_nulls_out=False),
    "Jackson": by_rules("", is_upper=True, form=3, leaves_nulls_out=False),
    "Gson": by_rules("<>&='\u2028\u2029", is_upper=False, form=3, leaves_nulls_out=True),
}


@pytest.mark.parametrize("name", PRODUCERS)
@pytest.mark.parametrize(("odd_numbers", "odd_texts"), [(0.0, 0.05), (1.0, 0.05), (0.0, 0.5)])
def test_at_least_99_of_100_records_are_columns_alone(name: str, odd_numbers: float, odd_texts: float) -> None:
    source = random.Random(f"{name} {odd_numbers} {odd_texts}")
    orders = [random_order(source, odd_numbers, odd_texts) for _ in range(400)]
    assert typed_share([PRODUCERS[name](order) for order in orders]) >= 0.99
