// Which charts there are. Figures are named as GET /stats/history names them.
import { Chart } from "./chart.js";
import { count, duration, rate, share } from "./format.js";

export function makeCharts() {
  return [
    new Chart({
      title: "Tokens written",
      format: (value) => `${rate(value)}/s`,
      smallest: 10,
      lines: [{ name: "generation", figure: "generation_tokens_per_second" }],
    }),
    new Chart({
      title: "Tokens read",
      format: (value) => `${rate(value)}/s`,
      smallest: 10,
      lines: [{ name: "prompts", figure: "prompt_tokens_per_second" }],
    }),
    new Chart({
      title: "Time to first token",
      format: duration,
      smallest: 0.01,
      lines: [
        { name: "median", figure: "ttft_p50" },
        { name: "95 %", figure: "ttft_p95" },
      ],
    }),
    new Chart({
      title: "Time between tokens",
      format: duration,
      smallest: 0.001,
      lines: [
        { name: "median", figure: "itl_p50" },
        { name: "95 %", figure: "itl_p95" },
      ],
    }),
    new Chart({
      title: "Requests",
      format: count,
      smallest: 4,
      lines: [
        { name: "running", figure: "running" },
        { name: "waiting", figure: "waiting" },
      ],
    }),
    new Chart({
      title: "KV cache",
      format: share,
      smallest: 0.01,
      lines: [
        { name: "used", figure: "kv_used" },
        { name: "cached", figure: "kv_cached" },
      ],
    }),
  ];
}
