"""Commands that an operator runs on a bucket while nothing else uses it."""
