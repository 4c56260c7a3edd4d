/** The coding agent opencode, over each of its providers that speaks one of our APIs. */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";

import { assertDone, emptyFolder, runAgent, twoSteps } from "../support/agents.js";
import { MODEL, startServer } from "../support/server.js";
import { startTap } from "../support/tap.js";

const PROVIDERS = ["@ai-sdk/openai-compatible", "@ai-sdk/openai", "@ai-sdk/anthropic"];
/** Nothing is fetched at start: no newer version, no list of models, no language servers. */
const OFFLINE = {
  OPENCODE_DISABLE_AUTOUPDATE: "1",
  OPENCODE_DISABLE_MODELS_FETCH: "1",
  OPENCODE_DISABLE_LSP_DOWNLOAD: "1",
  OPENCODE_DISABLE_DEFAULT_PLUGINS: "1",
};

let server;
test.before(async () => (server = await startServer()));
test.after(() => server.stop());

/** The settings of docs/clients.md. */
function configure(folder, baseURL, npm) {
  const models = { [MODEL]: { tool_call: true, limit: { context: 500_000, output: 16_000 } } };
  const provider = { warmlane: { npm, options: { baseURL, apiKey: "none" }, models } };
  const settings = { provider, share: "disabled", permission: { bash: "allow" } };
  writeFileSync(join(folder, "opencode.json"), JSON.stringify(settings));
}

for (const npm of PROVIDERS) {
  test(`opencode runs the commands of ${npm}`, async (t) => {
    const [cwd, home, tap] = [emptyFolder(t), emptyFolder(t), await startTap(server.url)];
    t.after(tap.stop);
    configure(cwd, `${tap.url}/v1`, npm);
    const task = twoSteps(cwd, "bash", (command) => ({ command, description: "a step" }));
    const args = ["run", "--model", `warmlane/${MODEL}`];
    // Its arguments it quotes anew, its input not.
    const ended = await runAgent("opencode", args, { cwd, home, env: OFFLINE, input: task.prompt });
    assertDone(task, ended, tap.exchanges);
  });
}
