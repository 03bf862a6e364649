// The search runs in a Worker, which browsers do not allow on pages opened from a file. There it runs in a hidden frame.
"use strict";

if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.room = frame.contentWindow;
      this.room.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.room.importScripts = (...urls) => Promise.all(urls.map((each) => this.load(each)));
      this.ready = this.load(url);
    }

    load(url) {
      return new Promise((resolve, reject) => {
        const script = this.room.document.createElement("script");
        script.src = url;
        script.onload = resolve;
        script.onerror = () => reject(new Error(`${url} cannot be loaded`));
        this.room.document.body.append(script);
      });
    }

    postMessage(data) {
      this.ready.then(() => this.room.dispatchEvent(new this.room.MessageEvent("message", { data })));
    }

    terminate() {
      this.room.frameElement.remove();
    }
  };
}
