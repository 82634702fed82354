/* Stores the draft by itself, one request at a time, and says how that went. Nothing is overwritten: a request names
   the revision that it changes. */

const TYPING_MS = 700;
const AGAIN_MS = [2000, 5000, 15000];

export class Saving {
  constructor({ store, url, token, show, onReading, onStale, onTrouble }) {
    Object.assign(this, { store, url, token, show, onReading, onStale, onTrouble });
    this.timer = 0;
    this.running = null;
    this.failures = 0;
    this.isStopped = false;
    store.addEventListener("change", (event) => this.soon(event.detail.structural ? 50 : TYPING_MS));
    addEventListener("beforeunload", (event) => store.isDirty && !this.isStopped && event.preventDefault());
    addEventListener("online", () => store.isDirty && this.soon(0));
  }

  soon(delayMs) {
    if (this.isStopped) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.flush(), delayMs);
  }

  /* True once all that is written is stored. */
  async flush() {
    clearTimeout(this.timer);
    while (this.store.isDirty) {
      this.running ??= this.send().finally(() => (this.running = null));
      if (!(await this.running)) return false;
    }
    return true;
  }

  async send() {
    const { store } = this;
    const spec = structuredClone(store.spec);
    this.show("saving", "saving…");
    let answer, body;
    try {
      answer = await fetch(this.url, {
        method: "POST",
        body: JSON.stringify({ spec, revision: store.revision }),
        headers: { "Content-Type": "application/json", Accept: "application/json", "X-CSRFToken": this.token },
        credentials: "same-origin",
      });
      body = answer.headers.get("Content-Type")?.startsWith("application/json") ? await answer.json() : null;
    } catch {
      return this.failed("the server does not answer", true);
    }
    if (answer.ok && body) {
      this.failures = 0;
      store.stored = spec;
      store.storedText = JSON.stringify(spec);
      store.revision = body.revision;
      this.onTrouble("");
      this.show("saved", `saved ${clock(body.saved_at)}`, body);
      this.onReading(body);
      return true;
    }
    if (answer.status === 409) {
      this.show("failed", "not saved: somebody else has written");
      this.onStale(body);
      return false;
    }
    if (answer.status === 410) {
      this.isStopped = true;
      return this.failed(body.error, false);
    }
    if (answer.status === 422) return this.failed(body.error, false);
    if (answer.redirected || answer.status === 403)
      return this.failed("you are signed out or may not edit; sign in again in another tab", true);
    return this.failed(`the server refused this (${answer.status})`, true);
  }

  failed(why, isTriedAgain) {
    this.show("failed", `not saved: ${why}`);
    this.onTrouble(`This could not be saved: ${why}. What you wrote is still here.`);
    if (isTriedAgain) {
      this.soon(AGAIN_MS[Math.min(this.failures, AGAIN_MS.length - 1)]);
      this.failures += 1;
    }
    return false;
  }
}

export function clock(instant) {
  const time = new Date(instant);
  const two = (number) => String(number).padStart(2, "0");
  return `${two(time.getUTCHours())}:${two(time.getUTCMinutes())} UTC`;
}
