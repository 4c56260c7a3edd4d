/** The coding agent pi, on each API it speaks. */

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";

import { assertDone, emptyFolder, runAgent, twoSteps } from "../support/agents.js";
import { MODEL, startServer } from "../support/server.js";
import { startTap } from "../support/tap.js";

const APIS = { "openai-completions": "/v1", "openai-responses": "/v1", "anthropic-messages": "" };

let server;
test.before(async () => (server = await startServer()));
test.after(() => server.stop());

/** The settings of docs/clients.md. */
function configure(home, baseUrl, api) {
  const models = [{ id: MODEL, contextWindow: 500_000, maxTokens: 16_000 }];
  const providers = { warmlane: { baseUrl, api, apiKey: "none", models } };
  mkdirSync(join(home, ".pi/agent"), { recursive: true });
  writeFileSync(join(home, ".pi/agent/models.json"), JSON.stringify({ providers }));
}

for (const [api, path] of Object.entries(APIS)) {
  test(`pi runs the commands of ${api}`, async (t) => {
    const [cwd, home, tap] = [emptyFolder(t), emptyFolder(t), await startTap(server.url)];
    t.after(tap.stop);
    configure(home, tap.url + path, api);
    const task = twoSteps(cwd, "bash");
    const args = ["--provider", "warmlane", "--model", MODEL, "-p", task.prompt];
    const ended = await runAgent("pi", args, { cwd, home, env: { PI_OFFLINE: "1" } });
    assertDone(task, ended, tap.exchanges);
  });
}
