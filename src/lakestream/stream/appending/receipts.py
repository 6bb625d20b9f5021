"""Receipts: what a broker writes down of its flushes, so that the log can be rebuilt from the bucket alone.

Made from the results of the single batches, never from extents: a flush that was confirmed through its session's mark
has results only. See `lakestream.wal.footer` for what a receipt promises.
"""

from collections.abc import Iterable, Mapping, Sequence

from lakestream.metadata.log.commit import Batch, Offer
from lakestream.metadata.log.committer import Committed, Gone, Unreadable, UploadAgain, Verdict
from lakestream.metadata.log.head import Accepted
from lakestream.model import StreamPartition
from lakestream.wal import Placed, Receipt, RefusedRange, SectionReceipt


def receipts_of(object_key: str, offers: Iterable[Offer], verdicts: Mapping[StreamPartition, Verdict]) -> list[Receipt]:
    """One, or none if nothing is known of the object. Sections whose outcome cannot be learned are left out."""
    sections = []
    for offer in offers:
        match verdicts[offer.partition]:
            case Committed(results):
                sections.append(_section(offer, results))
            case Gone() | UploadAgain() | Unreadable(unknown=False):
                sections.append(SectionReceipt(offer.partition))
    return [Receipt(object_key, tuple(sections))] if sections else []


def given_up(object_key: str, partitions: Iterable[StreamPartition]) -> Receipt:
    """None of these sections is in the log, nor will be."""
    return Receipt(object_key, tuple(map(SectionReceipt, partitions)))


def _section(offer: Offer, results: Sequence[Accepted]) -> SectionReceipt:
    placed: list[Placed] = []
    refused: list[RefusedRange] = []
    for batch, result in zip(offer.batches, results, strict=True):
        if result.refusal:
            _extend_refused(refused, offer.position + batch.position, batch.length, result.refusal)
        else:
            _extend_placed(placed, offer.position + batch.position, batch, result.base_offset)
    return SectionReceipt(offer.partition, tuple(placed), tuple(refused))


def _extend_placed(placed: list[Placed], position: int, batch: Batch, base_offset: int) -> None:
    if placed and placed[-1].position + placed[-1].length == position:
        last = placed.pop()
        placed.append(
            Placed(last.base_offset, last.record_count + batch.record_count, last.position, last.length + batch.length)
        )
    else:
        placed.append(Placed(base_offset, batch.record_count, position, batch.length))


def _extend_refused(refused: list[RefusedRange], position: int, length: int, reason: str) -> None:
    last = refused[-1] if refused else None
    if last is not None and last.reason == reason and last.position + last.length == position:
        refused[-1] = RefusedRange(last.position, last.length + length, reason)
    else:
        refused.append(RefusedRange(position, length, reason))
