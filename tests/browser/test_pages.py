"""The pages in a real Chromium: what people do on them, and how they look and sound to everybody.

With INKGROVE_SCREENSHOTS=1 the pictures in docs/screenshots are made anew.
"""

from collections.abc import Callable, Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.browser.visitor import DESK, PHONE, Visitor, check_axe, check_width, take_picture
from tests.browser.world import World
from tests.support.nodes import PASSWORD

JANE, ADMIN = "jane.haiku.ink", "admin.haiku.ink"
Address = Callable[[World], str]

# Name, who looks, where.
PAGES: list[tuple[str, str | None, Address]] = [
    ("home", JANE, lambda _: "/"),
    ("home-administrator", ADMIN, lambda _: "/"),
    ("home-anybody", None, lambda _: "/"),
    ("sign-in", None, lambda _: "/pages/sign-in"),
    ("view", JANE, lambda world: world.view),
    ("view-sorted", JANE, lambda world: f"{world.view}?sort=-stars&field=subject&operator=contains&value=moss"),
    ("view-nothing", JANE, lambda world: f"{world.view}?field=stars&operator=gt&value=99"),
    ("row", JANE, lambda world: f"/pages/instances/{world.mails[0]}"),
    ("provenance", JANE, lambda world: f"/pages/instances/{world.mails[-1]}/fields/subject"),
    ("proof", JANE, lambda world: f"/pages/instances/{world.mails[0]}/proof"),
    ("schemas", JANE, lambda _: "/pages/schemas"),
    ("schema", ADMIN, lambda world: f"/pages/schemas/{world.schema}"),
    ("logs", JANE, lambda _: "/pages/logs"),
    ("logs-administrator", ADMIN, lambda _: "/pages/logs"),
    ("log", JANE, lambda world: world.log_page),
    ("fork", ADMIN, lambda world: world.fork_page),
    ("me", JANE, lambda _: "/pages/me"),
    ("rot", ADMIN, lambda _: "/pages/rot"),
    ("consent", JANE, lambda world: world.service.address(f"schema:{world.schema}:read relations:read")),
]
IN_DOCS = {"home-administrator", "view", "provenance", "proof", "schema", "log", "me", "rot", "consent"}

WHOLE = {"rot", "me"}
"""What matters on them is further down."""


@pytest.fixture(scope="module")
def seen_by(world: World, chromium: Browser) -> Iterator[Callable[[str | None], Visitor]]:
    """Whoever looks at many pages signs in once."""
    visitors: dict[str | None, Visitor] = {}

    def find(who: str | None) -> Visitor:
        if who not in visitors:
            visitors[who] = Visitor(chromium, world.running.url)
            if who is not None:
                visitors[who].sign_in(who)
        return visitors[who]

    yield find
    for visitor in visitors.values():
        visitor.close()


@pytest.mark.parametrize(("name", "who", "address"), PAGES, ids=[name for name, _, _ in PAGES])
def test_page_fits_every_screen_and_reader(
    world: World,
    seen_by: Callable[[str | None], Visitor],
    axe: str,
    name: str,
    who: str | None,
    address: Address,
) -> None:
    visitor = seen_by(who)
    page = visitor.page
    page.set_viewport_size({"width": DESK, "height": 800})
    page.emulate_media(color_scheme="light")
    visitor.go(address(world))
    assert page.locator("h1").count() == 1
    assert page.title()
    check_width(page)
    check_axe(page, axe)
    if name in IN_DOCS:
        take_picture(page, name, whole=name in WHOLE)
    page.set_viewport_size({"width": PHONE, "height": 844})
    page.emulate_media(color_scheme="dark")
    check_width(page)
    check_axe(page, axe)
    if name in IN_DOCS:
        take_picture(page, f"{name}-phone")
    assert visitor.complaints == []


# What people do


def test_sign_in_leads_back_and_sign_out_ends_it(visit: Visitor) -> None:
    page = visit.go("/pages/me")
    assert urlsplit(page.url).path == "/pages/sign-in"
    page.get_by_label("Your name").fill(JANE)
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_have_text("The name or the password is wrong.")
    visit.complaints.clear()  # Chromium reports the 403
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Jane")
    assert urlsplit(page.url).path == "/pages/me"
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("link", name="Sign in").first).to_be_visible()
    visit.go("/pages/me")
    assert urlsplit(page.url).path == "/pages/sign-in"


def test_everybody_sees_what_they_may_see(world: World, visit: Visitor) -> None:
    page = visit.go(f"{world.view}?field=subject&operator=contains&value=For myself")
    expect(page.get_by_text("No row matches.")).to_be_visible()
    visit.sign_in("john.haiku.ink", f"{world.view}?field=subject%26operator=contains")
    page = visit.go(f"{world.view}?field=subject&operator=contains&value=For myself")
    expect(page.get_by_role("cell", name="For myself")).to_be_visible()
    visit.go(f"/pages/instances/{world.mails[1]}", status=404)  # jane's own, sent to nobody
    expect(page.get_by_role("heading", level=1)).to_have_text("Nothing here")
    visit.go(world.log_page, status=404)
    visit.go("/nowhere", status=404)


def test_view_is_filtered_sorted_and_turned_page_by_page(world: World, visit: Visitor) -> None:
    page = visit.sign_in(JANE, world.view)
    assert page.locator("tbody tr").count() == 25
    page.get_by_role("link", name="Next page").click()
    assert page.locator("tbody tr").count() == 9
    page.get_by_role("link", name="First page").click()
    page.get_by_label("Where").select_option("stars")
    page.get_by_label("Condition").select_option("gte")
    page.get_by_label("Value").fill("5")
    page.get_by_label("Sorted by").select_option("-subject")
    page.get_by_role("button", name="Show").click()
    # Stars are number % 6 for 0..32, five of them 5, and the first mail was given five later.
    assert page.locator("caption").inner_text().startswith("6 rows match.")
    subjects = page.locator("td[data-label=subject]").all_inner_texts()
    assert len(subjects) == 6
    assert subjects == sorted(subjects, reverse=True)
    expect(page.get_by_role("columnheader", name="subject")).to_have_attribute("aria-sort", "descending")
    page.get_by_label("Condition").select_option("contains")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("alert")).to_be_visible()
    assert page.get_by_label("Value").input_value() == "5"
    visit.complaints.clear()  # Chromium reports the 400


def test_new_rows_appear_by_themselves(world: World, visit: Visitor) -> None:
    page = visit.sign_in(JANE, f"{world.view}?sort=-created")
    page.locator("[data-open]").wait_for()
    written = world.write(
        "jane", fields={"subject": "Just arrived", "created": "2026-01-01T00:00:00Z"}, access={"mode": "public"}
    )
    expect(page.get_by_role("cell", name="Just arrived")).to_be_visible()
    expect(page.locator("[data-said]")).to_have_text("One row is new.")
    page.get_by_role("button", name="Live").click()
    assert world.people["jane"].delete(f"/instances/{written}").status_code == 200
    world.materialiser.catch_up()
    page.wait_for_timeout(400)
    expect(page.get_by_role("cell", name="Just arrived")).to_be_visible()
    page.get_by_role("button", name="Paused").click()
    expect(page.get_by_role("cell", name="Just arrived")).to_have_count(0)


def test_a_value_leads_to_its_entry_and_the_entry_to_its_proof(world: World, visit: Visitor) -> None:
    page = visit.sign_in(JANE, f"{world.view}?field=stars&operator=eq&value=5&sort=created".replace("&", "%26"))
    page = visit.go(f"{world.view}?field=body&operator=contains&value=still")
    page.get_by_role("cell", name="There is still no hurry.").get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Where body came from")
    words = page.locator("main").inner_text()
    assert "jane.haiku.ink said so in entry 35 of their log" in words
    assert "in the words of version 4 of the schema" in words
    assert [item.partition(":")[0] for item in page.locator(".timeline h3").all_inner_texts()] == [
        "Entry 35",
        "Entry 1",
    ]
    page.get_by_role("link", name="Check the proof").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("The proof holds")
    checks = page.locator(".checks h2")
    expect(checks.last).to_contain_text("Your browser agrees")
    assert [text.removeprefix("✓").strip().partition("\n")[0] for text in checks.all_inner_texts()] == [
        "Signed by its author",
        "Linked, back to the first entry",
        "The words are the ones that were signed",
        "It is about this row",
        "The values are in these messages",
        "Your browser agrees",
    ]
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the proof").click()
    assert download.value.suggested_filename.endswith(".proof")


def test_value_that_fell_back_to_a_default_says_so(world: World, visit: Visitor) -> None:
    visit.sign_in(JANE)
    page = visit.go(f"/pages/instances/{world.mails[-1]}/fields/subject")
    expect(page.locator("blockquote")).to_have_text("<Subject>")
    assert "jane.haiku.ink wrote something else in entry 34 of their log" in page.locator("main").inner_text()
    expect(page.get_by_text("did not fit a later version of the schema")).to_be_visible()
    page = visit.go(f"/pages/schemas/{world.schema}")
    newest = page.locator(".timeline > li").first
    expect(newest).to_contain_text("Version 4: Changes fields")
    expect(newest).to_contain_text("'<Subject>' stands in")
    expect(newest).to_contain_text("1 message did not fit this version and fell back to defaults.")


def test_schema_tells_the_administrator_what_did_not_come_through(world: World, visit: Visitor) -> None:
    page = visit.sign_in(ADMIN, f"/pages/schemas/{world.schema}")
    section = page.locator("section", has=page.get_by_role("heading", name="Messages that did not come through"))
    expect(section).to_contain_text("instance.wrong-type")
    expect(section).to_contain_text("instance.unknown-field")
    section.get_by_role("link", name="Pending").click()
    expect(section).to_contain_text("schema.version-unknown")


def test_fork_is_shown_with_both_signatures(world: World, visit: Visitor) -> None:
    page = visit.sign_in(ADMIN, "/pages/logs")
    page.get_by_role("cell", name="forked at entry 12").wait_for()
    page = visit.go(world.fork_page)
    expect(page.get_by_role("heading", name="A fork at entry 12")).to_be_visible()
    assert page.locator(".twins dl").count() == 2
    picture = page.get_by_role("img", name="Links between entries 1 to 16")
    expect(picture).to_be_visible()
    # Lipmaa links by hand: 4 -> 1, 8 -> 4, 12 -> 8, 13 -> 4; from 16 the way is 15, 14, 13, 4, 1.
    expect(page.locator("svg desc")).to_contain_text("4 to 1, 8 to 4, 12 to 8, 13 to 4")
    expect(page.locator("svg desc")).to_contain_text("16 → 15 → 14 → 13 → 4 → 1")


def test_request_to_follow_is_accepted_on_the_page(world: World, visit: Visitor) -> None:
    page = visit.sign_in(JANE, "/pages/me")
    asking = page.get_by_role("listitem").filter(has_text="john.haiku.ink")
    expect(asking).to_contain_text("asked, no answer yet")
    asking.get_by_role("button", name="Accept").click()
    expect(asking).to_contain_text("accepted")
    relations = world.people["john"].get("/me/relations").json()["relations"]
    assert [item["state"] for item in relations if item["side"] == "following"] == ["accepted"]
    page.get_by_label("Follow somebody").fill("nobody.haiku.invalid")
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_role("alert")).to_contain_text("nobody.haiku.invalid")
    visit.complaints.clear()  # Chromium reports the 422


def test_stranger_is_accepted_on_the_page_and_the_mail_is_there(world: World, visit: Visitor) -> None:
    page = visit.sign_in(JANE, "/pages/me")
    strangers = page.locator("section", has=page.get_by_role("heading", name="From strangers"))
    expect(strangers.get_by_role("listitem").first).to_contain_text("mole.sloth.example sent 1 thing.")
    visit.go(f"/pages/instances/{world.request}", status=404)
    visit.go("/pages/me")
    strangers.get_by_role("link", name="Look at it").click()
    expect(page.get_by_role("heading", name="From mole.sloth.example")).to_be_visible()
    page.get_by_role("link", name="Back to what waits").click()
    strangers.get_by_role("button", name="Accept this").click()
    expect(strangers).to_contain_text("Nothing waits.")
    # That lets nobody follow.
    expect(page.get_by_role("listitem").filter(has_text="mole.sloth.example")).to_have_count(0)
    world.materialiser.catch_up()
    page = visit.go(f"/pages/instances/{world.request}")
    expect(page.get_by_text("May I dig here?").first).to_be_visible()


def test_deliveries_tell_how_far_each_has_come(world: World, visit: Visitor) -> None:
    page = visit.sign_in(JANE, "/pages/me")
    table = page.get_by_role("table", name="What you sent to other nodes")
    rows = [row.get_by_role("cell").all_inner_texts() for row in table.get_by_role("row").all()[1:]]
    assert [(to, state) for to, _, state, _ in rows] == [
        ("alice.sloth.example", "on its way"),
        ("alice.sloth.example", "delivered"),
        ("bob.sloth.example", "given up federation.timeout"),
    ]
    assert [when for _, _, _, when in rows][1:] == ["24 hours ago", "2 days ago"]
    table.get_by_role("link").first.click()
    assert page.url.endswith(world.mails[7])


def test_rot_shows_budgets_moves_and_freshness_and_explains_a_copy(world: World, visit: Visitor) -> None:
    page = visit.sign_in(ADMIN, "/pages/rot")

    def section(name: str) -> Locator:
        return page.locator("section", has=page.get_by_role("heading", name=name, exact=True))

    expect(section("Budgets")).to_contain_text("200,000 bytes and 30 copies")
    # Six mails came before each of nine runs, and thirty stay: six went in each of the last four, and are stubs after
    # two days.
    assert page.locator("td[data-label=Copies]").all_inner_texts() == ["30", "0", "12", "12", "0"]
    expect(section("What the last plan took")).to_contain_text("6 from full to cooked")
    expect(section("What the last plan took")).to_contain_text("Because of node rows")
    expect(page.get_by_role("img", name="Freshness of copies over the runs")).to_be_visible()
    assert page.locator("svg.fresh text.middle").all_text_contents() == [str(tick) for tick in range(1, 10)]
    page.get_by_label("Id of an instance").fill(world.rotted)
    page.get_by_role("button", name="Explain").click()
    expect(section("Explain a copy")).to_contain_text("This copy of alice.sloth.example is cooked")
    # Four runs after it came, 0.8 ** 4; the freshest that had to go with it was bob's of the first day, 0.9 ** 7.
    why = "Run 8 took it there because of node rows: freshness 0.409600, and the budget is met at 0.478297."
    expect(section("Explain a copy")).to_contain_text(why)


def test_consent_gives_access_and_revoking_ends_it(world: World, visit: Visitor) -> None:
    page = visit.go(world.service.address(f"schema:{world.schema}:read"))
    page.get_by_label("Your name").fill(JANE)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Slothmail asks for access")
    expect(page.get_by_role("listitem").filter(has_text="see all of it that you can see").first).to_be_visible()
    page.get_by_role("button", name="Allow").click()
    page.wait_for_url("**/back?**")
    visit.complaints.clear()  # nothing is at the service's address
    code = parse_qs(urlsplit(page.url).query)["code"][0]
    token = world.service.exchange(code).json()["access_token"]
    as_service = world.running.client(token)
    assert as_service.get(f"/views/{world.schema}").status_code == 200

    page = visit.go("/pages/me")
    card = page.locator(".card").filter(has=page.get_by_role("heading", name="Slothmail"))
    expect(card).to_contain_text("slothmail: see all of it that you can see")
    expect(card).to_contain_text("read slothmail")
    card.get_by_role("button", name="Revoke Slothmail").click()
    expect(page.get_by_text("No service can act for you.")).to_be_visible()
    refused = as_service.get(f"/views/{world.schema}")
    assert (refused.status_code, refused.json()["code"]) == (401, "auth.bad-token")


def test_everything_can_be_reached_with_the_keyboard(world: World, visit: Visitor) -> None:
    page = visit.sign_in(JANE)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="slothmail", exact=True)).to_be_focused()
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
    assert outline == "3px"
