/* The part of a long trace that is near the window, between two pads that are as high as what is left out.

   Rows are measured once they are drawn. Whatever is measured, arrives or unfolds, the row that is being read stays
   where it is: the page is scrolled by as much as that row was moved. */
import { Heights } from "./trace_heights.js";

/* Drawn beyond the window; and how much of it may be used up before the rows are exchanged. */
const NEAR_PX = 1200;
const LEAST_PX = 500;
const MOST_ROWS = 120;
/* Below every card, in trace_view.css. */
const SLOT_PADDING = 12;

export class TraceWindow {
  constructor(box, index, store, { onMove, onRelease }) {
    this.box = box;
    this.index = index;
    this.store = store;
    this.onMove = onMove;
    this.onRelease = onRelease;
    this.measured = new Map();
    this.before = pad();
    this.after = pad();
    this.drawn = new Map();
    this.pin = null;
    this.sticks = false;
    this.isPlanned = false;
    this.isStale = true;
    this.range = null;
    for (const slot of box.querySelectorAll(":scope > [data-slot]")) store.put(slot);
    box.replaceChildren(this.before, this.after);
    document.documentElement.classList.add("windowed");
    this.sizes = new ResizeObserver((entries) => this.resized(entries));
    this.width = innerWidth;
    this.reset();
    addEventListener("scroll", () => this.plan(), { passive: true });
    addEventListener("resize", () => {
      if (innerWidth === this.width) return this.update();
      this.width = innerWidth;
      this.measured.clear();
      this.reset();
      this.update();
    });
    for (const name of ["wheel", "touchmove", "pointerdown", "keydown"]) {
      addEventListener(name, (event) => this.moves(event), { passive: true, capture: true });
    }
  }

  /* The rows to show have changed. */
  reset() {
    const anchor = this.anchor();
    this.heights = new Heights(this.index.shown.map((at) => this.measured.get(at) ?? this.index.height(at)));
    for (const slot of this.drawn.values()) slot.remove();
    this.drawn.clear();
    this.range = null;
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
    this.update();
  }

  /* The reader moves the page now: nothing is held in its place, and going up ends following. */
  moves(event) {
    this.pin = null;
    const isUp = event.deltaY < 0 || event.type === "touchmove" || ["ArrowUp", "PageUp", "Home"].includes(event.key);
    if (!isUp || !this.sticks) return;
    this.sticks = false;
    this.onRelease();
  }

  resized(entries) {
    for (const { target, contentRect } of entries) {
      if (Math.abs(contentRect.height - (target.measuredHeight ?? 0)) > 0.5) this.update();
    }
  }

  /* Cards have arrived or changed. */
  update() {
    this.isStale = true;
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
    if (this.sticks) scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
    const held = this.pin && rows.has(this.pin.position) ? this.pin : this.anchor();
    const place = () => this.box.getBoundingClientRect().top;
    if (held === this.pin && held) {
      const y = place() + this.heights.sum(rows.get(held.position)) - held.top;
      if (!this.drawn.has(held.position)) scrollBy(0, y);
    }
    const top = -place();
    if (!this.isStale && !this.pin && !this.sticks && this.covers(top)) {
      this.onMove(held);
      return;
    }
    this.isStale = false;
    const first = this.heights.find(Math.max(0, top - NEAR_PX));
    const last = Math.min(first + MOST_ROWS, this.heights.find(Math.max(0, top + innerHeight + NEAR_PX)));
    this.range = { first, last };
    this.exchange(first, last);
    setHeight(this.before, this.heights.sum(first));
    let isMoved = false;
    for (const [position, slot] of this.drawn) {
      const height = slot.getBoundingClientRect().height;
      const row = rows.get(position);
      slot.measuredHeight = height - SLOT_PADDING;
      if (Math.abs(height - this.heights.get(row)) > 0.5) {
        this.heights.set(row, height);
        isMoved = true;
      }
      if (slot.dataset.slot) this.measured.set(position, height);
    }
    setHeight(this.after, Math.max(0, this.heights.total - this.heights.sum(last + 1)));
    if (this.sticks) {
      const from = scrollY;
      scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
      isMoved ||= Math.abs(scrollY - from) > 1;
    } else if (held && this.drawn.has(held.position)) {
      const moved = this.drawn.get(held.position).getBoundingClientRect().top - held.top;
      if (Math.abs(moved) > 0.5) {
        const from = scrollY;
        scrollBy({ top: moved, behavior: "instant" });
        isMoved ||= Math.abs(scrollY - from) > 1;
      }
      if (this.pin?.isSoft) this.pin = null;
    }
    if (isMoved) this.update();
    this.onMove(this.anchor());
  }

  covers(top) {
    if (!this.range) return false;
    const { first, last } = this.range;
    const isAbove = first === 0 || this.heights.sum(first) <= top - LEAST_PX;
    const end = last === this.index.shown.length - 1;
    return isAbove && (end || this.heights.sum(last + 1) >= top + innerHeight + LEAST_PX);
  }

  exchange(first, last) {
    const { index } = this;
    const { shown } = index;
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

  /* Stays at the end until the reader moves. */
  toEnd() {
    this.pin = null;
    this.sticks = true;
    this.update();
  }
}

function setHeight(element, px) {
  const height = `${px}px`;
  if (element.style.height !== height) element.style.height = height;
}

function pad() {
  const element = document.createElement("div");
  element.className = "pad";
  element.setAttribute("aria-hidden", "true");
  return element;
}
