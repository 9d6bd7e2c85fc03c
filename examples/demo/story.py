"""The slothmail story, step by step; after each the view must be what the protocol says."""

import threading
import time
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import httpx

from examples.demo.telling import Teller
from examples.demo.world import Person, Refused, World

COLUMNS = ("subject", "body", "created")
VERSION_2: list[dict[str, Any]] = [
    {"subject": {"action": "create", "type": "text"}},
    {"body": {"action": "create", "type": "text"}},
    {"recipient": {"action": "create", "type": "relation"}},
    {"created": {"action": "create", "type": "timestamp"}},
]
VERSION_3: list[dict[str, Any]] = [{"attachments": {"action": "create", "type": "relation[]"}}]
VERSION_4: list[dict[str, Any]] = [
    {"attachments": {"action": "remove"}},
    {"subject": {"action": "update", "validation": "^[^#\\r\\n].*$", "default": "<Subject>"}},
]


class NotAsItShouldBe(Exception):
    """The story went another way."""


def expect(is_so: bool, what: str) -> None:
    """End the story here unless it is so."""
    if not is_so:
        raise NotAsItShouldBe(what)


class Story:
    """Who takes part, and what they do."""

    def __init__(self, world: World, teller: Teller) -> None:
        self.world, self.tell = world, teller
        self.schema = ""
        self.mail = ""

    def play(self) -> None:
        """From the first schema to the last crumb."""
        self.join()
        self.publish_schema()
        self.write_mail()
        self.migrate()
        self.update()
        self.share()
        self.forge()
        self.revert()
        self.delete()
        self.rot()
        self.move()

    def join(self) -> None:
        """People choose a server each."""
        self.tell.step("People choose a server each; a signed log says who they are")
        haiku, sloth = self.world.haiku, self.world.sloth
        self.dev = haiku.join("dev")
        self.jane, self.words = haiku.join_with_words("jane")
        self.john, self.alice = sloth.join("john"), sloth.join("alice")
        self.admins = haiku.appoint("admin"), sloth.appoint("admin")
        for person in (self.dev, self.jane, self.john, self.alice):
            self.tell.say(f"  {person.fqdn:22} [dim]{person.id[:16]}…[/]")
        self.tell.say("  Jane has her first key in a drawer, as 24 words; her server never sees them.")

    def publish_schema(self) -> None:
        """A schema is a log as well."""
        self.tell.step("A developer publishes a schema: a signed log, every entry a version")
        self.tell.request(self.dev, "POST", "/schemas", '{"name": "slothmail"}')
        made = self.dev.ask("POST", "/schemas", json={"name": "slothmail"})
        self.schema = made["schema"]
        for fields in (VERSION_2, VERSION_3):
            self.add_version({"fields": fields})
        for admin in self.admins:
            self.tell.request(admin, "PUT", f"/views/{self.schema[:8]}…/{self.schema.split('/')[1]}")
            admin.ask("PUT", f"/views/{self.schema}")
        self.tell.say(f"  [dim]sloth.example[/]  [cyan]inkgrove peer add {self.dev.fqdn}[/] [dim]for new versions[/]")
        self.world.sloth.add_peer(self.dev.fqdn)
        with self.tell.doing("starting Spark, which keeps the views of both nodes"):
            self.world.pipeline.wait()

    def add_version(self, body: dict[str, Any]) -> None:
        """The developer's next entry."""
        told = (
            f'{{"target": {body["target"]}}}'
            if "target" in body
            else ", ".join(_describe(field) for field in body["fields"])
        )
        self.tell.request(self.dev, "POST", "/schemas/…/versions", told)
        self.dev.ask("POST", f"/schemas/{self.schema}/versions", json=body)

    def write_mail(self) -> None:
        """By content: the node checks, signs and stores."""
        self.tell.step("Jane writes a mail with a subject of two lines, which version 3 allows")
        fields = {"subject": "Hello!\n...friend", "body": "We hang on.", "created": "2020-05-22T11:58:50Z"}
        self.tell.request(self.jane, "POST", "/instances", '{"schema": "slothmail", "fields": {…}}')
        made = self.jane.ask("POST", "/instances", json={"schema": self.schema, "fields": fields})
        self.mail = made["instance"]
        self.see(self.jane, ["Hello!\n...friend"], made["position"])
        self.see(self.dev, [])
        self.tell.say("  Nobody else sees it: it is Jane's until she shares it.")

    def migrate(self) -> None:
        """A new version while readers read."""
        self.tell.step("Version 4: a subject is one line now. Old mails are migrated, not lost")
        reading = _Reading(lambda: self.jane.rows(self.schema))
        with reading:
            self.add_version({"fields": VERSION_4})
            with self.tell.doing("Spark builds the new view beside the old one, and swaps it in"):
                self.wait_for(self.jane, ["<Subject>"])
        self.see(self.jane, ["<Subject>"])
        self.tell.say(f"  A reader asked {reading.count} times meanwhile; {reading.failed} answers failed.")
        expect(reading.failed == 0 and reading.count > 0, "the migration has no outage")

    def update(self) -> None:
        """JSON Patch."""
        self.tell.step("Jane mends her subject, at version 4")
        patch = [{"op": "replace", "path": "/fields/subject", "value": "Hello! ...friend"}]
        self.tell.request(self.jane, "PATCH", f"/instances/{self.mail[:12]}…", str(patch).replace("'", '"'))
        headers = {"Content-Type": "application/json-patch+json"}
        done = self.jane.ask("PATCH", f"/instances/{self.mail}", json=patch, headers=headers)
        self.see(self.jane, ["Hello! ...friend"], done["position"])

    def share(self) -> None:
        """Across nodes."""
        self.tell.step("She shares it with john and alice, whose node belongs to somebody else")
        recipients = [self.john.fqdn, self.alice.fqdn]
        self.tell.request(self.jane, "POST", f"/instances/{self.mail[:12]}…/share", str(recipients).replace("'", '"'))
        self.jane.ask("POST", f"/instances/{self.mail}/share", json={"recipients": recipients})
        with self.tell.doing("entries, payloads and the path that proves them travel"):
            for person in (self.john, self.alice):
                self.accept(person)
                self.wait_for(person, ["Hello! ...friend"])
        for person in (self.john, self.alice):
            self.see(person, ["Hello! ...friend"])
        self.wait(lambda: self.deliveries() == ["held"] * 2, "both deliveries have come")
        self.tell.say("  Jane sees that it has come. That they accepted it is told to nobody.")

    def deliveries(self) -> list[str]:
        """How the mail's way to each recipient stands."""
        found = self.jane.ask("GET", f"/instances/{self.mail}/deliveries")["deliveries"]
        return [item["state"] for item in found]

    def accept(self, person: Person) -> None:
        """Who is not known yet waits in the box of requests."""
        self.wait(lambda: bool(person.ask("GET", "/me/requests")["requests"]), f"a request for {person.fqdn}")
        for request in person.ask("GET", "/me/requests")["requests"]:
            person.ask("POST", f"/me/requests/{request['via']}", json={"decision": "accept"})

    def forge(self) -> None:
        """One bit."""
        self.tell.step("A forger changes one bit of Jane's entry and posts it as hers")
        proof = self.jane.ask("GET", f"/instances/{self.mail}/proof", headers={"Accept": "application/json"})
        entry = bytearray.fromhex(proof["entries"][-1][0])
        entry[33] ^= 1
        try:
            self.jane.ask("POST", "/entries", json={"entry": b64encode(entry).decode()})
        except Refused as refused:
            self.tell.say(f"  [red]refused[/] {refused}")
            expect(refused.code == "entry.bad-signature", "it is refused for its signature")
        else:
            raise NotAsItShouldBe("the forged entry is refused")
        self.see(self.jane, ["Hello! ...friend"])
        self.tell.say("  Nothing of it is anywhere.")

    def revert(self) -> None:
        """Back to version 3."""
        self.tell.step("The developer takes version 4 back: version 5 goes on from version 3")
        self.add_version({"target": 3})
        with self.tell.doing("both views are built anew"):
            for person in (self.jane, self.john):
                self.wait_for(person, ["Hello!\n...friend"])
        for person in (self.jane, self.john):
            self.see(person, ["Hello!\n...friend"])
        self.tell.say("  The update at version 4 is obsolete; nothing of it was lost, should version 4 come back.")

    def delete(self) -> None:
        """Everywhere."""
        self.tell.step("Jane deletes her mail; the deletion follows to everyone who has a copy by her")
        self.tell.request(self.jane, "DELETE", f"/instances/{self.mail[:12]}…")
        self.jane.ask("DELETE", f"/instances/{self.mail}")
        with self.tell.doing("the deletion travels"):
            for person in (self.jane, self.john, self.alice):
                self.wait_for(person, [])
        for person in (self.jane, self.john, self.alice):
            self.see(person, [])

    def rot(self) -> None:
        """Forgetting on purpose."""
        self.tell.step("Jane sends john twelve mails; his node keeps five copies and lets the others rot")
        self.tell.request(self.john, "PUT", f"/me/senders/{self.jane.fqdn}")
        self.john.ask("PUT", f"/me/senders/{self.jane.fqdn}")
        for number in range(1, 13):
            fields = {"subject": f"Mail {number}", "body": "Still hanging on.", "created": "2020-05-23T08:00:00Z"}
            body = {"schema": self.schema, "fields": fields, "recipients": [self.john.fqdn]}
            self.jane.ask("POST", "/instances", json=body)
        with self.tell.doing("they travel"):
            self.wait(lambda: len(self.john.rows(self.schema)) == 12, "john sees twelve mails")
        with self.tell.doing("Spark chooses the victims and cooks them into summaries"):
            outcome = self.world.pipeline.let_rot(self.world.sloth.home, keep_rows=5)
            self.wait(lambda: len(self.john.rows(self.schema)) == 5, "john sees five mails")
        self.see(self.john, [f"Mail {number}" for number in range(8, 13)])
        summary = self.john.ask("GET", f"/views/{self.schema}/summary")
        counts = {part: summary[part]["count"] for part in ("exact", "cooked", "together")}
        self.tell.say(f"  {outcome.freed:,} bytes freed. The summary still counts them all: {_spoken(counts)}.")
        expect(counts["together"] == 12, "nothing is missing from the summary")
        expect(len(self.jane.rows(self.schema)) == 12, "Jane's own mails do not rot")
        self.tell.say("  Jane's own node has all twelve: what is one's own never rots, and john can fetch his again.")

    def move(self) -> None:
        """From a server that is dead, with words alone."""
        self.tell.step("Jane's server dies. She takes her identity to another one, with her words")
        self.tell.say("  [dim]haiku.ink[/]  [red]SIGKILL[/]")
        self.world.haiku.die()
        self.tell.request(self.john, "POST", "/instances", f'{{"subject": "Re: Mail 12", … to {self.jane.fqdn}}}')
        fields = {"subject": "Re: Mail 12", "body": "Where are you?", "created": "2020-05-24T08:00:00Z"}
        body = {"schema": self.schema, "fields": fields, "recipients": [self.jane.fqdn]}
        expected = sorted(["Re: Mail 12", *_subjects(self.john, self.schema)])  # what john still has of hers
        self.john.ask("POST", "/instances", json=body)
        where = f"--to https://poem.example --as jane.poem.example --friend {self.john.fqdn}"
        self.tell.say(f"  [dim]Jane's laptop[/]  [cyan]inkgrove identity recover {self.jane.fqdn} {where}[/]")
        with self.tell.doing("John's node is asked, with her mandate, what it holds of hers; then she signs"):
            jane = self.world.poem.take_in(self.jane, self.words, "jane", self.john)
        me = jane.ask("GET", "/me")
        expect((me["id"], me["fqdn"]) == (self.jane.id, jane.fqdn), "she is who she was, under another name")
        self.tell.say(f"  {jane.fqdn:22} [dim]{jane.id[:16]}…[/]: the same id, so whoever knew her knows her.")
        with self.tell.doing("John's answer, which nobody took, goes where her newest document leads; Spark shows it"):
            admin = self.world.poem.appoint("admin")
            self.world.pipeline.add(self.world.poem.home)
            self.wait(lambda: _is_taken(admin, f"/views/{self.schema}"), "her new server gets the schema")
            self.wait(lambda: _subjects(jane, self.schema) == expected, "John's answer arrives")
        self.see(jane, expected)
        self.tell.say("  John's answer has come. Of her own mails she has those back that John's node still had;")
        self.tell.say("  with the file that she can export at any time, she would have had all.")
        self.jane = jane

    def see(self, person: Person, subjects: list[str], at_least: str | None = None) -> None:
        """Show what somebody sees, once the view has taken in a write, and check it."""
        if at_least is not None:
            with self.tell.doing("the pipeline takes it in"):
                self.wait(lambda: self.has_seen(person, at_least), "the view has seen the write")
        rows = person.rows(self.schema)
        self.tell.rows(person, rows, COLUMNS)
        found = [row["fields"]["subject"] for row in rows]
        expect(sorted(found) == sorted(subjects), f"{person.fqdn} sees {subjects}, not {found}")

    def has_seen(self, person: Person, position: str) -> bool:
        """Whether somebody's view has taken in a write."""
        try:
            person.rows(self.schema, position)
        except Refused as refused:
            if refused.code.startswith("view."):
                return False
            raise
        return True

    def wait_for(self, person: Person, subjects: list[str]) -> None:
        """Until somebody sees this."""

        def is_there() -> bool:
            try:
                return [row["fields"]["subject"] for row in person.rows(self.schema)] == subjects
            except Refused as refused:
                if refused.code.startswith("view."):
                    return False  # not built yet
                raise

        self.wait(is_there, f"{person.fqdn} should see {subjects}")

    def wait(self, condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
        """Until something is so."""
        until = time.monotonic() + seconds
        while not condition():
            self.world.pipeline.check()
            expect(time.monotonic() < until, f"{what}, within {seconds:.0f} seconds")
            time.sleep(0.1)


class _Reading:
    """Somebody who reads all the time."""

    def __init__(self, read: Callable[[], object]) -> None:
        self.count = self.failed = 0
        self._read, self._ends = read, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._ends.is_set():
            try:
                self._read()
            except (Refused, httpx.HTTPError):
                self.failed += 1
            self.count += 1
            self._ends.wait(0.02)

    def __enter__(self) -> "_Reading":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()


def _subjects(person: Person, schema: str) -> list[str]:
    """What somebody sees, in order; nothing while the view is not built."""
    try:
        return sorted(row["fields"]["subject"] for row in person.rows(schema))
    except Refused as refused:
        if refused.code.startswith("view."):
            return []
        raise


def _is_taken(admin: Person, path: str) -> bool:
    """Whether a node keeps a view, once it has the schema."""
    try:
        admin.ask("PUT", path)
    except Refused:
        return False
    return True


def _spoken(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {part}" for part, count in counts.items())


def _describe(field: dict[str, Any]) -> str:
    (name, change), *_ = field.items()
    return f"{name}: {change['action']}"
