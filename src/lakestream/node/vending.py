"""What engines are told about the store that tables live in: how to reach it, and the keys to it if an operator allows.

The keys are this process' own, from its environment, and as wide as those: S3 keys cannot be narrowed to one table
without a token service. A bucket in a directory needs neither.
"""

from collections.abc import Mapping


def storage_config(bucket_url: str, environment: Mapping[str, str]) -> dict[str, str]:
    """No secret among it."""
    if not bucket_url.startswith("s3://"):
        return {}
    endpoint = environment.get("AWS_ENDPOINT") or environment.get("AWS_ENDPOINT_URL")
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    told: dict[str, str] = {}
    if endpoint:
        told |= {"s3.endpoint": endpoint, "s3.path-style-access": "true"}
    if region:
        told |= {"s3.region": region, "client.region": region}
    return told


def storage_credentials(bucket_url: str, environment: Mapping[str, str], *, allowed: bool) -> dict[str, str]:
    """Empty unless they are allowed and there are any."""
    if not allowed or not bucket_url.startswith("s3://"):
        return {}
    names = {
        "s3.access-key-id": "AWS_ACCESS_KEY_ID",
        "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
        "s3.session-token": "AWS_SESSION_TOKEN",
    }
    return {key: environment[name] for key, name in names.items() if environment.get(name)}
