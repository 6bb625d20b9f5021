"""What PyIceberg is told of S3 is what our own store takes from the environment."""

from lakestream.node.storage.tables import io_properties


def test_the_endpoint_of_s3_alone_is_taken_before_that_of_all_services() -> None:
    environment = {
        "AWS_ENDPOINT_URL": "http://all:1",
        "AWS_ENDPOINT_URL_S3": "http://s3:2",
        "AWS_ENDPOINT": "http://x:3",
    }

    assert io_properties(environment) == {"s3.endpoint": "http://s3:2"}


def test_credentials_and_region_go_along() -> None:
    environment = {
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_SESSION_TOKEN": "token",
        "AWS_DEFAULT_REGION": "eu-central-1",
    }

    assert io_properties(environment) == {
        "s3.access-key-id": "id",
        "s3.secret-access-key": "secret",
        "s3.session-token": "token",
        "s3.region": "eu-central-1",
    }


def test_what_is_not_set_or_empty_is_left_to_the_library() -> None:
    assert io_properties({}) == {}
    assert io_properties({"AWS_ENDPOINT_URL": "", "AWS_REGION": ""}) == {}
