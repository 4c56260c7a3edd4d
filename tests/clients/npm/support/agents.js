/** A coding agent as a user would start it, and a task that only one with a real shell can do. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { cleanEnvironment } from "./server.js";
import { usageOf } from "./tap.js";

const TIMEOUT_MS = 120_000;
const PROGRAMS = fileURLToPath(new URL("../node_modules/.bin/", import.meta.url));

/** A folder with nothing in it, removed when the test ends. */
export function emptyFolder(t) {
  const folder = mkdtempSync(join(tmpdir(), "warmlane-agent-"));
  t.after(() => rmSync(folder, { recursive: true, force: true, maxRetries: 3 }));
  return folder;
}

/**
 * Run a program of node_modules to its end, in a home of its own.
 * @returns {Promise<{code: number | null, stdout: string, stderr: string}>} `code` is null if it took too long
 */
export async function runAgent(program, args, { cwd, home, env = {}, input = "" }) {
  const agent = spawn(join(PROGRAMS, program), args, {
    cwd,
    env: { ...cleanEnvironment(), PWD: cwd, HOME: home, TMPDIR: home, ...env },
    detached: true,
  });
  agent.stdin.on("error", () => {}).end(input);
  const said = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"]) agent[name].setEncoding("utf8").on("data", (text) => (said[name] += text));
  const timer = setTimeout(() => process.kill(-agent.pid, "SIGKILL"), TIMEOUT_MS);
  const code = await new Promise((resolve, reject) => agent.on("error", reject).on("close", resolve));
  clearTimeout(timer);
  return { code, ...said };
}

/**
 * Two commands, the second of which the model learns from the output of the first. Each writes a word and prints it, in
 * capitals that stand nowhere before it has run.
 * @param {string} folder where the agent works
 * @param {string} tool the agent's name for its shell
 * @param {(command: string) => object} argumentsOf the arguments the agent's shell takes
 */
export function twoSteps(folder, tool, argumentsOf = (command) => ({ command })) {
  const words = [word(), word()];
  const call = (command) => `USE_TOOL:${tool} ${JSON.stringify(argumentsOf(command))}`;
  const write = (index) => `echo ${words[index]} | tr a-z A-Z | tee word${index}.txt`;
  writeFileSync(join(folder, "next.txt"), call(write(1)));
  return { folder, prompt: call(`${write(0)}; cat next.txt`), words: words.map((each) => each.toUpperCase()) };
}

function word() {
  return Array.from({ length: 12 }, () => String.fromCharCode(97 + randomInt(26))).join("");
}

/** Both commands were run, each result reached the server, the last answer the user, and each turn continued the last. */
export function assertDone(task, ended, exchanges) {
  assertRun(task, ended, exchanges);
  const story = tell(ended, exchanges);
  const turns = exchanges.filter((each) => each.body?.tools?.length && each.status === 200);
  assert.equal(turns.length, 3, story);
  for (const [index, each] of task.words.entries()) {
    assert.ok(!JSON.stringify(turns[index].body).includes(each), story);
    assert.ok(JSON.stringify(turns[index + 1].body).includes(each), story);
  }
  const used = turns.map(usageOf);
  for (const index of task.words.keys()) {
    const { prompt, output } = used[index];
    assert.ok(used[index + 1].cached >= prompt + output - 1, `turn ${index + 1}: ${JSON.stringify(used)}`);
  }
}

/** Both commands were run, and the user was told what the model said of the second one's result. */
export function assertRun(task, ended, exchanges) {
  const story = tell(ended, exchanges);
  assert.equal(ended.code, 0, story);
  const written = readdirSync(task.folder).filter((name) => name.startsWith("word")).sort();
  assert.deepEqual(written, ["word0.txt", "word1.txt"], story);
  const texts = written.map((name) => readFileSync(join(task.folder, name), "utf8"));
  assert.deepEqual(texts, task.words.map((each) => `${each}\n`), story);
  assert.match(ended.stdout, new RegExp(`tool said: [^]*${task.words[1]}`), story);
}

function tell({ stdout, stderr }, exchanges) {
  const lines = exchanges.map(({ method, path, status, warnings = "", answer }) => {
    return `${method} ${path} ${status} ${warnings} ${status < 400 ? "" : answer}`;
  });
  return [stdout, stderr, ...lines].join("\n");
}
