/* The trace of a rollout: window, outline, find, kinds, raw view, keys and permalinks, and the live tail. */
import { follow } from "./feed.js";
import { refreshSoon } from "./parts.js";
import { TraceFolds } from "./trace_folds.js";
import { TraceFind } from "./trace_find.js";
import { TraceIndex } from "./trace_index.js";
import { TraceLane } from "./trace_lane.js";
import { TraceOutline } from "./trace_outline.js";
import { CardStore } from "./trace_store.js";
import { TraceWindow } from "./trace_window.js";

export class TraceView {
  constructor(element, json) {
    this.element = element;
    this.index = new TraceIndex(json);
    this.current = null;
    this.isFollowing = false;
    this.part = (name) => element.querySelector(`[data-${name}]`);
    this.readKinds();
    this.store = new CardStore(element.dataset.cardsUrl, () => this.window.update());
    this.window = new TraceWindow(this.part("cards"), this.index, this.store, {
      onMove: (anchor) => this.moved(anchor),
      onRelease: () => this.setFollowing(false),
    });
    this.window.edge = element.querySelector(".trace-tools");
    this.outline = new TraceOutline(element.querySelector(".outline"), this.index, element.dataset.outlineUrl);
    this.lane = new TraceLane(this.part("lane"), this.index, (position) => this.window.go(position));
    this.find = new TraceFind(element, {
      index: this.index,
      go: (position) => this.choose(position),
      whole: (seq) => this.whole(seq),
    });
    element.addEventListener("click", (event) => this.click(event));
    addEventListener("hashchange", () => this.fromAddress());
    this.folds = new TraceFolds(element.dataset.cardsUrl, () => this.window.update());
    this.folds.apply(this.window.drawn);
    document.addEventListener("switchback:key", (event) => this.key(event.detail) && event.preventDefault());
    document.addEventListener("keydown", (event) => this.altKey(event));
    this.part("kinds").addEventListener("change", () => this.chooseKinds());
    this.part("kinds").addEventListener("toggle", () => this.countKinds());
    if (!this.fromAddress()) this.start();
    this.window.update();
    if (element.dataset.ended === undefined) this.follow();
  }

  /* Where the server began: the attempt that counts, or the page that `?from=` names. */
  start() {
    const first = Number(this.element.dataset.first);
    if (first > 0 && new URLSearchParams(location.search).has("from")) {
      this.index.unfold(this.index.shown[first] ?? first);
      this.window.reset();
      this.window.go(first);
    }
  }

  moved(anchor) {
    if (anchor) {
      this.outline.follow(anchor.position);
      this.lane.follow(anchor.position);
    }
    this.mark();
    this.place(anchor);
  }

  mark() {
    this.folds?.apply(this.window.drawn);
    for (const card of this.element.querySelectorAll("[data-cards] .ev.current")) {
      if (Number(card.dataset.seq) !== this.current) card.classList.remove("current");
    }
    const card = this.current && document.getElementById(`e${this.current}`);
    card?.classList.add("current");
    if (card && this.wantsFocus) {
      this.wantsFocus = false;
      card.focus({ preventScroll: true });
    }
    this.find?.mark(this.window.drawn);
  }

  place(anchor) {
    const box = this.part("place");
    const shown = this.index.shown.length;
    const at = anchor ? (this.index.rows.get(anchor.position) ?? 0) + 1 : 0;
    const text = `${at.toLocaleString("en")} of ${shown.toLocaleString("en")}`;
    if (box.firstElementChild.textContent !== text) box.firstElementChild.textContent = text;
  }

  click(event) {
    const link = event.target.closest('a[href^="#e"]');
    const whole = event.target.closest("[data-whole]");
    const attempt = event.target.closest("[data-attempt]");
    const fold = event.target.closest("[data-fold]");
    if (fold) {
      this.folds.toggle(Number(fold.closest("[data-slot]").dataset.slot));
      this.mark();
    } else if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
      const position = this.index.position(Number(link.hash.slice(2)));
      if (position === undefined) return;
      event.preventDefault();
      history.pushState(null, "", link.hash);
      this.closeOutline();
      this.choose(position, { isSilent: true, below: link.closest(".flow") ? undefined : 12 });
    } else if (whole) {
      this.whole(Number(whole.dataset.whole));
    } else if (attempt) {
      event.preventDefault();
      this.toggleAttempt(Number(attempt.dataset.attempt), attempt);
    } else if (event.target.closest("[data-raw]")) {
      this.toggleRaw(event.target.closest("[data-raw]"));
    } else if (event.target.closest("[data-follow]")) {
      this.setFollowing(!this.isFollowing);
    } else if (event.target.closest("[data-outline-toggle]")) {
      const isOpen = this.element.classList.toggle("outline-open");
      this.part("outline-toggle").setAttribute("aria-expanded", String(isOpen));
      this.outline.plan();
      if (isOpen) this.outline.nav.focus();
    } else if (event.target.closest("[data-kinds-all]")) {
      event.preventDefault();
      for (const box of this.part("kinds").querySelectorAll("input")) box.checked = false;
      this.chooseKinds();
    } else if (event.target.closest(".slot") && !getSelection().toString()) {
      const seq = Number(event.target.closest(".slot").dataset.slot);
      if (seq && !event.target.closest("a, button, summary")) this.select(seq);
    }
  }

  closeOutline() {
    this.element.classList.remove("outline-open");
    this.part("outline-toggle").setAttribute("aria-expanded", "false");
  }

  /* Marks an event without moving the page. */
  select(seq) {
    this.current = seq;
    this.outline.choose(this.index.position(seq));
    this.showRaw(seq);
    this.mark();
  }

  choose(position, { isSilent = false, below } = {}) {
    if (this.index.unfold(position)) {
      this.syncKinds();
      this.window.reset();
      this.outline.reset();
      this.lane.reset();
    }
    const seq = this.index.seq(position);
    this.folds?.set(seq, false);
    if (!isSilent) history.replaceState(null, "", `#e${seq}`);
    this.select(seq);
    const slot = this.window.drawn.get(position)?.getBoundingClientRect();
    const isSeen = slot && slot.top > this.window.topEdge && slot.bottom < innerHeight - 40;
    if (!isSeen || below !== undefined) this.window.go(position, { below });
    else this.mark();
  }

  fromAddress() {
    const match = location.hash.match(/^#e(\d+)$/);
    const position = match ? this.index.position(Number(match[1])) : undefined;
    if (position === undefined) return false;
    this.choose(position, { isSilent: true, below: 12 });
    return true;
  }

  altKey(event) {
    if (!(event.altKey || event.metaKey) || event.ctrlKey || !["ArrowUp", "ArrowDown"].includes(event.key)) return;
    if (event.target.closest?.("input, select, textarea")) return;
    this.key(event.key === "ArrowDown" ? "n" : "p");
    event.preventDefault();
  }

  /* Says whether the key did something. */
  key(key) {
    const { shown, rows } = this.index;
    if (!shown.length) return false;
    if (key === "t") return this.swap();
    if (key === "ArrowLeft" || key === "ArrowRight") {
      const scrolls = document.activeElement?.closest("pre, .scroll, [role=tablist]");
      if (!this.current || scrolls) return false;
      this.folds.set(this.current, key === "ArrowLeft");
      this.mark();
      return true;
    }
    let row = this.current ? rows.get(this.index.position(this.current)) : undefined;
    if (row === undefined) {
      const anchor = this.window.anchor();
      row = anchor && scrollY > 0 ? rows.get(anchor.position) : key === "n" ? -1 : 0;
    }
    const next = Math.max(0, Math.min(shown.length - 1, row + (key === "n" ? 1 : -1)));
    this.wantsFocus = true;
    this.choose(shown[next]);
    this.mark();
    return true;
  }

  /* Between the transcript and its outline. */
  swap() {
    const { nav } = this.outline;
    if (nav.contains(document.activeElement)) {
      this.closeOutline();
      this.wantsFocus = true;
      if (this.current) this.choose(this.index.position(this.current), { isSilent: true });
      else nav.blur();
      return true;
    }
    if (!nav.clientHeight) this.part("outline-toggle").click();
    const line = this.current && nav.querySelector(`[data-seq="${this.current}"]`);
    (line ?? nav).focus();
    return true;
  }

  async whole(seq) {
    await this.store.whole(seq).catch(() => null);
    this.window.update();
  }

  toggleAttempt(seq, link) {
    const { openAttempts } = this.index;
    if (!openAttempts.delete(seq)) openAttempts.add(seq);
    link.textContent = openAttempts.has(seq) ? "fold it" : "show it";
    this.showChosen();
  }

  showChosen() {
    this.index.choose();
    this.window.reset();
    this.outline.reset();
    this.lane.reset();
    this.window.update();
    this.part("none").hidden = this.index.shown.length > 0;
  }

  toggleRaw(button) {
    const isRaw = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(isRaw));
    this.store.clear(isRaw ? "&raw=1" : "");
    this.window.measured.clear();
    this.window.reset();
    this.window.update();
  }

  async showRaw(seq) {
    const box = this.element.querySelector("[data-raw-event]");
    if (!box || box.dataset.seq === String(seq)) return;
    box.dataset.seq = seq;
    const url = this.element.dataset.eventUrl.replace(/0\/$/, `${seq}/?as=raw`);
    const answer = await fetch(url, { credentials: "same-origin" }).catch(() => null);
    if (answer?.ok && box.dataset.seq === String(seq)) box.innerHTML = await answer.text();
  }

  readKinds() {
    const chosen = new URLSearchParams(location.search).getAll("kind");
    this.index.kindsShown = chosen.length ? new Set(chosen) : null;
    if (chosen.length) this.index.choose();
  }

  chooseKinds() {
    const chosen = [...this.part("kinds").querySelectorAll("input:checked")].map((box) => box.value);
    this.index.kindsShown = chosen.length ? new Set(chosen) : null;
    this.syncKinds();
    this.showChosen();
  }

  /* What the menu says of each kind is what the trace has now. */
  countKinds() {
    const menu = this.part("kinds");
    const list = menu.querySelector("ul");
    for (const [kind, n] of this.index.counts()) {
      let count = [...menu.querySelectorAll("[data-kind-count]")].find((one) => one.dataset.kindCount === kind);
      if (!count) {
        const row = document.createElement("li");
        row.innerHTML = '<label><input type="checkbox" name="kind"> <span dir="auto"></span> <span class="faint num"></span></label>';
        row.querySelector("input").value = kind;
        row.querySelector("[dir]").textContent = kind.replaceAll("_", " ");
        count = row.querySelector(".num");
        count.dataset.kindCount = kind;
        list.append(row);
      }
      count.textContent = n.toLocaleString("en");
    }
  }

  syncKinds() {
    const { kindsShown } = this.index;
    const query = new URLSearchParams();
    for (const kind of kindsShown ?? []) query.append("kind", kind);
    history.replaceState(null, "", `${location.pathname}${kindsShown ? `?${query}` : ""}${location.hash}`);
    const word = this.element.querySelector("[data-kinds-word]");
    if (word) word.textContent = kindsShown ? `${kindsShown.size} kind${kindsShown.size === 1 ? "" : "s"}` : "all";
    for (const box of this.part("kinds").querySelectorAll("input")) box.checked = kindsShown?.has(box.value) ?? false;
  }

  /* --- the live tail --- */

  follow() {
    const feed = follow(this.element, (events) => {
      const isAtEnd = this.isFollowing || (this.window.isAtEnd() && scrollY > 0);
      let isCut = false;
      let isOutside = false;
      for (const event of events) {
        this.index.push(event.kind, JSON.stringify(event.payload).length);
        if (event.kind === "rollout.restarted") isCut = true;
        if (event.kind === "outside") isOutside = true;
        if (event.kind === "verdict") this.store.drop(event.payload.cites ?? []);
        if (["rollout.ended", "verdict", "rollout.restarted"].includes(event.kind)) refreshSoon();
        if (event.kind === "rollout.ended") feed.end();
      }
      if (isOutside) this.reorder();
      else this.grown(isCut, isAtEnd);
    });
  }

  grown(isCut, isAtEnd) {
    const before = this.index.shown.length;
    this.index.choose();
    const added = this.index.shown.length - before;
    if (isCut) this.showChosen();
    else if (added > 0) this.window.grown(added);
    this.outline.reset();
    this.lane.reset();
    this.part("none").hidden = this.index.shown.length > 0;
    if (isAtEnd) this.window.toEnd();
  }

  /* A trace in its producer's order: what came may belong between what is here. */
  async reorder() {
    this.isAsked = true;
    if (this.isReading) return;
    this.isReading = true;
    while (this.isAsked) {
      this.isAsked = false;
      const answer = await fetch(this.element.dataset.indexUrl, { credentials: "same-origin" }).catch(() => null);
      if (!answer?.ok) break;
      const isAtEnd = this.isFollowing || (this.window.isAtEnd() && scrollY > 0);
      this.index.read(await answer.json());
      this.showChosen();
      if (isAtEnd) this.window.toEnd();
    }
    this.isReading = false;
  }

  setFollowing(isOn) {
    this.isFollowing = isOn;
    const button = this.part("follow");
    button?.setAttribute("aria-pressed", String(isOn));
    if (isOn) this.window.toEnd();
    else this.window.sticks = false;
  }
}
