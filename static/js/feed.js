/* The live feed of one stream. Events arrive in order, each exactly once, whatever the connection does.

   The client sends {"after": n}; the server answers with frames {"events": [{seq, kind, payload, at}], "head": n}.
   An event that is already here is dropped. A jump is a defect: the socket is closed and opened again after the last
   sequence that is here. States: connecting, live, paused (by the reader), reconnecting (with the age of what is
   shown), ended (the owner is finished, nothing more will come). */

const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 8000;
/* A page that nobody looks at for so long gives its socket back. */
const HIDDEN_CLOSE_MS = 60000;

export class Feed {
  constructor({ stream, after, onEvents, onState }) {
    this.url = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/streams/${stream}/`;
    this.last = Number(after);
    this.onEvents = onEvents;
    this.onState = onState;
    this.waitMs = FIRST_WAIT_MS;
    this.state = "connecting";
    this.defects = 0;
    this.heardAt = Date.now();
    this.socket = null;
    this.timer = 0;
    this.open();
    addEventListener("online", () => this.hurry());
    addEventListener("pagehide", () => this.socket?.close());
    addEventListener("pageshow", (event) => event.persisted && this.hurry());
    document.addEventListener("visibilitychange", () => this.onVisibility());
  }

  open() {
    clearTimeout(this.timer);
    if (this.state === "paused" || this.state === "ended") return;
    const socket = new WebSocket(this.url);
    this.socket = socket;
    this.opened = false;
    socket.onopen = () => {
      this.opened = true;
      socket.send(JSON.stringify({ after: this.last }));
      this.heardAt = Date.now();
      this.set("live");
    };
    socket.onmessage = (message) => socket === this.socket && this.receive(JSON.parse(message.data));
    socket.onclose = () => socket === this.socket && this.closed();
  }

  receive(frame) {
    this.waitMs = FIRST_WAIT_MS;
    this.heardAt = Date.now();
    const fresh = [];
    for (const event of frame.events ?? []) {
      if (event.seq <= this.last) continue;
      if (event.seq !== this.last + 1) {
        this.defects += 1;
        if (fresh.length) this.onEvents(fresh);
        this.socket.close();
        return;
      }
      this.last = event.seq;
      fresh.push(event);
    }
    if (fresh.length) this.onEvents(fresh);
  }

  closed() {
    this.socket = null;
    if (this.state === "paused" || this.state === "ended") return;
    if (!this.opened) this.ask();
    this.set("reconnecting");
    const jitter = 0.75 + Math.random() / 2;
    this.timer = setTimeout(() => this.open(), this.waitMs * jitter);
    this.waitMs = Math.min(LONGEST_WAIT_MS, this.waitMs * 2);
  }

  /* A refused handshake does not say why. The page itself does: signed out, or not allowed any more. */
  async ask() {
    try {
      const answer = await fetch(location.href, { method: "HEAD", redirect: "manual", credentials: "same-origin" });
      if (answer.type !== "opaqueredirect" && answer.status !== 404 && answer.status !== 403) return;
      clearTimeout(this.timer);
      this.set("lost");
    } catch {
      /* The server is away; the timer tries again. */
    }
  }

  hurry() {
    if (this.socket || this.state === "paused" || this.state === "ended") return;
    this.waitMs = FIRST_WAIT_MS;
    this.open();
  }

  onVisibility() {
    if (document.hidden) {
      this.hiddenTimer = setTimeout(() => this.socket?.close(1000), HIDDEN_CLOSE_MS);
    } else {
      clearTimeout(this.hiddenTimer);
      this.hurry();
    }
  }

  toggle() {
    if (this.state === "ended") return;
    if (this.state === "paused") {
      this.set("connecting");
      this.waitMs = FIRST_WAIT_MS;
      this.open();
      return;
    }
    this.set("paused");
    const socket = this.socket;
    this.socket = null;
    clearTimeout(this.timer);
    socket?.close(1000);
  }

  end() {
    this.set("ended");
    this.socket?.close(1000);
  }

  set(state) {
    this.state = state;
    this.onState(state, this.heardAt);
  }
}

/* The button in the top bar: says the state in words, pauses and goes on. */
export function showState(feed) {
  const button = document.querySelector("[data-live]");
  if (!button) return () => {};
  const text = button.querySelector("span");
  const words = { connecting: "connecting", live: "live", paused: "paused", ended: "finished", lost: "signed out, reload the page" };
  let state = "connecting";
  let heardAt = Date.now();
  const draw = () => {
    button.dataset.state = state;
    const age = Math.round((Date.now() - heardAt) / 1000);
    const now = state === "reconnecting" ? `reconnecting, shown ${age} s ago` : words[state];
    if (text.textContent !== now) text.textContent = now;
  };
  setInterval(() => state === "reconnecting" && draw(), 1000);
  button.addEventListener("click", () => feed().toggle());
  return (next, at) => {
    state = next;
    heardAt = at;
    draw();
  };
}

export function follow(element, onEvents) {
  let feed = null;
  const onState = showState(() => feed);
  feed = new Feed({ stream: element.dataset.stream, after: element.dataset.after, onEvents, onState });
  element.dataset.feed = "on";
  return feed;
}
