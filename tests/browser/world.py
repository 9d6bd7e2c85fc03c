"""A small history for people to look at: a schema that changed, mails, services, forks, requests, rot."""

from dataclasses import dataclass, field
from typing import Any

import httpx

from inkgrove.core import PublicKey, identity_of, parse_public_key
from inkgrove.messages import Create, SchemaVersion, encode_message
from inkgrove.node.settings import NodeSettings
from inkgrove.pipeline.views import Materialiser
from tests.browser.elsewhere import ALICE, BOB, Copies, get_to_know, settle_deliveries, write_as_stranger
from tests.support.logs import LogBuilder, key
from tests.support.nodes import RunningNode
from tests.support.publishing import create, schema_id
from tests.support.services import Service

SETTINGS = NodeSettings(
    registration="open",
    domains=("haiku.ink",),
    administrators=("admin.haiku.ink",),
    poll_seconds=0.05,
    heartbeat_seconds=1.0,
    sign_ins_per_address=10_000,
    clients_per_address=10_000,
    resolve=("*.sloth.example=127.0.0.1:9",),  # where nobody answers
)
SUBJECTS = [
    "The slow road to the pond",
    "Leaves, and what to do with them",
    "Hanging upside down: a beginner's guide",
    "Re: the moss on your left shoulder",
    "Minutes of the meeting that nobody hurried to",
]


@dataclass
class World:
    """The node, and what is on it by name."""

    running: RunningNode
    materialiser: Materialiser
    people: dict[str, httpx.Client] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("jane", "john", "dev", "admin"):
            self.running.create(f"{name}.haiku.ink", name=name.capitalize())
            self.people[name] = self.running.sign_in(f"{name}.haiku.ink")
        self.schema = self._publish_schema()
        self.mails = self._write_mails()
        self._relate()
        self._meet_others()
        self._misbehave()
        self.service = Service(self.running, "Slothmail", f"{self.running.url}/back")
        scope = f"schema:{self.schema}:read schema:{self.schema}:create"
        self.tokens = self.service.connect("jane.haiku.ink", scope)
        self.materialiser.catch_up()
        as_service = self.running.client(self.tokens["access_token"])
        assert as_service.get(f"/views/{self.schema}").status_code == 200

    @property
    def view(self) -> str:
        """The page of the view."""
        return f"/pages/views/{self.schema}"

    @property
    def fork_page(self) -> str:
        """The page of the log that is forked."""
        return f"/pages/logs/{key(21).public.hex()}/1"

    @property
    def log_page(self) -> str:
        """The page of jane's log of mails."""
        mail = self.people["jane"].get(f"/instances/{self.mails[0]}").json()
        return f"/pages/logs/{mail['author']}/{mail['log_id']}"

    def write(self, person: str, **facts: Any) -> str:
        """A mail, which the pipeline takes in at once."""
        instance: str = create(self.people[person], self.schema, **facts)["instance"]
        self.materialiser.catch_up()
        return instance

    def _publish_schema(self) -> str:
        dev, admin = self.people["dev"], self.people["admin"]
        schema: str = dev.post("/schemas", json={"name": "slothmail", "description": "Mail for the patient"}).json()[
            "schema"
        ]
        self._version(schema, [{"subject": {"action": "create", "type": "text"}}, {"body": _new("text")}])
        self._version(schema, [{"created": _new("timestamp")}, {"stars": _new("integer")}])
        assert admin.put(f"/views/{schema}").status_code == 200
        return schema

    def _version(self, schema: str, fields: list[dict[str, Any]]) -> None:
        answer = self.people["dev"].post(f"/schemas/{schema}/versions", json={"fields": fields})
        assert answer.status_code == 201, answer.text

    def _write_mails(self) -> list[str]:
        jane, public = self.people["jane"], {"mode": "public"}
        written = [
            create(
                jane,
                self.schema,
                fields={
                    "subject": SUBJECTS[number % len(SUBJECTS)] + f" ({number})",
                    "body": "There is no hurry.\nRead it when the leaves have come.",
                    "created": f"2020-05-{number % 28 + 1:02}T11:58:50Z",
                    "stars": number % 6,
                },
                access=public if number % 2 == 0 else None,
            )["instance"]
            for number in range(33)
        ]
        two_lines = create(jane, self.schema, fields={"subject": "Hello!\n...friend"}, access=public)["instance"]
        self._version(
            self.schema,
            [{"subject": {"action": "update", "validation": "^[^#\\r\\n].*$", "default": "<Subject>"}}],
        )
        patch = {"fields": {"stars": 5, "body": "There is still no hurry."}}
        answer = jane.patch(
            f"/instances/{written[0]}", json=patch, headers={"content-type": "application/merge-patch+json"}
        )
        assert answer.status_code == 200, answer.text
        create(self.people["john"], self.schema, fields={"subject": "For myself"}, access={"mode": "self"})
        return [*written, two_lines]

    def _misbehave(self) -> None:
        """What no client gets past the API comes from elsewhere: a wrong type, an unknown version, a fork."""
        store = self.running.node.store
        author, log_id = schema_id(self.schema)
        stranger = LogBuilder(key(20))
        for version, fields in ((3, {"stars": "many"}), (3, {"colour": "green"}), (9, {"subject": "Too early"})):
            stranger.append(encode_message(Create(SchemaVersion(author, log_id, version), fields)))
        liar = LogBuilder(key(21))
        for number in range(16):
            message = Create(SchemaVersion(author, log_id, 3), {"subject": f"Honest {number}"})
            liar.append(encode_message(message))
        other = liar.fork_at(12)
        for log in (stranger, liar, other):
            store.ingest([(entry.encoded, payload) for entry, payload in zip(log.entries, log.payloads, strict=True)])

    def _relate(self) -> None:
        assert self.people["john"].put("/me/following/jane.haiku.ink", json={}).status_code == 200
        assert self.people["jane"].put("/me/following/dev.haiku.ink", json={}).status_code == 200

    def _meet_others(self) -> None:
        """Copies that rot, a stranger's request, and mails on their way."""
        node = self.running.node
        get_to_know(node)
        newest = SchemaVersion(*schema_id(self.schema), 4)
        copies = Copies(node, newest)
        copies.live()
        self.rotted = copies.logs[ALICE].hash(13).hex()  # the first of her four on the fourth day
        self.request = write_as_stranger(node, newest, identity_of(self.author_of("jane"))).hex()
        for mail, secret in ((3, ALICE), (5, BOB), (7, ALICE)):
            to = {"recipients": [identity_of(secret.public).hex()]}
            answer = self.people["jane"].post(f"/instances/{self.mails[mail]}/share", json=to)
            assert answer.status_code == 200, answer.text
        settle_deliveries(node, self.mails[3], self.mails[5])

    def author_of(self, name: str) -> PublicKey:
        """The first key of somebody."""
        found: str = self.running.anybody.get(f"/identities/{name}.haiku.ink").json()["key"]
        return parse_public_key(found)


def _new(kind: str) -> dict[str, str]:
    return {"action": "create", "type": kind}
