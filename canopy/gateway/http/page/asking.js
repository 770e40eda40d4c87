// The gateway with the token of the page, and small makers of elements.
import { Gateway } from "./canopy.js";

export const byId = (id) => document.getElementById(id);

export const gateway = new Gateway("", { token: () => byId("token").value.trim() });

export const ask = (name, query) => gateway.ask(name, query);

// An element: its tag, properties, and what is in it (texts and elements; null is left out).
export function make(tag, properties = {}, ...inside) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...inside.filter((one) => one !== null && one !== undefined));
  return made;
}

// A table in a frame that scrolls; columns: [title, how a row shows it (text, element or number)].
export function table(title, columns, rows, empty = "none") {
  if (!rows.length) return make("p", { className: "name" }, `${title}: ${empty}`);
  const head = make("tr", {}, ...columns.map(([text]) => make("th", { scope: "col" }, text)));
  const body = rows.map((row) =>
    make("tr", {}, ...columns.map(([, shown]) => {
      const value = shown(row);
      const isNumber = typeof value === "number";
      const text = isNumber ? value.toLocaleString("en") : value;
      return make("td", { className: isNumber ? "number" : "" }, text);
    })));
  const made = make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
  const frame = make("div", { className: "scroll", tabIndex: 0 }, made);
  frame.setAttribute("role", "region");
  frame.setAttribute("aria-label", title);
  return make("div", {}, make("h2", {}, title), frame);
}

export function tiles(facts) {
  const shown = facts.map(([name, value, kind]) =>
    make("div", {}, make("dt", {}, name), make("dd", { className: kind ?? "" }, String(value))));
  return make("dl", { className: "tiles" }, ...shown);
}

export function counted(count, what) {
  return `${count} ${what}${count === 1 ? "" : "s"}`;
}

export function short(id) {
  return id.length > 12 ? id.slice(0, 8) : id;
}

export function ago(seconds) {
  if (seconds < 0) return "";
  const units = [[86400, "d"], [3600, "h"], [60, "min"]];
  for (const [size, unit] of units) if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
  return `${Math.floor(seconds)} s`;
}

export function bytes(count) {
  const units = ["B", "KB", "MB", "GB"];
  let at = 0;
  while (count >= 1000 && at < 3) [count, at] = [count / 1000, at + 1];
  return `${count < 10 && at ? count.toFixed(1) : Math.round(count)} ${units[at]}`;
}
