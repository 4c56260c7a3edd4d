/** Stands between a client and the server, passes every byte on as it comes, and keeps what was said. */

import http from "node:http";
import { once } from "node:events";
import net from "node:net";

/** The routes a model answers on. */
const TURNS = new Map([
  ["/v1/responses", "responses"],
  ["/v1/chat/completions", "chat"],
  ["/v1/messages", "messages"],
]);

/**
 * One request and its answer. `dialect` is undefined where no model was asked.
 * @typedef {{method: string, path: string, dialect?: string, headers: object, body: any, status: number,
 *   warnings?: string, answer: string}} Exchange
 */

/**
 * @param {string} target the server's URL
 * @returns {Promise<{url: string, exchanges: Exchange[], stop: () => Promise<void>}>} exchanges in the order they began;
 *   a status of 0 is that of one without an answer yet. A WebSocket is one with status 101; what it says is not kept
 */
export async function startTap(target) {
  const exchanges = [];
  const sockets = new Set();
  const tap = http.createServer(async (request, response) => {
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    const sent = Buffer.concat(pieces);
    const exchange = begun(request, sent);
    exchanges.push(exchange);
    const { host, ...headers } = request.headers;
    const onward = http.request(target + request.url, { method: request.method, headers });
    onward.on("response", (answer) => {
      exchange.status = answer.statusCode;
      exchange.warnings = answer.headers["x-warmlane-warnings"];
      response.writeHead(answer.statusCode, answer.headers);
      answer.on("data", (piece) => {
        exchange.answer += piece.toString("latin1");
        response.write(piece);
      });
      answer.on("end", () => response.end());
    });
    onward.on("error", () => response.destroy());
    response.on("close", () => onward.destroy());
    onward.end(sent);
  });
  tap.on("upgrade", (request, socket, head) => {
    exchanges.push({ ...begun(request, head), status: 101 });
    const { hostname, port } = new URL(target);
    const onward = net.connect(Number(port), hostname, () => {
      const headers = Object.entries(request.headers).map(([name, value]) => `${name}: ${value}\r\n`);
      onward.write(`${request.method} ${request.url} HTTP/1.1\r\n${headers.join("")}\r\n`);
      onward.write(head);
      onward.pipe(socket).pipe(onward);
    });
    for (const [end, other] of [[onward, socket], [socket, onward]]) {
      end.on("error", () => other.destroy()).on("close", () => other.destroy());
    }
    sockets.add(socket);
  });
  tap.listen(0, "127.0.0.1");
  await once(tap, "listening");
  return {
    url: `http://127.0.0.1:${tap.address().port}`,
    exchanges,
    async stop() {
      tap.closeAllConnections();
      for (const socket of sockets) socket.destroy();
      tap.close();
      await once(tap, "close");
    },
  };
}

function begun(request, sent) {
  const path = request.url.split("?", 1)[0];
  const dialect = request.method === "POST" ? TURNS.get(path) : undefined;
  const body = dialect ? JSON.parse(sent.toString()) : undefined;
  return { method: request.method, path, dialect, headers: request.headers, body, status: 0, answer: "" };
}

/** The JSON of an answer's events; of an answer in one piece, that piece. */
function events(exchange) {
  const text = Buffer.from(exchange.answer, "latin1").toString();
  if (text.startsWith("{")) return [JSON.parse(text)];
  const data = text.split("\n").filter((line) => line.startsWith("data: {"));
  return data.map((line) => JSON.parse(line.slice("data: ".length)));
}

/**
 * What a turn was charged.
 * @param {Exchange} exchange
 * @returns {{prompt: number, cached: number, output: number}} tokens; `prompt` holds the cached ones
 */
export function usageOf(exchange) {
  const parts = events(exchange).map((event) => event.response?.usage ?? event.message?.usage ?? event.usage);
  const usage = Object.assign({}, ...parts);
  if (exchange.dialect === "messages") {
    const { input_tokens, cache_read_input_tokens: cached = 0, cache_creation_input_tokens: written = 0 } = usage;
    return { prompt: input_tokens + cached + written, cached, output: usage.output_tokens };
  }
  if (exchange.dialect === "chat") {
    const cached = usage.prompt_tokens_details.cached_tokens;
    return { prompt: usage.prompt_tokens, cached, output: usage.completion_tokens };
  }
  return {
    prompt: usage.input_tokens,
    cached: usage.input_tokens_details.cached_tokens,
    output: usage.output_tokens,
  };
}
