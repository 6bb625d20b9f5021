"""Copies of WAL objects in disk stores: which stores are whole, lost ones copied again, what stays too long spilled."""
