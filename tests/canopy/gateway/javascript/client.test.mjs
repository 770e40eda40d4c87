// The client beside a gateway that does what the test says. Run by test_gateway_javascript.py.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import * as canopy from "../../../../canopy/gateway/javascript/canopy.js";

const HEAD = "retry: 1\n: subscribed\n";

/** A server that answers its requests, one after another, as `answers` say; what it was asked. */
async function gateway(t, ...answers) {
  const asked = [];
  const server = createServer(async (request, response) => {
    const body = [];
    for await (const part of request) body.push(part);
    asked.push({ url: request.url, headers: request.headers, body: Buffer.concat(body).toString() });
    const answer = answers.shift();
    if (typeof answer === "function") return answer(response, request);
    response.writeHead(answer.status, { "Content-Type": "application/json" });
    response.end(JSON.stringify(answer.told));
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  t.after(() => { server.closeAllConnections(); server.close(); });
  const { port } = server.address();
  return { asked, url: `http://127.0.0.1:${port}`, client: new canopy.Gateway(`http://127.0.0.1:${port}/`, { token: "t" }) };
}

/** An answer that is these pieces, each in a write of its own, and then breaks or stays. */
const says = (pieces, { stays = false } = {}) => async (response) => {
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  for (const piece of pieces) {
    await new Promise((done) => response.write(piece, done));
    await new Promise((done) => setImmediate(done));
  }
  if (!stays) response.destroy();
};

const event = (n, id = "") => `${id && `id: ${id}\n`}data: ${JSON.stringify({ attributes: { n } })}\n\n`;

async function take(subscription, most) {
  const found = [];
  for await (const one of subscription) if (found.push(one.attributes.n) >= most) break;
  return found;
}

test("a stream goes on where it was, also before its first event", async (t) => {
  const { client, asked } = await gateway(t,
    says([`${HEAD}id: S@0:5\n\n`]),
    says([`${HEAD}id: S@0:5\n\n${event(5, "S@0:6")}`, ": waiting\nid: S@0:9\n\n"]),
    says([`${HEAD}id: S@0:9\n\n`, event(9, "S@0:10")], { stays: true }));
  const gaps = [];
  const reading = client.read("orders", { from: "new", onGap: (gap) => gaps.push(gap) });
  assert.deepEqual(await take(reading, 2), [5, 9]);
  assert.deepEqual(asked.map((one) => one.headers["last-event-id"]), [undefined, "S@0:5", "S@0:9"]);
  assert.equal(asked[0].headers.authorization, "Bearer t");
  assert.equal(reading.position, "S@0:10");
  assert.deepEqual(gaps, []);
});

test("live events that may be missing are a gap in their place", async (t) => {
  const { client } = await gateway(t,
    says([`${HEAD}\n`, event(1)]),
    { status: 503, told: { error: "the node is away" } },
    says([`${HEAD}\n`, event(2)], { stays: true }));
  const seen = [];
  const before = Date.now() / 1000;
  const following = client.subscribe("n > 0", {
    onGap: (gap) => seen.push(gap),
    onState: (state, why) => seen.push(why?.message ?? state),
  });
  for await (const one of following) {
    seen.push(one.attributes.n);
    if (one.attributes.n === 2) break;
  }
  const [gap] = seen.splice(5, 1);
  assert.equal(gap.cause, "connection");
  assert.ok(gap.since < before && gap.until >= before);
  assert.match(seen.splice(2, 1)[0], /the gateway|no connection/);
  assert.deepEqual(seen, ["following", 1, "the node is away", "following", 2]);
});

test("events come whole however their bytes are cut", async (t) => {
  const text = `${HEAD}\n: note\r\nevent: message\r\ndata: {"attributes":\r\ndata: {"n": "größe ☃"}}\r\n\r\n`;
  const bytes = Buffer.from(text);
  const { client } = await gateway(t, says([...bytes].map((one) => Buffer.of(one)), { stays: true }));
  assert.deepEqual(await take(client.subscribe(), 1), ["größe ☃"]);
});

test("errors have the class of their status, and what the gateway says", async (t) => {
  const classes = {
    400: "BadRequestError", 401: "DeniedError", 403: "DeniedError", 404: "NotFoundError", 408: "TimeoutError",
    409: "RefusedError", 410: "PositionLostError", 413: "BadRequestError", 422: "RefusedError",
    429: "QuotaError", 502: "UnreachableError", 503: "UnreachableError", 504: "TimeoutError",
  };
  const statuses = Object.keys(classes).map(Number);
  const told = { error: "no", code: "no-majority", published: 2, in_doubt: 1 };
  const { client } = await gateway(t, ...statuses.map((status) => ({ status, told })));
  for (const status of statuses) {
    const error = await client.append("orders", [{}, {}, {}]).catch((found) => found);
    const found = [error.name, error instanceof canopy.CanopyError, error.message, error.status, error.code];
    assert.deepEqual(found, [classes[status], true, "no", status, "no-majority"]);
    assert.deepEqual([error.published, error.inDoubt], [2, 1]);
  }
});

test("what was sent and not answered is in doubt", async (t) => {
  const { client } = await gateway(t, (response) => response.destroy(), { status: 200, told: {} });
  const error = await client.publish([{ n: 1 }, { n: 2 }]).catch((found) => found);
  assert.ok(error instanceof canopy.UnreachableError);
  assert.equal(error.inDoubt, 2);
});

test("a number that JSON has not is refused before anything is sent", async (t) => {
  const { client, asked } = await gateway(t, { status: 200, told: { published: 1 } });
  await assert.rejects(client.publish([{ n: 1 }, { n: NaN }]), /attribute n: NaN/);
  assert.deepEqual(await client.publish('{"n": 9007199254740993}'), { published: 1 });
  assert.deepEqual(asked.map((one) => one.body), ['{"n": 9007199254740993}']);
});

test("what cannot go on ends the loop with its reason", async (t) => {
  const gone = { status: 410, told: { error: "there is another one" } };
  const { client } = await gateway(t,
    says([`${HEAD}id: S@0:5\n\n`]), gone,
    says([`${HEAD}\n`, 'event: end\ndata: {"reason": "the token is no longer good"}\n\n']),
    says([`${HEAD}\n`]),
    gone, { status: 503, told: { error: "away" } });
  await assert.rejects(take(client.read("orders"), 1), canopy.PositionLostError);
  await assert.rejects(take(client.subscribe(), 1), canopy.DeniedError);
  await assert.rejects(take(client.subscribe("TRUE", { reconnect: 0 }), 1), canopy.UnreachableError);
  await assert.rejects(client.read("orders").opened, canopy.PositionLostError);
  await assert.rejects(client.subscribe().opened, /away/);
});

test("closing ends the connection, and what waits for one", async (t) => {
  let closed;
  const isClosed = new Promise((done) => { closed = done; });
  const { client } = await gateway(t, (response, request) => {
    request.socket.on("close", closed);
    return says([`${HEAD}\n`], { stays: true })(response);
  }, { status: 503, told: { error: "away" } });
  const following = client.subscribe();
  const all = take(following, 1);
  await following.opened;
  following.close();
  assert.deepEqual(await all, []);
  await isClosed;
  const waiting = client.subscribe("TRUE", { wait: Infinity, onState: () => setTimeout(() => waiting.close()) });
  assert.deepEqual(await take(waiting, 1), []);
});
