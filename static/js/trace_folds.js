/* Cards that the reader has folded to their head, remembered for this trace until the window is closed. */

export class TraceFolds {
  constructor(name, onChange) {
    this.name = `folds ${name}`;
    this.onChange = onChange;
    this.folded = new Set(read(this.name));
  }

  toggle(seq) {
    this.set(seq, !this.folded.has(seq));
  }

  set(seq, isFolded) {
    if (this.folded.has(seq) === isFolded) return;
    if (isFolded) this.folded.add(seq);
    else this.folded.delete(seq);
    try {
      sessionStorage.setItem(this.name, JSON.stringify([...this.folded]));
    } catch {
      /* Without storage they are forgotten with the page. */
    }
    this.onChange();
  }

  /* `drawn`: slots by position. */
  apply(drawn) {
    for (const slot of drawn.values()) {
      const button = slot.querySelector(":scope > [data-fold]");
      if (!button) continue;
      const isFolded = this.folded.has(Number(slot.dataset.slot));
      if (slot.classList.contains("folded") === isFolded) continue;
      slot.classList.toggle("folded", isFolded);
      button.setAttribute("aria-expanded", String(!isFolded));
    }
  }
}

function read(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name) ?? "[]");
  } catch {
    return [];
  }
}
