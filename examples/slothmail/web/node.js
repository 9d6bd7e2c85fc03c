// Requests to the node, in the name of whoever signed in; a token that has run out is renewed once, for all who wait.

import { renew } from "./oauth.js";

/** What the node refused, with its stable code. */
export class Refused extends Error {
  constructor(status, problem) {
    super(problem?.detail ?? `The node answered ${status}.`);
    this.status = status;
    this.code = problem?.code ?? "";
  }
}

export class Node {
  #session;
  #renewing = null;

  constructor(session) {
    this.#session = session;
  }

  get url() {
    return this.#session.node;
  }

  get session() {
    return this.#session;
  }

  /** An answer that is fine, whatever it holds. */
  async send(method, path, { headers = {}, body, signal } = {}) {
    for (let tries = 0; ; tries++) {
      const token = this.#session.access;
      const answer = await fetch(this.url + path, {
        method, body, signal, headers: { ...headers, Authorization: `Bearer ${token}` },
      });
      if (answer.ok) return answer;
      const problem = await answer.json().catch(() => null);
      if (answer.status !== 401 || tries > 0) throw new Refused(answer.status, problem);
      await this.#renew(token);
    }
  }

  async #renew(stale) {
    if (this.#session.access !== stale) return;
    this.#renewing ??= renew(this.#session).finally(() => (this.#renewing = null));
    try {
      this.#session = await this.#renewing;
    } catch {
      throw new Refused(401, { detail: "Access has ended. Sign in again.", code: "auth.bad-token" });
    }
  }

  async get(path) {
    return (await this.send("GET", path)).json();
  }

  async write(method, path, value, type = "application/json") {
    const headers = { "Content-Type": type };
    return (await this.send(method, path, { headers, body: JSON.stringify(value) })).json();
  }

  /** Bytes as they are; what a field of type blob takes. */
  async upload(file) {
    const headers = { "Content-Type": file.type || "application/octet-stream" };
    return (await this.send("POST", "/blobs", { headers, body: file })).json();
  }
}
