/** Base of all errors. Its message says what was wrong and where. */
export class CanopyError extends Error {
    /**
     * @param {string} reason
     * @param {{ status?: number, code?: string, published?: number, in_doubt?: number, cause?: unknown }} [about]
     */
    constructor(reason: string, { status, code, published, in_doubt, cause }?: {
        status?: number;
        code?: string;
        published?: number;
        in_doubt?: number;
        cause?: unknown;
    });
    /** The status of HTTP; 0: there was no answer. */
    status: number;
    /** What the node calls it, for instance "no-majority"; "" if it was not the node. */
    code: string;
    /** How many events, from the first on, are published all the same. */
    published: number;
    /** How many of the next ones may be. They are never sent again by this client. */
    inDoubt: number;
    /** Whether the same may succeed later. */
    get isTransient(): boolean;
}
/** The request, a selector or an event in it is not valid (400, 405, 413, 415). */
export class BadRequestError extends CanopyError {
}
/** No token, or one that does not allow this; or a page of another site (401, 403). */
export class DeniedError extends CanopyError {
}
/** There is no such stream, or path (404). */
export class NotFoundError extends CanopyError {
}
/** A position that is gone, or is of a former stream of its name (410). */
export class PositionLostError extends CanopyError {
}
/** The node refused it, or some of the events; `code` says what kind (409, 422). */
export class RefusedError extends CanopyError {
}
/** A quota is full (429). */
export class QuotaError extends CanopyError {
}
/** The gateway or its node is away (502, 503, or no connection). */
export class UnreachableError extends CanopyError {
}
/** No answer in time (408, 504, or this client's own time). */
export class TimeoutError extends CanopyError {
}
/** A gateway, for whoever has `token`. No connection is made before something is asked for. */
export class Gateway {
    /**
     * @param {string} [url] As http://127.0.0.1:8470; "": where the page comes from.
     * @param {{ token?: string | (() => string), timeout?: number }} [options] `timeout`: for one answer.
     */
    constructor(url?: string, { token, timeout }?: {
        token?: string | (() => string);
        timeout?: number;
    });
    /**
     * Publish an event or an array of them: objects whose scalar fields become attributes; what is
     * nested stays in the payload. A string is sent as it is, as JSON. When it returns, the node has
     * admitted them; with `receipt` all hosts have them.
     * @param {object | object[] | string} events
     * @param {{ receipt?: boolean }} [options]
     * @returns {Promise<Published>}
     */
    publish(events: object | object[] | string, { receipt }?: {
        receipt?: boolean;
    }): Promise<Published>;
    /**
     * Append to a stream. When it returns, they are committed.
     * @param {string} stream
     * @param {object | object[] | string} events
     * @returns {Promise<Appended>}
     */
    append(stream: string, events: object | object[] | string): Promise<Appended>;
    /**
     * Follow the events that match a selector. Every one that is published after `opened` comes.
     * A connection that breaks is made again, with a gap. With `last` the newest one of each key comes
     * first: the gateway reads a stream that captures them all, as `read` would.
     * @param {string} [where]
     * @param {Following & { last?: boolean }} [options]
     * @returns {Subscription}
     */
    subscribe(where?: string, { last, ...options }?: Following & {
        last?: boolean;
    }): Subscription;
    /**
     * Read a stream and go on with what comes. A connection that breaks is made again where it was:
     * nothing is missing and nothing comes twice.
     * @param {string} stream
     * @param {Following & { where?: string, from?: string | number }} [options] `from`: first, new,
     *   keys, an offset, a time (2026-11-23T08:00), or a `position`.
     * @returns {Subscription}
     */
    read(stream: string, { where, from, ...options }?: Following & {
        where?: string;
        from?: string | number;
    }): Subscription;
    /**
     * Publish an event that asks for answers; those that come within `timeout` seconds, `most` at most.
     * @param {Record<string, unknown>} event
     * @param {{ most?: number, timeout?: number }} [options]
     * @returns {Promise<Event[]>}
     */
    call(event: Record<string, unknown>, { most, timeout }?: {
        most?: number;
        timeout?: number;
    }): Promise<Event[]>;
    /**
     * Answer an event that was published by `call`, here or in a program of Python.
     * @param {Event} event
     * @param {Record<string, unknown>} attributes
     * @returns {Promise<Published>}
     */
    answer(event: Event, attributes: Record<string, unknown>): Promise<Published>;
    /**
     * A question under /api/, which /openapi.json describes: status, ring, streams, why, …
     * @param {string} name
     * @param {Record<string, string>} [query]
     * @returns {Promise<any>}
     */
    ask(name: string, query?: Record<string, string>): Promise<any>;
    /**
     * Who would get an event. Nothing is published.
     * @param {object | object[] | string} events
     * @returns {Promise<any>}
     */
    dryRun(events: object | object[] | string): Promise<any>;
    #private;
}
/** Events as they come, by `for await`; leaving the loop ends it. One loop at a time. */
export class Subscription {
    /**
     * @param {(headers: Record<string, string>, signal: AbortSignal) => Promise<Response>} fetch
     * @param {boolean} isStream
     * @param {Following} options
     */
    constructor(fetch: (headers: Record<string, string>, signal: AbortSignal) => Promise<Response>, isStream: boolean, options: Following);
    /** The position in a stream behind what was handed out, for `from` of a later reading; "": none yet. */
    position: string;
    /** Fulfilled when the overlay has acknowledged it; rejected with a CanopyError if it does not. */
    opened: Promise<void>;
    /** End it. What has come and was not handed out is dropped. */
    close(): void;
    /** @returns {AsyncGenerator<Event, void, void>} */
    [Symbol.asyncIterator](): AsyncGenerator<Event, void, void>;
    #private;
}
export type Value = string | number | boolean | null;
/**
 * What `canopy sub --json` prints. Integers beyond 2^53 are rounded.
 */
export type Event = {
    attributes: Record<string, Value>;
    /**
     * Of its publication.
     */
    time: number;
    /**
     * Its attribute `id`, of a live event.
     */
    id?: string | null | undefined;
    /**
     * Its attribute `type`, of a live event.
     */
    type?: string | null | undefined;
    /**
     * The identity of a live event.
     */
    event?: string | undefined;
    /**
     * The stream of a row, with `shard` and `offset`.
     */
    stream?: string | undefined;
    shard?: number | undefined;
    offset?: number | undefined;
    /**
     * A JSON value or a text, by `payload_type`.
     */
    payload?: unknown;
    /**
     * A payload that is neither.
     */
    payload_base64?: string | undefined;
    /**
     * A media type.
     */
    payload_type?: string | undefined;
};
/**
 * Where events may be missing, or why none can come.
 */
export type Gap = {
    /**
     * connection (to the gateway), overflow, disconnected, reconnected, …
     */
    cause: string;
    reason: string;
    /**
     * From when events may be missing.
     */
    since?: number | undefined;
    until?: number | undefined;
    /**
     * How many are missing, if that is known.
     */
    count?: number | undefined;
};
export type Following = {
    /**
     * For how many seconds a first connection is tried again; 0 if left out.
     */
    wait?: number | undefined;
    /**
     * For how many a lost one is; without end if left out.
     */
    reconnect?: number | undefined;
    /**
     * Called in the place where events may be missing.
     */
    onGap?: ((gap: Gap) => void) | undefined;
    /**
     * Called when it is acknowledged, and before each pause after which a connection is tried again.
     */
    onState?: ((state: "following" | "waiting", why: CanopyError | null) => void) | undefined;
};
export type Published = {
    /**
     * How many.
     */
    published: number;
    /**
     * Their identities.
     */
    events: string[];
    /**
     * With `receipt`: whether all hosts have them.
     */
    accepted?: boolean | undefined;
    hosts?: Record<string, unknown>[] | undefined;
};
export type Appended = {
    stream: string;
    /**
     * How many are committed.
     */
    appended: number;
    receipts: {
        shard: number;
        first: number;
        count: number;
    }[];
};
export type Message = {
    kind: string;
    id: string;
    data: string;
};
