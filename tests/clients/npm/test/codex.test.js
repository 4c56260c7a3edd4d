/** Codex CLI, over Responses: the one API it speaks, by HTTP or on a WebSocket. */

import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";

import { assertDone, assertRun, emptyFolder, runAgent, twoSteps } from "../support/agents.js";
import { MODEL, startServer, tokens } from "../support/server.js";
import { startTap } from "../support/tap.js";

let server;
test.before(async () => (server = await startServer()));
test.after(() => server.stop());

/** The settings of docs/clients.md. */
const settings = (url, webSockets) => `
model = "${MODEL}"
model_provider = "warmlane"
model_context_window = 500000
web_search = "disabled"

[model_providers.warmlane]
name = "warmlane"
base_url = "${url}/v1"
wire_api = "responses"
env_key = "LOCAL_KEY"
supports_websockets = ${webSockets}
request_max_retries = 0
stream_max_retries = 0
`;

async function run(t, webSockets) {
  const [cwd, home, tap] = [emptyFolder(t), emptyFolder(t), await startTap(server.url)];
  t.after(tap.stop);
  mkdirSync(join(home, ".codex"));
  writeFileSync(join(home, ".codex/config.toml"), settings(tap.url, webSockets));
  const task = twoSteps(cwd, "exec_command", (cmd) => ({ cmd }));
  const args = ["exec", "--skip-git-repo-check", "--ephemeral", "--sandbox", "danger-full-access", task.prompt];
  const ended = await runAgent("codex", args, { cwd, home, env: { LOCAL_KEY: "none" } });
  return [task, ended, tap.exchanges];
}

test("codex runs the commands", async (t) => {
  assertDone(...(await run(t, false)));
});

test("codex runs the commands on a WebSocket", async (t) => {
  const before = await tokens(server.url);
  const [task, ended, exchanges] = await run(t, true);
  assertRun(task, ended, exchanges);
  assert.deepEqual(exchanges.filter(({ path }) => path === "/v1/responses").map(({ status }) => status), [101]);
  const after = await tokens(server.url);
  const [cached, prefilled] = ["cached", "prefilled"].map((kind) => after[kind] - (before[kind] ?? 0));
  assert.ok(cached > prefilled, `${cached} cached, ${prefilled} prefilled`);
});
