"""The worst that a stranger may send to each route, or somebody who has just been registered."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count
from urllib.parse import quote

from bench.costs_store import HOST, PASSWORD, Filled, Stranger
from inkgrove.core import Hash, IdentityId, SecretKey, has_lipmaa_link, sign_entry
from inkgrove.core.limits import MAX_FIELDS, MAX_LARGE_PATTERNS, MAX_PATTERNS, MAX_PAYLOAD_BYTES, MAX_UNICODE_CLASSES
from inkgrove.federation.peers import DOCUMENT_MEDIA_TYPE
from inkgrove.federation.sharing import RELATION_MEDIA_TYPE as RELATIONS
from inkgrove.messages import DELIVERY_MEDIA_TYPE as DELIVERIES
from inkgrove.messages import (
    MOVE_MEDIA_TYPE,
    AskHeights,
    Delivery,
    Parcel,
    Want,
    cbor,
    encode_ask_heights,
    encode_delivery,
    encode_wants,
)
from inkgrove.messages import REPLICATION_MEDIA_TYPE as REPLICATION

BODY = 16 * 1024 * 1024
JSON, FORM, CBOR = "application/json", "application/x-www-form-urlencoded", "application/cbor"


@dataclass(frozen=True, slots=True)
class Sent:
    """A request, without its method and host."""

    target: str
    headers: dict[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Attack:
    """One way to make a route work hard; `make` gives the request of a number, each another if that is worse."""

    route: str
    what: str
    make: Callable[[int], Sent]
    is_stream: bool = False


Made = Callable[[int], Sent]


@cache
def many_keys() -> bytes:
    """An object with 249,000 keys that nobody knows."""
    return b"{" + b",".join(b'"k%d":0' % number for number in range(249_000)) + b"}"


@cache
def many_numbers() -> bytes:
    """CBOR: a list of as many numbers as fit."""
    size = BODY - 64
    return b"\xa1\x64form\x9a" + size.to_bytes(4, "big") + bytes(size)


@cache
def many_parts() -> bytes:
    """A form with as many fields as fit."""
    return b"&".join(b"%d=1" % number for number in range(BODY // 10))


def junk_batch(count: int) -> bytes:
    """CBOR: entries of 16 KB, all signed, of somebody who does not live here."""
    payload = bytes(15_000)
    key = SecretKey.from_seed(b"somebody who does not live here.")
    entry = sign_entry(key, payload, log_id=5, seq_num=1, lipmaa_link=None, backlink=None)
    return cbor.encode_unchecked({"entries": [{"entry": entry.encoded, "payload": payload}] * count})


class Worst:
    """Every route with its attacks."""

    def __init__(self, filled: Filled, stranger: Stranger, own_schema: str) -> None:
        self._filled, self._stranger, self._own = filled, stranger, own_schema
        self._token = {"authorization": f"Bearer {filled.token}"}

    # Ways to send something

    def _get(self, target: str, *, token: bool = False, **headers: str) -> Made:
        return lambda n: Sent(target.replace("{n}", str(n)), {**(self._token if token else {}), **headers})

    def _post(
        self, target: str, body: bytes | Callable[[int], bytes], kind: str = JSON, *, token: bool = False
    ) -> Made:
        def make(n: int) -> Sent:
            content = body if isinstance(body, bytes) else body(n)
            named = {"content-type": kind, **(self._token if token else {})}
            return Sent(target.replace("{n}", str(n)), named, content)

        return make

    def _json(self, target: str, value: Callable[[int], object]) -> Made:
        return self._post(target, lambda n: json.dumps(value(n)).encode(), token=True)

    def _signed(self, method: str, target: str, body: bytes = b"", kind: str | None = None) -> Made:
        return lambda _: Sent(target, self._stranger.sign(method, target, body, kind) | {"host": HOST}, body)

    # The table

    def attacks(self) -> Iterator[Attack]:
        """All of them; a route without one is found by `bench.costs`."""
        groups = (
            self._of_people,
            self._of_accounts,
            self._of_arrivals,
            self._of_services,
            self._of_data,
            self._of_nodes,
            self._of_pages,
        )
        for make in groups:
            for route, *ways in make():
                for way in ways:
                    what, made, *more = way
                    yield Attack(route, what, made, bool(more))

    def _of_people(self) -> Iterator[tuple]:  # type: ignore[type-arg]
        keys = many_keys()
        me, other = "/me/following/n{n}.evil.ink", "/me/followers/n{n}.evil.ink"
        long = {str(number): "z" * 9_990 for number in range(50)}
        yield "POST /identities", ("249,000 keys", self._post("/identities", keys))
        yield "GET /identities/{name}", ("a long document", self._get(f"/identities/{HOST}"))
        yield "GET /identities/{name}/documents", ("long documents", self._get(f"/identities/{HOST}/documents"))
        yield "GET /me", ("head of 60 KB", self._get("/me", token=True, cookie="c" * 60_000))
        yield (
            "PATCH /me",
            ("249,000 keys", self._post("/me", keys)),
            ("500 KB, signed in", self._json("/me", lambda n: {"name": f"{n}", "profile": long})),
        )
        yield "POST /me/keys", ("249,000 keys", self._post("/me/keys", keys))
        yield "DELETE /me/keys/{key}", ("signed in", self._get("/me/keys/" + "ab" * 32, token=True))
        new = {"old": "wrong password", "new": "another password"}
        yield "POST /me/password", ("wrong, signed in", self._json("/me/password", lambda _: new))
        wrong = self._post(
            "/sessions", lambda n: json.dumps({"fqdn": f"n{n}.haiku.ink", "password": PASSWORD}).encode()
        )
        yield "POST /sessions", ("249,000 keys", self._post("/sessions", keys)), ("names that are not here", wrong)
        yield "DELETE /sessions/current", ("no token", self._get("/sessions/current"))
        yield "GET /sessions", ("signed in", self._get("/sessions", token=True))
        yield "DELETE /sessions/others", ("no token", self._get("/sessions/others"))
        yield "DELETE /sessions/{session}", ("signed in", self._get("/sessions/" + "ab" * 16, token=True))
        yield (
            "GET /.well-known/inkgrove",
            ("a log 0 of 50 MB", self._get("/.well-known/inkgrove", host=HOST)),
        )
        yield "GET /me/relations", ("signed in", self._get("/me/relations", token=True))
        yield "PUT /me/following/{name}", ("names elsewhere, signed in", self._json(me, lambda _: {}))
        yield "DELETE /me/following/{name}", ("signed in", self._get(me, token=True))
        yield "PUT /me/followers/{name}", ("249,000 keys", self._post(other, keys))
        yield "DELETE /me/followers/{name}", ("signed in", self._get(other, token=True))
        yield "GET /me/requests", ("signed in", self._get("/me/requests", token=True))
        yield "POST /me/requests/{via}", ("249,000 keys", self._post("/me/requests/" + "ab" * 32, keys))

        one, sender = f"/me/requests/{'ab' * 32}/0040{'ab' * 64}", "/me/senders/n{n}.evil.ink"
        yield "GET /me/requests/{via}/{instance}", ("signed in", self._get(one, token=True))
        yield "POST /me/requests/{via}/{instance}", ("249,000 keys", self._post(one, keys))
        yield "GET /me/usage", ("signed in", self._get("/me/usage", token=True))
        yield "POST /identities/recover", ("249,000 keys", self._post("/identities/recover", keys))
        yield "GET /me/keys/{key}/ends", ("signed in", self._get(f"/me/keys/{'ab' * 32}/ends", token=True))
        word = {"password": "wrong password", "words": "zoo " * 250}
        yield "POST /me/words", ("wrong, signed in", self._json("/me/words", lambda _: {"password": "wrong password"}))
        yield "POST /me/words/confirm", ("wrong, signed in", self._json("/me/words/confirm", lambda _: word))
        yield "POST /identities/challenges", ("249,000 keys", self._post("/identities/challenges", keys))
        known = "/.well-known/inkgrove-node"
        yield f"GET {known}", ("plain", self._get(known))
        yield "GET /me/senders", ("signed in", self._get("/me/senders", token=True))
        yield "PUT /me/senders/{name}", ("names elsewhere, signed in", self._get(sender, token=True))
        yield "DELETE /me/senders/{name}", ("signed in", self._get(sender, token=True))

    def _of_accounts(self) -> Iterator[tuple]:  # type: ignore[type-arg]
        keys = many_keys()
        closing = lambda _: {"password": "wrong password"}  # noqa: E731
        yield "DELETE /me", ("wrong, signed in", self._json("/me", closing))
        forged = "Bearer ink_x_" + "ab" * 32
        yield "GET /closing", ("a token that is not here", self._get("/closing", authorization=forged))
        yield "GET /me/keys", ("signed in", self._get("/me/keys", token=True))
        yield "PATCH /me/keys/{key}", ("249,000 keys", self._post("/me/keys/" + "ab" * 32, keys))
        export = "/me/export/" + "ab" * 16
        yield (
            "POST /me/export",
            ("249,000 keys", self._post("/me/export", keys)),
            ("again and again, signed in", self._json("/me/export", lambda _: {})),
        )
        yield "GET /me/export/{id}", ("signed in", self._get(export, token=True))
        yield "DELETE /me/export/{id}", ("signed in", self._get(export, token=True))
        yield "GET /me/export/{id}/file", ("signed in", self._get(f"{export}/file", token=True, range="bytes=0-"))
        move = {"endpoint": "https://n.evil.ink", "password": "wrong password"}
        yield "POST /me/move", ("wrong, signed in", self._json("/me/move", lambda _: move))
        yield "GET /me/move", ("signed in", self._get("/me/move", token=True))
        yield "DELETE /me/move", ("wrong, signed in", self._json("/me/move", closing))
        helped = "/identities/arrivals/helped"
        yield f"POST {helped}", ("249,000 keys", self._post(helped, keys))
        grant = "/federation/moves/ink_g_" + "ab" * 32
        yield "GET /federation/moves/{grant}", ("a grant that is not here", self._get(grant))
        yield "GET /federation/moves/{grant}/file", ("a grant that is not here", self._get(f"{grant}/file"))
        yield (
            "POST /federation/moves/{grant}/commit",
            ("4 KB", self._post(f"{grant}/commit", bytes(4096), MOVE_MEDIA_TYPE)),
        )

    def _of_arrivals(self) -> Iterator[tuple]:  # type: ignore[type-arg]
        keys = many_keys()
        one, forged = "/identities/arrivals/" + "ab" * 16, "Bearer ink_m_" + "ab" * 32
        unknown = ("a token that is not here", self._get(one, authorization=forged))
        yield "POST /identities/arrivals", ("249,000 keys", self._post("/identities/arrivals", keys))
        yield "GET /identities/arrivals/{id}", unknown
        yield "DELETE /identities/arrivals/{id}", unknown
        binary = "application/octet-stream"
        part = self._post(f"{one}/file", bytes(16 * 1024 * 1024), binary)
        yield "PUT /identities/arrivals/{id}/file", ("16 MB, no token", part)
        yield "POST /identities/arrivals/{id}/commit", ("249,000 keys", self._post(f"{one}/commit", keys))

    def _of_services(self) -> Iterator[tuple]:  # type: ignore[type-arg]
        uris = {"client_name": "x", "redirect_uris": [f"https://x.evil.ink/{n}" for n in range(100_000)]}
        yield "POST /oauth/register", ("100,000 addresses", self._post("/oauth/register", json.dumps(uris).encode()))
        yield "POST /oauth/token", ("form of 16 MB", self._post("/oauth/token", many_parts(), FORM))
        yield "POST /oauth/revoke", ("form of 16 MB", self._post("/oauth/revoke", many_parts(), FORM))
        scope = quote(" ".join(f"schema:letters{n}:read" for n in range(2_000)))
        asked = f"/oauth/authorize?response_type=code&client_id=x&scope={scope}"
        yield "GET /oauth/authorize", ("2,000 scopes", self._get(asked))
        yield "POST /oauth/authorize", ("form of 16 MB", self._post(asked, many_parts(), FORM))
        known = "/.well-known/oauth-authorization-server"
        yield f"GET {known}", ("plain", self._get(known))
        yield "GET /me/services", ("signed in", self._get("/me/services", token=True))
        yield "DELETE /me/services/{client}", ("signed in", self._get("/me/services/x", token=True))
        yield "GET /me/accesses", ("signed in", self._get("/me/accesses?limit=100", token=True))

    def _of_data(self) -> Iterator[tuple]:  # type: ignore[type-arg]
        f, keys = self._filled, many_keys()
        past, letter = f"/instances/{f.long_past.hex()}", f"/instances/{f.letter.hex()}"
        yield (
            "POST /schemas",
            ("249,000 keys", self._post("/schemas", keys)),
            ("400 KB, signed in", self._json("/schemas", lambda n: {"name": f"s{n}", "description": "d" * 400_000})),
        )
        yield (
            "POST /schemas/{author}/{log_id}/versions",
            ("249,000 keys", self._post(f"/schemas/{self._own}/versions", keys)),
            ("256 patterns, signed in", self._json(f"/schemas/{self._own}/versions", self._patterns)),
        )
        yield "GET /schemas/{author}/{log_id}", ("256 patterns", self._get(f"/schemas/{f.wide}"))
        fields = {f"field{number:03d}": "abcdefgh" * 31 for number in range(256)}
        yield (
            "POST /instances",
            ("249,000 keys", self._post("/instances", keys)),
            ("256 patterns, signed in", self._json("/instances", lambda _: {"schema": f.wide, "fields": fields})),
            ("500 KB, signed in", self._json("/instances", lambda n: {"schema": f.letters, "fields": _long(n)})),
        )
        patch = [{"op": "test", "path": f"/fields/{n}", "value": n} for n in range(50_000)]
        yield (
            "PATCH /instances/{instance}",
            ("249,000 keys", self._post(past, keys, "application/merge-patch+json")),
            (
                "50,000 steps, signed in",
                self._post(past, json.dumps(patch).encode(), "application/json-patch+json", token=True),
            ),
        )
        yield "PUT /instances/{instance}", ("249,000 keys", self._post(past, keys))
        yield "DELETE /instances/{instance}", ("signed in", self._get(past, token=True))
        erase = {"password": "wrong password"}
        yield "POST /instances/{instance}/erase", ("wrong password", self._json(f"{past}/erase", lambda _: erase))
        yield (
            "GET /instances/{instance}",
            ("a row of 500 KB", self._get(letter)),
            ("an earlier state of 700", self._get(f"{past}?as_of=600")),
        )
        yield (
            "POST /instances/{instance}/copy",
            ("249,000 keys", self._post(f"{past}/copy", keys)),
            (
                "a long past, signed in",
                self._json(f"{past}/copy", lambda _: {}),
            ),
        )
        to = {"to": [f"n{n}.evil.ink" for n in range(1000)]}
        yield "POST /instances/{instance}/share", ("1,000 names, signed in", self._json(f"{past}/share", lambda _: to))
        yield (
            "POST /instances/{instance}/pass-on",
            ("1,000 names, signed in", self._json(f"{past}/pass-on", lambda _: to)),
        )
        yield "GET /instances/{instance}/deliveries", ("signed in", self._get(f"{past}/deliveries", token=True))
        yield "GET /publish/next", ("signed in", self._get("/publish/next", token=True))
        batch = junk_batch(1_000)
        yield (
            "POST /entries",
            ("249,000 keys", self._post("/entries", keys)),
            ("numbers as CBOR, signed in", self._post("/entries", many_numbers(), CBOR, token=True)),
            ("1,000 of 16 KB, signed in", self._post("/entries", batch, CBOR, token=True)),
        )
        yield "GET /views", ("count", self._get("/views?count=true"))
        hard = "&".join(["where=body:contains:words"] * 8 + ["where=subject:ne:x"] * 7 + ["where=stars:ne:1000"] * 8)
        sort = "sort=stars,-sent,subject,body,_author,_seq_num"
        rows = f"?{hard}&where=subject:ne:{{n}}&{sort}&limit=1000&count=true"
        many = ",".join(str(n) for n in range(999))
        lists = f"?where=stars:in:{many}&limit=1000&count=true"
        for route, target in (("{schema}", "letters"), ("{author}/{log_id}", f.letters)):
            yield (
                f"GET /views/{route}",
                ("24 filters, sorted, counted", self._get(f"/views/{target}{rows}")),
                ("999 values", self._get(f"/views/{target}{lists}")),
                ("every row of the past", self._get(f"/views/{target}?limit=1000")),
                ("relations of 51,200", self._get("/views/lists?expand=to&limit=1000")),
            )
            yield f"GET /views/{route}/outcomes", ("1,000", self._get(f"/views/{target}/outcomes?limit=1000"))
            yield f"GET /views/{route}/summary", ("plain", self._get(f"/views/{target}/summary"))
            yield f"GET /views/{route}/changes", ("a stream", self._get(f"/views/{target}/changes"), "stream")
        yield "PUT /views/{author}/{log_id}", ("signed in", self._get(f"/views/{f.letters}", token=True))
        yield "DELETE /views/{author}/{log_id}", ("signed in", self._get(f"/views/{f.letters}", token=True))
        yield "GET /instances/{instance}/history", ("700 messages of 20 KB", self._get(f"{past}/history"))
        yield (
            "GET /instances/{instance}/proof",
            ("700 messages of 20 KB", self._get(f"{past}/proof")),
            ("the same as JSON", self._get(f"{past}/proof", accept=JSON)),
        )
        yield "POST /blobs", ("64 MB, signed in", self._post("/blobs", bytes(4 * BODY), "image/png", token=True))
        yield "GET /blobs/{hash}", ("one that is not here", self._get(f"/blobs/0040{'ab' * 64}"))
        for method in ("PUT", "DELETE"):
            yield f"{method} /instances/{{instance}}/keep", ("signed in", self._get(f"{past}/keep", token=True))
        yield "POST /instances/{instance}/fetch", ("signed in", self._get(f"{past}/fetch", token=True))
        for name in ("healthz", "readyz", "metrics", "openapi.json"):
            yield f"GET /{name}", ("plain", self._get(f"/{name}"))

    def _patterns(self, n: int) -> object:
        """A version of 256 fields with as many patterns as it may have, as large as they may be; nobody had them."""
        large = [rf"(?:(?s:.)){{0,590}}(?:\S[\pL\pN]){{2}}{n}x{number}" for number in range(MAX_LARGE_PATTERNS)]
        small = [f"[a-z]{{0,300}}{n}x{number}" for number in range(MAX_PATTERNS - MAX_LARGE_PATTERNS - 2)]
        # Nothing of their classes gets into the program, but RE2 reads each of them.
        classes = r"\PL{0}" * (MAX_UNICODE_CLASSES // 2 - MAX_LARGE_PATTERNS)
        small += [f"(?i)(?:{classes}){n}x{number}" for number in range(2)]
        patterns = [*large, *small, *small, *small][:MAX_FIELDS]
        return {
            "fields": [
                {f"f{number}": {"action": "update", "validation": pattern, "default": None}}
                for number, pattern in enumerate(patterns)
            ]
        }

    def _of_nodes(self) -> Iterator[tuple]:  # type: ignore[type-arg]
        path = "/federation/deliveries"
        yield (
            f"POST {path}",
            ("54,000 entries for nobody", self._signed("POST", path, self._delivery(), DELIVERIES)),
            ("15 MB of payloads for nobody", self._signed("POST", path, self._payloads(), DELIVERIES)),
            ("numbers as CBOR", self._signed("POST", path, many_numbers(), DELIVERIES)),
            ("not signed", self._post(path, bytes(BODY), DELIVERIES)),
        )
        path = "/federation/relations"
        yield f"POST {path}", ("numbers as CBOR", self._signed("POST", path, many_numbers(), RELATIONS))
        path = "/federation/documents"
        yield f"POST {path}", ("numbers as CBOR", self._signed("POST", path, many_numbers(), DOCUMENT_MEDIA_TYPE))
        path = "/federation/heights"
        yield (
            f"POST {path}",
            ("everything", self._signed("POST", path, encode_ask_heights(AskHeights(None, 0)), REPLICATION)),
            ("numbers as CBOR", self._signed("POST", path, many_numbers(), REPLICATION)),
        )
        path = "/federation/entries"
        wants = [Want(SecretKey.from_seed(n.to_bytes(4, "big") * 8).public, 2, [(1, 10**9)]) for n in range(1, 41)]
        yield (
            f"POST {path}",
            ("40 logs whole", self._signed("POST", path, encode_wants(wants), REPLICATION)),
            ("numbers as CBOR", self._signed("POST", path, many_numbers(), REPLICATION)),
        )
        for name in ("heights", "entries", "relations", "shares"):
            path = f"/federation/own/{name}"
            yield f"POST {path}", ("numbers as CBOR", self._signed("POST", path, many_numbers(), REPLICATION))
        path = f"/federation/blobs/0040{'ab' * 64}"
        yield "GET /federation/blobs/{hash}", ("one that is not here", self._signed("GET", path))
        path = f"/federation/copies/{self._filled.long_past.hex()}"
        yield "GET /federation/copies/{instance}", ("a long past", self._signed("GET", path))
        entries = [
            sign_entry(self._stranger.key, payload, log_id=5, seq_num=1, lipmaa_link=None, backlink=None)
            for payload in (b"a", b"b")
        ]
        first, second = (b64encode(entry.encoded).decode() for entry in entries)
        yield (
            "POST /federation/forks",
            (
                "a fork of a log that is not here",
                self._post("/federation/forks", json.dumps({"first": first, "second": second}).encode()),
            ),
        )

    @cache  # noqa: B019
    def _delivery(self) -> bytes:
        """As many entries as fit, all signed, for people who do not live here."""
        numbers = count(1)
        parcels = []
        link = Hash(b"\x00\x40" + bytes(64))
        for _ in range(3):
            entries = []
            for number in range(2, 3_000):
                lipmaa = link if has_lipmaa_link(number) else None
                entry = sign_entry(self._stranger.key, b"", log_id=1, seq_num=number, lipmaa_link=lipmaa, backlink=link)
                entries.append((entry.encoded, None))
            parcels += [Parcel(link, (IdentityId(next(numbers).to_bytes(32, "big")),), entries * 6)]
        return encode_delivery(Delivery(self._stranger.id, parcels))

    @cache  # noqa: B019
    def _payloads(self) -> bytes:
        payload = bytes(MAX_PAYLOAD_BYTES)
        link = Hash(b"\x00\x40" + bytes(64))
        entry = sign_entry(self._stranger.key, payload, log_id=1, seq_num=1, lipmaa_link=None, backlink=None)
        parcels = [Parcel(link, (IdentityId(bytes(32)),), [(entry.encoded, payload)]) for _ in range(30)]
        return encode_delivery(Delivery(self._stranger.id, parcels))

    def _of_pages(self) -> Iterator[tuple]:  # type: ignore[type-arg]
        f = self._filled
        past = f"/pages/instances/{f.long_past.hex()}"
        yield "GET /", ("plain", self._get("/"))
        yield "GET /pages/instances/{instance}", ("a long past", self._get(past))
        yield "GET /pages/instances/{instance}/fields/{field}", ("a long past", self._get(f"{past}/fields/body"))
        yield "GET /pages/instances/{instance}/proof", ("a long past", self._get(f"{past}/proof"))
        yield "GET /pages/schemas", ("600 with 200 KB each", self._get("/pages/schemas"))
        yield (
            "GET /pages/schemas/{author}/{log_id}",
            ("256 patterns", self._get(f"/pages/schemas/{f.wide}")),
            ("a description of 200 KB", self._get(f"/pages/schemas/{f.wide.split('/')[0]}/10001")),
        )
        yield "GET /pages/static/{name}", ("plain", self._get("/pages/static/style.css"))
        yield "GET /pages/sign-in", ("plain", self._get("/pages/sign-in"))
        yield "GET /pages/views/{schema}", ("rows of 500 KB", self._get("/pages/views/letters"))
        yield (
            "GET /pages/views/{author}/{log_id}",
            (
                "rows of 500 KB, sorted",
                self._get(f"/pages/views/{f.letters}?sort=body"),
            ),
        )
        yield "GET /pages/me", ("no cookie", self._get("/pages/me"))
        one = f"/pages/me/requests/{'ab' * 32}/0040{'ab' * 64}"
        yield "GET /pages/me/requests/{via}/{instance}", ("no cookie", self._get(one))
        yield "GET /pages/rot", ("no cookie", self._get("/pages/rot"))
        yield "GET /pages/logs", ("plain", self._get("/pages/logs"))
        yield "GET /pages/logs/{author}/{log_id}", ("500 entries", self._get(f"/pages/logs/{f.author}/2"))
        for route in (
            "/pages/sign-in",
            "/pages/sign-out",
            "/pages/me/profile",
            "/pages/me/services/{client}/revoke",
            "/pages/me/following",
            "/pages/me/following/{name}/end",
            "/pages/me/followers/{name}",
            "/pages/me/requests/{via}",
            "/pages/me/requests/{via}/{instance}",
            "/pages/me/senders/{sender}/end",
        ):
            target = "/".join("x.ink" if "{" in part else part for part in route.split("/"))
            yield f"POST {route}", ("form of 16 MB", self._post(target, many_parts(), FORM))


def _long(n: int) -> dict[str, object]:
    return {"subject": f"{n}", "body": "x" * 480_000}
