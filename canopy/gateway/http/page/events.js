// The events of a selector or a stream, as they come.
import { ask, byId, counted, gateway, make } from "./asking.js";

const ROWS = 500; // shown at most; older ones go
const CHECKED = 250; // ms without a key before a selector is looked at
let following = null; // the Subscription
let paused = false;
let count = 0;

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
  const waits = gap.cause === "no-majority"; // nothing is missing then
  const shown = cell(row, `${waits ? "Waiting" : "Events may be missing here"}: ${gap.reason}`);
  shown.colSpan = 4;
  addRow(row);
}

async function follow() {
  following?.close();
  count = 0;
  const stream = byId("stream").value.trim();
  const where = byId("where").value || "TRUE";
  const options = {
    wait: Infinity,
    onGap: showGap,
    onState: (state, why) => {
      if (state === "following") say(`Following; events: ${count}`);
      else say(`${why.message}; trying again …`, true);
    },
  };
  byId("pause").disabled = false;
  const from = byId("from").value.trim() || "new";
  const mine = stream ? gateway.read(stream, { where, from, ...options }) : gateway.subscribe(where, options);
  following = mine;
  try {
    for await (const event of mine) showEvent(event);
  } catch (error) {
    if (following === mine) say(error.message, true);
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
    await gateway.publish(byId("draft").value);
    return "published";
  });
});
byId("dry").addEventListener("click", () => done(async () => {
  const { events } = await gateway.dryRun(byId("draft").value);
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
