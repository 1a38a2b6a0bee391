// Server-sent events of a response's body, as they come.

// Yields the data of each event; ends with the stream, and lets go of it when the reader stops early.
export async function* serverSentEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let pending = "";
  let data = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (pending + value).split(/\r?\n/);
      pending = lines.pop();
      for (const line of lines) {
        if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
        else if (line === "" && data.length) {
          yield data.join("\n");
          data = [];
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // an aborted stream is already gone
  }
}
