/* The outline: one line per event of the same height, drawn where it is looked at, labels from the server. */
import { ranges } from "./trace_store.js";

const LINE_PX = 27;
const BLOCK = 100;
const NEAR = 8;

export class TraceOutline {
  constructor(nav, index, url) {
    this.nav = nav;
    this.box = nav.querySelector("[data-outline]");
    this.index = index;
    this.url = url;
    this.lines = new Map();
    this.loading = new Set();
    this.current = null;
    this.here = null;
    this.isPlanned = false;
    for (const line of this.box.querySelectorAll("[data-seq]")) this.lines.set(Number(line.dataset.seq), line);
    this.box.replaceChildren();
    nav.addEventListener("scroll", () => this.plan(), { passive: true });
    new ResizeObserver(() => this.plan()).observe(nav);
    this.reset();
  }

  reset() {
    this.box.style.height = `${this.index.shown.length * LINE_PX}px`;
    this.plan();
  }

  forget(seqs) {
    for (const seq of seqs) this.lines.delete(seq);
    this.plan();
  }

  plan() {
    if (this.isPlanned) return;
    this.isPlanned = true;
    requestAnimationFrame(() => {
      this.isPlanned = false;
      this.draw();
    });
  }

  draw() {
    const height = this.nav.clientHeight;
    if (!height || !this.nav.isConnected) return;
    const { shown } = this.index;
    const first = Math.max(0, Math.floor(this.nav.scrollTop / LINE_PX) - NEAR);
    const last = Math.min(shown.length - 1, Math.ceil((this.nav.scrollTop + height) / LINE_PX) + NEAR);
    const lines = [];
    const missing = new Set();
    for (let row = first; row <= last; row += 1) {
      const position = shown[row];
      const seq = this.index.seq(position);
      const line = this.lines.get(seq) ?? this.ghost(position);
      if (line.dataset.ghost !== undefined) missing.add(Math.floor(row / BLOCK));
      line.style.top = `${row * LINE_PX}px`;
      const depth = Math.min(6, this.index.depth(position));
      if (depth) line.dataset.depth = depth;
      if (position === this.current) line.setAttribute("aria-current", "true");
      else line.removeAttribute("aria-current");
      line.classList.toggle("here", position === this.here);
      lines.push(line);
    }
    const now = this.box.children;
    if (now.length !== lines.length || lines.some((line, i) => now[i] !== line)) this.box.replaceChildren(...lines);
    for (const block of missing) this.load(block);
  }

  ghost(position) {
    const seq = this.index.seq(position);
    const line = document.createElement("a");
    line.href = `#e${seq}`;
    line.dataset.seq = seq;
    line.dataset.ghost = "";
    const what = document.createElement("span");
    what.className = "what";
    what.textContent = this.index.kind(position).replaceAll("_", " ");
    line.append(what);
    return line;
  }

  async load(block) {
    const { shown } = this.index;
    const seqs = shown
      .slice(block * BLOCK, (block + 1) * BLOCK)
      .map((position) => this.index.seq(position))
      .filter((seq) => !this.lines.has(seq));
    const key = `${block} ${seqs.length}`;
    if (!seqs.length || this.loading.has(key)) return;
    this.loading.add(key);
    try {
      const answer = await fetch(`${this.url}?seqs=${ranges(seqs)}`, { credentials: "same-origin" });
      if (!answer.ok) return;
      const box = document.createElement("template");
      box.innerHTML = await answer.text();
      for (const line of box.content.querySelectorAll("[data-seq]")) this.lines.set(Number(line.dataset.seq), line);
      this.plan();
    } catch {
      /* Lines keep the word of their kind; the next look asks again. */
    } finally {
      this.loading.delete(key);
    }
  }

  /* The event that is being read; the outline moves along unless a pointer is on it. */
  follow(position) {
    if (position === this.here) return;
    this.here = position;
    if (!this.nav.matches(":hover, :focus-within")) this.reveal(position);
    this.plan();
  }

  choose(position) {
    this.current = position;
    this.reveal(position);
    this.plan();
  }

  reveal(position) {
    const row = this.index.rows.get(position);
    if (row === undefined || !this.nav.clientHeight) return;
    const top = row * LINE_PX;
    const view = this.nav.clientHeight;
    if (top < this.nav.scrollTop + LINE_PX) this.nav.scrollTop = top - LINE_PX;
    else if (top > this.nav.scrollTop + view - 3 * LINE_PX) this.nav.scrollTop = top - view + 3 * LINE_PX;
  }
}
