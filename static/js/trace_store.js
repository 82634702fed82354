/* Cards as the server drew them, by event. Each is fetched once; what is asked for last comes first. */

const AT_ONCE = 40;
const KEPT = 4000;

export class CardStore {
  constructor(url, onArrival) {
    this.url = url;
    this.onArrival = onArrival;
    this.cards = new Map();
    this.wanted = [];
    this.isBusy = false;
    this.options = "";
    this.generation = 0;
  }

  get(seq) {
    const card = this.cards.get(seq);
    if (card) {
      this.cards.delete(seq);
      this.cards.set(seq, card);
    }
    return card;
  }

  has(seq) {
    return this.cards.has(seq);
  }

  put(card) {
    this.cards.set(Number(card.dataset.slot), card);
    for (const [seq, old] of this.cards) {
      if (this.cards.size <= KEPT) break;
      if (!old.isConnected) this.cards.delete(seq);
    }
  }

  drop(seqs) {
    for (const seq of seqs) this.cards.delete(seq);
  }

  clear(options) {
    this.cards.clear();
    this.options = options;
    this.generation += 1;
  }

  want(seqs) {
    this.wanted = seqs.filter((seq) => !this.cards.has(seq));
    this.work();
  }

  async work() {
    if (this.isBusy) return;
    this.isBusy = true;
    let failures = 0;
    while (this.wanted.length && failures < 4) {
      const seqs = this.wanted.slice(0, AT_ONCE);
      const generation = this.generation;
      try {
        const cards = await this.fetch(seqs);
        if (generation !== this.generation) continue;
        failures = cards.length ? 0 : failures + 1;
        for (const card of cards) this.put(card);
        this.wanted = this.wanted.filter((seq) => !this.cards.has(seq));
        this.onArrival();
      } catch {
        failures += 1;
        await new Promise((resolve) => setTimeout(resolve, 500 * failures));
      }
    }
    this.isBusy = false;
  }

  async fetch(seqs, more = "") {
    const answer = await fetch(`${this.url}?seqs=${ranges(seqs)}${this.options}${more}`, { credentials: "same-origin" });
    if (!answer.ok) throw new Error(answer.statusText);
    const box = document.createElement("template");
    box.innerHTML = await answer.text();
    return [...box.content.querySelectorAll("[data-slot]")];
  }

  /* The card with nothing left out, in the place of the one that is here. */
  async whole(seq) {
    const [card] = await this.fetch([seq], "&whole=1");
    if (card) {
      this.cards.get(seq)?.replaceWith(card);
      this.put(card);
    }
    return card;
  }
}

export function ranges(seqs) {
  const sorted = [...seqs].sort((a, b) => a - b);
  const parts = [];
  for (let i = 0; i < sorted.length; ) {
    let j = i;
    while (sorted[j + 1] === sorted[j] + 1) j += 1;
    parts.push(i === j ? `${sorted[i]}` : `${sorted[i]}-${sorted[j]}`);
    i = j + 1;
  }
  return parts.join(",");
}
