"""Whether an address lies inside a folder, however it is spelled."""

from pathlib import Path

import pytest

from lakestream.objects.paths import is_inside, is_really_inside, really_inside, relative, resolved, same_form

HOME = "file:///bucket/tables/orders"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("file:/a/b", "file:///a/b"),
        ("FILE:///a/b", "file:///a/b"),
        ("/a/b", "file:///a/b"),
        ("file:///a//b/", "file:///a/b"),
        ("s3a://lake/a", "s3://lake/a"),
        ("s3n://lake//a/", "s3://lake/a"),
    ],
)
def test_spellings_of_one_place(one: str, other: str) -> None:
    assert same_form(one) == same_form(other) == other


@pytest.mark.parametrize(
    "path", [f"{HOME}/x", f"{HOME}//x", "file:/bucket/tables/orders/a/b", f"{HOME}/a%20b", f"{HOME}/n=1%2F2/f"]
)
def test_what_is_inside(path: str) -> None:
    assert is_inside(path, HOME)
    assert is_inside(path, HOME + "/")


@pytest.mark.parametrize(
    "path",
    [
        HOME,
        HOME + "/",
        HOME + "2/x",
        "file:///bucket/tables/other/x",
        f"{HOME}/../other/x",
        f"{HOME}/./x",
        f"{HOME}/%2e%2e/other/x",
        f"{HOME}/%252e%252e/other/x",
        f"{HOME}/%2E./other/x",
        f"{HOME}/..%2fother/x",
        f"{HOME}/%25252525252e/x",
        f"{HOME}/..\\other\\x",
        f"{HOME}/x\x00",
        "s3://bucket/tables/orders/x",
        "tables/orders/x",
        "file:bucket/tables/orders/x",
        "file://bucket/tables/orders/x",
        "file://localhost/bucket/tables/orders/x",
        "",
    ],
)
def test_what_is_not(path: str) -> None:
    assert not is_inside(path, HOME)


def test_a_folder_that_steps_up_holds_nothing() -> None:
    assert not is_inside("file:///a/../b/x", "file:///a/../b")


@pytest.mark.parametrize("folder", ["file:///bucket/t#", "file:///bucket/t?a", "file:///bucket/t#/u"])
def test_a_folder_of_which_a_url_is_only_the_beginning_holds_nothing(folder: str) -> None:
    assert not is_inside(f"{folder}/x", folder)


def test_a_bucket_is_not_its_namesake() -> None:
    assert is_inside("s3a://lake/warehouse/t", "s3://lake/warehouse")
    assert not is_inside("s3://lake2/warehouse/t", "s3://lake/warehouse")
    assert relative("s3a://lake/warehouse/t/f", "s3://lake") == "warehouse/t/f"


def test_links_are_followed(tmp_path: Path) -> None:
    orders, copy = tmp_path / "orders", tmp_path / "copy"
    for folder in (orders, copy):
        folder.mkdir()
        (folder / "f").write_bytes(b"")
    (copy / "data").symlink_to(orders)
    (copy / "link").symlink_to(orders / "f")
    home = f"file://{copy}"
    assert is_inside(f"{home}/data/f", home)
    assert not is_really_inside(f"{home}/data/f", home)
    assert not is_really_inside(f"{home}/data/new/f", home)
    assert not is_really_inside(f"{home}/link", home)
    assert is_really_inside(f"{home}/none/yet", home)
    # Who deletes a link deletes the link.
    assert really_inside([f"{home}/data/f", f"{home}/link", f"{home}/f"], home) == [f"{home}/link", f"{home}/f"]
    # A folder that is itself reached through a link is whole.
    (tmp_path / "other").symlink_to(copy)
    assert is_really_inside(f"file://{tmp_path}/other/f", f"file://{tmp_path}/other")
    assert resolved(f"file://{tmp_path}/other/f") == resolved(f"{home}/f")
