/* Find in the whole trace, what is not loaded included: the server names the events, the browser marks the words. */

const PAUSE_MS = 200;

export class TraceFind {
  constructor(element, { go, index, whole }) {
    this.bar = element.querySelector("[data-find]");
    this.field = this.bar.querySelector("input");
    this.count = this.bar.querySelector("[data-find-count]");
    this.url = element.dataset.findUrl;
    this.go = go;
    this.index = index;
    this.whole = whole;
    this.hits = [];
    this.at = -1;
    this.words = "";
    this.round = 0;
    element.querySelector("[data-find-open]").addEventListener("click", () => this.open());
    this.bar.querySelector("[data-find-next]").addEventListener("click", () => this.step(1));
    this.bar.querySelector("[data-find-previous]").addEventListener("click", () => this.step(-1));
    this.bar.querySelector("[data-find-close]").addEventListener("click", () => this.close());
    this.field.addEventListener("input", () => this.soon());
    addEventListener("keydown", (event) => this.key(event), true);
  }

  key(event) {
    const isFind = (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey && event.key.toLowerCase() === "f";
    if (isFind && document.activeElement !== this.field && !document.querySelector("dialog[open]")) {
      event.preventDefault();
      this.open();
    } else if (document.activeElement === this.field && event.key === "Enter") {
      event.preventDefault();
      if (this.field.value.trim() !== this.words) this.search();
      else this.step(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape" && !this.bar.hidden && this.bar.contains(document.activeElement)) {
      this.close();
    }
  }

  open() {
    this.bar.hidden = false;
    this.field.focus();
    this.field.select();
  }

  close() {
    this.bar.hidden = true;
    this.hits = [];
    this.words = "";
    this.mark([]);
    document.activeElement?.blur?.();
  }

  soon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.search(), PAUSE_MS);
  }

  async search() {
    clearTimeout(this.timer);
    const words = this.field.value.trim();
    this.round += 1;
    const { round } = this;
    this.words = words;
    if (!words) {
      this.hits = [];
      this.count.textContent = "";
      this.mark([]);
      return;
    }
    this.count.textContent = "…";
    try {
      const answer = await fetch(`${this.url}?q=${encodeURIComponent(words)}`, { credentials: "same-origin" });
      const found = await answer.json();
      if (round !== this.round) return;
      const places = found.seqs.map((seq) => this.index.position(seq)).filter((position) => position !== undefined);
      this.hits = places.sort((a, b) => a - b);
      this.isCut = found.is_cut;
    } catch {
      if (round === this.round) this.count.textContent = "the server did not answer";
      return;
    }
    this.at = -1;
    if (this.hits.length) this.step(1);
    else this.count.textContent = "no event";
  }

  step(by) {
    if (!this.hits.length) return;
    this.at = (this.at + by + this.hits.length) % this.hits.length;
    const total = `${this.hits.length.toLocaleString("en")}${this.isCut ? "+" : ""}`;
    this.count.textContent = `${(this.at + 1).toLocaleString("en")} of ${total} event${this.hits.length === 1 ? "" : "s"}`;
    this.unfolded = null;
    this.go(this.hits[this.at]);
  }

  /* Marks the words in the cards that are drawn; the hit's own card is opened if it hides them. */
  mark(drawn) {
    if (!globalThis.CSS?.highlights) return;
    CSS.highlights.delete("find");
    if (!this.words || this.bar.hidden) return;
    const found = [];
    for (const [position, slot] of drawn) {
      const ranges = rangesOf(slot, this.words.toLowerCase());
      found.push(...ranges);
      if (!ranges.length && position === this.hits[this.at] && this.unfolded !== position && slot.dataset.slot) {
        this.unfolded = position;
        for (const fold of slot.querySelectorAll("details:not([open])")) fold.open = true;
        const button = slot.querySelector("[data-whole]");
        if (button) this.whole(Number(button.dataset.whole));
      }
    }
    if (found.length) CSS.highlights.set("find", new Highlight(...found));
  }
}

function rangesOf(slot, words) {
  const ranges = [];
  const walker = document.createTreeWalker(slot, NodeFilter.SHOW_TEXT);
  while (walker.nextNode() && ranges.length < 200) {
    const text = walker.currentNode.data.toLowerCase();
    for (let at = text.indexOf(words); at >= 0; at = text.indexOf(words, at + words.length)) {
      const range = new Range();
      range.setStart(walker.currentNode, at);
      range.setEnd(walker.currentNode, Math.min(walker.currentNode.length, at + words.length));
      ranges.push(range);
    }
  }
  return ranges;
}
