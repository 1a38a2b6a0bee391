// The last minutes of figures, oldest first: what the server kept, and what this page has heard since.

const LONGEST = 900_000; // milliseconds: as long as the server keeps them
const STALE = 3000; // milliseconds after which the server knows more than this page

export class History {
  samples = []; // {time, …figures}; time as performance.now() has it, figures by the server's names

  // Whether the server should be asked for what it kept.
  isStale(now) {
    return !this.samples.length || now - this.samples.at(-1).time > STALE;
  }

  // `columns` is the answer of GET /stats/history.
  seed({ age_seconds: ages, ...columns }, now) {
    const names = Object.keys(columns);
    this.samples = ages.map((age, index) => ({
      time: now - 1000 * age,
      ...Object.fromEntries(names.map((name) => [name, columns[name][index]])),
    }));
  }

  // `stats` is the answer of GET /stats.
  add(now, { throughput, latency, running, waiting, kv, speculation, lora }) {
    const share = (blocks) => (kv.num_blocks ? blocks / kv.num_blocks : null);
    const held = { kv_used: share(kv.used_blocks), kv_cached: share(kv.cached_blocks) };
    const adapters = {
      adapters_on_device: lora?.on_device,
      adapters_waiting: lora?.waiting,
      adapter_hits_per_second: lora?.hits_per_second,
      adapter_loads_per_second: lora?.loads_per_second,
    };
    this.samples.push({ time: now, ...throughput, ...latency, running, waiting, ...held, ...speculation, ...adapters });
    const oldest = now - LONGEST;
    // One sample older than the span stays, so that the line reaches the edge.
    while (this.samples.length > 1 && this.samples[1].time < oldest) this.samples.shift();
  }
}
