"""What is wrong with an expression."""


class InvalidPattern(ValueError):
    """It is none in the words of RE2, or takes too much to match. The message says what is wrong."""
