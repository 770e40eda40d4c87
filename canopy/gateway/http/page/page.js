// Follows GET /events with fetch instead of EventSource, which cannot send a token in a header.
"use strict";

const ROWS = 500; // shown at most; older ones go
const byId = (id) => document.getElementById(id);
let following = null; // the AbortController of what is followed
let paused = false;
let count = 0;
let last = ""; // position in a stream, by which a broken connection goes on

function say(text, isError = false) {
  byId("state").textContent = text;
  byId("state").classList.toggle("error", isError);
}

function headers(extra = {}) {
  const token = byId("token").value.trim();
  return token ? { ...extra, Authorization: `Bearer ${token}` } : extra;
}

function cell(row, text) {
  const made = row.insertCell();
  made.textContent = text;
  return made;
}

function addRow(row) {
  const body = byId("events");
  body.prepend(row);
  while (body.rows.length > ROWS) body.lastElementChild.remove();
}

function showEvent(event) {
  count += 1;
  if (paused) return;
  const row = document.createElement("tr");
  const { id, type, ...rest } = event.attributes;
  cell(row, new Date(event.time * 1000).toLocaleTimeString());
  cell(row, type ?? "");
  cell(row, id ?? "");
  const shown = cell(row, "");
  for (const [name, value] of Object.entries(rest)) {
    const label = document.createElement("span");
    label.className = "name";
    label.textContent = `${name} `;
    shown.append(label, `${JSON.stringify(value)}  `);
  }
  addRow(row);
  say(`Following; events: ${count}`);
}

function showGap(gap) {
  const row = document.createElement("tr");
  row.className = "gap";
  const shown = cell(row, `Events may be missing here: ${gap.reason}`);
  shown.colSpan = 4;
  addRow(row);
}

function onMessage(text) {
  let kind = "message";
  const data = [];
  for (const line of text.split("\n")) {
    const at = line.indexOf(":");
    const value = line.slice(at + 1).replace(/^ /, "");
    const name = line.slice(0, at);
    if (name === "event") kind = value;
    else if (name === "data") data.push(value);
    else if (name === "id") last = value;
  }
  if (!data.length) return;
  const value = JSON.parse(data.join("\n"));
  if (kind === "message") showEvent(value);
  else if (kind === "gap") showGap(value);
  else say(value.reason, true);
}

async function readAll(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    parts.forEach(onMessage);
  }
}

async function reason(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).error;
  } catch {
    return `${response.status} ${response.statusText}`;
  }
}

async function follow() {
  following?.abort();
  const mine = new AbortController();
  following = mine;
  count = 0;
  last = "";
  const stream = byId("stream").value.trim();
  const query = new URLSearchParams({ where: byId("where").value || "TRUE" });
  if (stream) query.set("stream", stream);
  if (stream && byId("from").value.trim()) query.set("from", byId("from").value.trim());
  byId("pause").disabled = false;
  while (following === mine) {
    try {
      const more = stream && last ? { "Last-Event-ID": last } : {};
      const options = { headers: headers(more), signal: mine.signal };
      const response = await fetch(`/events?${query}`, options);
      if (!response.ok) {
        const text = await reason(response);
        if (response.status !== 503) return say(text, true);
        say(`${text}; trying again …`, true);
      } else {
        say(`Following; events: ${count}`);
        await readAll(response);
        if (following === mine && !stream) showGap({ reason: "the connection was lost" });
      }
    } catch (error) {
      if (mine.signal.aborted) return;
      say(`${error.message}; trying again …`, true);
    }
    await new Promise((done) => setTimeout(done, 2000));
  }
}

byId("follow").addEventListener("submit", (event) => {
  event.preventDefault();
  follow();
});
byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").textContent = paused ? "Go on" : "Pause";
});
byId("clear").addEventListener("click", () => byId("events").replaceChildren());
byId("publish").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    const response = await fetch("/events", {
      method: "POST",
      headers: headers({ "Content-Type": "application/json" }),
      body: byId("draft").value,
    });
    byId("published").textContent = response.ok ? "published" : await reason(response);
  } catch (error) {
    byId("published").textContent = error.message;
  }
});

const asked = new URLSearchParams(location.search);
for (const name of ["where", "stream", "from"]) if (asked.has(name)) byId(name).value = asked.get(name);
if (asked.has("where") || asked.has("stream")) follow();
