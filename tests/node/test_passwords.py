"""What it costs to check a password, counted in hashes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from argon2 import PasswordHasher

from inkgrove.core import IdentityId
from inkgrove.node.identity import PASSWORD_HASHER, change_password, hash_cheaply, sign_in, use_hasher
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.store.node import find_identity
from tests.support.errors import raises
from tests.support.nodes import PASSWORD, RunningNode


class Counting(PasswordHasher):
    """A cheap hasher that notes what it is asked for."""

    def __init__(self) -> None:
        super().__init__(time_cost=1, memory_cost=8, parallelism=1)
        self.calls: list[str] = []

    def hash(self, *arguments: Any, **more: Any) -> Any:
        self.calls.append("hash")
        return super().hash(*arguments, **more)

    def verify(self, *arguments: Any, **more: Any) -> Any:
        self.calls.append("verify")
        return super().verify(*arguments, **more)


@pytest.fixture
def hasher() -> Iterator[Counting]:
    """The hasher of a process that has just begun."""
    counting = Counting()
    use_hasher(counting)
    yield counting
    hash_cheaply()


def test_first_name_that_nobody_has_costs_as_much_as_any_other(tmp_path: Path, hasher: Counting) -> None:
    with RunningNode(tmp_path, tmp_path) as running:
        assert hasher.calls == ["hash"], "made at the start"
        for _ in range(2):
            hasher.calls.clear()
            facts = {"fqdn": "nobody.haiku.ink", "password": PASSWORD}
            assert running.anybody.post("/sessions", json=facts).status_code == 401
            assert hasher.calls == ["verify"]


def test_node_that_is_not_served_hashes_nothing(tmp_path: Path, hasher: Counting) -> None:
    Node(tmp_path, NodeSettings(), home=tmp_path).close()
    assert hasher.calls == []


def test_password_costs_more_than_owasp_asks_for_and_half_of_what_a_request_may() -> None:
    assert PASSWORD_HASHER.memory_cost == 32 * 1024  # KiB; OWASP: 19 MiB
    assert PASSWORD_HASHER.time_cost == 3  # OWASP: 2
    assert PASSWORD_HASHER.parallelism == 1, "one thread: a request takes no more than one core"


EARLIER = PasswordHasher(time_cost=2, memory_cost=16, parallelism=2)


def stored_hash(node: Node, fqdn: str) -> str:
    found = node.database.read(lambda connection: find_identity(connection, fqdn))
    assert found is not None
    assert found.password is not None
    return found.password


def test_hash_with_earlier_parameters_is_good_and_replaced_at_the_next_sign_in(
    tmp_path: Path, hasher: Counting
) -> None:
    with RunningNode(tmp_path, tmp_path) as running:
        use_hasher(EARLIER)
        running.create("jane.haiku.ink")
        earlier_session = running.sign_in("jane.haiku.ink")
        assert "$m=16,t=2,p=2$" in stored_hash(running.node, "jane.haiku.ink")
        use_hasher(hasher)
        wrong = {"fqdn": "jane.haiku.ink", "password": "something else"}
        assert running.anybody.post("/sessions", json=wrong).status_code == 401
        assert "$m=16,t=2,p=2$" in stored_hash(running.node, "jane.haiku.ink")
        hasher.calls.clear()
        running.sign_in("jane.haiku.ink")
        assert hasher.calls == ["verify", "hash"]
        replaced = stored_hash(running.node, "jane.haiku.ink")
        assert "$m=8,t=1,p=1$" in replaced
        running.sign_in("jane.haiku.ink")
        assert stored_hash(running.node, "jane.haiku.ink") == replaced
        assert earlier_session.get("/me").status_code == 200, "a new hash of the same password ends no sign-in"


class Interrupted(Counting):
    """Lets something else happen once, after a password was found right."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__()
        self._meanwhile: Callable[[], object] | None = meanwhile

    def check_needs_rehash(self, *arguments: Any, **more: Any) -> bool:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().check_needs_rehash(*arguments, **more)


@pytest.mark.usefixtures("hasher")
def test_sign_in_goes_on_when_another_one_has_replaced_the_hash(tmp_path: Path) -> None:
    with RunningNode(tmp_path, tmp_path) as running:
        use_hasher(EARLIER)
        running.create("jane.haiku.ink")
        use_hasher(Interrupted(lambda: sign_in(running.node, "jane.haiku.ink", PASSWORD)))
        sign_in(running.node, "jane.haiku.ink", PASSWORD)


@pytest.mark.usefixtures("hasher")
def test_sign_in_with_an_old_password_ends_when_it_is_changed_meanwhile(tmp_path: Path) -> None:
    with RunningNode(tmp_path, tmp_path) as running:
        made = running.create("jane.haiku.ink")
        identity = IdentityId(bytes.fromhex(made["id"]))
        use_hasher(Interrupted(lambda: change_password(running.node, identity, "another password")))
        with raises("auth.bad-password"):
            sign_in(running.node, "jane.haiku.ink", PASSWORD)
