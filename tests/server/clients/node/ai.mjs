// Drives the server with the Vercel AI SDK and prints what came back as one line of JSON.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, stepCountIs, streamObject, streamText, tool } from "ai";
import { z } from "zod";

const [url, model] = process.argv.slice(2);
const options = { baseURL: `${url}/v1`, apiKey: "none" };
const compatible = createOpenAICompatible({
  ...options,
  name: "quire",
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const openai = createOpenAI(options);
const providers = {
  compatible: compatible(model),
  chat: openai.chat(model),
  responses: openai.responses(model),
};

const prompt = "What is the weather in Paris, in celsius?";
const weather = z.strictObject({ city: z.string().max(20), unit: z.enum(["celsius", "fahrenheit"]) });
const schema = z.strictObject({
  sky: z.enum(["clear", "cloudy"]),
  wind: z.strictObject({ isStrong: z.boolean(), origin: z.enum(["north", "south"]) }),
});

async function texts(asked) {
  const short = { ...asked, maxOutputTokens: 12 };
  const whole = await generateText(short);
  const stream = streamText(short);
  let streamed = "";
  for await (const piece of stream.textStream) streamed += piece;
  const usage = await stream.usage;
  return { whole: whole.text, streamed, outputTokens: usage.outputTokens, finishReason: await stream.finishReason };
}

// The first step must call, the second must not: the SDK runs the tool and sends its result back in between.
async function tools(asked) {
  const ran = [];
  const get_weather = tool({
    description: "The weather of a city.",
    inputSchema: weather,
    execute: async (input) => {
      ran.push(input);
      return { degrees: 21 };
    },
  });
  const round = {
    ...asked,
    maxOutputTokens: 60,
    tools: { get_weather },
    stopWhen: stepCountIs(2),
    prepareStep: ({ stepNumber }) => ({
      toolChoice: stepNumber === 0 ? { type: "tool", toolName: "get_weather" } : "none",
    }),
  };
  const whole = await generateText(round);
  const stream = streamText(round);
  const parts = [];
  for await (const part of stream.fullStream) parts.push(part.type);
  const steps = (all) =>
    all.map((step) => ({
      calls: step.toolCalls.map((call) => ({ name: call.toolName, input: call.input, invalid: call.invalid ?? false })),
      text: step.text,
      inputTokens: step.usage.inputTokens,
    }));
  return { ran, whole: steps(whole.steps), streamed: steps(await stream.steps), parts };
}

async function objects(asked) {
  const bound = { ...asked, schema, maxOutputTokens: 100 };
  const whole = await generateObject(bound);
  const stream = streamObject(bound);
  let partials = 0;
  for await (const _ of stream.partialObjectStream) partials += 1;
  return { whole: whole.object, streamed: await stream.object, partials };
}

const answers = {};
for (const [name, provider] of Object.entries(providers)) {
  const asked = { model: provider, prompt, temperature: 0, maxRetries: 0 };
  answers[name] = { texts: await texts(asked), tools: await tools(asked), objects: await objects(asked) };
}
console.log(JSON.stringify(answers));
