/* The skeleton of a trace: kind and size of every event, by position; and which of them are shown. */

const LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const NUMBER = new Map([...LETTERS].map((letter, i) => [letter, i]));
const RESTART = "rollout.restarted";

export class TraceIndex {
  constructor(json) {
    this.read(json);
    this.kindsShown = null;
    this.openAttempts = new Set();
    this.choose();
  }

  read(json) {
    this.kinds = json.kinds;
    this.codes = [...json.codes].map((letter) => NUMBER.get(letter));
    this.sizes = [...json.sizes].map((letter) => NUMBER.get(letter));
    this.seqs = json.seqs;
    this.depths = json.depths;
    this.places = json.seqs ? new Map(json.seqs.map((seq, i) => [seq, i])) : null;
  }

  get length() {
    return this.codes.length;
  }

  seq(position) {
    return this.seqs ? this.seqs[position] : position + 1;
  }

  position(seq) {
    const position = this.places ? this.places.get(seq) : seq - 1;
    return position >= 0 && position < this.length ? position : undefined;
  }

  kind(position) {
    return this.kinds[this.codes[position]];
  }

  depth(position) {
    return this.depths ? NUMBER.get(this.depths[position]) : 0;
  }

  push(kind, characters) {
    let code = this.kinds.indexOf(kind);
    if (code < 0) code = this.kinds.push(kind) - 1;
    this.codes.push(code);
    this.sizes.push(Math.min(61, Math.round(4 * Math.log2(1 + characters / 64))));
  }

  counts() {
    const counts = new Map();
    for (const code of this.codes) counts.set(this.kinds[code], (counts.get(this.kinds[code]) ?? 0) + 1);
    return counts;
  }

  /* `shown`: positions that are drawn. Attempts that were cut off are folded until they are opened. */
  choose() {
    const restart = this.kinds.indexOf(RESTART);
    const shown = [];
    let attempt = [];
    for (let i = 0; i < this.length; i += 1) {
      if (this.codes[i] === restart && !this.openAttempts.has(this.seq(i))) attempt = [];
      else if (this.codes[i] === restart) {
        shown.push(...attempt);
        attempt = [];
      }
      if (!this.kindsShown || this.kindsShown.has(this.kind(i)) || this.codes[i] === restart) {
        (this.codes[i] === restart ? shown : attempt).push(i);
      }
    }
    for (const position of attempt) shown.push(position);
    this.shown = shown;
    this.rows = new Map(shown.map((position, row) => [position, row]));
  }

  /* Opens the folded attempt that a position is in, and says whether it had to. */
  unfold(position) {
    if (this.rows.has(position)) return false;
    const restart = this.kinds.indexOf(RESTART);
    const end = this.codes.indexOf(restart, position);
    if (end >= 0) this.openAttempts.add(this.seq(end));
    if (this.kindsShown && !this.kindsShown.has(this.kind(position))) this.kindsShown = null;
    this.choose();
    return true;
  }

  /* An estimate in px until the card has been measured. */
  height(position) {
    const kind = this.kind(position);
    if (kind === "verdict" || kind === "waiting" || kind === "told" || kind === "final_state") return 48;
    const characters = 64 * (2 ** (this.sizes[position] / 4) - 1);
    return 60 + 23 * Math.min(20, Math.max(1, Math.round((characters - 160) / 70)));
  }
}
