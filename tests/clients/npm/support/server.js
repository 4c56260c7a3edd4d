/** A whole server on the simulated engine, in a process of its own. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

export const MODEL = "simulated";

const ROOT = fileURLToPath(new URL("../../../../", import.meta.url));
/** `SERVER_PYTHON` names the interpreter that has the server; by default it is that of `make install`. */
const PYTHON = process.env.SERVER_PYTHON || `${ROOT}.venv/bin/python`;
const START_TIMEOUT_MS = 60_000;
/** A byte is a token of the simulated engine, and the agents' system prompts are some tens of kilobytes. */
const CTX = 524_288;

/** The environment, less what would configure the server or a client of it. */
export function cleanEnvironment() {
  const configures = /^(WARMLANE|OPENAI|ANTHROPIC|CLAUDE|CODEX|PI|OPENCODE|XDG)_|^CLAUDECODE$/;
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !configures.test(name)));
}

/**
 * Start a server on a free port.
 * @param {...string} flags of `warmlane serve`
 * @returns {Promise<{url: string, stop: () => Promise<void>}>} `url` ends without a slash
 */
export async function startServer(...flags) {
  const command = ["-m", "warmlane", "serve", "--engine", "simulated", "--port", "0", "--store", "memory:"];
  const server = spawn(PYTHON, [...command, "--ctx", String(CTX), ...flags], {
    env: { ...cleanEnvironment(), PYTHONUNBUFFERED: "1", XDG_CONFIG_HOME: "/nonexistent" },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const said = [];
  const url = await new Promise((resolve, reject) => {
    const fail = (why) => reject(new Error(`the server did not start: ${why}\n${said.join("\n")}`));
    const timer = setTimeout(() => {
      server.kill();
      fail("it took too long");
    }, START_TIMEOUT_MS);
    let at;
    const read = (line) => {
      said.push(line);
      at ??= /^Serving .* on (http:\/\/\S+?)\.\s/.exec(line)?.[1];
      if (at && line.trimStart().startsWith("curl ")) {
        clearTimeout(timer);
        resolve(at);
      }
    };
    createInterface({ input: server.stdout }).on("line", read);
    createInterface({ input: server.stderr }).on("line", read);
    server.on("error", (error) => fail(error.message));
    server.on("exit", (code) => fail(`exit code ${code}`));
  });
  return {
    url,
    async stop() {
      if (server.exitCode !== null || server.signalCode !== null) return;
      server.kill();
      await once(server, "exit");
    },
  };
}

/** The tokens of all finished turns, by kind: `cached` and `prefilled` ones of prompts, and `output`. */
export async function tokens(url) {
  const text = await (await fetch(`${url}/metrics`)).text();
  const lines = text.matchAll(/^warmlane_tokens_total\{kind="(\w+)",[^}]*\} (\S+)$/gm);
  return Object.fromEntries(Array.from(lines, ([, kind, count]) => [kind, Number(count)]));
}
