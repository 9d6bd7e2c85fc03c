// Checks the Ed25519 signatures of a proof in the browser, from the bytes of its entries alone: the author's key is in
// bytes 1 to 33 of an entry, the signature its last 64 bytes, and it covers all that stands before.

const item = document.querySelector("[data-own-check]");

function bytes(hex) {
  return Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

async function isSigned(entry) {
  const key = await crypto.subtle.importKey("raw", entry.slice(1, 33), { name: "Ed25519" }, false, ["verify"]);
  return crypto.subtle.verify({ name: "Ed25519" }, key, entry.slice(-64), entry.slice(0, -64));
}

async function check() {
  const answer = await fetch(item.dataset.proof, { headers: { Accept: "application/json" } });
  const proof = await answer.json();
  const entries = proof.entries.map(([entry]) => bytes(entry));
  const signed = await Promise.all(entries.map(isSigned));
  return { holds: signed.every(Boolean), count: entries.length };
}

function say(kind, mark, title, detail) {
  item.className = kind;
  item.querySelector(".mark").textContent = mark;
  item.querySelector("[data-own-title]").textContent = title;
  item.querySelector("[data-own-detail]").textContent = detail;
}

if (item && globalThis.crypto?.subtle) {
  item.hidden = false;
  try {
    const { holds, count } = await check();
    if (holds) say("holds", "✓", "Your browser agrees", `It has checked ${count} signature${count === 1 ? "" : "s"} by itself, without asking this node.`);
    else say("fails", "✗", "Your browser does not agree", "A signature does not fit the bytes that this node sent.");
  } catch {
    item.hidden = true; // a browser without Ed25519: the node's own check stands alone
  }
}
