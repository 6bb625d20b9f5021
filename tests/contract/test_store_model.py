"""Every metadata store, against a dictionary."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from support.fakes.simulated import runner
from support.fakes.stores import BACKENDS
from support.properties import examples

from lakestream.metadata.store import ABSENT, Address, Applied, Entry, Outcome, Refused, Transaction

SHARDS = st.sampled_from(["s", "t"])
KEYS = st.sampled_from(["a", "b", "b/", "b/1", "b0", "c"])
VALUES = st.binary(max_size=4)


class AgainstModel(RuleBasedStateMachine):
    """The store must do what a dictionary would."""

    backend: str
    place: str

    versions = Bundle("versions")

    def __init__(self) -> None:
        super().__init__()
        self._runner = runner(type(self).backend)
        self._context = BACKENDS[type(self).backend](type(self).place)
        self._store = self._run(self._context.__aenter__())
        self._model: dict[str, dict[str, Entry]] = {"s": {}, "t": {}}
        self._last_versions = dict.fromkeys(self._model, ABSENT)

    def teardown(self) -> None:
        self._run(self._context.__aexit__(None, None, None))
        self._runner.close()

    def _run(self, work: Any) -> Any:
        return self._runner.run(work)

    @initialize(target=versions)
    def absent(self) -> int:
        return ABSENT

    @rule(
        target=versions,
        steps=st.lists(
            st.tuples(
                SHARDS,
                st.dictionaries(KEYS, st.none(), max_size=2),
                st.dictionaries(KEYS, VALUES, max_size=3),
                st.lists(KEYS, max_size=2),
                st.lists(st.tuples(KEYS, KEYS), max_size=2),
                st.booleans(),
            ),
            min_size=1,
            max_size=4,
        ),
        guess=versions,
    )
    def transact(self, steps: list[Any], guess: int) -> int:
        transactions = []
        for shard, checked, puts, deletes, ranges, honest in steps:
            present = self._model[shard]
            checks = {key: present[key].version if honest and key in present else guess for key in checked}
            transactions.append(Transaction(shard, checks, puts, deletes, ranges))
        outcomes = self._run(self._store.transact(transactions))
        for transaction, outcome in zip(transactions, outcomes, strict=True):
            self._follow(transaction, outcome)
        return max(self._last_versions.values())

    def _follow(self, transaction: Transaction, outcome: Outcome) -> None:
        shard = self._model[transaction.shard]
        failed = {
            key: shard.get(key)
            for key, version in transaction.checks.items()
            if (shard[key].version if key in shard else ABSENT) != version
        }
        if failed:
            assert outcome == Refused(failed)
            return
        assert isinstance(outcome, Applied)
        assert outcome.version > self._last_versions[transaction.shard]
        self._last_versions[transaction.shard] = outcome.version
        for key in list(shard):
            if key in transaction.deletes or any(start <= key < end for start, end in transaction.delete_ranges):
                del shard[key]
        for key, value in transaction.puts.items():
            shard[key] = Entry(key, value, outcome.version)

    @rule(shard=SHARDS, start=KEYS, end=KEYS, limit=st.none() | st.integers(0, 4))
    def look(self, shard: str, start: str, end: str, limit: int | None) -> None:
        expected = [self._model[shard][key] for key in sorted(self._model[shard]) if start <= key < end][:limit]
        assert self._run(self._store.range(shard, start, end, limit=limit)) == expected

    @rule(addresses=st.lists(st.builds(Address, SHARDS, KEYS), max_size=6))
    def get(self, addresses: list[Address]) -> None:
        assert self._run(self._store.get(addresses)) == [self._model[a.shard].get(a.key) for a in addresses]

    @rule(addresses=st.lists(st.builds(Address, SHARDS, KEYS), max_size=3), guess=versions, honest=st.booleans())
    def watch(self, addresses: list[Address], guess: int, honest: bool) -> None:
        present = {a: e.version if (e := self._model[a.shard].get(a.key)) else ABSENT for a in addresses}
        seen = present if honest else dict.fromkeys(addresses, guess)
        assert self._run(self._store.watch(seen, timeout_ms=0)) == (seen != present)


def test_store_behaves_like_a_dictionary(backend: str, place: str) -> None:
    machine = type("Machine", (AgainstModel,), {"backend": backend, "place": place})
    run_state_machine_as_test(machine, settings=examples(30, stateful_step_count=25, derandomize=True))
