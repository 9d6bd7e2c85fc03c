"""Signed requests between nodes: what is covered, how long it lasts, and that it counts once."""

import asyncio
from base64 import b64decode, b64encode
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from http_message_signatures import HTTPMessageSigner, HTTPMessageVerifier, MappingKeyResolver

from inkgrove.core import PublicKey, SecretKey
from inkgrove.federation.errors import (
    AnswerTooLarge,
    BadAnswer,
    BadRequestSignature,
    FederationError,
    ForbiddenAddress,
    PeerTimeout,
    PeerUnreachable,
    QuotaUsedUp,
    Redirected,
)
from inkgrove.federation.peers import (
    COMPONENTS,
    Discovery,
    HttpTransport,
    PeerRequest,
    RequestAuthenticator,
    StrictEd25519,
    check_signature,
    check_times,
    make_signed_request,
    read_signature,
    received_request,
    sign_request,
)
from inkgrove.node.identity import create_identity
from inkgrove.node.runtime import Node, load_node_key
from inkgrove.node.settings import NodeSettings
from inkgrove.store.federation import RemoteIdentity, find_remote_identity
from inkgrove.store.logs import find_fork_proof, find_log
from inkgrove.store.node import find_identity, put_relation_state
from tests.federation.conftest import Clock
from tests.support.errors import raises
from tests.support.logs import key
from tests.support.peers import Elsewhere, VirtualNetwork, answering, run, serving

JANE, JOHN = "jane.haiku.ink", "john.haiku.ink"
NOW = 1_800_000_000
KEY = key(101)
NONCE = "0123456789abcdef0123456789abcdef"
REQUEST = PeerRequest(
    "POST", f"https://{JANE}/inbox?from=john&n=1", (("Content-Type", "application/json"),), b'{"hello": "world"}'
)
EMPTY_DIGEST = "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:"


def signed(
    request: PeerRequest = REQUEST, secret: SecretKey = KEY, *, now: int = NOW, nonce: str = NONCE
) -> PeerRequest:
    return sign_request(request, secret, sender=JOHN, now=now * 1_000_000, nonce=nonce)


def check(request: PeerRequest, public: PublicKey = KEY.public, *, now: int = NOW) -> None:
    found = read_signature(request)
    check_times(found, now * 1_000_000)
    check_signature(request, found, public)


def with_header(request: PeerRequest, name: str, value: str | None) -> PeerRequest:
    """The request with another value of a header, or without it."""
    kept = tuple(line for line in request.headers if line[0].lower() != name.lower())
    return replace(request, headers=kept if value is None else (*kept, (name, value)))


def custom(*components: str, request: PeerRequest = REQUEST, **parameters: object) -> PeerRequest:
    """A request signed by the library alone, with whatever it is told."""
    message = httpx.Request(request.method, request.url, headers=list(request.headers), content=request.body)
    message.headers["Content-Digest"] = "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:"
    known = MappingKeyResolver(public_keys={}, private_keys={JOHN: KEY})  # type: ignore[dict-item]
    options = {
        "key_id": JOHN,
        "created": datetime.fromtimestamp(NOW, UTC),
        "expires": datetime.fromtimestamp(NOW + 60, UTC),
        "nonce": NONCE,
        "tag": "inkgrove-1",
        "covered_component_ids": components,
        "use_existing_digest": True,
    } | parameters
    HTTPMessageSigner(signature_algorithm=StrictEd25519, key_resolver=known).sign(message, **options)  # type: ignore[arg-type]
    return replace(request, headers=tuple(message.headers.items()))


ALL = (*COMPONENTS, "content-type")


# The form


def test_example_of_the_standard_is_signed_and_verified_as_printed() -> None:
    # RFC 9421, B.1.4 and B.2.6.
    seed = b64decode("MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF")[-32:]
    secret = SecretKey.from_seed(seed)
    assert secret.public == b64decode("JrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs=")
    headers = {
        "Host": "example.com",
        "Date": "Tue, 20 Apr 2021 02:07:55 GMT",
        "Content-Type": "application/json",
        "Content-Length": "18",
    }
    message = httpx.Request("POST", "https://example.com/foo?param=Value&Pet=dog", headers=headers)
    known = MappingKeyResolver(
        public_keys={"test-key-ed25519": secret.public},
        private_keys={"test-key-ed25519": secret},  # type: ignore[dict-item]
    )
    HTTPMessageSigner(signature_algorithm=StrictEd25519, key_resolver=known).sign(
        message,
        key_id="test-key-ed25519",
        created=datetime.fromtimestamp(1618884473, UTC),
        label="sig-b26",
        include_alg=False,
        covered_component_ids=("date", "@method", "@path", "@authority", "content-type", "content-length"),
    )
    assert message.headers["signature-input"] == (
        'sig-b26=("date" "@method" "@path" "@authority" "content-type" "content-length")'
        ';created=1618884473;keyid="test-key-ed25519"'
    )
    assert message.headers["signature"] == (
        "sig-b26=:wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==:"
    )
    (result,) = HTTPMessageVerifier(signature_algorithm=StrictEd25519, key_resolver=known).verify(message, max_age=None)
    assert result.parameters["keyid"] == "test-key-ed25519"


def test_signed_request_says_what_is_covered_by_whom_and_when() -> None:
    request = signed()
    assert request.header("content-digest") == "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:"
    assert request.header("signature-input") == (
        'inkgrove=("@method" "@authority" "@path" "@query" "content-digest" "content-type")'
        f';created=1800000000;keyid="john.haiku.ink";expires=1800000120;nonce="{NONCE}";tag="inkgrove-1"'
    )
    assert (request.method, request.url, request.body) == (REQUEST.method, REQUEST.url, REQUEST.body)
    check(request)


def test_request_without_a_body_signs_the_digest_of_nothing() -> None:
    request = signed(PeerRequest("GET", f"https://{JANE}/heights"))
    assert request.header("content-digest") == EMPTY_DIGEST
    check(request)
    with raises("federation.bad-digest"):
        check(replace(request, body=b"x"))


def test_digest_may_be_sha_512() -> None:
    body = b'{"hello": "world"}'
    sha512 = "sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNyealdVLvRwEmTHWXvJwew==:"
    message = httpx.Request("POST", REQUEST.url, headers=[("Content-Digest", sha512)], content=body)
    known = MappingKeyResolver(public_keys={}, private_keys={JOHN: KEY})  # type: ignore[dict-item]
    HTTPMessageSigner(signature_algorithm=StrictEd25519, key_resolver=known).sign(
        message,
        key_id=JOHN,
        created=datetime.fromtimestamp(NOW, UTC),
        expires=datetime.fromtimestamp(NOW + 60, UTC),
        nonce=NONCE,
        tag="inkgrove-1",
        covered_component_ids=COMPONENTS,
        use_existing_digest=True,
    )
    request = PeerRequest("POST", REQUEST.url, tuple(message.headers.items()), body)
    check(request)
    with raises("federation.bad-digest"):
        check(replace(request, body=body + b" "))


# Tampering


@pytest.mark.parametrize(
    "tampered",
    [
        replace(signed(), method="PUT"),
        replace(signed(), url=f"https://{JANE}/outbox?from=john&n=1"),
        replace(signed(), url=f"https://{JANE}/inbox?from=john&n=2"),
        replace(signed(), url=f"https://{JANE}/inbox"),
        replace(signed(), url=f"https://{JANE}/inbox?n=1&from=john"),
        replace(signed(), url=f"https://{JANE}/%69nbox?from=john&n=1"),
        replace(signed(), url="https://alice.haiku.ink/inbox?from=john&n=1"),
        replace(signed(), url=f"https://{JANE}:8443/inbox?from=john&n=1"),
        with_header(signed(), "content-type", "text/html"),
        signed().with_headers(("Content-Type", "text/html")),
        with_header(signed(), "content-digest", EMPTY_DIGEST),
        signed().with_headers(("Content-Digest", EMPTY_DIGEST)),
        with_header(signed(), "signature", signed(secret=key(9)).header("signature")),
        with_header(signed(), "signature-input", signed(nonce="f" * 32).header("signature-input")),
        with_header(signed(), "signature-input", signed(now=NOW + 1).header("signature-input")),
        with_header(signed(), "signature", "inkgrove=:AAAA:"),
        with_header(signed(), "signature", "inkgrove=7"),
        with_header(signed(), "signature", "other" + str(signed().header("signature"))),
        with_header(signed(), "signature", "=:rubbish"),
    ],
    ids=range(19),
)
def test_change_of_anything_that_was_signed_is_noticed(tampered: PeerRequest) -> None:
    with pytest.raises(BadRequestSignature):
        check(tampered)


def test_digest_is_compared_with_the_body_that_arrived() -> None:
    with raises("federation.bad-digest"):
        check(replace(signed(), body=b'{"hello": "w0rld"}'))
    with raises("federation.bad-digest"):
        check(replace(signed(), body=b""))


@pytest.mark.parametrize("name", ["content-digest", "content-type"])
def test_covered_header_cannot_be_left_out(name: str) -> None:
    with pytest.raises(BadRequestSignature):
        check(with_header(signed(), name, None))


def test_signature_of_another_key_does_not_hold() -> None:
    with pytest.raises(BadRequestSignature):
        check(signed(), key(9).public)


def test_key_of_small_order_verifies_nothing() -> None:
    # With such a key a signature of zeros would hold for any message by the lenient rule.
    weak = PublicKey(bytes([1]) + bytes(31))
    zeros = b64encode(bytes([1]) + bytes(63)).decode()
    forged = with_header(signed(), "signature", f"inkgrove=:{zeros}:")
    with pytest.raises(BadRequestSignature):
        check(forged, weak)


# What is missing


@pytest.mark.parametrize("left_out", ALL)
def test_every_component_must_be_covered(left_out: str) -> None:
    check(custom(*ALL))
    with raises("federation.signature-incomplete"):
        check(custom(*(name for name in ALL if name != left_out)))


@pytest.mark.parametrize("changed", ['"content-digest";key="sha-256"', '"content-digest";sf', '"content-type";bs'])
def test_component_with_a_parameter_does_not_stand_for_the_whole(changed: str) -> None:
    name = changed.split(";", maxsplit=1)[0].strip('"')
    with raises("federation.signature-incomplete"):
        check(custom(*(changed if item == name else item for item in ALL)))


@pytest.mark.parametrize(
    "parameters",
    [
        {"expires": None},
        {"nonce": None},
        {"nonce": "short"},
        {"nonce": "x" * 129},
        {"keyid": None},
        {"keyid": ""},
        {"keyid": "john"},
        {"keyid": "127.0.0.1"},
        {"keyid": "https://john.haiku.ink/key"},
        {"created": None},
        {"created": "1800000000"},
    ],
)
def test_every_parameter_must_be_there(parameters: dict[str, object]) -> None:
    with raises("federation.signature-incomplete"):
        read_signature(unchecked(**parameters))


def unchecked(**changes: object) -> PeerRequest:
    """A request whose signature is well-formed and says what it is told."""
    given = {"created": NOW, "expires": NOW + 60, "nonce": NONCE, "keyid": JOHN, "tag": "inkgrove-1"}
    given |= changes
    parameters = "".join(
        f";{name}={value}" if isinstance(value, int) else f';{name}="{value}"'
        for name, value in given.items()
        if value is not None
    )
    covered = " ".join(f'"{name}"' for name in ALL)
    return with_header(signed(), "signature-input", f"inkgrove=({covered}){parameters}")


@pytest.mark.parametrize(
    "value",
    ["", "x", "inkgrove=7", "inkgrove=();tag=7", 'inkgrove=7;tag="inkgrove-1"', "=()", "\xe4", "a=(" * 3000],
)
def test_rubbish_in_place_of_a_signature_is_none(value: str) -> None:
    with raises("federation.signature-missing"):
        read_signature(with_header(signed(), "signature-input", value))


def test_unsigned_request_and_half_a_signature_are_refused() -> None:
    for request in (REQUEST, with_header(signed(), "signature", None), with_header(signed(), "signature-input", None)):
        with raises("federation.signature-missing"):
            check(request)


def test_signature_for_another_purpose_does_not_count() -> None:
    with raises("federation.signature-missing"):
        check(custom(*ALL, tag="web-bot-auth"))
    with raises("federation.signature-missing"):
        check(custom(*ALL, tag=None))


def test_signature_of_a_proxy_beside_ours_is_passed_over() -> None:
    proxied = custom("@method", tag="proxy", label="proxy")
    both = REQUEST.with_headers(
        ("Content-Digest", str(proxied.header("content-digest"))),
        ("Signature-Input", f"{signed().header('signature-input')}, {proxied.header('signature-input')}"),
        ("Signature", f"{signed().header('signature')}, {proxied.header('signature')}"),
    )
    check(both)


def test_two_signatures_for_this_protocol_are_refused() -> None:
    other = custom(*ALL, label="second")
    both = with_header(
        with_header(
            signed(), "signature-input", f"{signed().header('signature-input')}, {other.header('signature-input')}"
        ),
        "signature",
        f"{signed().header('signature')}, {other.header('signature')}",
    )
    with raises("federation.signature-missing"):
        check(both)


# Times


def test_signature_lasts_two_minutes_and_a_minute_of_skew() -> None:
    request = signed()
    for later in (-60, 0, 120, 180):
        check(request, now=NOW + later)
    with raises("federation.future-request"):
        check(request, now=NOW - 61)
    with raises("federation.stale-request"):
        check(request, now=NOW + 181)


@pytest.mark.parametrize("lifetime", [301, 10**9, 0, -1])
def test_signature_that_lasts_too_long_or_not_at_all_is_refused(lifetime: int) -> None:
    request = custom(*ALL, expires=datetime.fromtimestamp(NOW + lifetime, UTC))
    with raises("federation.stale-request"):
        check(request)


def test_signature_may_last_five_minutes() -> None:
    check(custom(*ALL, expires=datetime.fromtimestamp(NOW + 300, UTC)))


# Between nodes


class Receiver:
    """A node with jane on it that john's node sends to."""

    def __init__(self, node: Node, network: VirtualNetwork) -> None:
        self.node, self.network = node, network
        self.john = Elsewhere(JOHN)
        self.network.pages[JOHN] = self.john.page()
        create_identity(node, JANE, None)

    def sign(self, request: PeerRequest = REQUEST, secret: SecretKey | None = None) -> PeerRequest:
        nonce = self.node.random_bytes(16).hex()
        return sign_request(request, secret or self.john.node_key, sender=JOHN, now=self.node.clock(), nonce=nonce)

    def admit(self, *requests: PeerRequest) -> list[RemoteIdentity]:
        async def work() -> list[RemoteIdentity]:
            senders = RequestAuthenticator(self.node, Discovery(self.node, self.network))
            return [await senders.authenticate(request) for request in requests]

        return run(work())


@pytest.fixture
def receiver(node: Node, network: VirtualNetwork) -> Receiver:
    return Receiver(node, network)


def test_sender_is_known_by_the_key_that_its_own_host_names(receiver: Receiver) -> None:
    (sender,) = receiver.admit(receiver.sign())
    assert (sender.fqdn, sender.id) == (JOHN, receiver.john.id)


def test_key_of_an_identity_is_not_the_key_of_its_node(receiver: Receiver) -> None:
    with pytest.raises(BadRequestSignature):
        receiver.admit(receiver.sign(secret=receiver.john.log.secret))


def test_nobody_signs_for_another_name(receiver: Receiver, network: VirtualNetwork) -> None:
    evil = Elsewhere("evil.ink", 2)
    network.pages["evil.ink"] = evil.page()
    with pytest.raises(BadRequestSignature):
        receiver.admit(receiver.sign(secret=evil.node_key))


def test_same_request_is_admitted_once_also_after_a_restart(
    receiver: Receiver, place: Path | str, tmp_path: Path, clock: Clock
) -> None:
    request = receiver.sign()
    receiver.admit(request)
    with raises("federation.replayed-request"):
        receiver.admit(request)
    clock.go_on(179)
    restarted = Node(place, NodeSettings(), home=tmp_path, clock=clock)
    receiver.node = restarted
    with raises("federation.replayed-request"):
        receiver.admit(request)
    clock.go_on(2)
    with raises("federation.stale-request"):
        receiver.admit(request)
    restarted.close()


def test_many_copies_of_one_request_at_once_are_admitted_once(receiver: Receiver) -> None:
    request = receiver.sign()

    async def work() -> list[RemoteIdentity | BaseException]:
        senders = RequestAuthenticator(receiver.node, Discovery(receiver.node, receiver.network))
        return await asyncio.gather(*(senders.authenticate(request) for _ in range(8)), return_exceptions=True)

    results = run(work())
    assert sum(isinstance(item, RemoteIdentity) for item in results) == 1
    assert sum(getattr(item, "code", None) == "federation.replayed-request" for item in results) == 7


def test_refused_request_does_not_use_up_its_nonce(receiver: Receiver) -> None:
    request = receiver.sign()
    with raises("federation.bad-digest"):
        receiver.admit(replace(request, body=b"x"))
    receiver.admit(request)


def test_nonces_are_forgotten_when_their_signatures_have_expired(receiver: Receiver, clock: Clock) -> None:
    for _ in range(5):
        receiver.admit(receiver.sign())
    clock.go_on(1000)
    receiver.admit(receiver.sign())
    with receiver.node.database.reading() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM nonces").scalar_one() == 1


def test_node_that_has_sent_enough_makes_this_one_write_nothing(receiver: Receiver, clock: Clock) -> None:
    receiver.node.settings = replace(receiver.node.settings, peer_bytes_per_minute=5_000)
    with pytest.raises(QuotaUsedUp):
        receiver.admit(*(receiver.sign() for _ in range(3)))
    with receiver.node.database.reading() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM nonces").scalar_one() == 2


def test_request_for_another_node_is_not_taken(receiver: Receiver) -> None:
    for host in ("alice.haiku.ink", "haiku.ink"):
        with raises("federation.misdirected-request"):
            receiver.admit(receiver.sign(replace(REQUEST, url=f"https://{host}/inbox")))


def test_new_key_of_a_node_is_found_at_the_first_request_signed_with_it(receiver: Receiver, clock: Clock) -> None:
    receiver.admit(receiver.sign())
    receiver.john.node_key = key(55)
    receiver.network.pages[JOHN] = receiver.john.page()
    clock.go_on(31)
    receiver.admit(receiver.sign())
    assert receiver.network.asked == [JOHN, JOHN]


def test_bad_signatures_make_a_node_ask_again_only_seldom(receiver: Receiver, clock: Clock) -> None:
    receiver.admit(receiver.sign())
    for _ in range(40):
        clock.go_on(2)
        with pytest.raises(BadRequestSignature):
            receiver.admit(receiver.sign(secret=key(9)))
    assert 2 <= len(receiver.network.asked) <= 4


def test_old_key_of_a_node_is_not_taken_once_the_new_one_is_known(receiver: Receiver, clock: Clock) -> None:
    old = receiver.john.node_key
    receiver.john.node_key = key(55)
    receiver.network.pages[JOHN] = receiver.john.page()
    receiver.admit(receiver.sign())
    with pytest.raises(BadRequestSignature):
        receiver.admit(receiver.sign(secret=old))


@pytest.mark.parametrize(
    "page",
    [
        PeerUnreachable("nobody answers"),
        PeerTimeout("nobody answers in time"),
        ForbiddenAddress("the name leads astray"),
        Redirected("a proxy sends elsewhere"),
        AnswerTooLarge("a proxy has much to say"),
        BadAnswer("a proxy answers with status 502"),
        b"<html>Bad Gateway</html>",
    ],
    ids=lambda page: type(page).__name__,
)
def test_sender_that_cannot_be_asked_is_refused_for_the_moment(
    receiver: Receiver, page: FederationError | bytes
) -> None:
    receiver.network.pages[JOHN] = page
    with raises("federation.sender-unreachable") as caught:
        receiver.admit(receiver.sign())
    assert caught.value.data["retry_after"] == 60


def test_sender_without_an_identity_is_refused(receiver: Receiver) -> None:
    receiver.network.pages[JOHN] = None
    with raises("federation.sender-unproved") as caught:
        receiver.admit(receiver.sign())
    assert caught.value.data["reason"] == "federation.no-identity-there"


def test_stale_requests_and_those_for_others_cause_no_lookups(receiver: Receiver, clock: Clock) -> None:
    stale = receiver.sign()
    clock.go_on(1000)
    for request in (stale, REQUEST, receiver.sign(replace(REQUEST, url="https://alice.haiku.ink/"))):
        with pytest.raises(FederationError):
            receiver.admit(request)
    assert receiver.network.asked == []


def test_strangers_make_a_node_look_up_only_so_much(receiver: Receiver, clock: Clock) -> None:
    """Names under a domain cost its owner nothing: 64 of them are looked up in a minute, and others do not suffer."""
    crowd = [Elsewhere(f"n{number}.evil.ink", 60 + number) for number in range(70)]
    receiver.network.pages |= {item.fqdn: item.page() for item in crowd}

    def request(sender: Elsewhere) -> PeerRequest:
        nonce = receiver.node.random_bytes(16).hex()
        return sign_request(REQUEST, sender.node_key, sender=sender.fqdn, now=clock.now, nonce=nonce)

    async def send_all(senders: RequestAuthenticator) -> list[str]:
        answers = []
        for item in crowd:
            try:
                await senders.authenticate(request(item))
                answers.append("admitted")
            except QuotaUsedUp as error:
                answers.append(f"after {error.data['retry_after']} s")
        return answers

    async def work() -> None:
        senders = RequestAuthenticator(receiver.node, Discovery(receiver.node, receiver.network))
        assert await send_all(senders) == ["admitted"] * 64 + ["after 61 s"] * 6
        await senders.authenticate(request(crowd[0]))  # known by now
        await senders.authenticate(receiver.sign())  # of another domain
        # Much later all is to be found out again. Somebody here follows the last one that was found.
        clock.go_on(2 * 3600)
        friend = crowd[63]
        receiver.node.database.write(lambda c: put_relation_state(c, jane, friend.id, "accepted", 0))
        crowd.remove(friend)
        crowd.append(friend)
        assert await send_all(senders) == ["admitted"] * 64 + ["after 61 s"] * 5 + ["admitted"]

    jane = receiver.node.database.read(lambda c: find_identity(c, JANE)).id  # type: ignore[union-attr]
    run(work())


def test_strangers_who_lead_nowhere_keep_no_friend_out(receiver: Receiver, clock: Clock) -> None:
    """Anybody can name anybody in a request: names that never answer stand in the way of strangers alone."""
    node, network, tarpits = receiver.node, receiver.network, VirtualNetwork()
    jane = node.database.read(lambda c: find_identity(c, JANE)).id  # type: ignore[union-attr]
    stranger = Elsewhere("mary.elsewhere.ink", 7)
    network.pages["alice.haiku.ink"] = Elsewhere("alice.haiku.ink", 8).page()
    network.pages[stranger.fqdn] = tarpits.pages[stranger.fqdn] = stranger.page()

    def forged(name: str) -> PeerRequest:
        nonce = node.random_bytes(16).hex()
        return sign_request(REQUEST, key(9), sender=name, now=clock.now, nonce=nonce)

    async def work() -> None:
        discovery = Discovery(node, network, strangers=tarpits)
        senders = RequestAuthenticator(node, discovery)
        known = await discovery.find(JOHN)
        node.database.write(lambda c: put_relation_state(c, known.id, jane, "accepted", 0))
        clock.go_on(2 * 3600)  # all is to be found out again
        tarpits.gate.clear()
        names = [JOHN, *(f"x{number}.evil{domain}.ink" for number in range(10) for domain in range(40))]
        crowd = [asyncio.create_task(senders.authenticate(forged(name))) for name in names]
        while sum(task.done() for task in crowd) < 400 - 256:  # all have come; those beyond the bound are turned away
            await asyncio.sleep(0.01)
        assert (await senders.authenticate(receiver.sign())).id == receiver.john.id
        assert (await discovery.find("alice.haiku.ink")).fqdn == "alice.haiku.ink", "for somebody here"
        assert (await discovery.find(stranger.fqdn)).id == stranger.id, "whatever strangers are waiting for"
        assert len(tarpits.asked) == 32
        tarpits.gate.set()
        refused = await asyncio.gather(*crowd, return_exceptions=True)
        assert {getattr(item, "code", type(item)) for item in refused} == {
            "federation.bad-signature",
            "federation.sender-unreachable",
            "federation.sender-unproved",
        }
        assert sum(getattr(item, "code", None) == "federation.sender-unreachable" for item in refused) == 400 - 256

    run(work())


def test_names_of_one_domain_are_looked_up_one_after_the_other(receiver: Receiver) -> None:
    async def work() -> None:
        senders = RequestAuthenticator(receiver.node, Discovery(receiver.node, receiver.network))
        receiver.network.gate.clear()
        requests = [
            sign_request(REQUEST, key(9), sender=f"x{n}.evil.ink", now=receiver.node.clock(), nonce=f"{n:032}")
            for n in range(20)
        ]
        crowd = [asyncio.create_task(senders.authenticate(request)) for request in requests]
        while sum(task.done() for task in crowd) < 4:  # those for whom the queue of the domain is too long
            await asyncio.sleep(0.01)
        assert len(receiver.network.asked) == 1
        receiver.network.gate.set()
        refused = await asyncio.gather(*crowd, return_exceptions=True)
        assert sum(getattr(item, "code", None) == "federation.sender-unproved" for item in refused) == 16
        assert sum(getattr(item, "code", None) == "federation.sender-unreachable" for item in refused) == 4
        assert len(receiver.network.asked) == 16

    run(work())


def test_strangers_who_come_at_once_bring_no_more_than_the_quota(receiver: Receiver, clock: Clock) -> None:
    """The quota of a domain is 256 KiB; each of these documents has about 90."""
    crowd = [Elsewhere(f"n{number}.evil.ink", 60 + number) for number in range(16)]
    for item in crowd:
        item.publish(profile={"about": "x" * 67_000})
        receiver.network.pages[item.fqdn] = item.page()

    async def work() -> list[RemoteIdentity | BaseException]:
        senders = RequestAuthenticator(receiver.node, Discovery(receiver.node, receiver.network))
        requests = [
            sign_request(REQUEST, item.node_key, sender=item.fqdn, now=clock.now, nonce=f"{number:032}")
            for number, item in enumerate(crowd)
        ]
        return await asyncio.gather(*map(senders.authenticate, requests), return_exceptions=True)

    results = run(work())
    assert sum(isinstance(item, RemoteIdentity) for item in results) == 2
    # What is too large now may not be so later.
    assert (
        sum(
            getattr(item, "code", None) in ("federation.quota-used-up", "federation.sender-unreachable")
            for item in results
        )
        == 14
    )


def test_nothing_is_kept_of_a_stranger_whose_signature_does_not_hold(receiver: Receiver, clock: Clock) -> None:
    async def work() -> None:
        senders = RequestAuthenticator(receiver.node, Discovery(receiver.node, receiver.network))
        for _ in range(3):
            with pytest.raises(BadRequestSignature):
                await senders.authenticate(receiver.sign(secret=key(9)))
        assert receiver.network.asked == [JOHN], "what was found is not asked for again at once"
        assert receiver.node.store.read(find_log, receiver.john.log.secret.public, 0) is None
        assert receiver.node.database.read(lambda c: find_remote_identity(c, JOHN)) is None
        sender = await senders.authenticate(receiver.sign())
        assert receiver.network.asked == [JOHN]
        assert receiver.node.store.read(find_log, receiver.john.log.secret.public, 0) is not None
        assert receiver.node.database.read(lambda c: find_remote_identity(c, JOHN)) == sender

    run(work())


def test_new_key_of_a_stranger_is_found_though_nothing_is_kept_yet(receiver: Receiver, clock: Clock) -> None:
    async def work() -> None:
        senders = RequestAuthenticator(receiver.node, Discovery(receiver.node, receiver.network))
        with pytest.raises(BadRequestSignature):
            await senders.authenticate(receiver.sign(secret=key(9)))
        receiver.john.node_key = key(55)
        receiver.network.pages[JOHN] = receiver.john.page()
        clock.go_on(31)
        assert (await senders.authenticate(receiver.sign())).node_key == key(55).public
        assert receiver.network.asked == [JOHN, JOHN]

    run(work())


def test_fork_of_a_stranger_is_kept_only_if_something_of_them_is(receiver: Receiver, clock: Clock) -> None:
    john = receiver.john
    honest, other = john.page(), Elsewhere(JOHN)
    other.publish(name="Other")
    john.publish(name="John")
    forked = john.page(log=(*john.well_known().log, other.well_known().log[-1]))

    async def refuse() -> None:
        with raises("federation.sender-unproved"):
            await RequestAuthenticator(receiver.node, Discovery(receiver.node, receiver.network)).authenticate(
                receiver.sign()
            )

    receiver.network.pages[JOHN] = forked
    run(refuse())
    assert receiver.node.store.read(find_log, john.log.secret.public, 0) is None
    receiver.network.pages[JOHN] = honest
    receiver.admit(receiver.sign())
    receiver.network.pages[JOHN] = forked
    clock.go_on(2 * 3600)
    run(refuse())
    assert receiver.node.store.read(find_fork_proof, john.log.secret.public, 0) is not None


HERE = RemoteIdentity(Elsewhere(JANE).id, JANE, f"https://{JANE}/", key(1).public, 1, key(1).public, 0, 0)


def test_call_over_the_network_arrives_as_it_was_signed(tmp_path: Path, clock: Clock) -> None:
    other = Node(tmp_path / "other", NodeSettings(), home=tmp_path / "other", clock=clock)
    create_identity(other, JOHN, None)
    arrived: list[PeerRequest] = []

    async def handler(request: bytes, writer: asyncio.StreamWriter) -> None:
        head, _, body = request.partition(b"\r\n\r\n")
        start, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = start.split(" ")
        headers = tuple((name, value.strip()) for name, _, value in (line.partition(":") for line in lines))
        host = dict(headers)["Host"]
        path, _, query = target.partition("?")
        arrived.append(received_request(method, host, path.encode(), query.encode(), headers, body))
        await answering(b"taken", "202 Accepted")(request, writer)

    async def work() -> None:
        async with (
            serving(handler) as port,
            HttpTransport(NodeSettings(resolve=(f"{JANE}=127.0.0.1:{port}",))) as transport,
        ):
            answer = await transport.send(
                make_signed_request(
                    other, HERE, "POST", "/inbox?a=%20b", sender=JOHN, body=b"{}", content_type="application/json"
                )
            )
            assert (answer.status, answer.body) == (202, b"taken")

    run(work())
    (request,) = arrived
    assert request.url == f"https://{JANE}/inbox?a=%20b"
    check(request, load_node_key(other).public)
    again = make_signed_request(other, HERE, "GET", "/x", sender=JOHN)
    assert read_signature(again).nonce != read_signature(request).nonce
    other.close()
