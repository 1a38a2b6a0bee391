// Which charts there are.
import { Chart } from "./chart.js";
import { count, duration, rate, share } from "./format.js";

export function makeCharts() {
  return [
    new Chart({
      title: "Tokens written",
      format: (value) => `${rate(value)}/s`,
      smallest: 10,
      lines: [{ name: "generation", pick: (stats) => stats.throughput.generation_tokens_per_second }],
    }),
    new Chart({
      title: "Tokens read",
      format: (value) => `${rate(value)}/s`,
      smallest: 10,
      lines: [{ name: "prompts", pick: (stats) => stats.throughput.prompt_tokens_per_second }],
    }),
    new Chart({
      title: "Time to first token",
      format: duration,
      smallest: 0.01,
      lines: [
        { name: "median", pick: (stats) => stats.latency.ttft_p50 },
        { name: "95 %", pick: (stats) => stats.latency.ttft_p95 },
      ],
    }),
    new Chart({
      title: "Time between tokens",
      format: duration,
      smallest: 0.001,
      lines: [
        { name: "median", pick: (stats) => stats.latency.itl_p50 },
        { name: "95 %", pick: (stats) => stats.latency.itl_p95 },
      ],
    }),
    new Chart({
      title: "Requests",
      format: count,
      smallest: 5,
      lines: [
        { name: "running", pick: (stats) => stats.running },
        { name: "waiting", pick: (stats) => stats.waiting },
      ],
    }),
    new Chart({
      title: "KV cache",
      format: share,
      smallest: 1,
      lines: [
        { name: "used", pick: (stats) => stats.kv.utilisation },
        { name: "cached", pick: ({ kv }) => (kv.num_blocks ? kv.cached_blocks / kv.num_blocks : null) },
      ],
    }),
  ];
}
