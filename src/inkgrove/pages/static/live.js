// Keeps the parts of a page that are marked `data-live` as they are on the node: asks for the page again when the view
// tells of a change (`data-changes`), or every so many seconds (`data-poll`), and puts the new part in place.

const said = document.querySelector("[data-said]");
const bar = document.querySelector("[data-livebar]");
const pause = document.querySelector("[data-pause]");
let isLive = true;

async function refresh(part, number) {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!answer.ok || answer.redirected) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const fresh = page.querySelectorAll("[data-live]")[number];
  if (!fresh || fresh.innerHTML === part.innerHTML) return;
  const focused = part.contains(document.activeElement) ? document.activeElement.id : null;
  const known = new Set([...part.querySelectorAll("[data-row]")].map((row) => row.dataset.row));
  part.replaceChildren(...fresh.childNodes);
  const news = [...part.querySelectorAll("[data-row]")].filter((row) => !known.has(row.dataset.row));
  for (const row of news) row.classList.add("new");
  if (said && news.length) said.textContent = news.length === 1 ? "One row is new." : `${news.length} rows are new.`;
  if (focused) document.getElementById(focused)?.focus();
}

document.querySelectorAll("[data-live]").forEach((part, number) => {
  if (part.dataset.poll) setInterval(() => document.hidden || refresh(part, number), part.dataset.poll * 1000);
  if (!part.dataset.changes) return;
  let waiting = null;
  const later = () => {
    if (!isLive) return;
    clearTimeout(waiting);
    waiting = setTimeout(() => refresh(part, number), 120);
  };
  const stream = new EventSource(part.dataset.changes);
  stream.addEventListener("change", later);
  stream.addEventListener("reset", later);
  stream.addEventListener("open", () => {
    bar.hidden = false;
    part.dataset.open = "yes";
  });
  window.addEventListener("pagehide", () => stream.close());
  pause?.addEventListener("click", () => {
    isLive = !isLive;
    pause.setAttribute("aria-pressed", String(isLive));
    pause.querySelector("[data-pause-text]").textContent = isLive ? "Live" : "Paused";
    pause.querySelector(".dot").classList.toggle("good", isLive);
    later();
  });
});
