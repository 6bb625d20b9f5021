"""Transactions: who writes under a transactional id, what its transaction has, and how it ends."""

from lakestream.coordination.transactions.coordinator import TransactionCoordinator
from lakestream.coordination.transactions.deciding import Producer
from lakestream.coordination.transactions.enlisting import Enlister
from lakestream.coordination.transactions.model import STATE_NAMES, TransactionFilter
from lakestream.coordination.transactions.transactions import Transactions

__all__ = ["STATE_NAMES", "Enlister", "Producer", "TransactionCoordinator", "TransactionFilter", "Transactions"]
