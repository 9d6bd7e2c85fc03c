// Signing in with one's own node: OAuth 2.1, authorisation code with PKCE, as a public client (docs/services.md).

const SESSION = "slothmail.session";
const BEGUN = "slothmail.begun";
const ACTIONS = ["read", "create", "update", "delete"];

function text64(bytes) {
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

function random() {
  return text64(crypto.getRandomValues(new Uint8Array(32)));
}

async function json(address, options) {
  const answer = await fetch(address, options);
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.error_description ?? content.detail ?? `the node answered ${answer.status}`);
  return content;
}

function form(fields) {
  return { method: "POST", body: new URLSearchParams(fields) };
}

const back = () => location.origin + location.pathname;

/** Leaves for the consent page of a node. */
export async function begin(node, name, schema) {
  const server = await json(`${node}/.well-known/oauth-authorization-server`);
  const registered = await json(server.registration_endpoint, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ client_name: "Slothmail", redirect_uris: [back()] }),
  });
  const verifier = random();
  const state = random();
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier));
  const begun = { node, issuer: server.issuer, token: server.token_endpoint, revoke: server.revocation_endpoint };
  sessionStorage.setItem(BEGUN, JSON.stringify({ ...begun, client: registered.client_id, verifier, state }));
  const query = new URLSearchParams({
    response_type: "code",
    client_id: registered.client_id,
    redirect_uri: back(),
    scope: [...ACTIONS.map((action) => `schema:${schema}:${action}`), "relations:read"].join(" "),
    state,
    code_challenge: text64(new Uint8Array(digest)),
    code_challenge_method: "S256",
    login_hint: name,
  });
  location.assign(`${server.authorization_endpoint}?${query}`);
}

/** Comes back from the consent page, if that is where we come from; the session, or null. */
export async function finish() {
  const query = new URLSearchParams(location.search);
  const begun = JSON.parse(sessionStorage.getItem(BEGUN) ?? "null");
  if (!query.has("state") || begun === null) return restore();
  sessionStorage.removeItem(BEGUN);
  history.replaceState(null, "", location.pathname);
  if (query.get("state") !== begun.state || query.get("iss") !== begun.issuer) {
    throw new Error("This answer is not the one that was waited for. Please sign in again.");
  }
  if (query.has("error")) {
    throw new Error(query.get("error") === "access_denied" ? "You said no, so there is nothing to show." : query.get("error"));
  }
  const tokens = await json(begun.token, form({
    grant_type: "authorization_code",
    client_id: begun.client,
    code: query.get("code"),
    redirect_uri: back(),
    code_verifier: begun.verifier,
  }));
  return keep({ node: begun.node, client: begun.client, token: begun.token, revoke: begun.revoke }, tokens);
}

function restore() {
  return JSON.parse(sessionStorage.getItem(SESSION) ?? "null");
}

function keep(session, tokens) {
  const kept = { ...session, access: tokens.access_token, refresh: tokens.refresh_token, scope: tokens.scope };
  sessionStorage.setItem(SESSION, JSON.stringify(kept));
  return kept;
}

/** New tokens for the refresh token, which is good for one use. */
export async function renew(session) {
  const tokens = await json(session.token, form({
    grant_type: "refresh_token", client_id: session.client, refresh_token: session.refresh,
  }));
  return keep(session, tokens);
}

/** Gives everything back. */
export async function end(session) {
  sessionStorage.removeItem(SESSION);
  await fetch(session.revoke, form({ client_id: session.client, token: session.refresh })).catch(() => {});
}

/** Forgets a session that the node has ended. */
export function forget() {
  sessionStorage.removeItem(SESSION);
}

/** The schema that was granted, by author and log. */
export function schemaOf(session) {
  return session.scope.split(" ").find((scope) => scope.startsWith("schema:")).split(":")[1];
}
