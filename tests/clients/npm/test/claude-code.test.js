/** Claude Code, over Messages, with the names of models it has of its own. */

import test from "node:test";

import { assertDone, emptyFolder, runAgent, twoSteps } from "../support/agents.js";
import { startServer } from "../support/server.js";
import { startTap } from "../support/tap.js";

let server;
test.before(async () => (server = await startServer()));
test.after(() => server.stop());

test("claude runs the commands", async (t) => {
  const [cwd, home, tap] = [emptyFolder(t), emptyFolder(t), await startTap(server.url)];
  t.after(tap.stop);
  const env = {
    ANTHROPIC_BASE_URL: tap.url,
    ANTHROPIC_AUTH_TOKEN: "none",
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
  };
  const task = twoSteps(cwd, "Bash", (command) => ({ command, description: "a step" }));
  const args = ["--print", "--allowedTools", "Bash", "--", task.prompt];
  const ended = await runAgent("claude", args, { cwd, home, env });
  assertDone(task, ended, tap.exchanges);
});
