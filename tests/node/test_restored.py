"""A database that is older than it was is noticed, and nothing is signed with it (docs/protocol.md section 7.4)."""

import shutil
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex

import pytest

from inkgrove.core import Flavour, Hash
from inkgrove.core.errors import NoStore
from inkgrove.messages import SchemaId
from inkgrove.node.errors import Restored
from inkgrove.node.identity import change_identity, create_identity, show_identity
from inkgrove.node.runtime import COPIED, FROM_BEFORE, NO_MARK, OLDER, SLOTS, HighWaterMark, Node, all_marks, make_mark
from inkgrove.node.settings import NodeSettings
from tests.store.conftest import place, postgres  # noqa: F401  (fixtures)
from tests.store.postgres import PostgresServer
from tests.support.nodes import RunningNode
from tests.support.older import Copy

pytestmark = pytest.mark.both_databases


class Home:
    """A home that is opened again and again."""

    def __init__(self, place: Path | str, home: Path, server: PostgresServer | None) -> None:  # noqa: F811
        self.place, self.home, self.server = place, home, server
        self.with_node(lambda node: create_identity(node, "jane.haiku.ink", None))

    def with_node(self, work: Callable[[Node], object]) -> None:
        node = Node(self.place, NodeSettings(), home=self.home)
        try:
            work(node)
        finally:
            node.close()

    def sign(self, times: int = 1) -> None:
        def work(node: Node) -> None:
            jane = show_identity(node, "jane.haiku.ink")
            for number in range(times):
                change_identity(node, jane.id, name=f"Jane {jane.revision + number}")

        self.with_node(work)

    def copy(self) -> Copy:
        return Copy(self.place, self.home.parent, self.server)

    def reason(self) -> str | None:
        found: list[str | None] = []

        def work(node: Node) -> None:
            behind = node.signing.read_behind_state()
            found.append(behind.reason if behind is not None else None)
            if behind is not None:
                before = show_identity(node, "jane.haiku.ink").revision
                with pytest.raises(Restored) as refused:
                    change_identity(node, show_identity(node, "jane.haiku.ink").id, name="Nobody")
                assert int(str(refused.value.data["retry_after"])) > 0
                with pytest.raises(Restored):
                    create_identity(node, "john.haiku.ink", None)
                assert show_identity(node, "jane.haiku.ink").revision == before

        self.with_node(work)
        return found[0]


@pytest.fixture
def home(request: pytest.FixtureRequest, place: Path | str, tmp_path: Path) -> Home:  # noqa: F811
    server = request.getfixturevalue("postgres") if isinstance(place, str) else None
    where = place if isinstance(place, Path) else tmp_path / "home"
    return Home(place, where, server)


def test_database_that_lacks_what_was_signed_is_noticed(home: Home) -> None:
    copy = home.copy()
    home.sign()
    copy.put_back()
    assert home.reason() == OLDER
    assert home.reason() == OLDER  # and not forgotten


def test_views_beside_an_older_database_begin_anew(tmp_path: Path) -> None:
    home = Home(tmp_path / "home", tmp_path / "home", None)
    copy = home.copy()
    home.sign()
    home.with_node(lambda node: node.views.sync([SchemaId(show_identity(node, "jane.haiku.ink").key, 1)]))
    copy.put_back()
    found: list[int] = []
    home.with_node(lambda node: found.append(len(node.views.views())))
    assert found == [0]


def test_database_as_new_as_its_mark_is_not_behind(home: Home) -> None:
    assert home.reason() is None
    home.sign(3)
    copy = home.copy()
    copy.put_back()
    assert home.reason() is None
    home.sign(SLOTS + 3)
    assert home.reason() is None


def test_database_without_its_mark_is_behind(home: Home) -> None:
    (mark,) = all_marks(home.home)
    mark.unlink()
    assert home.reason() == NO_MARK
    assert home.reason() == NO_MARK  # though there is a new one now


def test_copy_of_a_home_is_behind(home: Home) -> None:
    (mark,) = all_marks(home.home)
    shutil.copy(mark, home.home / "copied")
    mark.unlink()
    (home.home / "copied").rename(mark)
    assert home.reason() == COPIED
    assert home.reason() == COPIED


def test_copy_is_behind_also_with_the_number_of_the_original(home: Home) -> None:
    (mark,) = all_marks(home.home)
    content = mark.read_bytes()
    mark.unlink()
    mark.write_bytes(content)  # most file systems give out the inode again that was just freed
    assert home.reason() == COPIED


def test_damaged_mark_is_taken_for_none(home: Home) -> None:
    (mark,) = all_marks(home.home)
    mark.write_bytes(b"\0" * mark.stat().st_size)
    assert home.reason() == COPIED


def test_database_from_before_marks_beside_one_is_behind(home: Home) -> None:
    home.with_node(lambda node: node.database.write(lambda c: c.exec_driver_sql("DELETE FROM epoch")))
    assert home.reason() == FROM_BEFORE


def test_home_without_identities_is_never_behind(place: Path | str, tmp_path: Path) -> None:  # noqa: F811
    for _ in range(2):
        node = Node(place, NodeSettings(), home=tmp_path)
        assert node.signing.read_behind_state() is None
        node.close()
        for mark in all_marks(tmp_path):
            mark.unlink()
    node = Node(place, NodeSettings(), home=tmp_path)
    create_identity(node, "jane.haiku.ink", None)
    node.close()


def test_resumed_home_signs_and_notices_the_next_time(home: Home) -> None:
    copy = home.copy()
    home.sign(2)
    copy.put_back()
    home.with_node(lambda node: node.signing.resume())
    assert home.reason() is None
    home.sign()
    assert home.reason() is None
    copy.put_back()
    assert home.reason() == OLDER


def test_database_that_is_put_back_under_a_running_node_is_noticed(postgres: PostgresServer, tmp_path: Path) -> None:  # noqa: F811
    home = Home(postgres.create_database("put_back"), tmp_path / "home", postgres)
    copy = home.copy()
    node = Node(home.place, NodeSettings(), home=home.home)
    jane = show_identity(node, "jane.haiku.ink").id
    change_identity(node, jane, name="Jane")
    copy.put_back()  # the server cuts the connections off
    with pytest.raises(Restored):
        change_identity(node, jane, name="Janet")
    behind = node.signing.read_behind_state()
    assert behind is not None
    assert behind.reason == OLDER
    node.close()


def test_mark_keeps_the_newest(tmp_path: Path) -> None:
    mark = make_mark(tmp_path, "some")
    entries = [Hash(Flavour.YAMF.value + bytes([number]) * 64) for number in range(SLOTS + 5)]
    for entry in entries:
        mark.add(entry)
    assert set(mark.hashes()) == set(entries[5:])
    mark.remove(entries[:-2], resumed=3)
    assert (mark.hashes(), mark.resumed) == (entries[-2:], 3)
    mark.add(entries[0])
    assert (mark.hashes(), mark.resumed) == ([*entries[-2:], entries[0]], 3)
    mark.reset()
    assert (mark.hashes(), mark.resumed) == ([], 0)
    mark.close()


class TwoHomes:
    """Two machines, each with a home and a node, on one PostgreSQL database."""

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        self.place = server.create_database(f"two_homes_{token_hex(4)}")
        self.server, self.folder = server, folder
        self._settings = NodeSettings(vault_key_file=str(folder / "vault.key"))
        first = self.open("first")
        self.jane = create_identity(first, "jane.haiku.ink", None).id
        first.close()
        second = self.open("second")
        assert self.reason(second) == NO_MARK  # a machine that joins asks once
        second.signing.resume()
        second.close()

    def open(self, name: str) -> Node:
        home = self.folder / name
        home.mkdir(exist_ok=True)
        return Node(self.place, self._settings, home=home)

    def sign(self, node: Node, name: str) -> int:
        return change_identity(node, self.jane, name=name).revision

    @staticmethod
    def reason(node: Node) -> str | None:
        behind = node.signing.read_behind_state()
        return behind.reason if behind is not None else None


def test_home_that_signed_nothing_notices_that_the_database_was_put_back(
    postgres: PostgresServer,  # noqa: F811
    tmp_path: Path,
) -> None:
    homes = TwoHomes(postgres, tmp_path)
    copy = Copy(homes.place, tmp_path, postgres)
    first, second = homes.open("first"), homes.open("second")
    homes.sign(second, "signed by the second")
    first.signing.mark_newest()
    copy.put_back()
    with pytest.raises(Restored):
        homes.sign(first, "would fork log 0")
    assert homes.reason(first) == OLDER
    first.close()
    second.close()


def test_running_node_notices_by_itself_that_the_database_was_put_back(
    postgres: PostgresServer,  # noqa: F811
    tmp_path: Path,
) -> None:
    homes = TwoHomes(postgres, tmp_path)
    copy = Copy(homes.place, tmp_path, postgres)
    node = homes.open("first")
    homes.sign(node, "Jane")
    node.signing.mark_newest()
    assert homes.reason(node) is None
    copy.put_back()
    node.signing.mark_newest()
    assert homes.reason(node) == OLDER
    node.close()


def test_what_was_given_up_is_asked_for_by_no_other_home(
    postgres: PostgresServer,  # noqa: F811
    tmp_path: Path,
) -> None:
    homes = TwoHomes(postgres, tmp_path)
    copy = Copy(homes.place, tmp_path, postgres)
    second = homes.open("second")
    lost = homes.sign(second, "lost")
    second.close()
    copy.put_back()
    second = homes.open("second")
    assert homes.reason(second) == OLDER
    first = homes.open("first")
    first.signing.resume()  # the operator accepts the loss, on either machine
    assert homes.sign(first, "another") == lost
    assert homes.sign(second, "goes on") == lost + 1  # it was running meanwhile
    second.close()
    again = homes.open("second")
    assert homes.reason(again) is None
    again.close()
    first.close()


def test_database_put_back_to_before_it_was_resumed_is_older(home: Home) -> None:
    copy = home.copy()
    home.sign()
    copy.put_back()
    home.with_node(lambda node: node.signing.resume())
    copy.put_back()
    assert home.reason() == OLDER


def test_node_does_not_begin_anew_where_its_database_is_gone(home: Home, postgres: PostgresServer) -> None:  # noqa: F811
    empty: Path | str
    if isinstance(home.place, Path):
        empty = home.place
        for path in empty.glob("node.db*"):
            path.unlink()
    else:
        empty = postgres.create_database(f"emptied_{token_hex(4)}")
    with pytest.raises(NoStore, match="signed-"):
        Node(empty, NodeSettings(), home=home.home)
    for mark in all_marks(home.home):
        mark.unlink()
    Node(empty, NodeSettings(vault_key_file=str(home.home / "other.key")), home=home.home).close()


def test_node_that_is_behind_serves_reads_and_says_so(tmp_path: Path) -> None:
    with RunningNode(tmp_path, tmp_path) as running:
        running.create("jane.haiku.ink")
        jane = running.sign_in("jane.haiku.ink")
        assert running.anybody.get("/readyz").status_code == 200
        (mark,) = all_marks(tmp_path)
        mark.unlink()
    with RunningNode(tmp_path, tmp_path) as running:
        jane = running.sign_in("jane.haiku.ink")
        ready = running.anybody.get("/readyz")
        assert (ready.status_code, ready.json()["code"]) == (503, "publish.restored")
        assert running.anybody.get("/healthz").status_code == 200
        assert jane.get("/me").status_code == 200
        refused = jane.patch("/me", json={"name": "Jane"})
        assert (refused.status_code, refused.json()["code"]) == (503, "publish.restored")
        assert int(refused.headers["Retry-After"]) > 0
        refused = jane.post("/schemas", json={"name": "notes"})
        assert (refused.status_code, refused.json()["code"]) == (503, "publish.restored")
        refused = jane.get("/publish/next", params={"log_id": 0})
        assert (refused.status_code, refused.json()["code"]) == (503, "publish.restored")
        assert "Nothing can be written" in running.anybody.get("/").text
        running.node.signing.resume()
        assert running.anybody.get("/readyz").status_code == 200
        assert jane.patch("/me", json={"name": "Jane"}).status_code == 200
        assert "Nothing can be written" not in running.anybody.get("/").text


class LateMark(HighWaterMark):
    """A mark beside which another process signs while it is read."""

    def __init__(self, path: Path, sign: Callable[[], None]) -> None:
        super().__init__(path)
        self.waiting = [sign]

    def hashes(self) -> list[Hash]:
        while self.waiting:
            self.waiting.pop()()
        return super().hashes()


def test_what_another_process_signs_meanwhile_raises_no_false_alarm(postgres: PostgresServer, tmp_path: Path) -> None:  # noqa: F811
    home = Home(postgres.create_database(f"meanwhile_{token_hex(4)}"), tmp_path / "home", postgres)

    def work(node: Node) -> None:
        (path,) = all_marks(home.home)
        late = LateMark(path, home.sign)
        node.signing.close()
        node.signing._mark = late
        home.sign()  # there is something new to compare
        node.signing.mark_newest()
        assert not late.waiting
        assert node.signing.read_behind_state() is None

    home.with_node(work)
