"""Regular expressions over names of topics, in the words of RE2, which is what members may send. Matching takes time in
proportion to the name, whatever the expression: there is no backtracking."""

from lakestream.coordination.groups.patterns.matching import InvalidPattern, Pattern

__all__ = ["InvalidPattern", "Pattern"]
