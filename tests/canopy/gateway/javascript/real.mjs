// The client at a real gateway: node real.mjs URL TOKEN TOKEN-OF-EU. Says what it saw as JSON.
import { DeniedError, Gateway } from "../../../../canopy/gateway/javascript/canopy.js";

const [url, token, eu] = process.argv.slice(2);
const gateway = new Gateway(url, { token });
const seen = {};

async function first(subscription) {
  for await (const one of subscription) return one;
}

const large = gateway.subscribe("mag >= 5");
await large.opened;
const told = await gateway.publish([{ mag: 4 }, { mag: 5, id: "b", where: [1] }], { receipt: true });
const event = await first(large);
seen.live = [told.accepted, event.event === told.events[1], event.attributes.mag, event.payload.where];

const asked = gateway.subscribe("n IS NOT NULL AND answer_to IS NOT NULL");
await asked.opened;
const answering = first(asked).then((one) => gateway.answer(one, { twice: 2 * one.attributes.n }));
const [answer] = await gateway.call({ n: 21 });
seen.call = [answer.attributes.twice, (await answering).published];
seen.silence = await gateway.call({ n: 22 }, { timeout: 0.1 });

const rest = gateway.read("rows");
await rest.opened;
const appended = await gateway.append("rows", [{ n: 1 }, { n: 2 }]);
const row = await first(rest);
const next = await first(gateway.read("rows", { from: rest.position }));
seen.stream = [appended.appended, row.offset, row.attributes.n, next.attributes.n];

const captured = gateway.read("latest", { from: "first" });
await captured.opened;
await gateway.publish([1, 2, 3].map((n) => ({ sensor: n < 2 ? "a" : "b", n })));
let count = 0;
for await (const one of captured) if (one.attributes.n && ++count === 3) break;
const last = gateway.subscribe("sensor IN ('a', 'b')", { last: true });
const newest = (await first(last)).attributes.n;
const amid = gateway.read("latest", { from: last.position });
seen.last = [newest, (await first(amid)).attributes.n];
const none = await gateway.subscribe("n > 0", { last: true }).opened.catch((error) => error);
seen.none = [none.status, none.code];

seen.status = (await gateway.ask("status")).ready;
seen.who = (await gateway.dryRun({ mag: 9 })).events.length;
const denied = await new Gateway(url, { token: eu }).publish({ a: 1 }).catch((error) => error);
seen.denied = [denied instanceof DeniedError, denied.status];
console.log(JSON.stringify(seen));
