"""Slothmail in two browsers on two nodes: a mail that is written in one arrives in the other by itself."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect
from pyspark.sql import SparkSession

from examples.slothmail.__main__ import make_server, publish
from inkgrove.core import IdentityId
from inkgrove.node.identity import bind_administrators
from inkgrove.pipeline.views import Materialiser
from inkgrove.store.logs import read_entries, register_schema
from inkgrove.store.node import put_relation_state
from tests.browser.visitor import DESK, PHONE, Visitor, check_axe, check_width, take_picture
from tests.support.federated import Federation, federation, until
from tests.support.nodes import PASSWORD
from tests.support.publishing import schema_id

JANE, JOHN = "jane.a.ink", "john.b.ink"


@dataclass
class Post:
    """Two nodes that know each other and the schema, each with its pipeline, and the client on a server of its own."""

    nodes: Federation
    materialisers: dict[str, Materialiser]
    client: str
    chromium: Browser
    ids: dict[str, IdentityId] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in (JANE, JOHN, "mary.a.ink"):
            running = self.nodes.nodes[name.split(".")[1]]
            self.ids[name] = IdentityId.fromhex(running.create(name)["id"])
        for letter in "ab":
            database = self.nodes.nodes[letter].node.database
            for follower, followee in ((JANE, JOHN), (JOHN, JANE)):
                pair = self.ids[follower], self.ids[followee]
                database.write(lambda c, pair=pair: put_relation_state(c, *pair, "accepted", 0))  # type: ignore[misc, call-arg]
        first, second = self.nodes.nodes["a"], self.nodes.nodes["b"]
        first.node.settings = replace(first.node.settings, administrators=(JANE,))
        bind_administrators(first.node)
        self.schema = publish(first.sign_in(JANE))
        # The other node gets the schema as anybody would: its signed log.
        author, log_id = schema_id(self.schema)
        log = first.node.store.read(read_entries, author, log_id)
        second.node.store.ingest([(item.entry.encoded, item.payload) for item in log])
        second.node.store.write(register_schema, schema_id(self.schema))
        for letter in "ab":
            self.fold(letter)

    def fold(self, letter: str) -> None:
        """Let a pipeline take in what has come."""
        self.materialisers[letter].catch_up()

    def sign_in(self, fqdn: str) -> Visitor:
        """Open the client and sign in on one's own node."""
        visitor = Visitor(self.chromium, self.client, accept_downloads=True)
        page = visitor.go("/")
        page.get_by_label("Your name").fill(fqdn)
        page.get_by_label("Address of the node").fill(self.nodes.nodes[fqdn.split(".")[1]].url)
        page.get_by_role("button", name="Go to my node").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to continue to Slothmail")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("listitem").filter(has_text="delete what is yours").first).to_be_visible()
        page.get_by_role("button", name="Allow").click()
        page.locator("[data-live]").wait_for()
        assert page.url == f"{self.client}/"
        return visitor


@pytest.fixture(scope="module")
def post(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, chromium: Browser) -> Iterator[Post]:
    folder: Path = tmp_path_factory.mktemp("post")
    with ExitStack() as stack:
        nodes = stack.enter_context(federation(folder, "ab"))
        materialisers = {letter: Materialiser(spark, str(folder / letter)) for letter in "ab"}
        for materialiser in materialisers.values():
            stack.callback(materialiser.close)
        server = stack.enter_context(make_server(0))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        stack.callback(thread.join)
        stack.callback(server.shutdown)
        yield Post(nodes, materialisers, f"http://127.0.0.1:{server.server_port}", chromium)


def write(page: Page, to: str, subject: str, text: str, file: Path | None = None) -> None:
    """Write a mail and send it."""
    page.get_by_role("button", name="Write").click()
    page.get_by_label("To").fill(to)
    page.get_by_label("Subject").fill(subject)
    page.get_by_label("Text").fill(text)
    if file is not None:
        page.get_by_label("Attachments").set_input_files(file)
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_mail_arrives_live_on_another_node_is_edited_and_deleted(post: Post, axe: str) -> None:
    jane, john = post.sign_in(JANE), post.sign_in(JOHN)
    expect(john.page.get_by_text("No mail yet.")).to_be_visible()
    write(jane.page, JOHN, "The slow road", "Take your time.\nThe pond will wait.")
    post.fold("a")
    jane.page.get_by_role("button", name="Sent").click()
    jane.page.get_by_role("button", name="The slow road").click()
    expect(jane.page.get_by_role("article")).to_contain_text(f"{JOHN}: delivered")
    post.fold("b")
    arrived = john.page.get_by_role("button", name="The slow road")
    expect(arrived).to_be_visible()
    arrived.click()
    reader = john.page.get_by_role("article")
    expect(reader).to_contain_text(f"{JANE} wrote to {JOHN}")
    expect(reader).to_contain_text("The pond will wait.")

    for width in (DESK, PHONE):
        john.page.set_viewport_size({"width": width, "height": 800})
        john.page.emulate_media(color_scheme="dark" if width == PHONE else "light")
        check_width(john.page)
        check_axe(john.page, axe)
        take_picture(john.page, "slothmail" if width == DESK else "slothmail-phone")

    jane.page.get_by_role("button", name="Edit").click()
    jane.page.get_by_label("Text").fill("Take your time. The pond has frozen over.")
    check_axe(jane.page, axe)
    jane.page.get_by_role("button", name="Save").click()
    instance = jane.page.locator("[data-instance]").get_attribute("data-instance")
    assert instance is not None
    until(lambda: post.nodes.payloads("b", instance) == 2)
    post.fold("b")
    expect(reader).to_contain_text("The pond has frozen over.")

    jane.page.get_by_role("button", name="Delete").click()
    jane.page.get_by_role("button", name="Really delete it, for everybody?").click()
    until(lambda: post.nodes.is_deleted("b", instance))
    post.fold("b")
    expect(john.page.get_by_text("Choose a mail to read it here.")).to_have_count(1)
    expect(arrived).to_have_count(0)
    jane.close()
    john.close()


def test_attachment_and_sharing_reach_somebody_on_the_same_node_until_access_is_revoked(
    post: Post, tmp_path: Path
) -> None:
    jane, mary = post.sign_in(JANE), post.sign_in("mary.a.ink")
    # Else it would wait until she accepts it, as what strangers on other nodes send.
    assert post.nodes.nodes["a"].sign_in("mary.a.ink").put(f"/me/senders/{JANE}").status_code == 200
    leaf = tmp_path / "leaf.txt"
    leaf.write_text("a leaf, pressed")
    write(jane.page, "", "Only a note", "With a leaf.", leaf)
    post.fold("a")
    jane.page.get_by_role("button", name="Sent").click()
    jane.page.get_by_role("button", name="Only a note").click()
    jane.page.get_by_role("button", name="Share").click()
    jane.page.get_by_label("With").fill("nobody.a.ink")
    jane.page.get_by_role("dialog").get_by_role("button", name="Share").click()
    expect(jane.page.get_by_role("dialog").get_by_role("alert")).to_contain_text("nobody.a.ink")
    jane.complaints.clear()  # Chromium reports the refusal
    jane.page.get_by_label("With").fill("mary.a.ink")
    jane.page.get_by_role("dialog").get_by_role("button", name="Share").click()
    expect(jane.page.get_by_role("dialog")).to_have_count(0)

    mary.page.get_by_role("button", name="Only a note").click()
    with mary.page.expect_download() as download:
        mary.page.get_by_role("button", name="leaf.txt, 15 bytes").click()
    assert download.value.suggested_filename == "leaf.txt"
    assert Path(download.value.path()).read_text() == "a leaf, pressed"

    # On her node mary sees what the client did, and ends it.
    page = mary.context.new_page()
    page.goto(f"{post.nodes.nodes['a'].url}/pages/me")
    page.get_by_role("button", name="Revoke Slothmail").click()
    expect(page.get_by_text("No service can act for you.")).to_be_visible()
    mary.page.get_by_role("button", name="leaf.txt, 15 bytes").click()
    expect(mary.page.get_by_role("alert").last).to_have_text("Access has ended. Sign in again.")
    expect(mary.page.get_by_role("button", name="Go to my node")).to_be_visible()
    assert mary.page.get_by_role("button", name="Only a note").count() == 0
    mary.complaints.clear()  # Chromium reports the refusals
    jane.close()
    mary.close()


def test_mail_is_from_who_signed_it_whatever_it_says(post: Post) -> None:
    """Mary writes in Jane's name; what John's node knows is who Mary is."""
    mary, john = post.nodes.nodes["a"].sign_in("mary.a.ink"), post.sign_in(JOHN)
    fields = {"sender": JANE, "recipients": [JOHN], "subject": "Send leaves", "body": "To me, at once."}
    pair = post.ids["mary.a.ink"], post.ids[JOHN]
    post.nodes.nodes["b"].node.database.write(lambda c: put_relation_state(c, *pair, "accepted", 0))
    body = {"schema": post.schema, "fields": fields, "access": {"mode": "listed"}, "recipients": [JOHN]}
    instance = mary.post("/instances", json=body).json()["instance"]
    until(lambda: post.nodes.payloads("b", instance) == 1)
    post.fold("b")
    arrived = john.page.get_by_role("button", name="Send leaves")
    expect(arrived).to_contain_text("mary.a.ink")
    arrived.click()
    reader = john.page.get_by_role("article")
    expect(reader).to_contain_text(f"mary.a.ink wrote to {JOHN}")
    expect(reader).to_contain_text(f"Undersigned: “{JANE}”")
    john.page.get_by_role("button", name="Answer").click()
    expect(john.page.get_by_label("To")).to_have_value("mary.a.ink")
    john.page.get_by_role("button", name="Cancel").click()
    john.close()


def test_saying_no_shows_nothing(post: Post) -> None:
    visitor = Visitor(post.chromium, post.client)
    page = visitor.go("/")
    page.get_by_label("Your name").fill(JANE)
    page.get_by_label("Address of the node").fill(post.nodes.nodes["a"].url)
    page.get_by_role("button", name="Go to my node").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("You said no, so there is nothing to show.")).to_be_visible()
    assert urlsplit(page.url).query == ""
    visitor.close()
