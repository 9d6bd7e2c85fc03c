// The client itself: lists, reads, writes, shares, edits and deletes mail, and shows at once what happens elsewhere.

import { follow } from "./changes.js";
import { Node, Refused } from "./node.js";
import { begin, end, finish, forget, schemaOf } from "./oauth.js";

const $ = (id) => document.getElementById(id);
const SCHEMA = new URLSearchParams(location.search).get("schema") ?? "slothmail";
const time = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

let node;
let schema;
let me;
let folder = "inbox";
let open = null;
const mails = new Map();

// Small things

function element(tag, facts = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(facts)) {
    if (name === "onclick") made.addEventListener("click", value);
    else if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function say(text) {
  $("said").textContent = text;
}

function alarm(error) {
  if (error instanceof Refused && error.status === 401) return leave(error.message);
  $("alarm").textContent = error.message;
}

const names = (text) => text.split(/[\s,;]+/).filter(Boolean).map((name) => name.toLowerCase());
const isMine = (mail) => me.authors.has(mail.author);
// Who wrote it is whose key signed it; what a mail itself says of its sender is no more than a signature on paper.
const writer = (mail) => mail.owner.fqdn ?? `${mail.owner.id.slice(0, 8)}…`;
const when = (mail) => (mail.fields.created ? time.format(new Date(mail.fields.created)) : "");
const size = (bytes) => (bytes < 1024 ? `${bytes} bytes` : `${Math.round(bytes / 1024)} KiB`);

// Coming and going

async function start() {
  $("enter").addEventListener("submit", enter);
  $("leave").addEventListener("click", async () => { await end(node.session); leave(""); });
  for (const name of ["inbox", "sent"]) $(name).addEventListener("click", () => choose(name));
  $("write").addEventListener("click", () => write(null));
  $("compose").addEventListener("close", () => $("compose").querySelector("form").reset());
  try {
    const session = await finish();
    if (session === null) return welcome();
    node = new Node(session);
    schema = schemaOf(session);
    await enterMail();
  } catch (error) {
    welcome();
    alarm(error);
  }
}

function welcome() {
  $("welcome").hidden = false;
  if (location.hostname === "127.0.0.1" || location.hostname === "localhost") $("more").open = true;
}

async function enter(event) {
  event.preventDefault();
  const name = $("name").value.trim().toLowerCase();
  const address = $("node").value.trim().replace(/\/+$/, "") || `https://${name}`;
  $("alarm").textContent = "";
  try {
    await begin(address, name, SCHEMA);
  } catch (error) {
    alarm(error instanceof TypeError ? new Error(`No node answers at ${address}.`) : error);
  }
}

function leave(text) {
  forget();
  mails.clear();
  open = null;
  $("mail").hidden = $("who").hidden = true;
  $("list").replaceChildren();
  $("reader").replaceChildren();
  welcome();
  $("alarm").textContent = text;
}

async function enterMail() {
  const found = await node.get("/me");
  me = { name: found.fqdn, authors: new Set([found.key, ...found.keys.map((item) => item.key)]) };
  $("me").textContent = me.name;
  $("who").hidden = $("mail").hidden = false;
  const lastId = await readAll();
  draw();
  show(null);
  follow(node, schema, {
    lastId,
    changed: (patch) => { apply(patch); draw(); },
    reset: async () => { await readAll(); draw(); },
    ended: alarm,
  });
  $("mail").dataset.live = "yes";
}

// What is there

async function readAll() {
  let lastId = null;
  let cursor = null;
  mails.clear();
  do {
    const query = new URLSearchParams({ limit: "500", sort: "-created", ...(cursor ? { cursor } : {}) });
    const page = await node.get(`/views/${schema}?${query}`);
    for (const row of page.rows) mails.set(row.instance, row);
    lastId ??= page.changes;
    cursor = page.cursor;
  } while (cursor);
  return lastId;
}

function apply(patch) {
  for (const { op, path, value } of patch) {
    const instance = path.split("/")[2];
    if (op === "remove") {
      mails.delete(instance);
      if (open === instance) show(null);
      continue;
    }
    const isNew = !mails.has(instance);
    mails.set(instance, { ...value, arrived: isNew });
    if (isNew && !isMine(value)) say(`A mail from ${writer(value)} has arrived: ${value.fields.subject}`);
    if (open === instance) show(instance);
  }
}

function choose(name) {
  folder = name;
  for (const each of ["inbox", "sent"]) $(each).setAttribute("aria-pressed", String(each === name));
  draw();
  show(null);
}

function draw() {
  const all = [...mails.values()].sort((a, b) => (b.fields.created ?? "").localeCompare(a.fields.created ?? ""));
  const parts = { inbox: all.filter((mail) => !isMine(mail)), sent: all.filter(isMine) };
  for (const [name, part] of Object.entries(parts)) $(name).querySelector(".count").textContent = String(part.length);
  const focused = document.activeElement?.dataset?.instance;
  $("list").replaceChildren(...(parts[folder].length ? parts[folder].map(item) : [nothing()]));
  if (focused) $("list").querySelector(`[data-instance="${focused}"]`)?.focus();
}

function nothing() {
  const text = folder === "inbox" ? "No mail yet. It comes by itself, there is no hurry." : "Nothing sent yet. Press Write.";
  return element("li", { class: "empty" }, text);
}

function item(mail) {
  const other = isMine(mail) ? `to ${(mail.fields.recipients ?? []).join(", ") || "nobody"}` : writer(mail);
  const button = element(
    "button",
    { type: "button", class: "item", "data-instance": mail.instance, "aria-current": String(open === mail.instance), onclick: () => show(mail.instance, true) },
    element("span", { class: "top" }, element("span", {}, other), element("span", {}, when(mail))),
    element("strong", {}, mail.fields.subject || "No subject"),
  );
  return element("li", mail.arrived ? { class: "arrived" } : {}, button);
}

// Reading

function show(instance, byHand = false) {
  open = instance;
  const mail = mails.get(instance);
  document.querySelector(".panes").classList.toggle("reading", Boolean(mail));
  for (const each of document.querySelectorAll(".item")) {
    each.setAttribute("aria-current", String(each.dataset.instance === instance));
  }
  if (!mail) return $("reader").replaceChildren(element("p", { class: "soft" }, "Choose a mail to read it here."));
  const fields = mail.fields;
  const act = (text, work, facts = {}) => element("button", { type: "button", onclick: work, ...facts }, text);
  const own = [act("Edit", () => write(mail)), act("Share", () => share(mail)), act("Delete", remove)];
  const theirs = [act("Answer", () => write(null, mail)), act("Pass on", () => share(mail))];
  const deliveries = element("p", { class: "facts" });
  $("reader").replaceChildren(
    element("p", { class: "back" }, act("Back to the list", () => show(null), { class: "quiet" })),
    element("h2", {}, fields.subject || "No subject"),
    element("p", { class: "facts" }, `${isMine(mail) ? "You wrote" : `${writer(mail)} wrote`} to ${(fields.recipients ?? []).join(", ") || "nobody"}, ${when(mail)}`),
    element("p", { class: "facts" }, `Signed with the key ${mail.author.slice(0, 8)}…, entry ${mail.last_seq_num}. `,
      element("a", { href: `${node.url}/pages/instances/${mail.instance}/proof`, target: "_blank", rel: "noopener" }, "See the proof on your node")),
    deliveries,
    element("div", { class: "text" }, fields.body ?? ""),
    ...(fields.sender && fields.sender !== mail.owner.fqdn ? [element("p", { class: "facts" }, `Undersigned: “${fields.sender}”`)] : []),
    element("ul", { class: "files", "aria-label": "Attachments" }, ...(fields.attachments ?? []).map((blob, number) => attachment(mail, blob, number))),
    element("p", { class: "actions" }, ...(isMine(mail) ? own : theirs)),
  );
  if (!fields.attachments?.length) $("reader").querySelector(".files").remove();
  if (isMine(mail)) tellDeliveries(mail, deliveries);
  if (byHand) $("reader").focus();

  async function remove(event) {
    const button = event.currentTarget;
    if (!button.dataset.sure) {
      button.dataset.sure = "yes";
      button.textContent = "Really delete it, for everybody?";
      return;
    }
    button.disabled = true;
    await node.send("DELETE", `/instances/${mail.instance}`).catch(alarm);
  }
}

async function tellDeliveries(mail, place) {
  try {
    const { deliveries } = await node.get(`/instances/${mail.instance}/deliveries`);
    place.textContent = deliveries.map((item) => `${item.fqdn ?? item.recipient.slice(0, 8)}: ${item.state}`).join(", ");
  } catch (error) {
    if (error.status !== 404) alarm(error);
  }
}

function attachment(mail, blob, number) {
  const name = mail.fields.attachment_names?.[number] || `attachment ${number + 1}`;
  const load = async () => {
    try {
      const bytes = await (await node.send("GET", `/blobs/${blob.hash}`)).blob();
      const link = element("a", { href: URL.createObjectURL(bytes), download: name });
      link.click();
      URL.revokeObjectURL(link.href);
    } catch (error) {
      alarm(error.status === 404 ? new Error(`${name} is not on your node yet.`) : error);
    }
  };
  return element("li", {}, element("button", { type: "button", onclick: load }, `${name}, ${size(blob.size)}`));
}

// Writing

function write(mail, answered = null) {
  const dialog = $("compose");
  $("compose-title").textContent = mail ? "Edit" : "Write";
  $("send").textContent = mail ? "Save" : "Send";
  $("compose-alarm").textContent = "";
  for (const part of dialog.querySelectorAll(".only-new")) part.hidden = Boolean(mail);
  $("to").value = answered?.owner.fqdn ?? answered?.owner.id ?? "";
  $("subject").value = mail?.fields.subject ?? (answered ? `Re: ${answered.fields.subject ?? ""}` : "");
  $("body").value = mail?.fields.body ?? "";
  submitted(dialog, () => (mail ? change(mail) : send()), $("compose-alarm"));
  dialog.showModal();
}

/** Lets a dialog close only when what it is for has been done. */
function submitted(dialog, work, place) {
  const form = dialog.querySelector("form");
  form.onsubmit = async (event) => {
    if (event.submitter?.value !== "send") return;
    event.preventDefault();
    event.submitter.disabled = true;
    place.textContent = "";
    try {
      await work();
      dialog.close();
    } catch (error) {
      place.textContent = error.message;
    } finally {
      event.submitter.disabled = false;
    }
  };
}

async function send() {
  const files = [...$("files").files];
  const recipients = names($("to").value);
  const attachments = await Promise.all(files.map((file) => node.upload(file)));
  const fields = {
    sender: me.name,
    recipients,
    subject: $("subject").value,
    body: $("body").value,
    created: new Date().toISOString(),
    attachments,
    attachment_names: files.map((file) => file.name.slice(0, 200)),
  };
  const headers = { "Content-Type": "application/json", "Idempotency-Key": crypto.randomUUID() };
  const body = JSON.stringify({ schema, fields, access: { mode: "listed" }, recipients });
  await node.send("POST", "/instances", { headers, body });
  say("Sent.");
}

async function change(mail) {
  const fields = { subject: $("subject").value, body: $("body").value };
  await node.write("PATCH", `/instances/${mail.instance}`, { fields }, "application/merge-patch+json");
  say("Saved.");
}

function share(mail) {
  const mine = isMine(mail);
  $("share-words").textContent = mine
    ? "They get it as it is, with its whole history, and every change you make from now on."
    : "They get it as you got it, signed by its author.";
  $("share-alarm").textContent = "";
  $("share-to").value = "";
  const way = mine ? "share" : "pass-on";
  submitted($("share"), async () => {
    await node.write("POST", `/instances/${mail.instance}/${way}`, { recipients: names($("share-to").value) });
    say("Shared.");
    if (open === mail.instance) show(mail.instance);
  }, $("share-alarm"));
  $("share").showModal();
}

start();
