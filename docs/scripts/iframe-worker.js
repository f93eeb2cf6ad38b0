// Search from files. A browser starts no worker of a page that was opened as a file, so
// there the script of the search runs in a frame that nobody sees. The theme looks for
// this name, and for the address of the first script in the frame.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(address) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.hear(data);
      this.ready = new Promise((resolve) => {
        const script = inside.document.createElement("script");
        script.src = new URL(address, document.baseURI);
        script.onload = resolve;
        inside.document.head.append(script);
      });
    }

    hear(data) {
      this.dispatchEvent(new MessageEvent("message", { data }));
    }

    async postMessage(data) {
      await this.ready;
      const inside = this.frame.contentWindow;
      inside.dispatchEvent(new inside.MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
