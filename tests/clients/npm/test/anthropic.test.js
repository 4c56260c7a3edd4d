/** The @anthropic-ai/sdk package: streams, the tool runner, structured output and counting. */

import assert from "node:assert/strict";
import test from "node:test";

import Anthropic from "@anthropic-ai/sdk";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";

import { startServer } from "../support/server.js";
import * as w from "../support/weather.js";

const common = { model: w.MODEL, max_tokens: 500 };
let server, client;
test.before(async () => {
  server = await startServer();
  client = new Anthropic({ baseURL: server.url, apiKey: "none", maxRetries: 0 });
});
test.after(() => server.stop());

const input_schema = { type: "object", properties: { location: { type: "string" } }, required: ["location"] };
const TOOL = { name: "get_weather", description: w.DESCRIPTION, input_schema };

const promptOf = (usage) => usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens;

/** All of the first turn but its last token, which was sampled and never prefilled, was reused. */
function assertWarm(first, second) {
  const held = promptOf(first) + first.output_tokens - 1;
  assert.ok(second.cache_read_input_tokens >= held, `${second.cache_read_input_tokens} of ${held}`);
}

test("the stream helper tells every piece and builds the whole", async () => {
  const stream = client.messages.stream({ ...common, messages: [{ role: "user", content: "wörld 🌧" }] });
  let text = "";
  stream.on("text", (piece) => (text += piece));
  const message = await stream.finalMessage();
  assert.equal(text, "echo: wörld 🌧");
  assert.deepEqual([message.content[0].text, message.stop_reason], [text, "end_turn"]);
});

test("thinking comes apart, signed, and goes back", async () => {
  const thinking = { type: "enabled", budget_tokens: 1024 };
  const messages = [{ role: "user", content: "THINK:hm\nEMIT:so" }];
  const stream = client.messages.stream({ ...common, max_tokens: 2048, thinking, messages });
  const first = await stream.finalMessage();
  assert.deepEqual(first.content.map((block) => block.type), ["thinking", "text"]);
  assert.ok(first.content[0].signature);
  messages.push({ role: "assistant", content: first.content }, { role: "user", content: "more" });
  const second = await client.messages.create({ ...common, max_tokens: 2048, thinking, messages });
  assert.ok(second.content.some((block) => block.text === "echo: more"));
});

test("a tool loop over the stream helper", async () => {
  const tool = w.weather();
  const turns = [];
  const messages = [{ role: "user", content: w.ASKED }];
  while (turns.length < 4) {
    const turn = await client.messages.stream({ ...common, tools: [TOOL], messages }).finalMessage();
    turns.push(turn);
    if (turn.stop_reason !== "tool_use") break;
    const calls = turn.content.filter((block) => block.type === "tool_use");
    const content = calls.map(({ id, input }) => ({ type: "tool_result", tool_use_id: id, content: tool.get(input) }));
    messages.push({ role: "assistant", content: turn.content }, { role: "user", content });
  }
  assert.deepEqual(tool.asked, w.PLACES);
  assert.equal(turns.at(-1).content[0].text, w.FAREWELL);
  for (const [index, turn] of turns.slice(1).entries()) assertWarm(turns[index].usage, turn.usage);
});

for (const stream of [false, true]) {
  test(`the tool runner runs a loop${stream ? ", streamed" : ""}`, async () => {
    const tool = w.weather();
    const get = betaZodTool({
      name: "get_weather",
      description: w.DESCRIPTION,
      inputSchema: w.PLACE,
      run: (args) => tool.get(args),
    });
    const messages = [{ role: "user", content: w.ASKED }];
    const turns = [];
    for await (const turn of client.beta.messages.toolRunner({ ...common, messages, tools: [get], stream })) {
      turns.push(stream ? await turn.finalMessage() : turn);
    }
    assert.deepEqual(tool.asked, w.PLACES);
    assert.equal(turns.at(-1).content[0].text, w.FAREWELL);
    for (const [index, turn] of turns.slice(1).entries()) assertWarm(turns[index].usage, turn.usage);
  });
}

test("structured output is parsed", async () => {
  const messages = [{ role: "user", content: w.ASKED_FOR_JSON }];
  const output_config = { format: zodOutputFormat(w.ANSWER) };
  const parsed = await client.messages.parse({ ...common, messages, output_config });
  assert.deepEqual(parsed.parsed_output, w.JSON_ANSWER);
});

test("what is counted is what a turn is charged", async () => {
  const said = { model: w.MODEL, system: "be brief", tools: [TOOL], messages: [{ role: "user", content: "hello" }] };
  const counted = await client.messages.countTokens(said);
  const turn = await client.messages.create({ ...said, ...common });
  assert.equal(counted.input_tokens, promptOf(turn.usage));
});

test("models are listed, and mistakes have the classes of the package", async () => {
  const models = [];
  for await (const each of client.models.list()) models.push(each.id);
  assert.deepEqual(models, [w.MODEL]);
  const messages = [{ role: "user", content: "x" }];
  await assert.rejects(client.messages.create({ ...common, model: "gpt-9", messages }), Anthropic.NotFoundError);
  await assert.rejects(client.messages.create({ ...common, messages: [] }), Anthropic.BadRequestError);
  const failing = client.messages.stream({ ...common, messages: [{ role: "user", content: "FAIL:2\nEMIT:hello" }] });
  await assert.rejects(failing.finalMessage(), Anthropic.APIError);
});
