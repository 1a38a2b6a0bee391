// The last minutes of snapshots, oldest first.

export const SPAN = 180_000; // milliseconds shown

export class History {
  samples = []; // {time, stats}; time as performance.now() has it

  add(time, stats) {
    this.samples.push({ time, stats });
    const oldest = time - SPAN;
    // One sample older than the span stays, so that the line reaches the edge.
    while (this.samples.length > 1 && this.samples[1].time < oldest) this.samples.shift();
  }
}
