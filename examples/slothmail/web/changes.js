// Follows the changes of a view: server-sent events, read by fetch, since EventSource takes no token.

import { Refused } from "./node.js";

async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  let event = {};
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const lines = text.split("\n");
    text = lines.pop();
    for (const line of lines) {
      if (line === "") {
        yield event;
        event = {};
      } else if (!line.startsWith(":")) {
        const [name, rest] = [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)];
        event[name] = rest;
      }
    }
  }
}

/** Calls `changed` with each patch and `reset` when the view is to be read again, until access ends. */
export async function follow(node, schema, { lastId, changed, reset, ended }) {
  for (let pause = 500; ; pause = Math.min(pause * 2, 15_000)) {
    try {
      const answer = await node.send("GET", `/views/${schema}/changes`, { headers: { "Last-Event-ID": lastId } });
      for await (const event of events(answer.body)) {
        pause = 500;
        if (event.event === "change") changed(JSON.parse(event.data));
        if (event.event === "reset") await reset();
        lastId = event.id ?? lastId;
      }
    } catch (error) {
      if (error instanceof Refused && error.status < 500) return ended(error);
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}
