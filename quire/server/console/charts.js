// Which charts there are. Figures are named as GET /stats/history names them.
import { Chart } from "./chart.js";
import { count, duration, rate, share } from "./format.js";

const perSecond = (value) => `${rate(value)}/s`;

export function makeCharts() {
  return [
    new Chart({
      title: "Tokens written",
      format: perSecond,
      smallest: 10,
      lines: [{ name: "generation", figure: "generation_tokens_per_second" }],
    }),
    new Chart({
      title: "Tokens read",
      format: perSecond,
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

export function makeSpeculationCharts() {
  return [
    new Chart({
      title: "Drafts verified",
      format: perSecond,
      smallest: 1,
      lines: [{ name: "drafts", figure: "drafts_per_second" }],
    }),
    new Chart({
      title: "Drafted tokens",
      format: perSecond,
      smallest: 1,
      lines: [
        { name: "accepted", figure: "accepted_tokens_per_second" },
        { name: "drafted", figure: "draft_tokens_per_second" },
      ],
    }),
    new Chart({
      title: "Accepted share",
      format: share,
      smallest: 1,
      lines: [{ name: "accepted", figure: "accepted_share" }],
    }),
    new Chart({
      title: "Mean accepted length",
      format: rate,
      smallest: 1,
      lines: [{ name: "tokens a draft", figure: "mean_accepted_length" }],
    }),
  ];
}

export function makeAdapterCharts() {
  return [
    new Chart({
      title: "Adapters",
      format: count,
      smallest: 4,
      lines: [
        { name: "on the device", figure: "adapters_on_device" },
        { name: "waiting", figure: "adapters_waiting" },
      ],
    }),
    new Chart({
      title: "Requests for adapters",
      format: perSecond,
      smallest: 1,
      lines: [
        { name: "hits", figure: "adapter_hits_per_second" },
        { name: "loads", figure: "adapter_loads_per_second" },
      ],
    }),
  ];
}
