// Drives the server with OpenAI's package for Node and prints what came back as one line of JSON.
import OpenAI from "openai";

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

console.log(
  JSON.stringify({
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
