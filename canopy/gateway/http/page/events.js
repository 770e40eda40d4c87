// The events of a selector or a stream, as they come. Follows GET /events with fetch instead of
// EventSource, which cannot send a token in a header.
import { ask, byId, counted, headers, make, post, reason } from "./asking.js";

const ROWS = 500; // shown at most; older ones go
const CHECKED = 250; // ms without a key before a selector is looked at
let following = null; // the AbortController of what is followed
let paused = false;
let count = 0;
let last = ""; // position in a stream, by which a broken connection goes on

function say(text, isError = false) {
  byId("state").textContent = text;
  byId("state").classList.toggle("error", isError);
}

function cell(row, text) {
  const made = row.insertCell();
  made.textContent = text;
  return made;
}

function addRow(row) {
  const body = byId("rows");
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
  const known = event.event ?? id ?? "";
  const link = make("button", { className: "link", type: "button" }, String(id ?? event.event ?? ""));
  link.title = "Why did it come?";
  link.addEventListener("click", () => { location.hash = `#explain?event=${encodeURIComponent(known)}`; });
  cell(row, "").append(link);
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

// Completion: names of attributes that the node has seen, where a word stands before the caret.
let names = [];
let chosen = 0;

function word() {
  const line = byId("where");
  const before = line.value.slice(0, line.selectionStart);
  const quotes = (before.match(/'/g) ?? []).length;
  return quotes % 2 ? "" : (before.match(/[A-Za-z_][\w.-]*$/)?.[0] ?? "");
}

function offer() {
  const begun = word();
  const fit = begun ? names.filter((name) => name.startsWith(begun) && name !== begun).slice(0, 8) : [];
  const box = byId("names");
  chosen = 0;
  box.replaceChildren(...fit.map((name, at) => {
    const item = make("li", { id: `name-${at}` }, name);
    item.setAttribute("role", "option");
    item.setAttribute("aria-selected", String(at === 0));
    item.addEventListener("pointerdown", (event) => { event.preventDefault(); take(name); });
    return item;
  }));
  box.hidden = !fit.length;
  byId("where").setAttribute("aria-expanded", String(!box.hidden));
  if (fit.length) byId("where").setAttribute("aria-activedescendant", "name-0");
}

function choose(step) {
  const items = [...byId("names").children];
  items[chosen].setAttribute("aria-selected", "false");
  chosen = (chosen + step + items.length) % items.length;
  items[chosen].setAttribute("aria-selected", "true");
  byId("where").setAttribute("aria-activedescendant", items[chosen].id);
}

function take(name) {
  const line = byId("where");
  const at = line.selectionStart;
  line.setRangeText(name, at - word().length, at, "end");
  byId("names").hidden = true;
  line.setAttribute("aria-expanded", "false");
  check();
}

async function check() {
  try {
    const { error } = await ask("check", { where: byId("where").value });
    byId("fault").textContent = error;
    byId("fault").hidden = !error;
  } catch {
    byId("fault").hidden = true; // following says what is wrong
  }
}

let waiting = 0;
byId("where").addEventListener("input", () => {
  offer();
  clearTimeout(waiting);
  waiting = setTimeout(check, CHECKED);
});
byId("where").addEventListener("blur", () => { byId("names").hidden = true; });
byId("where").addEventListener("keydown", (event) => {
  if (byId("names").hidden) return;
  const steps = { ArrowDown: 1, ArrowUp: -1 };
  if (event.key in steps) choose(steps[event.key]);
  else if (event.key === "Tab" || event.key === "Enter") take(byId("names").children[chosen].textContent);
  else if (event.key === "Escape") byId("names").hidden = true;
  else return;
  event.preventDefault();
});

async function learn() {
  try {
    ({ names } = await ask("attributes"));
  } catch {
    names = []; // the token does not allow it
  }
}
byId("where").addEventListener("focus", learn);

byId("follow").addEventListener("submit", (event) => {
  event.preventDefault();
  follow();
});
byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").textContent = paused ? "Go on" : "Pause";
});
byId("clear").addEventListener("click", () => byId("rows").replaceChildren());

async function done(job) {
  try {
    byId("published").textContent = await job();
  } catch (error) {
    byId("published").textContent = error.message;
  }
}
byId("publish").addEventListener("submit", (event) => {
  event.preventDefault();
  done(async () => {
    await post("/events", byId("draft").value);
    return "published";
  });
});
byId("dry").addEventListener("click", () => done(async () => {
  const { events } = await post("/api/dry-run", byId("draft").value);
  return events.map((one) => {
    if (one.refused) return `It cannot be published: ${one.refused}`;
    const nodes = one.listed.map((each) => `  ${each.node} at ${each.address}: ${counted(each.subscriptions, "subscription")}`);
    const open = one.unanswered.map(([tree, why]) => `  not known of the tree of ${tree}: ${why}`);
    return [`${counted(one.nodes, "node")} would get it`, ...nodes, ...open].join("\n");
  }).join("\n");
}));

const given = new URLSearchParams(location.search);
for (const name of ["where", "stream", "from"]) if (given.has(name)) byId(name).value = given.get(name);
if (given.has("where") || given.has("stream")) follow();
