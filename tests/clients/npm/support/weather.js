/** A tool that leads the model from one place to the next. */

import { z } from "zod";

import { MODEL } from "./server.js";

export const PLACE = z.object({ location: z.string() });
export const ANSWER = z.object({ why: z.string(), answer: z.number().int() });
export const DESCRIPTION = "The weather somewhere.";

const call = (location) => `USE_TOOL:get_weather ${JSON.stringify({ location })}`;
/** What asks for the first call; its result asks for a second one. */
export const ASKED = call("Zürich 🌧");
export const ASKED_OF_BOTH = `${call("Bern")}\n${call("Oslo")}`;
export const ASKED_FOR_JSON = 'EMIT:{"why": "so", "answer": 42}';
export const JSON_ANSWER = { why: "so", answer: 42 };
/** The last words of a loop that began with `ASKED`. */
export const FAREWELL = "tool said: sun";

/** The tool, with the places it was asked about. */
export function weather() {
  const asked = [];
  return {
    asked,
    get({ location }) {
      asked.push(location);
      return asked.length === 1 ? call("東京") : "sun";
    },
  };
}

export const PLACES = ["Zürich 🌧", "東京"];
export { MODEL };
