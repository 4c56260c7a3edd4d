/** The openai package: Responses and Chat Completions over its stream helpers, tool runner, parsers and WebSocket. */

import assert from "node:assert/strict";
import test from "node:test";

import OpenAI from "openai";
import { zodFunction, zodResponseFormat, zodResponsesFunction, zodTextFormat } from "openai/helpers/zod";
import { ResponsesWS } from "openai/resources/responses/ws";

import { startServer } from "../support/server.js";
import * as w from "../support/weather.js";

const model = w.MODEL;
let server, client;
test.before(async () => {
  server = await startServer();
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", maxRetries: 0 });
});
test.after(() => server.stop());

const responsesTool = zodResponsesFunction({ name: "get_weather", description: w.DESCRIPTION, parameters: w.PLACE });

/** All of the first turn but its last token, which was sampled and never prefilled, was reused. */
function assertWarm(first, second) {
  const cached = second.input_tokens_details?.cached_tokens ?? second.prompt_tokens_details.cached_tokens;
  assert.ok(cached >= first.total_tokens - 1, `${cached} of ${first.total_tokens}`);
}

test("the Responses stream helper tells every piece and builds the whole", async () => {
  const stream = client.responses.stream({ model, input: "THINK:hm\nEMIT:wörld 🌧", reasoning: { effort: "low" } });
  const types = [];
  let text = "";
  for await (const event of stream) {
    types.push(event.type);
    if (event.type === "response.output_text.delta") text += event.delta;
  }
  const final = await stream.finalResponse();
  assert.equal(types[0], "response.created");
  assert.equal(types.at(-1), "response.completed");
  assert.equal(text, "wörld 🌧");
  assert.deepEqual([final.output_text, final.status], ["wörld 🌧", "completed"]);
  assert.ok(final.usage.output_tokens_details.reasoning_tokens > 0);
});

for (const stored of [true, false]) {
  test(`a tool loop over Responses, ${stored ? "by response id" : "sent as a whole"}`, async () => {
    const tool = w.weather();
    const turns = [];
    const said = [{ role: "user", content: w.ASKED }];
    let input = said;
    while (turns.length < 4) {
      const chain = stored ? { previous_response_id: turns.at(-1)?.id } : {};
      const stream = client.responses.stream({ model, input, tools: [responsesTool], store: stored, ...chain });
      const turn = await stream.finalResponse();
      turns.push(turn);
      const calls = turn.output.filter((item) => item.type === "function_call");
      if (!calls.length) break;
      const results = calls.map((call) => {
        const output = tool.get(call.parsed_arguments);
        return { type: "function_call_output", call_id: call.call_id, output };
      });
      said.push(...turn.output.map(({ parsed_arguments, ...item }) => item), ...results);
      input = stored ? results : said;
    }
    assert.deepEqual(tool.asked, w.PLACES);
    assert.equal(turns.at(-1).output_text, w.FAREWELL);
    for (const [index, turn] of turns.slice(1).entries()) assertWarm(turns[index].usage, turn.usage);
  });
}

test("structured output of Responses is parsed", async () => {
  const text = { format: zodTextFormat(w.ANSWER, "answer") };
  const parsed = await client.responses.parse({ model, input: w.ASKED_FOR_JSON, text });
  assert.deepEqual(parsed.output_parsed, w.JSON_ANSWER);
  const streamed = client.responses.stream({ model, input: w.ASKED_FOR_JSON, text });
  assert.deepEqual((await streamed.finalResponse()).output_parsed, w.JSON_ANSWER);
});

test("a response is read, counted, compacted and deleted", async () => {
  const made = await client.responses.create({ model, input: "hello", store: true });
  assert.equal((await client.responses.retrieve(made.id)).output_text, "echo: hello");
  const items = [];
  for await (const item of client.responses.inputItems.list(made.id)) items.push(item.content[0].text);
  assert.deepEqual(items, ["hello"]);
  assert.equal((await client.responses.inputTokens.count({ model, input: "hello" })).input_tokens, made.usage.input_tokens);
  const compacted = await client.responses.compact({ model, input: "hello", previous_response_id: made.id });
  assert.equal(compacted.output.at(-1).type, "compaction");
  await client.responses.delete(made.id);
  await assert.rejects(client.responses.retrieve(made.id), OpenAI.NotFoundError);
});

test("a conversation grows by turns", async () => {
  const conversation = await client.conversations.create({});
  const first = await client.responses.create({ model, input: "one", conversation: conversation.id });
  const second = await client.responses.create({ model, input: "two", conversation: conversation.id });
  assertWarm(first.usage, second.usage);
  const said = [];
  for await (const item of client.conversations.items.list(conversation.id, { order: "asc" })) {
    said.push(item.content[0].text);
  }
  assert.deepEqual(said, ["one", "echo: one", "two", "echo: two"]);
});

test("an unstored response goes on over a WebSocket", async (t) => {
  const socket = new ResponsesWS(client);
  t.after(() => socket.close());
  const say = async (more) => {
    const response = new Promise((resolve, reject) => {
      socket.once("response.completed", (event) => resolve(event.response));
      socket.once("error", reject);
    });
    socket.send({ type: "response.create", model, store: false, ...more });
    return await response;
  };
  const first = await say({ input: "one" });
  const second = await say({ input: "two", previous_response_id: first.id });
  assert.equal(second.output[0].content[0].text, "echo: two");
  assertWarm(first.usage, second.usage);
  await assert.rejects(say({ input: "three", previous_response_id: "resp_none" }), /none/);
});

for (const stream of [false, true]) {
  test(`runTools runs a loop over Chat${stream ? ", streamed" : ""}`, async () => {
    const tool = w.weather();
    const get = zodFunction({
      name: "get_weather",
      description: w.DESCRIPTION,
      parameters: w.PLACE,
      function: (args) => tool.get(args),
    });
    const extra = stream ? { stream, stream_options: { include_usage: true } } : {};
    const messages = [{ role: "user", content: w.ASKED }];
    const runner = client.chat.completions.runTools({ model, messages, tools: [get], ...extra });
    assert.equal(await runner.finalContent(), w.FAREWELL);
    assert.deepEqual(tool.asked, w.PLACES);
    const turns = runner.allChatCompletions();
    assert.equal(turns.length, 3);
    for (const [index, turn] of turns.slice(1).entries()) assertWarm(turns[index].usage, turn.usage);
  });
}

test("the Chat stream helper builds calls that were made side by side", async () => {
  const get = zodFunction({ name: "get_weather", description: w.DESCRIPTION, parameters: w.PLACE });
  const messages = [{ role: "user", content: w.ASKED_OF_BOTH }];
  const stream = client.chat.completions.stream({ model, messages, tools: [get] });
  const done = [];
  stream.on("tool_calls.function.arguments.done", (call) => done.push(call.parsed_arguments.location));
  const final = await stream.finalChatCompletion();
  assert.deepEqual(done, ["Bern", "Oslo"]);
  assert.equal(final.choices[0].finish_reason, "tool_calls");
  assert.equal(new Set(final.choices[0].message.tool_calls.map((call) => call.id)).size, 2);
});

test("structured output of Chat is parsed", async () => {
  const messages = [{ role: "user", content: w.ASKED_FOR_JSON }];
  const response_format = zodResponseFormat(w.ANSWER, "answer");
  const parsed = await client.chat.completions.parse({ model, messages, response_format });
  assert.deepEqual(parsed.choices[0].message.parsed, w.JSON_ANSWER);
});

test("mistakes have the classes of the package", async () => {
  await assert.rejects(client.responses.create({ model: "gpt-9", input: "x" }), OpenAI.NotFoundError);
  await assert.rejects(client.responses.create({ model, input: "x", temperature: 9 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, "temperature");
    return true;
  });
  const failing = client.responses.stream({ model, input: "FAIL:2\nEMIT:hello" });
  await assert.rejects(failing.finalResponse());
});
