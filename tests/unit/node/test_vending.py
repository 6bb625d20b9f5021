"""What engines are told about the store."""

from lakestream.node.vending import storage_config, storage_credentials

ENVIRONMENT = {
    "AWS_ENDPOINT": "http://127.0.0.1:9",
    "AWS_REGION": "eu-west-1",
    "AWS_ACCESS_KEY_ID": "id",
    "AWS_SECRET_ACCESS_KEY": "secret",
}


def test_keys_go_out_only_if_that_is_allowed() -> None:
    assert storage_credentials("s3://b", ENVIRONMENT, allowed=False) == {}
    assert storage_credentials("file:///b", ENVIRONMENT, allowed=True) == {}
    assert storage_credentials("s3://b", {}, allowed=True) == {}
    keys = storage_credentials("s3://b", ENVIRONMENT | {"AWS_SESSION_TOKEN": "t"}, allowed=True)
    assert keys == {"s3.access-key-id": "id", "s3.secret-access-key": "secret", "s3.session-token": "t"}


def test_the_way_to_the_store_is_no_secret() -> None:
    told = storage_config("s3://b/prefix", ENVIRONMENT)
    assert told["s3.endpoint"] == "http://127.0.0.1:9"
    assert told["s3.path-style-access"] == "true"
    assert told["s3.region"] == told["client.region"] == "eu-west-1"
    assert "id" not in told.values()
    assert storage_config("s3://b", {}) == storage_config("file:///b", ENVIRONMENT) == {}
