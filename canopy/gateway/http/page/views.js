// What the node knows: the ring, the node itself, streams, and why an event came.
import { ago, ask, byId, bytes, counted, make, short, table, tiles } from "./asking.js";

const SVG = "http://www.w3.org/2000/svg";

function drawn(tag, attributes, text = "") {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

// Keys are hexadecimal; how far around the ring one is, from 0 to 1.
function place(key) {
  return parseInt(key.slice(0, 12), 16) / 16 ** 12;
}

function point(share, radius) {
  const angle = 2 * Math.PI * (share - 0.25);
  return [170 + radius * Math.cos(angle), 170 + radius * Math.sin(angle)];
}

function wheel(clusters) {
  const picture = drawn("svg", { viewBox: "0 0 340 340", class: "wheel", role: "img" });
  picture.append(drawn("title", {}, `A ring of ${counted(clusters.length, "cluster")}`));
  for (const [at, cluster] of clusters.entries()) {
    const begin = place(cluster.start);
    const share = clusters.length === 1 ? 1 : (place(cluster.key) - begin + 1) % 1 || 1;
    const gap = clusters.length === 1 ? 0.0001 : Math.min(0.004, share / 4);
    const [x, y] = point(begin + gap, 140);
    const [to, over] = point(begin + share - gap, 140);
    const wide = share > 0.5 ? 1 : 0;
    const path = drawn("path", { d: `M${x} ${y}A140 140 0 ${wide} 1 ${to} ${over}` });
    path.classList.toggle("silent", cluster.silent.length > 0);
    path.classList.toggle("other", at % 2 === 1);
    path.append(drawn("title", {}, `cluster ${short(cluster.key)}, primary ${cluster.primary}`));
    picture.append(path);
    if (clusters.length <= 12) {
      const [atX, atY] = point(begin + share / 2, 104);
      picture.append(drawn("text", { x: atX, y: atY }, short(cluster.key)));
    }
  }
  const nodes = new Set(clusters.flatMap((one) => Object.keys(one.addresses)));
  picture.append(drawn("text", { x: 170, y: 166 }, counted(clusters.length, "cluster")));
  picture.append(drawn("text", { x: 170, y: 184, class: "soft" }, counted(nodes.size, "member")));
  return picture;
}

export async function overlay() {
  const [ring, known] = await Promise.all([ask("ring"), ask("attributes")]);
  byId("seen").replaceChildren(...known.names.slice(0, 200).map((name) => make("option", { value: name })));
  const named = (cluster, node) => {
    const silent = cluster.silent.includes(node);
    const ill = cluster.sub_healthy[node];
    const made = make("span", { className: silent ? "bad" : ill ? "warn" : "" }, short(node));
    made.title = [cluster.addresses[node], silent ? "silent" : "", ill ?? ""].filter(Boolean).join("; ");
    return made;
  };
  const listed = table("Clusters", [
    ["cluster", (one) => short(one.key)],
    ["primary", (one) => named(one, one.primary)],
    ["standby", (one) => (one.standby ? named(one, one.standby) : "")],
    ["brokers", (one) => make("span", {}, ...one.brokers.flatMap((node) => [named(one, node), " "]))],
    ["leads for", (one) => ago(one.led_for)],
    ["epoch", (one) => one.epoch],
    ["trees", (one) => one.attributes.length],
  ], ring.clusters);
  const whole = ring.complete ? null : make("p", { className: "warn" }, "A part of the ring did not answer.");
  byId("ring").replaceChildren(wheel(ring.clusters), make("div", {}, whole, listed));
}

export async function tree(attribute) {
  const found = await ask("where", { attribute });
  const nodes = found.virtual_nodes;
  const most = Math.max(1, ...nodes.map((one) => one.registrations));
  byId("tree").replaceChildren(
    make("p", {}, `${attribute} belongs to cluster ${short(found.cluster.key)}; its primary is ${found.cluster.primary}.`),
    table(`The tree of ${attribute}`, [
      ["from", (one) => one.lo],
      ["to", (one) => one.hi],
      ["served by", (one) => [one.host, ...one.others].map(short).join(", ")],
      ["registrations", (one) => one.registrations],
      ["", (one) => {
        const bar = drawn("svg", { class: "bar-of", viewBox: "0 0 90 7", "aria-hidden": "true" });
        bar.append(drawn("rect", { width: (90 * one.registrations) / most, height: 7, rx: 3, fill: "currentColor" }));
        bar.classList.add("good");
        return bar;
      }],
    ], nodes, "nobody subscribes to it"),
  );
}

export async function node() {
  const [status, peers, incidents, subscriptions] = await Promise.all(
    ["status", "peers", "incidents", "subscriptions"].map((name) => ask(name)));
  const isWell = !status.health || status.health === "healthy";
  byId("where-am-i").textContent = `· node ${status.node} at ${status.address}`;
  byId("about").replaceChildren(
    tiles([
      ["node", status.name || short(status.node)],
      ["state", status.draining ? "draining" : status.ready ? "ready" : "starting", status.ready ? "good" : "warn"],
      ["role", status.cluster ? `${status.role} of ${short(status.cluster)}` : status.role],
      ["health", status.health || "not measured yet", isWell ? "" : "warn"],
      ["neighbours", `${status.neighbours} of ${status.links} links`],
      ["subscriptions", status.subscriptions],
      ["trees hosted", status.trees],
      ["pending", status.pending],
      ["up for", ago(status.uptime)],
    ]),
    table("Subscriptions", [
      ["name", (one) => one.name || one.subscription],
      ["selector", (one) => make("code", {}, one.selector)],
      ["acknowledged", (one) => (one.acknowledged ? "yes" : make("span", { className: "warn" }, "not yet"))],
      ["by", (one) => [...new Set(one.pivots)].join(", ")],
      ["delivered", (one) => one.delivered],
    ], subscriptions.subscriptions),
    table("Incidents", [
      ["ago", (one) => ago(one.ago)],
      ["what", (one) => one.what],
      ["node", (one) => short(one.node)],
      ["", (one) => one.text],
    ], incidents.incidents.slice(0, 30)),
    table("Neighbours and links", [
      ["node", (one) => short(one.node)],
      ["address", (one) => one.address],
      ["link", (one) => make("span", { className: one.state === "CONNECTED" ? "" : "warn" }, one.state.toLowerCase())],
      ["neighbour", (one) => (one.neighbour ? "yes" : "")],
      ["sent", (one) => one.sent],
      ["received", (one) => one.received],
      ["region", (one) => one.region],
    ], peers.peers),
    counters(status),
  );
}

function counters(status) {
  const found = Object.entries(status.counters).filter(([, value]) => value).sort();
  const before = byId("about").querySelector("details")?.open ?? false;
  return make("details", { open: before }, make("summary", {}, counted(found.length, "counter")),
    table("Since its start", [["counter", ([name]) => name], ["", ([, value]) => value]], found));
}

// `opened`: the stream whose details are shown, "" for none.
export async function streams(opened = "") {
  const { streams: found, complete } = await ask("streams");
  byId("list").replaceChildren(
    complete ? "" : make("p", { className: "warn" }, "A part of the ring did not answer: streams may be missing."),
    table("All", [
      ["stream", (one) => {
        return make("a", { href: `#streams?name=${encodeURIComponent(one.name)}` }, one.name);
      }],
      ["shards", (one) => one.shards.length],
      ["replicas", (one) => one.replicas],
      ["keeps", (one) => (one.keep_seconds ? ago(one.keep_seconds) : one.keep_bytes ? bytes(one.keep_bytes) : "everything")],
      ["takes in", (one) => one.capture || one.mirror || one.sources.map(([name]) => name).join(", ")],
    ], found, "no stream yet: canopy stream add NAME"),
  );
  if (!found.some((one) => one.name === opened)) return byId("one").replaceChildren();
  const [{ streams: [one] }, { groups }] = await Promise.all([
    ask("streams", { name: opened }), ask("groups", { stream: opened })]);
  const replicas = one.shards.flatMap((shard) => shard.replicas.map((replica) => ({ shard, replica })));
  const leaders = replicas.filter(({ shard, replica }) => replica.node === shard.leader);
  const consumers = leaders.flatMap(({ shard, replica }) =>
    replica.consumers.map((each) => ({ ...each, shard: shard.number, lag: replica.next - each.position })));
  const shares = groups.flatMap((group) => group.shards.map((shard) => ({ group, ...shard })));
  byId("one").replaceChildren(
    table(`Replicas of ${opened}`, [
      ["shard", ({ shard }) => shard.number],
      ["node", ({ replica }) => short(replica.node)],
      ["state", ({ replica }) => make("span", { className: ["leads", "follows"].includes(replica.state) ? "" : "bad" }, replica.state)],
      ["first", ({ replica }) => replica.first],
      ["next", ({ replica }) => replica.next],
      ["size", ({ replica }) => bytes(replica.bytes)],
      ["parked", ({ replica }) => replica.parked],
    ], replicas),
    table("Durable consumers", [
      ["name", (each) => each.name],
      ["shard", (each) => each.shard],
      ["selector", (each) => make("code", {}, each.selector)],
      ["position", (each) => each.position],
      ["behind", (each) => each.lag],
      ["dropped", (each) => each.dropped],
    ], consumers),
    table("Groups", [
      ["group", (each) => each.group.name],
      ["shard", (each) => each.shard],
      ["selector", (each) => make("code", {}, each.group.selector)],
      ["behind", (each) => each.end - each.floor],
      ["leased", (each) => each.leased],
      ["delayed", (each) => each.delayed],
      ["dead letters", (each) => make("span", { className: each.dead ? "bad" : "" }, String(each.dead))],
      ["members", (each) => each.members.join(", ")],
    ], shares),
  );
}

export async function why(event) {
  const found = await ask("why", { event });
  const verdict = { true: "✓", false: "✗" };
  const shown = found.reasons.map((one) => make("div", { className: "card" },
    make("h2", { className: one.delivered ? "good" : "" }, `${one.delivered ? "✓" : "✗"} ${one.name || one.subscription}`),
    make("p", {}, one.summary),
    make("p", { className: "lines" }, one.verdicts.map((line) => {
      const seen = line.seen ? `   saw ${line.seen}` : "";
      return `${"  ".repeat(line.depth)}${verdict[line.verdict] ?? "?"} ${line.text}${seen}`;
    }).join("\n"))));
  byId("reasons").replaceChildren(
    make("div", { className: "card" },
      make("h2", {}, found.id || found.event),
      make("p", { className: "name" }, `${found.event}${found.alike > 1 ? `, the newest of ${found.alike} with this id` : ""}`),
      make("p", { className: "lines" }, JSON.stringify(found.attributes, null, 1)),
      make("ol", { className: "path" }, ...found.path.map((step) => make("li", {}, step)))),
    ...shown,
  );
}

export async function row(stream, shard, offset) {
  const found = await ask("row", { stream, shard, offset });
  const { readers = [], attributes = {}, ...facts } = found;
  byId("reasons").replaceChildren(
    make("div", { className: "card" }, make("h2", {}, `${stream}, shard ${shard}, offset ${offset}: ${found.state}`),
      make("p", { className: "lines" }, JSON.stringify({ ...facts, attributes }, null, 1))),
    table("Consumers", [
      ["name", (one) => one.name],
      ["selector", (one) => make("code", {}, one.selector)],
      ["position", (one) => one.position],
      ["the row", (one) => one.what],
    ], readers),
  );
}
