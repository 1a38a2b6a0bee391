// Browsers start no workers on pages that were opened as files, and the search is one. There it runs in a frame instead.
// (The name has "iframe-worker" in it, so that Zensical does not load a script for the same end from the internet.)
if (location.protocol === "file:") {
  window.Worker = class {
    onmessage = null;
    #frame = document.createElement("iframe");
    #waiting = [];
    #isReady = false;

    constructor(url) {
      this.#frame.hidden = true;
      document.documentElement.append(this.#frame);
      const inside = this.#frame.contentWindow;
      inside.postMessage = (data) => setTimeout(() => this.onmessage?.({ data }));
      const script = inside.document.createElement("script");
      script.src = url;
      script.onload = () => {
        this.#isReady = true;
        this.#waiting.splice(0).forEach((data) => this.postMessage(data));
      };
      inside.document.documentElement.append(script);
    }

    postMessage(data) {
      if (this.#isReady) setTimeout(() => this.#frame.contentWindow?.onmessage({ data }));
      else this.#waiting.push(data);
    }

    terminate() {
      this.#frame.remove();
    }
  };
}
