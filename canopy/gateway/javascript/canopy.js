// The client of a Canopy gateway, for browsers and Node 20 or later: one file without a build step
// or dependencies. A gateway serves it at /canopy.js.
//
//     import { Gateway } from "http://127.0.0.1:8470/canopy.js";   // Node: from "./canopy.js"
//     const gateway = new Gateway("http://127.0.0.1:8470");
//     await gateway.publish({ mag: 5.1, place: "Nome" });
//     for await (const event of gateway.subscribe("mag >= 4.5")) console.log(event.attributes);
//
// Times are seconds; those of day are since 1970. canopy.d.ts is made from the comments here.

/**
 * @typedef {string | number | boolean | null} Value
 * @typedef {object} Event What `canopy sub --json` prints. Integers beyond 2^53 are rounded.
 * @property {Record<string, Value>} attributes
 * @property {number} time Of its publication.
 * @property {string | null} [id] Its attribute `id`, of a live event.
 * @property {string | null} [type] Its attribute `type`, of a live event.
 * @property {string} [event] The identity of a live event.
 * @property {string} [stream] The stream of a row, with `shard` and `offset`.
 * @property {number} [shard]
 * @property {number} [offset]
 * @property {unknown} [payload] A JSON value or a text, by `payload_type`.
 * @property {string} [payload_base64] A payload that is neither.
 * @property {string} [payload_type] A media type.
 *
 * @typedef {object} Gap Where events may be missing, or why none can come.
 * @property {string} cause connection (to the gateway), overflow, disconnected, reconnected, …
 * @property {string} reason
 * @property {number} [since] From when events may be missing.
 * @property {number} [until]
 * @property {number} [count] How many are missing, if that is known.
 *
 * @typedef {object} Following
 * @property {number} [wait] For how many seconds a first connection is tried again; 0 if left out.
 * @property {number} [reconnect] For how many a lost one is; without end if left out.
 * @property {(gap: Gap) => void} [onGap] Called in the place where events may be missing.
 * @property {(state: "following" | "waiting", why: CanopyError | null) => void} [onState]
 *   Called when it is acknowledged, and before each pause after which a connection is tried again.
 *
 * @typedef {object} Published
 * @property {number} published How many.
 * @property {string[]} events Their identities.
 * @property {boolean} [accepted] With `receipt`: whether all hosts have them.
 * @property {Record<string, unknown>[]} [hosts]
 *
 * @typedef {object} Appended
 * @property {string} stream
 * @property {number} appended How many are committed.
 * @property {{ shard: number, first: number, count: number }[]} receipts
 */

const TIMEOUT = 40; // for an answer: the gateway gives its node 30 s
const SILENCE = 45; // without a sign of life, of which a gateway gives one every 15 s
const RETRY = 2; // before the second connection, unless the gateway says otherwise
const LONGEST = 30; // between two connections
const LATE = 10; // how long before it was last heard of an event may have been published

/** Base of all errors. Its message says what was wrong and where. */
export class CanopyError extends Error {
  /**
   * @param {string} reason
   * @param {{ status?: number, code?: string, published?: number, in_doubt?: number, cause?: unknown }} [about]
   */
  constructor(reason, { status = 0, code = "", published = 0, in_doubt = 0, cause } = {}) {
    super(reason, { cause });
    this.name = new.target.name;
    /** The status of HTTP; 0: there was no answer. */
    this.status = status;
    /** What the node calls it, for instance "no-majority"; "" if it was not the node. */
    this.code = code;
    /** How many events, from the first on, are published all the same. */
    this.published = published;
    /** How many of the next ones may be. They are never sent again by this client. */
    this.inDoubt = in_doubt;
  }

  /** Whether the same may succeed later. */
  get isTransient() {
    return false;
  }
}

/** The request, a selector or an event in it is not valid (400, 405, 413, 415). */
export class BadRequestError extends CanopyError {}

/** No token, or one that does not allow this; or a page of another site (401, 403). */
export class DeniedError extends CanopyError {}

/** There is no such stream, or path (404). */
export class NotFoundError extends CanopyError {}

/** A position that is gone, or is of a former stream of its name (410). */
export class PositionLostError extends CanopyError {}

/** The node refused it, or some of the events; `code` says what kind (409, 422). */
export class RefusedError extends CanopyError {}

/** A quota is full (429). */
export class QuotaError extends CanopyError {
  get isTransient() {
    return true;
  }
}

/** The gateway or its node is away (502, 503, or no connection). */
export class UnreachableError extends CanopyError {
  get isTransient() {
    return true;
  }
}

/** No answer in time (408, 504, or this client's own time). */
export class TimeoutError extends CanopyError {
  get isTransient() {
    return true;
  }
}

/** @type {Record<number, typeof CanopyError>} */
const CLASSES = {
  401: DeniedError,
  403: DeniedError,
  404: NotFoundError,
  408: TimeoutError,
  409: RefusedError,
  410: PositionLostError,
  422: RefusedError,
  429: QuotaError,
  504: TimeoutError,
};

/** @param {Response} response @returns {Promise<CanopyError>} */
async function errorOf(response) {
  const { status } = response;
  const text = await response.text().catch(() => "");
  /** @type {Record<string, any>} */
  let told = {};
  try {
    told = JSON.parse(text);
  } catch {
    told = { error: `${status} ${response.statusText}` }; // of a proxy between
  }
  const kind = CLASSES[status] ?? (status < 500 ? BadRequestError : UnreachableError);
  return new kind(told.error ?? text, { ...told, status });
}

/** @param {unknown} error @param {number} timeout @param {number} sent @returns {CanopyError} */
function lost(error, timeout, sent = 0) {
  const about = { in_doubt: sent, cause: error };
  const { name, message, cause } = /** @type {any} */ (error);
  if (name === "TimeoutError") return new TimeoutError(`no answer in ${timeout} s`, about);
  return new UnreachableError(`no connection to the gateway: ${cause?.message ?? message}`, about);
}

/** @param {string} name @param {unknown} value What JSON would silently make null is refused. */
function finite(name, value) {
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new BadRequestError(`attribute ${name}: ${value} is no value of an event`);
  }
  return value;
}

/** A gateway, for whoever has `token`. No connection is made before something is asked for. */
export class Gateway {
  #url;
  #token;
  #timeout;

  /**
   * @param {string} [url] As http://127.0.0.1:8470; "": where the page comes from.
   * @param {{ token?: string | (() => string), timeout?: number }} [options] `timeout`: for one answer.
   */
  constructor(url = "", { token = "", timeout = TIMEOUT } = {}) {
    this.#url = url.replace(/\/+$/, "");
    this.#token = typeof token === "function" ? token : () => token;
    this.#timeout = timeout;
  }

  /**
   * Publish an event or an array of them: objects whose scalar fields become attributes; what is
   * nested stays in the payload. A string is sent as it is, as JSON. When it returns, the node has
   * admitted them; with `receipt` all hosts have them.
   * @param {object | object[] | string} events
   * @param {{ receipt?: boolean }} [options]
   * @returns {Promise<Published>}
   */
  publish(events, { receipt = false } = {}) {
    return this.#post(`/events${receipt ? "?receipt=yes" : ""}`, events);
  }

  /**
   * Append to a stream. When it returns, they are committed.
   * @param {string} stream
   * @param {object | object[] | string} events
   * @returns {Promise<Appended>}
   */
  append(stream, events) {
    return this.#post(`/events?${new URLSearchParams({ stream })}`, events);
  }

  /**
   * Follow the events that match a selector. Every one that is published after `opened` comes.
   * A connection that breaks is made again, with a gap. With `last` the newest one of each key comes
   * first: the gateway reads a stream that captures them all, as `read` would.
   * @param {string} [where]
   * @param {Following & { last?: boolean }} [options]
   * @returns {Subscription}
   */
  subscribe(where = "TRUE", { last = false, ...options } = {}) {
    return this.#follow(last ? { where, last: "yes" } : { where }, options);
  }

  /**
   * Read a stream and go on with what comes. A connection that breaks is made again where it was:
   * nothing is missing and nothing comes twice.
   * @param {string} stream
   * @param {Following & { where?: string, from?: string | number }} [options] `from`: first, new,
   *   keys, an offset, a time (2026-11-23T08:00), or a `position`.
   * @returns {Subscription}
   */
  read(stream, { where = "TRUE", from = "new", ...options } = {}) {
    return this.#follow({ where, stream, from: String(from) }, options);
  }

  /**
   * Publish an event that asks for answers; those that come within `timeout` seconds, `most` at most.
   * @param {Record<string, unknown>} event
   * @param {{ most?: number, timeout?: number }} [options]
   * @returns {Promise<Event[]>}
   */
  async call(event, { most = 1, timeout = 10 } = {}) {
    const bytes = crypto.getRandomValues(new Uint8Array(8));
    const address = [...bytes].map((one) => one.toString(16).padStart(2, "0")).join("");
    const answers = this.subscribe(`answers = '${address}'`);
    /** @type {Event[]} */
    const found = [];
    let timer;
    try {
      await answers.opened;
      await this.publish({ ...event, answer_to: address });
      timer = setTimeout(() => answers.close(), timeout * 1000);
      for await (const one of answers) if (found.push(one) >= most) break;
      return found;
    } finally {
      clearTimeout(timer);
      answers.close();
    }
  }

  /**
   * Answer an event that was published by `call`, here or in a program of Python.
   * @param {Event} event
   * @param {Record<string, unknown>} attributes
   * @returns {Promise<Published>}
   */
  async answer(event, attributes) {
    const address = event.attributes.answer_to;
    if (typeof address !== "string") {
      throw new BadRequestError("the event asks for no answer: it has no attribute answer_to");
    }
    return this.publish({ ...attributes, answers: address });
  }

  /**
   * A question under /api/, which /openapi.json describes: status, ring, streams, why, …
   * @param {string} name
   * @param {Record<string, string>} [query]
   * @returns {Promise<any>}
   */
  ask(name, query = {}) {
    return this.#json(`/api/${name}?${new URLSearchParams(query)}`);
  }

  /**
   * Who would get an event. Nothing is published.
   * @param {object | object[] | string} events
   * @returns {Promise<any>}
   */
  dryRun(events) {
    return this.#post("/api/dry-run", events, 0);
  }

  /** @param {string} path @param {object | object[] | string} events @returns {Promise<any>} */
  async #post(path, events, sent = Array.isArray(events) ? events.length : 1) {
    const body = typeof events === "string" ? events : JSON.stringify(events, finite);
    const headers = { "Content-Type": "application/json" };
    return this.#json(path, { method: "POST", headers, body }, sent);
  }

  /** @param {string} path @param {RequestInit} [options] @returns {Promise<any>} */
  async #json(path, options = {}, sent = 0) {
    const signal = AbortSignal.timeout(this.#timeout * 1000);
    try {
      const response = await this.#fetch(path, { ...options, signal });
      if (!response.ok) throw await errorOf(response);
      return await response.json();
    } catch (error) {
      throw error instanceof CanopyError ? error : lost(error, this.#timeout, sent);
    }
  }

  /** @param {string} path @param {RequestInit} options */
  #fetch(path, options) {
    const token = this.#token();
    const headers = new Headers(options.headers);
    if (token) headers.set("Authorization", `Bearer ${token}`);
    return fetch(this.#url + path, { ...options, headers });
  }

  /** @param {Record<string, string>} query @param {Following} options */
  #follow(query, options) {
    const path = `/events?${new URLSearchParams(query)}`;
    return new Subscription((headers, signal) => this.#fetch(path, { headers, signal }), "stream" in query || "last" in query, options);
  }
}

/** Events as they come, by `for await`; leaving the loop ends it. One loop at a time. */
export class Subscription {
  #fetch;
  #isStream;
  #options;
  #closing = new AbortController();
  /** @type {ReadableStreamDefaultReader<Uint8Array> | null} */
  #reader = null;
  #lines = new Lines();
  #heard = 0; // when it was last heard of
  /** @type {CanopyError | null} */
  #why = null; // the connection was lost

  /**
   * @param {(headers: Record<string, string>, signal: AbortSignal) => Promise<Response>} fetch
   * @param {boolean} isStream
   * @param {Following} options
   */
  constructor(fetch, isStream, options) {
    this.#fetch = fetch;
    this.#isStream = isStream;
    this.#options = options;
    /** The position in a stream behind what was handed out, for `from` of a later reading; "": none yet. */
    this.position = "";
    /** Fulfilled when the overlay has acknowledged it; rejected with a CanopyError if it does not. */
    this.opened = this.#connect(options.wait ?? 0);
    this.opened.catch(() => {}); // whoever iterates hears of it
  }

  /** End it. What has come and was not handed out is dropped. */
  close() {
    this.#closing.abort();
  }

  /** @returns {AsyncGenerator<Event, void, void>} */
  async *[Symbol.asyncIterator]() {
    try {
      await this.opened;
      for (;;) {
        const message = await this.#next();
        if (this.#closing.signal.aborted) return;
        if (message === null) {
          await this.#again();
          continue;
        }
        if (this.#isStream && message.id) this.position = message.id;
        if (message.kind === "end") throw new DeniedError(JSON.parse(message.data).reason, { status: 401 });
        if (message.kind === "gap") this.#options.onGap?.(JSON.parse(message.data));
        else if (message.data) yield JSON.parse(message.data);
      }
    } catch (error) {
      if (!this.#closing.signal.aborted) throw error;
    } finally {
      this.close();
    }
  }

  /** The next message; null: the connection is lost. @returns {Promise<Message | null>} */
  async #next() {
    for (;;) {
      const message = this.#lines.message();
      if (message !== null) return message;
      const reader = /** @type {ReadableStreamDefaultReader<Uint8Array>} */ (this.#reader);
      const silence = setTimeout(() => reader.cancel().catch(() => {}), SILENCE * 1000);
      try {
        const { value, done } = await reader.read();
        if (!done) {
          this.#heard = Date.now() / 1000;
          this.#lines.push(value);
          continue;
        }
        this.#why = new UnreachableError("the gateway ended the connection, or was silent");
      } catch (error) {
        this.#why = lost(error, SILENCE);
      } finally {
        clearTimeout(silence);
      }
      return null;
    }
  }

  /** Connect once more. Raises a CanopyError if that makes no sense, or is in vain for too long. */
  async #again() {
    const since = this.#heard - LATE;
    await this.#connect(this.#options.reconnect ?? Infinity, this.#why);
    if (this.#isStream) return; // it goes on where it was
    const reason = `the connection to the gateway was lost: ${this.#why?.message}`;
    this.#options.onGap?.({ cause: "connection", reason, since, until: this.#heard });
  }

  /** @param {number} patience @param {CanopyError | null} [why] */
  async #connect(patience, why = null) {
    const { signal } = this.#closing;
    const until = Date.now() + patience * 1000;
    for (let pause = this.#lines.retry; ; pause = Math.min(2 * pause, LONGEST)) {
      if (why !== null) {
        const left = (until - Date.now()) / 1000;
        if (left <= 0) throw why;
        this.#options.onState?.("waiting", why);
        await sleep(Math.min(left, pause * (0.5 + Math.random() / 2)), signal);
      }
      signal.throwIfAborted();
      try {
        await this.#open(signal);
        this.#options.onState?.("following", null);
        return;
      } catch (error) {
        signal.throwIfAborted();
        if (!(error instanceof CanopyError) || !error.isTransient) throw error;
        why = error;
      }
    }
  }

  /** @param {AbortSignal} closing */
  async #open(closing) {
    const trying = new AbortController();
    const late = setTimeout(() => trying.abort(new DOMException("", "TimeoutError")), TIMEOUT * 1000);
    /** @type {Record<string, string>} */
    const headers = this.position ? { "Last-Event-ID": this.position } : {};
    let response;
    try {
      response = await this.#fetch(headers, AbortSignal.any([closing, trying.signal]));
      if (!response.ok) throw await errorOf(response);
    } catch (error) {
      throw error instanceof CanopyError ? error : lost(error, TIMEOUT);
    } finally {
      clearTimeout(late);
    }
    this.#reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
    this.#lines = new Lines(this.#lines.retry);
    this.#heard = Date.now() / 1000;
  }
}

/** @typedef {{ kind: string, id: string, data: string }} Message */

/** Server-sent events out of the bytes of a connection (WHATWG HTML, 9.2.6). */
class Lines {
  #decoder = new TextDecoder();
  #rest = "";
  /** @type {Message[]} */
  #found = [];
  #kind = "message";
  #id = "";
  /** @type {string[]} */
  #data = [];

  /** @param {number} [retry] Seconds before another connection. */
  constructor(retry = RETRY) {
    this.retry = retry;
  }

  /** The next whole message; null: there is none. @returns {Message | null} */
  message() {
    return this.#found.shift() ?? null;
  }

  /** @param {Uint8Array} bytes */
  push(bytes) {
    const lines = (this.#rest + this.#decoder.decode(bytes, { stream: true })).split("\n");
    this.#rest = /** @type {string} */ (lines.pop());
    for (const line of lines) this.#take(line.replace(/\r$/, "")); // a proxy may write CR LF
  }

  /** @param {string} line */
  #take(line) {
    if (line === "") {
      const data = this.#data.join("\n");
      if (data || this.#id) this.#found.push({ kind: this.#kind, id: this.#id, data });
      [this.#kind, this.#id, this.#data] = ["message", "", []];
      return;
    }
    const at = line.indexOf(":");
    const [name, value] = at < 0 ? [line, ""] : [line.slice(0, at), line.slice(at + 1).replace(/^ /, "")];
    if (name === "event") this.#kind = value;
    else if (name === "data") this.#data.push(value);
    else if (name === "id") this.#id = value;
    else if (name === "retry" && /^\d+$/.test(value)) this.retry = Number(value) / 1000;
  }
}

/** @param {number} seconds @param {AbortSignal} signal Ends it early. @returns {Promise<void>} */
function sleep(seconds, signal) {
  return new Promise((done) => {
    const timer = setTimeout(end, seconds * 1000);
    function end() {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      done();
    }
    signal.addEventListener("abort", end);
  });
}
