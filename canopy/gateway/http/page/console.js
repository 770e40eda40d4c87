// Which view is shown, and when it is asked for again.
import { byId } from "./asking.js";
import "./events.js";
import * as views from "./views.js";

const EVERY = 5000; // ms between two looks at what is shown
const LOOKS = {
  overlay: views.overlay,
  node: views.node,
  streams: () => views.streams(asked("name")),
};
const NAMES = ["events", "overlay", "node", "streams", "explain"];
let busy = false;

// A parameter behind the view's name, as in #streams?name=orders.
function asked(name) {
  return new URLSearchParams(location.hash.split("?")[1] ?? "").get(name) ?? "";
}

async function carefully(job) {
  try {
    await job();
    byId("trouble").hidden = true;
  } catch (error) {
    byId("trouble").textContent = error.message;
    byId("trouble").hidden = false;
  }
}

function shown() {
  const name = location.hash.slice(1).split("?")[0];
  return NAMES.includes(name) ? name : "events";
}

async function look() {
  const job = LOOKS[shown()];
  if (!job || busy || document.hidden) return;
  busy = true;
  await carefully(job);
  busy = false;
}

function show() {
  const name = shown();
  for (const each of NAMES) byId(each).hidden = each !== name;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `Canopy: ${name}`;
  byId("trouble").hidden = true;
  const event = asked("event");
  if (name === "explain" && event) {
    byId("event").value = event;
    carefully(() => views.why(event));
  }
  look();
}

function onSubmit(form, job) {
  byId(form).addEventListener("submit", (event) => {
    event.preventDefault();
    carefully(job);
  });
}

onSubmit("locate", () => views.tree(byId("attribute").value.trim()));
onSubmit("why", () => views.why(byId("event").value.trim()));
onSubmit("row", () => views.row(byId("rowstream").value.trim(), byId("shard").value, byId("offset").value));
onSubmit("who", look);
byId("token").addEventListener("change", look);
addEventListener("hashchange", show);
setInterval(look, EVERY);
show();
