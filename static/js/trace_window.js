/* The part of a long trace that is near the window, between two pads that are as high as what is left out.

   Rows are measured once they are drawn. Whatever is measured, arrives or unfolds, the row that is being read stays
   where it is: the page is scrolled by as much as that row was moved. */
import { Heights } from "./trace_heights.js";

const NEAR_PX = 900;
const MOST_ROWS = 120;

export class TraceWindow {
  constructor(box, index, store, { onMove }) {
    this.box = box;
    this.index = index;
    this.store = store;
    this.onMove = onMove;
    this.measured = new Map();
    this.before = pad();
    this.after = pad();
    this.drawn = new Map();
    this.pin = null;
    this.isPlanned = false;
    for (const slot of box.querySelectorAll(":scope > [data-slot]")) store.put(slot);
    box.replaceChildren(this.before, this.after);
    document.documentElement.classList.add("windowed");
    this.sizes = new ResizeObserver(() => this.plan());
    this.reset();
    addEventListener("scroll", () => this.plan(), { passive: true });
    addEventListener("resize", () => {
      this.measured.clear();
      this.reset();
      this.plan();
    });
    for (const name of ["wheel", "touchmove", "pointerdown"]) {
      addEventListener(name, () => (this.pin = null), { passive: true });
    }
  }

  /* The rows to show have changed. */
  reset() {
    const anchor = this.anchor();
    this.heights = new Heights(this.index.shown.map((at) => this.measured.get(at) ?? this.index.height(at)));
    for (const slot of this.drawn.values()) slot.remove();
    this.drawn.clear();
    if (anchor) {
      const row = this.index.rows.get(anchor.position);
      if (row !== undefined) this.pin = { position: anchor.position, top: anchor.top, isSoft: true };
    }
  }

  grown(count) {
    for (let row = this.index.shown.length - count; row < this.index.shown.length; row += 1) {
      if (!this.heights.push(this.index.height(this.index.shown[row]))) {
        this.reset();
        break;
      }
    }
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

  get topEdge() {
    return this.edge?.getBoundingClientRect().bottom ?? 100;
  }

  /* What is being read: the first drawn row that ends below the bars at the top. */
  anchor() {
    const edge = this.topEdge;
    for (const [position, slot] of this.drawn) {
      const { top, bottom } = slot.getBoundingClientRect();
      if (bottom > edge) return top < innerHeight ? { position, top } : null;
    }
    return null;
  }

  draw() {
    if (!this.box.isConnected) return;
    const { shown, rows } = this.index;
    if (!shown.length) {
      this.before.style.height = this.after.style.height = "0px";
      return;
    }
    let held = this.pin && rows.has(this.pin.position) ? this.pin : this.anchor();
    const place = () => this.box.getBoundingClientRect().top;
    if (held === this.pin && held) {
      const y = place() + this.heights.sum(rows.get(held.position)) - held.top;
      if (!this.drawn.has(held.position)) scrollBy(0, y);
    }
    const top = -place();
    const first = this.heights.find(Math.max(0, top - NEAR_PX));
    const last = Math.min(first + MOST_ROWS, this.heights.find(Math.max(0, top + innerHeight + NEAR_PX)));
    this.exchange(first, last);
    this.before.style.height = `${this.heights.sum(first)}px`;
    let isMoved = false;
    for (const [position, slot] of this.drawn) {
      const height = slot.getBoundingClientRect().height;
      const row = rows.get(position);
      if (Math.abs(height - this.heights.get(row)) > 0.5) {
        this.heights.set(row, height);
        isMoved = true;
      }
      if (slot.dataset.slot) this.measured.set(position, height);
    }
    this.after.style.height = `${Math.max(0, this.heights.total - this.heights.sum(last + 1))}px`;
    if (held && this.drawn.has(held.position)) {
      const moved = this.drawn.get(held.position).getBoundingClientRect().top - held.top;
      if (Math.abs(moved) > 0.5) {
        const from = scrollY;
        scrollBy({ top: moved, behavior: "instant" });
        isMoved ||= Math.abs(scrollY - from) > 1;
      }
      if (this.pin?.isSoft) this.pin = null;
    }
    if (isMoved) this.plan();
    this.onMove(this.anchor(), first, last);
  }

  exchange(first, last) {
    const { shown, index } = { shown: this.index.shown, index: this.index };
    const wanted = [];
    const keep = new Set();
    for (let row = first; row <= last; row += 1) keep.add(shown[row]);
    for (const [position, slot] of this.drawn) {
      const card = this.store.get(index.seq(position));
      if (keep.has(position) && (!card || card === slot)) continue;
      this.sizes.unobserve(slot);
      slot.remove();
      this.drawn.delete(position);
    }
    const next = new Map();
    let behind = this.before;
    for (let row = first; row <= last; row += 1) {
      const position = shown[row];
      let slot = this.drawn.get(position);
      if (!slot) {
        slot = this.store.get(index.seq(position)) ?? this.ghost(position);
        this.sizes.observe(slot);
      }
      if (behind.nextElementSibling !== slot) behind.after(slot);
      next.set(position, slot);
      behind = slot;
      if (!slot.dataset.slot) wanted.push(index.seq(position));
    }
    this.drawn = next;
    this.store.want(wanted);
  }

  /* A card that is on its way: what it will be, as high as it probably is. */
  ghost(position) {
    const slot = document.createElement("div");
    slot.className = "slot ghost";
    slot.style.height = `${this.heights.get(this.index.rows.get(position))}px`;
    const inner = document.createElement("div");
    inner.className = "ev";
    inner.textContent = `E${this.index.seq(position)} ${this.index.kind(position).replaceAll("_", " ")}`;
    slot.append(inner);
    return slot;
  }

  /* Brings a row to `top` px below the bars and holds it there until the reader scrolls. */
  go(position, { below = 12 } = {}) {
    this.pin = { position, top: this.topEdge + below };
    const row = this.index.rows.get(position);
    scrollBy({ top: this.box.getBoundingClientRect().top + this.heights.sum(row) - this.pin.top, behavior: "instant" });
    this.plan();
  }

  isAtEnd() {
    return innerHeight + scrollY >= document.documentElement.scrollHeight - 120;
  }

  toEnd() {
    this.pin = null;
    scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
    this.plan();
  }
}

function pad() {
  const element = document.createElement("div");
  element.className = "pad";
  element.setAttribute("aria-hidden", "true");
  return element;
}
