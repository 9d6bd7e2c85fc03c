"""The old node of somebody who has moved is put back from a backup of before: it has her keys again, and must not sign.

Jane, whom nobody elsewhere knows, moves from node a to b. John on a has written to Judy on c, whose node answers when a
asks for what it lacks.
"""

from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from examples.demo.ports import free_port
from inkgrove.client import Client, new_words
from inkgrove.core import IdentityId
from inkgrove.core.errors import InkgroveError
from inkgrove.store.federation import sealed_authors
from inkgrove.store.logs import open_store
from inkgrove.store.node import find_identity
from tests.support.command import inkgrove
from tests.support.federated import until
from tests.support.node_processes import Serving
from tests.support.nodes import PASSWORD
from tests.support.publishing import create, make_schema

OLD, NEW = "jane.a.ink", "jane.b.ink"


@pytest.mark.parametrize("has_words", [True, False], ids=["words", "no-words"])
def test_restored_old_node_signs_nothing_for_who_has_moved(tmp_path: Path, *, has_words: bool) -> None:
    with ExitStack() as stack:
        ports = {letter: free_port() for letter in "abc"}
        resolve = ",".join(f"*.{letter}.ink=127.0.0.1:{port}" for letter, port in ports.items())

        def start(letter: str) -> Serving:
            chosen = {"registration": "open", "domains": f"{letter}.ink", "resolve": resolve}
            return stack.enter_context(Serving(tmp_path / letter, chosen, port=ports[letter]))

        def http(client: Client) -> httpx.Client:
            headers = {"Authorization": f"Bearer {client._credentials.token}"}
            return stack.enter_context(httpx.Client(base_url=client.url, headers=headers, timeout=60))

        def sign_in(node: Serving, fqdn: str) -> Client:
            return stack.enter_context(Client.sign_in(node.url, fqdn, PASSWORD))

        a, b, c = map(start, "abc")
        with Client(a.url) as client, Client(c.url) as other:
            words = new_words()
            signed_up = client.sign_up(OLD, PASSWORD, words) if has_words else client.create_identity(OLD, PASSWORD)
            client.create_identity("john.a.ink", PASSWORD)
            other.create_identity("judy.c.ink", PASSWORD)
        identity = IdentityId.fromhex(signed_up.id)
        sign_in(c, "judy.c.ink").accept_sender("john.a.ink")
        john = http(sign_in(a, "john.a.ink"))
        schema = make_schema(john)
        mail = create(john, schema, fields={"subject": "Hello"}, recipients=["judy.c.ink"])["instance"]
        sent = f"/instances/{mail}/deliveries"
        until(lambda: [item["state"] for item in john.get(sent).json()["deliveries"]] == ["delivered"])
        backup = tmp_path / "backup"
        done = inkgrove("backup", str(backup), "--with-vault-key", "--home", str(tmp_path / "a"))
        assert done.returncode == 0, done.stderr
        grant = sign_in(a, OLD).begin_move(f"https://{NEW}", PASSWORD, without_words=not has_words)
        with Client(b.url) as client:
            arrival = client.take_over(grant, PASSWORD)
            until(lambda: client.arrival_state(arrival).is_finished)
        a.stop()
        done = inkgrove("restore", str(backup), "--replace", "--home", str(tmp_path / "a"))
        assert done.returncode == 0, done.stderr
        a = start("a")
        john = http(sign_in(a, "john.a.ink"))
        body = {"schema": schema, "fields": {"subject": "Again"}}
        until(lambda: john.post("/instances", json=body).status_code == 201, "John's node does not sign again")

        for change in ({"name": "Jane"}, {"fqdn": OLD}):
            with pytest.raises(InkgroveError) as refused:
                sign_in(a, OLD).change_me(**change)  # type: ignore[arg-type]
            assert refused.value.code in ("identity.no-key-here", "identity.leaving")
        with open_store(tmp_path / "a") as store:
            hosted = store.database.read(lambda connection: find_identity(connection, identity))
            assert hosted is not None
            assert not hosted.lives_here
            assert store.database.read(lambda connection: sealed_authors(connection, identity)) == []
        sign_in(b, NEW).change_me(name="Jane on b")
