"""Of the tests of other people's clients that pass on Apache Kafka 4.3.1: those that do not pass here, each with its
reason. Whatever else fails is a defect, and what passes has no row."""

from typing import Final

_NO_INTERNAL_TOPICS: Final = (
    "there are no internal topics: offsets of groups and transactions are in the metadata store, and nobody lists them"
)
FRANZ_GO: Final = dict.fromkeys(
    ("TestConsumeRegex", "TestConsumeRegexShareSkipsInternal", "Test848RegexBrokerResolves"), _NO_INTERNAL_TOPICS
)
LIBRDKAFKA: Final[dict[str, str]] = {}
