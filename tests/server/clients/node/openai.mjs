// Drives the server with OpenAI's package for Node and prints what came back as one line of JSON.
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const [url, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0, timeout: 120_000 });
const messages = [{ role: "user", content: "What is the capital of France? Answer in one word." }];
const asked = { model, messages, temperature: 0, max_tokens: 12 };

const whole = await client.chat.completions.create(asked);

let streamed = "";
let usage = null;
const stream = await client.chat.completions.create({
  ...asked,
  stream: true,
  stream_options: { include_usage: true },
});
for await (const chunk of stream) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}

const long = await client.chat.completions.create({ ...asked, max_tokens: 4000, ignore_eos: true, stream: true });
for await (const chunk of long) {
  if (chunk.choices[0]?.delta?.content) break; // leaving the loop aborts the request
}

const completion = await client.completions.create({
  model,
  prompt: ["The capital of France is", "Two and two make"],
  temperature: 0,
  max_tokens: 4,
});

const models = [];
for await (const one of client.models.list()) models.push(one.id);

async function failing(call) {
  try {
    await call();
    return null;
  } catch (error) {
    return { name: error.constructor.name, status: error.status, param: error.param, code: error.code };
  }
}

const wrongModel = await failing(() => client.chat.completions.create({ ...asked, model: "no-such-model" }));
const badField = await failing(() => client.chat.completions.create({ ...asked, temperature: -1 }));

const line = { custom_id: "one", method: "POST", url: "/v1/chat/completions", body: asked };
const file = await client.files.create({
  file: await OpenAI.toFile(Buffer.from(JSON.stringify(line) + "\n"), "in.jsonl"),
  purpose: "batch",
});
let batch = await client.batches.create({
  input_file_id: file.id,
  endpoint: "/v1/chat/completions",
  completion_window: "24h",
});
while (!["completed", "failed", "expired", "cancelled"].includes(batch.status)) {
  batch = await client.batches.retrieve(batch.id);
}
const output = await (await client.files.content(batch.output_file_id)).text();

const question = "What is the weather in Paris, in celsius?";
const chat = { model, messages: [{ role: "user", content: question }], temperature: 0, max_tokens: 80 };
const parameters = {
  type: "object",
  properties: { city: { type: "string", maxLength: 20 }, unit: { enum: ["celsius", "fahrenheit"] } },
  required: ["city", "unit"],
  additionalProperties: false,
};
const get_weather = { name: "get_weather", description: "The weather of a city.", parameters };

async function tools() {
  const forced = {
    ...chat,
    tools: [{ type: "function", function: get_weather }],
    tool_choice: { type: "function", function: { name: "get_weather" } },
  };
  const { message } = (await client.chat.completions.create(forced)).choices[0];
  const stream = await client.chat.completions.stream(forced).finalChatCompletion();
  const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "21 degrees" };
  const messages = [...chat.messages, message, result];
  const answer = await client.chat.completions.create({ ...forced, messages, tool_choice: "none" });
  const calls = (from) => from.tool_calls.map((call) => [call.function.name, call.function.arguments]);
  return {
    whole: calls(message),
    streamed: calls(stream.choices[0].message),
    answer: answer.choices[0].message.content,
  };
}

// The client runs the function itself, and goes on with its result until an answer is no call.
async function ranTools() {
  const ran = [];
  const run = {
    ...get_weather,
    parse: JSON.parse,
    function: (given) => {
      ran.push(given);
      return "21 degrees";
    },
  };
  const asked = { ...chat, tools: [{ type: "function", function: run }], tool_choice: "required" };
  const runner = client.chat.completions.runTools({ ...asked, parallel_tool_calls: false }, { maxChatCompletions: 2 });
  await runner.done();
  return { ran, roles: runner.messages.map((message) => message.role) };
}

const report = z.strictObject({
  sky: z.enum(["clear", "cloudy"]),
  wind: z.strictObject({ isStrong: z.boolean(), origin: z.enum(["north", "south"]) }),
});

async function structured() {
  const asked = { ...chat, response_format: zodResponseFormat(report, "report") };
  const parsed = await client.chat.completions.parse(asked);
  const stream = await client.chat.completions.stream(asked).finalChatCompletion();
  return { whole: parsed.choices[0].message.parsed, streamed: stream.choices[0].message.parsed };
}

async function responses() {
  const asked = { model, input: question, temperature: 0, max_output_tokens: 80 };
  const text = { format: zodTextFormat(report, "report") };
  const parsed = await client.responses.parse({ ...asked, text });
  const types = [];
  const stream = client.responses.stream({ ...asked, text });
  for await (const event of stream) types.push(event.type);
  const tools = [{ type: "function", strict: true, ...get_weather }];
  const forced = { ...asked, tools, tool_choice: { type: "function", name: "get_weather" } };
  const called = await client.responses.create(forced);
  const [call] = called.output;
  const answer = await client.responses.create({
    ...forced,
    tool_choice: "none",
    previous_response_id: called.id,
    input: [{ type: "function_call_output", call_id: call.call_id, output: "21 degrees" }],
  });
  return {
    whole: parsed.output_parsed,
    streamed: (await stream.finalResponse()).output_parsed,
    types,
    call: [call.type, call.name, call.arguments],
    answer: answer.output_text,
  };
}

console.log(
  JSON.stringify({
    tools: await tools(),
    ranTools: await ranTools(),
    structured: await structured(),
    responses: await responses(),
    whole: whole.choices[0].message.content,
    streamed,
    completionTokens: usage?.completion_tokens,
    choices: completion.choices.map((choice) => choice.index),
    models,
    wrongModel,
    badField,
    batch: JSON.parse(output).response.body.choices[0].message.content,
  }),
);
