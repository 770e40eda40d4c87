// Requests to the gateway, and small makers of elements.

export const byId = (id) => document.getElementById(id);

export function headers(extra = {}) {
  const token = byId("token").value.trim();
  return token ? { ...extra, Authorization: `Bearer ${token}` } : extra;
}

export async function reason(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).error;
  } catch {
    return `${response.status} ${response.statusText}`;
  }
}

// The answer to a question under /api/; throws an Error with the gateway's reason.
export async function ask(name, query = {}) {
  const response = await fetch(`/api/${name}?${new URLSearchParams(query)}`, { headers: headers() });
  if (!response.ok) throw new Error(await reason(response));
  return response.json();
}

export async function post(path, body) {
  const options = { method: "POST", headers: headers({ "Content-Type": "application/json" }), body };
  const response = await fetch(path, options);
  if (!response.ok) throw new Error(await reason(response));
  return response.json();
}

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
