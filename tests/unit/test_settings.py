"""Settings are text: serialisable, without components, and every one can be set from the environment."""

import types
import typing

import msgspec
import pytest

from lakestream.errors import RequestError
from lakestream.settings import LogFormat, Settings, load, names, variable

PLAIN = (str, int, float, bool, type(None), LogFormat)


def _leaf_types(struct: type[msgspec.Struct]) -> list[type]:
    found: list[type] = []
    for field in msgspec.structs.fields(struct):
        composed = isinstance(field.type, types.UnionType) or typing.get_origin(field.type) is dict
        kinds = typing.get_args(field.type) if composed else (field.type,)
        if typing.get_origin(field.type) is typing.Literal:
            kinds = tuple(type(each) for each in typing.get_args(field.type))
        for kind in kinds:
            found += _leaf_types(kind) if issubclass(kind, msgspec.Struct) else [kind]
    return found


def test_hold_no_component() -> None:
    assert set(_leaf_types(Settings)) <= set(PLAIN)


def test_survive_a_round_trip_as_text() -> None:
    changed = load(None, {"LAKESTREAM_BROKER_PORT": "19092", "LAKESTREAM_BROKER_ZONE": "a"}, {})
    for settings in (Settings(), changed):
        assert msgspec.json.decode(msgspec.json.encode(settings), type=Settings) == settings


def test_are_frozen() -> None:
    with pytest.raises(AttributeError):
        Settings().data_dir = "elsewhere"  # type: ignore[misc]


def test_environment_goes_over_the_file_and_options_over_both(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "lakestream.toml"
    file.write_text('data_dir = "/a"\n[broker]\nport = 1\nid = 7\n[stream]\nflush_interval_ms = 250\n')
    settings = load(file, {"LAKESTREAM_BROKER_PORT": "2", "LAKESTREAM_DATA_DIR": "/b"}, {"data_dir": "/c"})
    assert settings.data_dir == "/c"
    assert (settings.broker.port, settings.broker.id) == (2, 7)
    assert settings.stream.flush_interval_ms == 250


def test_every_setting_has_its_own_variable() -> None:
    variables = [variable(name) for name in names()]
    assert len(set(variables)) == len(variables)
    assert "LAKESTREAM_STREAM_MEMORY_BUDGET_BYTES" in variables
    assert "LAKESTREAM_KAFKA_GROUPS_LEASE_TTL_MS" in variables


@pytest.mark.parametrize(
    ("text", "named"), [("[broker]\nprot = 1\n", "prot"), ("[broker]\nport = 'x'\n", "broker.port"), ("= 1", "line 1")]
)
def test_a_wrong_setting_is_named(tmp_path, text: str, named: str) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "lakestream.toml"
    file.write_text(text)
    with pytest.raises(RequestError, match=named):
        load(file, {}, {})


def test_urls_default_to_the_data_directory(tmp_path) -> None:  # type: ignore[no-untyped-def]
    settings = load(None, {}, {"data_dir": str(tmp_path)})
    assert settings.bucket == f"file://{tmp_path}/bucket"
    assert settings.metadata == f"sqlite://{tmp_path}/metadata.db"
    other = load(None, {"LAKESTREAM_BUCKET_URL": "s3://lake/prefix"}, {})
    assert other.bucket == "s3://lake/prefix"
