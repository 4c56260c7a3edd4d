/** The AI SDK (`ai`) over each of its providers that speaks one of our APIs. */

import assert from "node:assert/strict";
import test from "node:test";

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";

import { startServer } from "../support/server.js";
import { startTap, usageOf } from "../support/tap.js";
import * as w from "../support/weather.js";

let server;
test.before(async () => (server = await startServer()));
test.after(() => server.stop());

/** How each is pointed at a server. */
const MODELS = {
  "@ai-sdk/openai (Responses)": (baseURL) => createOpenAI({ baseURL, apiKey: "none" }).responses(w.MODEL),
  "@ai-sdk/openai (Chat)": (baseURL) => createOpenAI({ baseURL, apiKey: "none" }).chat(w.MODEL),
  "@ai-sdk/anthropic": (baseURL) => createAnthropic({ baseURL, apiKey: "none" })(w.MODEL),
  "@ai-sdk/openai-compatible": (baseURL) => {
    const settings = { name: "warmlane", baseURL, includeUsage: true, supportsStructuredOutputs: true };
    return createOpenAICompatible(settings)(w.MODEL);
  },
};
/** Options and prompts that make an object: that of Anthropic can be asked for a schema, or for a call of a tool `json`. */
function structured(name) {
  if (name !== "@ai-sdk/anthropic") return [[{}, w.ASKED_FOR_JSON]];
  return [
    [{ anthropic: { structuredOutputMode: "outputFormat" } }, w.ASKED_FOR_JSON],
    [{ anthropic: { structuredOutputMode: "jsonTool" } }, `USE_TOOL:json ${JSON.stringify(w.JSON_ANSWER)}`],
  ];
}
const COMMON = { maxOutputTokens: 1000, maxRetries: 0 };

for (const [name, make] of Object.entries(MODELS)) {
  const model = () => make(`${server.url}/v1`);

  for (const ask of [generateText, streamText]) {
    test(`${name}: ${ask.name} runs a loop of tools`, async (t) => {
      const tap = await startTap(server.url);
      t.after(tap.stop);
      const kept = w.weather();
      const get_weather = tool({
        description: w.DESCRIPTION,
        inputSchema: w.PLACE,
        execute: async (args) => kept.get(args),
      });
      const answer = await ask({
        model: make(`${tap.url}/v1`),
        system: "be brief",
        prompt: w.ASKED,
        tools: { get_weather },
        stopWhen: stepCountIs(4),
        ...COMMON,
      });
      assert.equal(await answer.text, w.FAREWELL);
      assert.deepEqual(kept.asked, w.PLACES);
      assert.equal((await answer.steps).length, 3);
      assert.equal(await answer.finishReason, "stop");
      const used = tap.exchanges.map(usageOf);
      for (const [index, { cached }] of used.slice(1).entries()) {
        assert.ok(cached >= used[index].prompt + used[index].output - 1, JSON.stringify(used));
      }
      const steps = await answer.steps;
      assert.deepEqual(steps.map((step) => step.usage.inputTokens), used.map((each) => each.prompt));
      assert.deepEqual(steps.map((step) => step.usage.inputTokenDetails.cacheReadTokens), used.map((each) => each.cached));
    });
  }

  test(`${name}: structured output`, async () => {
    const asked = { ...COMMON, model: model(), output: Output.object({ schema: w.ANSWER }) };
    for (const [how, prompt] of structured(name)) {
      const answer = await generateText({ ...asked, prompt, providerOptions: how });
      assert.deepEqual(answer.output, w.JSON_ANSWER);
      const streamed = streamText({ ...asked, prompt, providerOptions: how });
      const parts = [];
      for await (const part of streamed.partialOutputStream) parts.push(part);
      assert.deepEqual(parts.at(-1), w.JSON_ANSWER);
    }
  });

  test(`${name}: a fault in a stream is told`, async () => {
    const errors = [];
    const onError = ({ error }) => errors.push(error);
    const answer = streamText({ model: model(), prompt: "FAIL:2\nEMIT:hello", ...COMMON, onError });
    await answer.consumeStream();
    assert.equal(errors.length, 1);
  });
}
